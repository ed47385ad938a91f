package access_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/protocol"
	"parley/internal/simnet"
	"parley/mcp"
	"parley/mcp/access"
)

const (
	deviceA protocol.DeviceID = "a0:85:e3:f4:49:34"
	deviceB protocol.DeviceID = "a0:85:e3:f4:49:35"
)

func key() []byte { return []byte("0123456789abcdef0123456789abcdef") }

// A logbook keeps what is logged.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// A world is an access point behind an HTTP server with the limits of Parley's, on
// a simulated network.
type world struct {
	t        *testing.T
	net      *simnet.Network
	addr     netip.AddrPort
	point    *access.Point
	counters *access.Counters
	log      *logbook
}

func newWorld(t *testing.T, cfg access.Config) *world {
	t.Helper()
	w := &world{t: t, net: simnet.New(1), log: &logbook{}, counters: new(access.Counters)}
	cfg.Key, cfg.Counters, cfg.Version = key(), w.counters, "1.2.3"
	var err error
	if w.point, err = access.New(cfg, slog.New(slog.NewTextHandler(w.log, nil))); err != nil {
		t.Fatal(err)
	}
	w.addr = netip.MustParseAddrPort("10.0.0.1:8003")
	l, err := w.net.ListenTCP(w.addr)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, pattern := range access.Patterns() {
		mux.Handle(pattern, w.point)
	}
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute, ErrorLog: slog.NewLogLogger(slog.NewTextHandler(w.log, nil), slog.LevelError),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		w.point.Close()
		_ = server.Close()
		serving.Wait()
		if regexp.MustCompile(`pa1\.\w`).MatchString(w.log.String()) {
			t.Errorf("a token is in the log:\n%s", w.log)
		}
	})
	return w
}

func mint(t *testing.T, s access.Scope) string {
	t.Helper()
	token, err := access.Mint(key(), s)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// A refusal is what the access point said instead of opening a WebSocket.
type refusal struct {
	status    int
	challenge string // the header WWW-Authenticate
	body      string
}

// dial opens a WebSocket from an address of a home.
func (w *world) dial(path, token string) (*websocket.Conn, *simnet.TCPConn, refusal, error) {
	var tcp *simnet.TCPConn
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := w.net.DialTCP(ctx, netip.MustParseAddr("10.0.0.2"), w.addr, simnet.Path{}, simnet.Path{})
		tcp = c
		return c, err
	}}
	defer transport.CloseIdleConnections()
	ws, resp, err := websocket.Dial(w.t.Context(), "ws://parley.lan:8003"+path+"?token="+token,
		&websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err == nil {
		ws.SetReadLimit(16 << 20)
		return ws, tcp, refusal{}, nil
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(resp.Body)
	return nil, tcp, refusal{resp.StatusCode, resp.Header.Get("WWW-Authenticate"), strings.TrimSpace(string(said))}, err
}

// open is dial for a token that is good.
func (w *world) open(token string) (*websocket.Conn, *simnet.TCPConn) {
	w.t.Helper()
	ws, tcp, _, err := w.dial("/mcp_endpoint/mcp/", token)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ws.CloseNow() })
	return ws, tcp
}

// A pipe does what mcp_pipe.py does: each message of the WebSocket is written to a
// stdio server as a line, and each line the server prints becomes a message, its
// line feed included.
type pipe struct {
	ws  *websocket.Conn
	tcp *simnet.TCPConn

	done chan struct{} // closed when the WebSocket has ended, for err
	err  error
}

// lend connects with token and lends server's tools.
func (w *world) lend(token string, server *sdk.Server) *pipe {
	w.t.Helper()
	p := &pipe{done: make(chan struct{})}
	p.ws, p.tcp = w.open(token)
	p.run(w.t, server)
	synctest.Wait()
	return p
}

func (p *pipe) run(t *testing.T, server *sdk.Server) {
	stdin, toServer := io.Pipe()
	fromServer, stdout := io.Pipe()
	ctx := context.Background()
	var parts sync.WaitGroup
	parts.Go(func() {
		_ = server.Run(ctx, &sdk.IOTransport{Reader: stdin, Writer: stdout})
		_ = stdout.Close()
	})
	parts.Go(func() {
		lines := bufio.NewReader(fromServer)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			if p.ws.Write(ctx, websocket.MessageText, line) != nil {
				_, _ = io.Copy(io.Discard, fromServer)
				return
			}
		}
	})
	parts.Go(func() {
		defer close(p.done)
		defer toServer.Close()
		for {
			_, message, err := p.ws.Read(ctx)
			if err != nil {
				p.err = err
				return
			}
			_, _ = toServer.Write(append(message, '\n'))
		}
	})
	t.Cleanup(func() {
		p.ws.CloseNow()
		parts.Wait()
	})
}

// drop breaks the connection off without a word.
func (p *pipe) drop() {
	p.tcp.Close()
	p.ws.CloseNow()
	synctest.Wait()
}

// blackHole loses everything both ways from now on, as a router does that was
// unplugged.
func (p *pipe) blackHole() { p.tcp.SetPaths(simnet.Path{Loss: 1}, simnet.Path{Loss: 1}) }

// ended waits for the end of the connection and returns what the peer was told.
func (p *pipe) ended(t *testing.T) websocket.CloseError {
	t.Helper()
	<-p.done
	var e websocket.CloseError
	if !errors.As(p.err, &e) {
		t.Errorf("the connection ended without a reason: %v", p.err)
	}
	return e
}

// calculator is the server of the tutorial: one tool, calculator, which this one
// has multiply two numbers. delay is how long it thinks.
func calculator(delay time.Duration) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "Calculator", Version: "1.26.0"}, nil)
	type in struct {
		Expression string `json:"python_expression"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "calculator", Description: "Calculate an expression."},
		func(ctx context.Context, _ *sdk.CallToolRequest, in in) (*sdk.CallToolResult, any, error) {
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
			x, y, ok := strings.Cut(in.Expression, "*")
			a, err1 := strconv.Atoi(strings.TrimSpace(x))
			b, err2 := strconv.Atoi(strings.TrimSpace(y))
			text := `{"success": false, "error": "invalid syntax"}`
			if ok && err1 == nil && err2 == nil {
				text = fmt.Sprintf(`{"success": true, "result": %d}`, a*b)
			}
			return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}}, nil, nil
		})
	return server
}

// tells is a server called name whose tools answer with word and their own names.
func tells(name, word string, tools ...string) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: name, Version: "1"}, nil)
	for _, tool := range tools {
		server.AddTool(&sdk.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: word + ":" + tool}}}, nil
			})
	}
	return server
}

// conversation is what the session makes once for each conversation.
func (w *world) conversation(device protocol.DeviceID, role string) *mcp.Set {
	w.t.Helper()
	set, err := mcp.NewSet(mcp.Rules{}, mcp.Member{Label: "endpoint", Source: w.point.For(device, role)})
	if err != nil {
		w.t.Fatal(err)
	}
	return set
}

func names(set *mcp.Set) string {
	var all []string
	for _, tool := range set.Tools() {
		all = append(all, tool.Name)
	}
	return strings.Join(all, " ")
}

// answer calls a tool without arguments and returns its text, or the error's.
func answer(t *testing.T, set *mcp.Set, tool string) string {
	t.Helper()
	set.Tools()
	res, err := set.Call(t.Context(), tool, nil)
	if err != nil {
		return err.Error()
	}
	return res.Text
}

func multiply(t *testing.T, set *mcp.Set, tool string) {
	t.Helper()
	set.Tools()
	res, err := set.Call(t.Context(), tool, json.RawMessage(`{"python_expression":"656 * 502"}`))
	if err != nil || res.IsError || res.Text != `{"success": true, "result": 329312}` {
		t.Errorf("%s: %+v, %v", tool, res, err)
	}
}
