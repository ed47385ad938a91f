package access_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/internal/simnet"
	"parley/mcp"
	"parley/mcp/access"
)

func simnetPath() simnet.Path { return simnet.Path{} }

// A puppet is a peer whose messages the test writes.
type puppet struct {
	t   *testing.T
	ws  *websocket.Conn
	tcp *simnet.TCPConn
}

func (w *world) puppet(id string) *puppet {
	p := &puppet{t: w.t}
	p.ws, p.tcp = w.open(mint(w.t, access.Scope{ID: id, Device: deviceA}))
	return p
}

// A message is what Parley sent.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// next returns the next message that is a request, not a notification.
func (p *puppet) next() message {
	p.t.Helper()
	for {
		_, data, err := p.ws.Read(context.Background())
		if err != nil {
			p.t.Fatal(err)
		}
		var m message
		if err := json.Unmarshal(data, &m); err != nil {
			p.t.Fatal(err)
		}
		if m.ID != nil {
			return m
		}
	}
}

func (p *puppet) say(format string, args ...any) {
	_ = p.ws.Write(context.Background(), websocket.MessageText, fmt.Appendf(nil, format, args...))
}

func (p *puppet) result(m message, result string) {
	p.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// greet answers until Parley knows one tool, say.
func (p *puppet) greet(name string) {
	p.t.Helper()
	m := p.next()
	if m.Method != "initialize" || !strings.Contains(string(m.Params), `"protocolVersion":"2024-11-05"`) {
		p.t.Errorf("greeted with %s %s", m.Method, m.Params)
	}
	p.result(m, fmt.Sprintf(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":%q,"version":"1"}}`, name))
	if m = p.next(); m.Method != "tools/list" {
		p.t.Errorf("then %s", m.Method)
	}
	p.result(m, `{"tools":[{"name":"say","inputSchema":{"type":"object"}}]}`)
	synctest.Wait()
}

// reason reads until the connection ends and returns why.
func (p *puppet) reason() string {
	for {
		if _, _, err := p.ws.Read(context.Background()); err != nil {
			return err.Error()
		}
	}
}

// beside runs f while another pipe lends a calculator to the same conversation,
// and checks that the conversation never minds.
func beside(t *testing.T, cfg access.Config, f func(t *testing.T, w *world, set *mcp.Set)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, cfg)
		w.lend(mint(t, access.Scope{ID: "neighbour", Device: deviceA}), calculator(0))
		set := w.conversation(deviceA, "")
		f(t, w, set)
		multiply(t, set, "calculator")
	})
}

func TestSilence(t *testing.T) {
	for name, speak := range map[string]func(p *puppet){
		"from the start": func(*puppet) {},
		"after the greeting": func(p *puppet) {
			p.result(p.next(), `{"protocolVersion":"2024-11-05","capabilities":{},"serverInfo":{"name":"x","version":"1"}}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t, access.Config{}, func(t *testing.T, w *world, set *mcp.Set) {
				p := w.puppet("mute")
				speak(p)
				began := time.Now()
				if got := p.reason(); !strings.Contains(got, "StatusPolicyViolation") || !strings.Contains(got, "told no tools") {
					t.Errorf("told %s", got)
				}
				if took := time.Since(began); took != 15*time.Second {
					t.Errorf("after %v", took)
				}
				synctest.Wait()
				if w.counters.Silent.Load() != 1 || len(w.point.Connections()) != 1 || names(set) != "calculator" {
					t.Errorf("silent %d, %+v", w.counters.Silent.Load(), w.point.Connections())
				}
			})
		})
	}
}

func TestRubbishIsPassedOver(t *testing.T) {
	beside(t, access.Config{}, func(t *testing.T, w *world, set *mcp.Set) {
		p := w.puppet("rubbish")
		for _, text := range []string{"Starting server…", "", "[]", "[[", `"x"`, `{}`, `{"id":null}`, "\xff\xfe", `{"jsonrpc":"1.0","id":1,"result":{}}`} {
			p.say("%s", text)
		}
		_ = p.ws.Write(t.Context(), websocket.MessageBinary, make([]byte, 1000))
		p.say(`{"jsonrpc":"2.0","id":null,"result":{}}`)
		p.say(`{"jsonrpc":"2.0","id":"x","result":{}}`)
		p.say(`{"jsonrpc":"2.0","id":99,"error":{"code":1,"message":"x"}}`)
		p.greet("Rubbish")
		if got := names(set); got != "calculator say" {
			t.Fatalf("tools %q", got)
		}
		if n := w.counters.Rubbish.Load(); n < 8 {
			t.Errorf("counted %d", n)
		}
		// An answer comes twice, and once in a binary frame.
		var calls sync.WaitGroup
		calls.Go(func() {
			for range 2 {
				if got := answer(t, set, "say"); got != "hello" {
					t.Errorf("got %q", got)
				}
			}
		})
		const hello = `{"content":[{"type":"text","text":"hello"}]}`
		first := p.next()
		p.result(first, hello)
		p.result(first, `{"content":[{"type":"text","text":"liar"}]}`)
		second := p.next()
		p.result(first, `{"content":[{"type":"text","text":"liar"}]}`)
		_ = p.ws.Write(t.Context(), websocket.MessageBinary, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, second.ID, hello))
		calls.Wait()
	})
}

func TestTooMuchRubbishEndsTheConnection(t *testing.T) {
	beside(t, access.Config{}, func(t *testing.T, w *world, set *mcp.Set) {
		p := w.puppet("rubbish")
		p.greet("Rubbish")
		for range 101 {
			p.say("rubbish")
		}
		if got := p.reason(); !strings.Contains(got, "more than 100 messages that are no JSON-RPC") {
			t.Errorf("told %s", got)
		}
		synctest.Wait()
		if got := names(set); got != "calculator" {
			t.Errorf("tools %q", got)
		}
	})
}

func TestAHugeMessageEndsTheConnection(t *testing.T) {
	for name, send := range map[string]func(p *puppet){
		"2 MiB": func(p *puppet) { p.say("%s", strings.Repeat(" ", 2<<20)) },
		// A frame of 100 MB is announced and never finished.
		"100 MB": func(p *puppet) {
			_, _ = p.tcp.Write([]byte{0x81, 0xff, 0, 0, 0, 0, 5, 0xf5, 0xe1, 0, 1, 2, 3, 4})
			_, _ = p.tcp.Write(make([]byte, 1<<20+10))
		},
	} {
		t.Run(name, func(t *testing.T) {
			beside(t, access.Config{}, func(t *testing.T, w *world, set *mcp.Set) {
				p := w.puppet("huge")
				p.greet("Huge")
				send(p)
				if got := p.reason(); !strings.Contains(got, "StatusMessageTooBig") {
					t.Errorf("told %s", got)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if got := w.point.Connections(); len(got) != 1 || names(set) != "calculator" {
					t.Errorf("left: %+v", got)
				}
			})
		})
	}
}

// TestAFrameThatDoesNotEnd has a peer answer the farewell with the beginning of a
// frame: the connection ends all the same.
func TestAFrameThatDoesNotEnd(t *testing.T) {
	beside(t, access.Config{}, func(t *testing.T, w *world, _ *mcp.Set) {
		p := w.puppet("endless")
		p.greet("Endless")
		for range 101 {
			p.say("rubbish")
		}
		_, _ = p.tcp.Write([]byte{0x81, 0xff, 0x10, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		if got := w.point.Connections(); len(got) != 1 {
			t.Errorf("still there after the farewell: %+v", got)
		}
	})
}

// TestAPeerThatNeverReads is called with more than the network holds.
func TestAPeerThatNeverReads(t *testing.T) {
	beside(t, access.Config{CallTimeout: 2 * time.Second}, func(t *testing.T, w *world, set *mcp.Set) {
		p := w.puppet("deaf")
		p.greet("Deaf")
		set.Tools()
		args := json.RawMessage(`{"x":"` + strings.Repeat("x", 10<<10) + `"}`)
		began := time.Now()
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() {
				if _, err := set.Call(t.Context(), "say", args); err == nil {
					t.Error("a call of the deaf had a result")
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("a call took %v", took)
				}
			})
		}
		calls.Wait()
		time.Sleep(16 * time.Second)
		synctest.Wait()
		if got := w.point.Connections(); len(got) != 1 || names(set) != "calculator" {
			t.Errorf("still there: %+v", got)
		}
		if !strings.Contains(w.log.String(), `reason="read nothing for 10s"`) {
			t.Errorf("log:\n%s", w.log)
		}
	})
}

// TestAFloodIsHeldBack has an answer come after 1,500 messages: 500 are taken at
// once and 100 a second after that.
func TestAFloodIsHeldBack(t *testing.T) {
	beside(t, access.Config{CallTimeout: time.Minute}, func(t *testing.T, w *world, set *mcp.Set) {
		p := w.puppet("flood")
		p.greet("Flood")
		set.Tools()
		began := time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			if got := answer(t, set, "say"); got != "at last" {
				t.Errorf("got %q", got)
			}
			if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
				t.Errorf("took %v", took)
			}
		})
		m := p.next()
		for range 1500 {
			p.say(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`)
		}
		p.result(m, `{"content":[{"type":"text","text":"at last"}]}`)
		calls.Wait()
	})
}

// TestManyComeAndGo is for the race detector, and for what is left over.
func TestManyComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		token := mint(t, access.Scope{ID: "pc", Device: deviceA})
		set := w.conversation(deviceA, "")
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 5 {
					p := &pipe{done: make(chan struct{})}
					var err error
					if p.ws, p.tcp, _, err = w.dial("/mcp/", token); err != nil {
						t.Error(err)
						return
					}
					p.run(t, tells("S", "s", fmt.Sprint("tool", i%3)))
					time.Sleep(time.Duration(i) * time.Second)
					p.tcp.Close()
					p.ws.CloseNow()
				}
			})
			all.Go(func() {
				for range 30 {
					for _, tool := range set.Tools() {
						_, _ = set.Call(t.Context(), tool.Name, nil)
					}
					_ = w.point.Connections()
					time.Sleep(time.Second)
				}
			})
		}
		all.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := w.point.Connections(); len(got) != 0 || len(set.Tools()) != 0 {
			t.Errorf("left: %+v", got)
		}
	})
}
