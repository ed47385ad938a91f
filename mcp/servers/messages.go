package servers

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"

	"golang.org/x/time/rate"

	"parley/internal/program"
)

// Limits on what a program's messages may take of the log.
const (
	// maxLine is what is kept of one line, in bytes.
	maxLine = 1 << 10
	// linesPerSecond and lineBurst leave room for a traceback and stop a
	// program that logs each request of its own.
	linesPerSecond = 10
	lineBurst      = 100
)

// pour copies a program's messages to the log, a line each, until r ends. What
// the log has no room for is counted in dropped, and said when there is room.
func pour(r io.Reader, dropped *atomic.Uint64, log *slog.Logger) {
	var unsaid uint64
	limit := rate.NewLimiter(linesPerSecond, lineBurst)
	lines := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := readLine(lines)
		switch {
		case line == "":
		case limit.Allow():
			if unsaid > 0 {
				log.Info("mcp server's messages left out", "lines", unsaid)
				unsaid = 0
			}
			log.Info("mcp server says", "line", line)
		default:
			unsaid++
			dropped.Add(1)
		}
		if err != nil {
			if unsaid > 0 {
				log.Info("mcp server's messages left out", "lines", unsaid)
			}
			return
		}
	}
}

// readLine returns the next line fit for a log, cut to r's size. An empty line
// with no error is one of which nothing is left.
func readLine(r *bufio.Reader) (string, error) {
	text, err := r.ReadSlice('\n')
	line := program.OneLine(strings.ToValidUTF8(string(text), "\uFFFD"))
	for errors.Is(err, bufio.ErrBufferFull) { // the rest of a long line
		_, err = r.ReadSlice('\n')
	}
	return line, err
}
