package access_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/mcp"
	"parley/mcp/access"
)

func TestCalculator(t *testing.T) {
	for _, path := range []string{"/mcp_endpoint/mcp/", "/mcp_endpoint/mcp", "/mcp/", "/mcp"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, access.Config{})
				set := w.conversation(deviceA, "helper")
				if got := names(set); got != "" {
					t.Errorf("tools %q before anybody came", got)
				}
				p := &pipe{done: make(chan struct{})}
				var err error
				p.ws, p.tcp, _, err = w.dial(path, mint(t, access.Scope{ID: "pc", All: true}))
				if err != nil {
					t.Fatal(err)
				}
				p.run(t, calculator(0))
				synctest.Wait()
				tools := set.Tools()
				if len(tools) != 1 || tools[0].Name != "calculator" || !strings.Contains(string(tools[0].Schema), `"python_expression"`) {
					t.Fatalf("tools %+v", tools)
				}
				multiply(t, set, "calculator")
				got := w.point.Connections()
				if len(got) != 1 || got[0].Token != "pc" || got[0].For != "everybody" || got[0].Address != "10.0.0.2" ||
					got[0].Server != "Calculator" || got[0].Tools != 1 {
					t.Errorf("connections %+v", got)
				}
			})
		})
	}
}

// TestServerLimitsDoNotApply keeps a connection ten minutes behind an HTTP server
// that gives a request 15 seconds to be read and 30 to be answered.
func TestServerLimitsDoNotApply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		set := w.conversation(deviceA, "")
		w.lend(mint(t, access.Scope{ID: "pc", Device: deviceA}), calculator(0))
		time.Sleep(10 * time.Minute)
		multiply(t, set, "calculator")
		if n := w.counters.Accepted.Load(); n != 1 {
			t.Errorf("%d connections for one", n)
		}
	})
}

func TestDropDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		token := mint(t, access.Scope{ID: "pc", Device: deviceA})
		set := w.conversation(deviceA, "")
		p := w.lend(token, calculator(5*time.Second))
		set.Tools()
		began := time.Now()
		var calls sync.WaitGroup
		calls.Go(func() {
			_, err := set.Call(t.Context(), "calculator", json.RawMessage(`{"python_expression":"2*3"}`))
			if took := time.Since(began); !errors.Is(err, mcp.ErrClosed) || took != time.Second {
				t.Errorf("after %v: %v", took, err)
			}
		})
		time.Sleep(time.Second)
		p.drop()
		calls.Wait()
		if got := names(set); got != "" {
			t.Errorf("tools %q of nobody", got)
		}
		if _, err := set.Call(t.Context(), "calculator", nil); !errors.Is(err, mcp.ErrUnknownTool) {
			t.Errorf("meanwhile: %v", err)
		}
		// The conversation goes on when the pipe is back, an hour later.
		time.Sleep(time.Hour)
		w.lend(token, calculator(0))
		if got := names(set); got != "calculator" {
			t.Errorf("tools %q", got)
		}
		multiply(t, set, "calculator")
	})
}

func TestWhoLendsToWhom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		w.lend(mint(t, access.Scope{ID: "everybody", All: true}), tells("All", "all", "clock"))
		w.lend(mint(t, access.Scope{ID: "cooks", Role: "cook"}), tells("Cook", "cook", "recipe"))
		w.lend(mint(t, access.Scope{ID: "alice", Device: deviceA}), tells("Alice", "alice", "diary"))
		w.lend(mint(t, access.Scope{ID: "bob", Device: deviceB}), tells("Bob", "bob", "diary"))
		for _, test := range []struct {
			set   *mcp.Set
			names string
			diary string
		}{
			{w.conversation(deviceA, "cook"), "diary recipe clock", "alice:diary"},
			{w.conversation(deviceB, ""), "diary clock", "bob:diary"},
			{w.conversation("a0:85:e3:f4:49:36", "gardener"), "clock", `tool "diary": unknown tool; call one of those offered`},
			{w.conversation("", ""), "clock", `tool "diary": unknown tool; call one of those offered`},
		} {
			if got := names(test.set); got != test.names {
				t.Errorf("tools %q, want %q", got, test.names)
			}
			if got := answer(t, test.set, "diary"); got != test.diary {
				t.Errorf("diary: %q, want %q", got, test.diary)
			}
		}
	})
}

// TestAPlaceIsNotForOthers mints the id of a token anew for somebody else: the
// conversation that knew its tool does not get at the new holder's.
func TestAPlaceIsNotForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		source := w.point.For(deviceA, "")
		p := w.lend(mint(t, access.Scope{ID: "x", Device: deviceA}), tells("S", "a", "tool"))
		if tools := source.Tools(); len(tools) != 1 || tools[0].Name != "tool" {
			t.Errorf("tools %+v", tools)
		}
		p.drop()
		w.lend(mint(t, access.Scope{ID: "x", Device: deviceB}), tells("S", "b", "tool"))
		if res, err := source.Call(t.Context(), "tool", nil); !errors.Is(err, mcp.ErrUnknownTool) || !strings.Contains(err.Error(), "not connected") {
			t.Errorf("got %+v, %v", res, err)
		}
		if res, err := source.Call(t.Context(), "another", nil); !errors.Is(err, mcp.ErrUnknownTool) {
			t.Errorf("got %+v, %v", res, err)
		}
	})
}

func TestNamesOfTwins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		token := mint(t, access.Scope{ID: "pc", Device: deviceA})
		first := w.lend(token, tells("Files", "first", "read", "write"))
		w.lend(token, tells("Files", "second", "read"))
		w.lend(token, tells("", "third", "read"))
		set := w.conversation(deviceA, "")
		// In the order of servers' names, so an empty one is the first.
		const all = "read Files_read write Files2_read"
		if got := names(set); got != all {
			t.Errorf("tools %q", got)
		}
		check := func() {
			t.Helper()
			for name, want := range map[string]string{"Files_read": "first:read", "Files2_read": "second:read", "read": "third:read"} {
				if got := answer(t, set, name); got != want {
					t.Errorf("%s: %q, want %q", name, got, want)
				}
			}
		}
		check()
		first.drop()
		if got := names(set); got != "read Files2_read" {
			t.Errorf("tools %q", got)
		}
		w.lend(token, tells("Files", "first", "read", "write"))
		if got := names(set); got != all {
			t.Errorf("back again: tools %q", got)
		}
		check()
	})
}

// TestAPipeIsBackBeforeItsOldConnectionIsDead is the usual case of a router that
// was restarted: TCP knows of nothing.
func TestAPipeIsBackBeforeItsOldConnectionIsDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		token := mint(t, access.Scope{ID: "pc", Device: deviceA})
		set := w.conversation(deviceA, "")
		old := w.lend(token, tells("Files", "old", "read"))
		names(set)
		old.blackHole()
		time.Sleep(time.Second)
		w.lend(token, tells("Files", "new", "read"))
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := names(set); got != "read" {
			t.Errorf("tools %q", got)
		}
		if got := answer(t, set, "read"); got != "new:read" {
			t.Errorf("got %q", got)
		}
		if w.counters.Lost.Load() != 1 {
			t.Error("the dead connection was not noticed")
		}
	})
}

func TestADeadPeerIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		set := w.conversation(deviceA, "")
		p := w.lend(mint(t, access.Scope{ID: "pc", Device: deviceA}), calculator(0))
		time.Sleep(45 * time.Second) // a ping was answered
		p.blackHole()
		time.Sleep(24 * time.Second) // the next was sent 9 seconds ago
		synctest.Wait()
		if names(set) != "calculator" {
			t.Error("given up too soon")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := names(set); got != "" || w.counters.Lost.Load() != 1 {
			t.Errorf("tools %q, lost %d", got, w.counters.Lost.Load())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := w.point.Connections(); len(got) != 0 {
			t.Errorf("still there: %+v", got)
		}
		if !strings.Contains(w.log.String(), `reason="no answer to a ping within 10s"`) {
			t.Errorf("log:\n%s", w.log)
		}
	})
}

func TestChangedToolsAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		server := tells("S", "s", "one")
		source := w.point.For(deviceA, "")
		set := w.conversation(deviceA, "")
		w.lend(mint(t, access.Scope{ID: "pc", Device: deviceA}), server)
		if got := names(set); got != "one" {
			t.Errorf("tools %q", got)
		}
		versioned, ok := source.(interface{ Version() uint64 })
		if !ok {
			t.Fatal("the source has no version")
		}
		before := versioned.Version()
		time.Sleep(time.Minute)
		server.AddTool(&sdk.Tool{Name: "two", InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				return &sdk.CallToolResult{}, nil
			})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := names(set); got != "one two" || versioned.Version() == before {
			t.Errorf("tools %q, version %d after %d", got, versioned.Version(), before)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		token := mint(t, access.Scope{ID: "pc", Device: deviceA})
		polite := w.lend(token, calculator(0))
		dead := w.lend(token, calculator(0))
		dead.blackHole()
		silent, _ := w.open(token)
		_ = silent
		began := time.Now()
		w.point.Close()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("took %v", took)
		}
		if e := polite.ended(t); e.Code != websocket.StatusGoingAway || e.Reason != "the server is stopping" {
			t.Errorf("told %+v", e)
		}
		if got := w.point.Connections(); len(got) != 0 {
			t.Errorf("left: %+v", got)
		}
		if _, _, no, err := w.dial("/mcp/", token); err == nil || no.status != 503 {
			t.Errorf("afterwards: %+v, %v", no, err)
		}
		w.point.Close()
	})
}

// TestNamesNobodyElseHas has two tokens lend the same server, and one lend tools
// called as the other's are renamed.
func TestNamesNobodyElseHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		a, b := mint(t, access.Scope{ID: "a", Device: deviceA}), mint(t, access.Scope{ID: "b", Device: deviceA})
		w.lend(a, tells("S", "first", "t", "S_t", "S1_t", "b_S1_t"))
		w.lend(b, tells("S", "second", "t"))
		set := w.conversation(deviceA, "")
		tools := set.Tools()
		seen := map[string]bool{}
		for _, tool := range tools {
			seen[answer(t, set, tool.Name)] = true
		}
		if len(tools) != 5 || len(seen) != 5 || !seen["second:t"] || answer(t, set, "t") != "first:t" {
			t.Errorf("%q answer %v", names(set), seen)
		}
	})
}
