package mcp

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// DefaultMessageLimit bounds one message of a server in bytes: pictures of
// [DefaultImageLimit] in base64, and as much of everything else.
const DefaultMessageLimit = 4 << 20

// writeTimeout is how long a server may leave its input unread before the
// session ends. What it does not read holds up every other message to it.
const writeTimeout = 10 * time.Second

// maxRubbish bounds, in bytes, what is shown of a line that is no message.
const maxRubbish = 512

// Lines is a transport of newline-delimited JSON-RPC over a pair of streams,
// such as a program's output and input. Unlike the SDK's it survives what a
// program prints beside its messages: a line that is none, or is longer than the
// limit, is skipped to its end and counted in the counters of the [Client] that
// uses it.
type Lines struct {
	// Rubbish, if set before the transport is used, is given each line that is
	// no message, cut to 512 bytes of valid UTF-8. It is called by the reader,
	// which waits for it.
	Rubbish func(line string)

	r        io.ReadCloser
	w        io.WriteCloser
	limit    int
	counters *ClientCounters
}

// LineTransport returns a transport that reads messages of at most limit bytes
// ([DefaultMessageLimit] where limit is not positive) from r and writes to w.
// Closing the session closes both, which must end a Read or Write in progress. A
// write that takes longer than 10 s closes them, too.
func LineTransport(r io.ReadCloser, w io.WriteCloser, limit int) *Lines {
	if limit <= 0 {
		limit = DefaultMessageLimit
	}
	return &Lines{r: r, w: w, limit: limit, counters: new(ClientCounters), Rubbish: func(string) {}}
}

// Connect implements [sdk.Transport].
func (l *Lines) Connect(context.Context) (sdk.Connection, error) {
	return &lineConn{Lines: l, in: bufio.NewReaderSize(l.r, 32<<10), writing: make(chan struct{}, 1)}, nil
}

// count makes the transport count in c.
func (l *Lines) count(c *ClientCounters) { l.counters = c }

// A lineConn is the connection of a Lines.
type lineConn struct {
	*Lines
	in      *bufio.Reader
	writing chan struct{} // capacity 1; full while somebody writes
	closing sync.Once
	err     error // of closing
}

// SessionID implements [sdk.Connection].
func (c *lineConn) SessionID() string { return "" }

// Close implements [sdk.Connection].
func (c *lineConn) Close() error {
	c.closing.Do(func() { c.err = errors.Join(c.w.Close(), c.r.Close()) })
	return c.err
}

// Read implements [sdk.Connection]. It ends with the stream, and with Close.
func (c *lineConn) Read(context.Context) (jsonrpc.Message, error) {
	for {
		line, err := c.readLine()
		if len(line) > 0 {
			msg, bad := DecodeMessage(line)
			if bad == nil {
				return msg, nil
			}
			c.counters.Malformed.Add(1)
			c.Rubbish(plain(string(line[:min(len(line), maxRubbish)]), maxRubbish))
		}
		if err != nil {
			return nil, err
		}
	}
}

// readLine reads a line without the space around it; of one that is too long
// nothing is left. The caller owns it.
func (c *lineConn) readLine() ([]byte, error) {
	var line []byte
	fits := true
	for {
		part, err := c.in.ReadSlice('\n')
		if fits = fits && len(line)+len(part) <= c.limit+1; fits {
			line = append(line, part...)
		} else {
			line = nil
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if !fits {
			c.counters.TooLarge.Add(1)
		}
		return bytes.TrimSpace(line), err
	}
}

// Write implements [sdk.Connection]. The context of a single message counts
// until the message is being written: half a message would spoil all that follow.
func (c *lineConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	stalled := time.AfterFunc(writeTimeout, func() { _ = c.Close() })
	_, err = c.w.Write(append(data, '\n'))
	if !stalled.Stop() {
		return fmt.Errorf("the server has read nothing for %v", writeTimeout)
	}
	return err
}
