package pipe

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"parley/mcp/servers"
)

// open starts the server, or a session with it.
func (l *lender) open(ctx context.Context) (end, error) {
	if l.server.URL != "" {
		return l.openRemote(ctx)
	}
	cfg := l.server
	cfg.Env = environment(cfg.Env)
	process, err := servers.StartProcess(cfg, l.cfg.Guard, nil, l.log)
	if err != nil {
		return nil, err
	}
	return &program{process: process, out: bufio.NewReaderSize(process.Out, 64<<10), log: l.log}, nil
}

// A program is the end that a stdio server is.
type program struct {
	process *servers.Process
	out     *bufio.Reader
	log     *slog.Logger
}

// read implements end. What is no message is passed over.
func (p *program) read() ([]byte, error) {
	for {
		line, err := p.line()
		if message, ok := readable(line); ok {
			return message, nil
		}
		if len(bytes.TrimSpace(line)) > 0 {
			p.log.Debug("mcp server prints what is no message", "bytes", len(line))
		}
		if err != nil {
			return nil, p.ended(err)
		}
	}
}

// line returns the next line, nothing of one that is too long for a message.
func (p *program) line() ([]byte, error) {
	var line []byte
	for size := 0; ; {
		part, err := p.out.ReadSlice('\n')
		if size += len(part); size <= maxUp {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if size > maxUp {
			p.log.Warn("a message of the mcp server is too long and was left out", "bytes", size, "limit_bytes", maxUp)
			return nil, err
		}
		return line, err
	}
}

// ended says why reading or writing failed: if the program has ended, how it did.
func (p *program) ended(err error) error {
	select {
	case <-p.process.Done():
		if err := p.process.Err(); err != nil {
			return fmt.Errorf("the program ended: %w", err)
		}
		return errors.New("the program ended")
	case <-time.After(time.Second):
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the program closed its output")
	}
	return fmt.Errorf("the program takes no message: %w", err)
}

// write implements end: the program gets a line. One that does not read within 10
// seconds is ended, because half a message would spoil all that follow.
func (p *program) write(message []byte) error {
	stalled := time.AfterFunc(writeTimeout, func() { _ = p.process.In.Close() })
	_, err := p.process.In.Write(append(message, '\n'))
	if !stalled.Stop() {
		return fmt.Errorf("the program has read nothing for %v", writeTimeout)
	}
	if err != nil {
		return p.ended(err)
	}
	return nil
}

// close implements end. It takes up to 4 seconds, for a program that has to be
// killed.
func (p *program) close() { p.process.Stop() }
