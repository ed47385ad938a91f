package mcp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"parley/mcp"
)

// A fakeServer is an MCP server at the far end of a pair of pipes, as a program
// is. It greets as servers of 2024 do, offers tools, and answers calls with the
// tool's name; a test may put any answer in place of those.
type fakeServer struct {
	t     *testing.T
	tools []string // JSON of each tool
	// answer, if set, returns the lines to send for a request, false for the
	// usual ones. It runs on the server's one goroutine.
	answer func(m wireMessage) ([]string, bool)

	in  *io.PipeReader
	out *io.PipeWriter

	mu  sync.Mutex // guards log, and tools and answer once it runs
	log []wireMessage
}

// A served is one run of Client.Serve against a fakeServer.
type served struct {
	*fakeServer
	client *mcp.Client
	stop   context.CancelFunc
	done   chan struct{} // closed when Serve has returned
	err    error         // what it returned
}

// serve runs one session of client with s until the test ends.
func serve(t *testing.T, client *mcp.Client, s *fakeServer) *served {
	t.Helper()
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	s.t, s.in, s.out = t, toServer, fromServer
	ctx, cancel := context.WithCancel(t.Context())
	v := &served{fakeServer: s, client: client, stop: cancel, done: make(chan struct{})}
	var running sync.WaitGroup
	running.Go(s.run)
	running.Go(func() {
		defer close(v.done)
		v.err = client.Serve(ctx, mcp.LineTransport(toClient, fromClient, 1<<20))
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return v
}

// ready waits, in virtual time, for what the session does by itself.
func (v *served) ready() {
	v.t.Helper()
	synctest.Wait()
	if !v.client.Ready() {
		v.t.Fatalf("the client is not ready; Serve: %v", v.err)
	}
}

// send writes lines to the client, as far as it reads them.
func (s *fakeServer) send(lines ...string) {
	for _, line := range lines {
		if _, err := io.WriteString(s.out, line+"\n"); err != nil {
			return
		}
	}
}

// run reads requests until the client closes.
func (s *fakeServer) run() {
	defer s.out.Close()
	lines := bufio.NewScanner(s.in)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m wireMessage
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			s.t.Errorf("the client sent %q", lines.Text())
			continue
		}
		s.mu.Lock()
		s.log = append(s.log, m)
		tools, answer := s.tools, s.answer
		s.mu.Unlock()
		lines, ok := []string(nil), false
		if answer != nil {
			lines, ok = answer(m)
		}
		if !ok {
			lines = usual(m, tools)
		}
		s.send(lines...)
	}
}

// become changes what the server offers and answers, if not nil.
func (s *fakeServer) become(tools []string, answer func(wireMessage) ([]string, bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if tools != nil {
		s.tools = tools
	}
	if answer != nil {
		s.answer = answer
	}
}

// usually answers nothing in place of the usual.
func usually(wireMessage) ([]string, bool) { return nil, false }

func usual(m wireMessage, tools []string) []string {
	if m.ID == nil || m.Method == "" {
		return nil
	}
	var result string
	switch m.Method {
	case "initialize":
		result = `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"fake","version":"1"}}`
	case "tools/list":
		result = `{"tools":[` + strings.Join(tools, ",") + `]}`
	case "tools/call":
		var p struct{ Name string }
		_ = json.Unmarshal(m.Params, &p)
		result = fmt.Sprintf(`{"content":[{"type":"text","text":%q}]}`, p.Name)
	default:
		return []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)}
	}
	return []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)}
}

// methods is what the client has sent so far; answers of its own are "".
func (s *fakeServer) methods() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, m := range s.log {
		all = append(all, m.Method)
	}
	return strings.Join(all, " ")
}

func (s *fakeServer) sent(method string) (found []wireMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.log {
		if m.Method == method {
			found = append(found, m)
		}
	}
	return found
}

// toolsNamed are tools without arguments.
func toolsNamed(names ...string) (tools []string) {
	for _, n := range names {
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"d","inputSchema":{"type":"object"}}`, n))
	}
	return tools
}

// insteadOf answers one method with fixed lines, in which %d is the request's id.
func insteadOf(method string, lines ...string) func(wireMessage) ([]string, bool) {
	return func(m wireMessage) ([]string, bool) {
		if m.Method != method {
			return nil, false
		}
		var out []string
		for _, line := range lines {
			out = append(out, strings.ReplaceAll(line, "%d", string(m.ID)))
		}
		return out, true
	}
}
