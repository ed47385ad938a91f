package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"
)

// A socket is the access point's end.
type socket struct {
	ws     *websocket.Conn
	raw    net.Conn
	reason string // the access point is told; set before close
	log    *slog.Logger
}

// dial connects to the access point. It goes there straight, as mcp_pipe.py does:
// few proxies pass WebSockets.
func (l *lender) dial(ctx context.Context) (*socket, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	s := &socket{log: l.log}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = nil
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := l.cfg.Dial(ctx, network, address)
		s.raw = conn
		return conn, err
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // the token is for this host
	}}
	ws, resp, err := websocket.Dial(ctx, l.endpoint.String(), &websocket.DialOptions{HTTPClient: client})
	switch {
	case err == nil:
		s.ws = ws
		ws.SetReadLimit(maxDown)
		return s, nil
	case resp != nil && resp.StatusCode != http.StatusSwitchingProtocols:
		defer resp.Body.Close()
		return nil, refusal(resp)
	}
	return nil, fmt.Errorf("no access point there: %w", err)
}

// refusal is what an access point said instead of opening a WebSocket.
func refusal(resp *http.Response) error {
	said, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // in memory
	line, _, _ := strings.Cut(strings.TrimSpace(string(said)), "\n")
	if line = strings.ToValidUTF8(line, "?"); line == "" || strings.HasPrefix(line, "<") {
		return fmt.Errorf("the access point refuses: %s", resp.Status)
	}
	return fmt.Errorf("the access point refuses: %s: %s", resp.Status, line)
}

// read implements end. What is no message is passed over.
func (s *socket) read() ([]byte, error) {
	for {
		_, text, err := s.ws.Read(context.Background())
		if err != nil {
			if e, ok := errors.AsType[websocket.CloseError](err); ok {
				return nil, fmt.Errorf("the access point closed the connection: %d %s", e.Code, e.Reason)
			}
			return nil, fmt.Errorf("the access point is gone: %w", err)
		}
		if message, ok := readable(text); ok {
			return message, nil
		}
	}
}

// write implements end. A message the access point would close the connection over
// is left out, and whoever waits for it finds its time over.
func (s *socket) write(message []byte) error {
	if len(message) > maxUp {
		s.log.Warn("a message of the mcp server is too long and was left out", "bytes", len(message), "limit_bytes", maxUp)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	if err := s.ws.Write(ctx, websocket.MessageText, message); err != nil {
		return fmt.Errorf("the access point takes no message: %w", err)
	}
	return nil
}

// watch asks the access point now and then whether it is there, until it does not
// answer or ctx ends.
func (s *socket) watch(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pingEvery):
		}
		ping, cancel := context.WithTimeout(ctx, pingTimeout)
		err := s.ws.Ping(ping)
		cancel()
		if err != nil {
			return fmt.Errorf("the access point does not answer a ping: %w", err)
		}
	}
}

// close implements end.
func (s *socket) close() {
	// The WebSocket library bounds its waiting, but not for the rest of a frame
	// that the other side has begun.
	_ = s.raw.SetDeadline(time.Now().Add(farewell))
	_ = s.ws.Close(websocket.StatusGoingAway, s.reason)
}
