package pipe

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/url"
	"sync"
	"time"

	"parley/mcp"
	"parley/mcp/servers"
)

const (
	// firstPause is the pause before the second attempt; it doubles up to
	// lastPause. Both are mcp_pipe.py's.
	firstPause = time.Second
	lastPause  = 600 * time.Second
	// goodAfter is how long a connection must last for the next pause to be the
	// first again. A program that fails at once would else be started every second.
	goodAfter = time.Minute
	// dialTimeout bounds connecting, TLS and the answer to it included.
	dialTimeout = 20 * time.Second
	// pingEvery and pingTimeout find out that the access point is gone. They are
	// those of the Python library mcp_pipe.py uses.
	pingEvery   = 20 * time.Second
	pingTimeout = 20 * time.Second
	// writeTimeout is how long either side may take to accept a message.
	writeTimeout = 10 * time.Second
	// farewell is how long a WebSocket may take to be closed.
	farewell = 5 * time.Second
	// maxUp bounds a message to the access point in bytes: what Parley's takes,
	// and the default of the libraries others are made with.
	maxUp = 1 << 20
	// maxDown bounds a message from it, in bytes.
	maxDown = mcp.DefaultMessageLimit
)

// Run lends the servers of cfg until ctx ends, and then returns nil, when their
// programs are gone. It returns an error at once if cfg is wrong, and none for what
// fails later: that is logged, and tried again.
func Run(ctx context.Context, cfg Config, log *slog.Logger) error {
	endpoint, err := parseEndpoint(cfg.Endpoint)
	if err != nil {
		return err
	}
	enabled, err := cfg.enabled()
	if err != nil {
		return err
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	var lent sync.WaitGroup
	for _, s := range enabled {
		l := &lender{cfg: cfg, endpoint: endpoint, server: s, log: log.With("server", s.Name)}
		lent.Go(func() { l.run(ctx) }) // ends with ctx
	}
	lent.Wait()
	return nil
}

// A lender lends one server, over one connection after the other.
type lender struct {
	cfg      Config
	endpoint *url.URL
	server   servers.Config
	log      *slog.Logger
}

func (l *lender) run(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		began := time.Now()
		err := l.lend(ctx)
		if ctx.Err() != nil {
			return
		}
		lasted := time.Since(began)
		if lasted >= goodAfter {
			pause = firstPause
		}
		l.log.Warn("mcp server is not lent, trying again", "endpoint", label(l.endpoint),
			"reason", hide(err, l.endpoint), "lasted_s", int(lasted.Seconds()), "retry_s", int(pause.Seconds()))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// An end is one side of a connection, where whole messages come from and go to.
// One goroutine reads and one writes.
type end interface {
	// read returns the next message.
	read() ([]byte, error)
	// write takes a message, within 10 seconds.
	write(message []byte) error
	// close ends read and write, and returns when nothing of the end is left.
	close()
}

// lend holds one connection and returns why it ended, when all of it is gone.
func (l *lender) lend(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	point, err := l.dial(ctx)
	if err != nil {
		return err
	}
	server, err := l.open(ctx)
	if err != nil {
		point.reason = "the server could not be started"
		point.close()
		return err
	}
	l.log.Info("mcp server is lent", "endpoint", label(l.endpoint))
	var tasks sync.WaitGroup
	// Each ends when either end does: the first to return has both closed.
	tasks.Go(func() { cancel(carry(server, point)) })
	tasks.Go(func() { cancel(carry(point, server)) })
	tasks.Go(func() { cancel(point.watch(ctx)) })
	<-ctx.Done()
	point.reason = "the server is not lent any more"
	// Each takes its time, and neither must wait for the other.
	tasks.Go(point.close)
	server.close()
	tasks.Wait()
	return context.Cause(ctx)
}

// carry copies messages until one side fails, and returns that side's error.
func carry(to, from end) error {
	for {
		message, err := from.read()
		if err != nil {
			return err
		}
		if err := to.write(message); err != nil {
			return err
		}
	}
}

// readable returns a message as one line, and reports false for what is none.
func readable(text []byte) ([]byte, bool) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 || text[0] != '{' && text[0] != '[' || !json.Valid(text) {
		return nil, false
	}
	if bytes.ContainsAny(text, "\r\n") {
		var line bytes.Buffer
		if json.Compact(&line, text) != nil {
			return nil, false
		}
		text = line.Bytes()
	}
	return text, true
}
