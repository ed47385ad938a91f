package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/mcp"
)

// TestHostileServers sends rubbish around, or in place of, the answer to one
// call. Whatever became of it, the session goes on.
func TestHostileServers(t *testing.T) {
	const good = `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"good"}]}}`
	long := strings.Repeat("x", 1<<20)
	for name, test := range map[string]struct {
		lines   []string
		text    string // of the result
		isError bool
		err     string // or of the error
	}{
		"no JSON before":       {lines: []string{"hello", "{", "[]", "7", `"x"`, "\xff\xfe", good}, text: "good"},
		"a long line before":   {lines: []string{long + long, good}, text: "good"},
		"a long message":       {lines: []string{`{"id":%d,"result":"` + long + `"}`, good}, text: "good"},
		"unknown ids before":   {lines: []string{`{"jsonrpc":"2.0","id":9%d,"result":{}}`, `{"id":"x","result":{}}`, `{"id":-1,"result":{}}`, good}, text: "good"},
		"id null before":       {lines: []string{`{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}`, `{"result":{}}`, good}, text: "good"},
		"odd ids before":       {lines: []string{`{"id":%d.5,"result":{}}`, `{"id":[%d],"result":{}}`, `{"id":1e999,"result":{}}`, `{"id":true,"result":{}}`, good}, text: "good"},
		"doubled":              {lines: []string{good, good, good}, text: "good"},
		"old answers again":    {lines: []string{`{"id":1,"result":{}}`, `{"id":2,"result":{}}`, good}, text: "good"},
		"id in quotes":         {lines: []string{`{"id":"%d","result":"good"}`}, text: "good"},
		"no version":           {lines: []string{`{"id":%d,"result":{"content":{"type":"text","text":"good"}}}`}, text: "good"},
		"carriage returns":     {lines: []string{"\r", good + "\r"}, text: "good"},
		"a batch":              {lines: []string{"[" + good + "]", good}, text: "good"},
		"error":                {lines: []string{`{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"bad x"}}`}, text: "bad x", isError: true},
		"error is a string":    {lines: []string{`{"id":%d,"error":"bad x"}`}, text: "bad x", isError: true},
		"error without code":   {lines: []string{`{"id":%d,"error":{"message":"bad x"}}`}, text: "bad x", isError: true},
		"error code as text":   {lines: []string{`{"id":%d,"error":{"code":"E","message":"bad x"}}`}, text: "bad x", isError: true},
		"neither":              {lines: []string{`{"id":%d}`}, err: "neither result nor error"},
		"unknown content":      {lines: []string{`{"id":%d,"result":{"content":[{"type":"smell"},null,{"type":"text","text":"b"}]}}`}, text: "[smell content]\n[unreadable content]\nb"},
		"asks for input":       {lines: []string{`{"id":%d,"result":{"resultType":"input_required","inputRequests":{"a":{}}}}`}, text: "the tool asks for input that nobody can give", isError: true},
		"too deep":             {lines: []string{`{"id":%d,"result":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`}, err: "no answer within 10s"},
		"nothing":              {err: "no answer within 10s"},
		"method as well":       {lines: []string{`{"id":%d,"method":"tools/call","result":{}}`, good}, text: "good"},
		"method is a number":   {lines: []string{`{"id":%d,"method":7,"result":{}}`, good}, text: "good"},
		"odd requests":         {lines: []string{`{"id":"","method":""}`, `{"id":{},"method":"ping"}`, `{"id":7,"method":"ping","params":[]}`, good}, text: "good"},
		"odd notifications":    {lines: []string{`{"method":"notifications/message"}`, `{"method":"notifications/cancelled","params":7}`, `{"method":"x"}`, `{"method":"notifications/progress","params":{}}`, good}, text: "good"},
		"its own notification": {lines: []string{`{"method":"notifications/cancelled","params":{"requestId":%d}}`, good}, text: "good"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeServer{tools: toolsNamed("tool")}
				c := newClient(mcp.ClientConfig{})
				v := serve(t, c, s)
				v.ready()
				s.become(nil, insteadOf("tools/call", test.lines...))
				res, err := c.Call(t.Context(), "tool", nil)
				if test.err != "" {
					if err == nil || !strings.Contains(err.Error(), test.err) {
						t.Errorf("got %+v, %v", res, err)
					}
				} else if err != nil || res.Text != test.text || res.IsError != test.isError {
					t.Errorf("got %+v, %v", res, err)
				}
				synctest.Wait()
				s.become(nil, usually)
				if res, err := c.Call(t.Context(), "tool", nil); err != nil || res.Text != "tool" {
					t.Errorf("the next call: %+v, %v", res, err)
				}
			})
		})
	}
}

func TestRubbishIsCountedAndShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.ClientCounters
		toServer, fromClient := io.Pipe()
		toClient, fromServer := io.Pipe()
		var shown []string
		transport := mcp.LineTransport(toClient, fromClient, 1000)
		transport.Rubbish = func(line string) { shown = append(shown, line) }
		stop := serveUntil(t, newClient(mcp.ClientConfig{Counters: &counters}), transport)
		go func() { _, _ = io.Copy(io.Discard, toServer) }()
		for _, line := range []string{"hello", strings.Repeat("x", 999), strings.Repeat("x", 5000), `{"id":99,"result":{}}`, "\xff"} {
			fmt.Fprintln(fromServer, line)
		}
		synctest.Wait()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if len(shown) != 3 || shown[0] != "hello" || shown[1] != strings.Repeat("x", 512) || shown[2] != "\uFFFD" {
			t.Errorf("shown %q", shown)
		}
		if m, l, u := counters.Malformed.Load(), counters.TooLarge.Load(), counters.Unexpected.Load(); m != 3 || l != 1 || u != 1 {
			t.Errorf("malformed %d, too large %d, unexpected %d", m, l, u)
		}
	})
}

// zeros is a stream of n bytes without a line's end, and then a line's end.
type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	if z.n <= 0 {
		return 0, io.EOF
	}
	clear(p)
	n := min(len(p), z.n)
	if z.n -= n; z.n == 0 {
		p[n-1] = '\n'
	}
	return n, nil
}

func TestHundredMegabytesOnOneLine(t *testing.T) {
	var counters mcp.ClientCounters
	stream := io.MultiReader(&zeros{100 << 20}, strings.NewReader("x\n"))
	var shown []string
	transport := mcp.LineTransport(io.NopCloser(stream), discardCloser{}, 0)
	transport.Rubbish = func(line string) { shown = append(shown, line) }
	err := newClient(mcp.ClientConfig{Counters: &counters}).Serve(t.Context(), transport)
	if err == nil || counters.TooLarge.Load() != 1 || len(shown) != 1 || shown[0] != "x" {
		t.Errorf("%v, too large %d, shown %q", err, counters.TooLarge.Load(), shown)
	}
}

type discardCloser struct{}

func (discardCloser) Write(p []byte) (int, error) { return len(p), nil }
func (discardCloser) Close() error                { return nil }

func TestServerListingsThatDoNotEnd(t *testing.T) {
	many := func(prefix string, n int) string {
		var names []string
		for i := range n {
			names = append(names, fmt.Sprint(prefix, i))
		}
		return strings.Join(toolsNamed(names...), ",")
	}
	for name, test := range map[string]struct {
		page  func(n int) string
		tools int
	}{
		"10,000 tools": {func(int) string { return `"result":{"tools":[` + many("t", 10000) + `]}` }, 512},
		"in a circle": {func(n int) string {
			return fmt.Sprintf(`"result":{"tools":[%s],"nextCursor":"c%d"}`, many("t", 1), n%3)
		}, 1},
		"pages for ever": {func(n int) string {
			return fmt.Sprintf(`"result":{"tools":[%s],"nextCursor":"c%d"}`, many(fmt.Sprint("t", n, "."), 1), n)
		}, 64},
		"breaks off": {func(n int) string {
			return []string{`"result":{"tools":[` + many("t", 3) + `],"nextCursor":"x"}`, `"error":"no"`}[min(n, 2)-1]
		}, 3},
		"an odd cursor":   {func(int) string { return `"result":{"tools":[` + many("t", 3) + `],"nextCursor":7}` }, 3},
		"doubled":         {func(int) string { return `"result":{"tools":[` + many("t", 3) + "," + many("t", 3) + `]}` }, 3},
		"none, and a lie": {func(int) string { return `"result":{"tools":null,"nextCursor":""}` }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked := 0
				v := serve(t, newClient(mcp.ClientConfig{}), &fakeServer{answer: func(m wireMessage) ([]string, bool) {
					if m.Method != "tools/list" {
						return nil, false
					}
					asked++
					return []string{fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,%s}`, m.ID, test.page(asked))}, true
				}})
				v.ready()
				if got := len(v.client.Tools()); got != test.tools {
					t.Errorf("%d tools", got)
				}
			})
		})
	}
}

func TestToolsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const notice = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
		s := &fakeServer{tools: toolsNamed("a", "slow")}
		s.answer = func(m wireMessage) ([]string, bool) {
			if m.Method == "tools/call" { // the list changes during a call
				s.become(toolsNamed("b"), nil)
				id := m.ID
				go func() {
					time.Sleep(5 * time.Second)
					s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"late but good"}`, id))
				}()
				return []string{notice, notice, notice}, true
			}
			return nil, false
		}
		c := newClient(mcp.ClientConfig{})
		v := serve(t, c, s)
		v.ready()
		before := c.Version()
		if res, err := c.Call(t.Context(), "slow", nil); err != nil || res.Text != "late but good" {
			t.Errorf("%+v, %v", res, err)
		}
		if got := strings.Join(toolNames(c.Tools()), " "); got != "b" || c.Version() == before {
			t.Errorf("tools %q", got)
		}
		if _, err := c.Call(t.Context(), "a", nil); !errors.Is(err, mcp.ErrUnknownTool) {
			t.Errorf("a tool that is gone: %v", err)
		}
		// However often a server says so, it is asked once in two seconds.
		asked := len(v.sent("tools/list"))
		for range 1000 {
			s.send(notice)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(3 * time.Second)
		if got := len(v.sent("tools/list")) - asked; got < 5 || got > 7 {
			t.Errorf("asked %d times in 13 s", got)
		}
		// A listing that fails leaves the tools as they were.
		s.become(nil, insteadOf("tools/list", `{"id":%d,"error":"no"}`))
		s.send(notice)
		time.Sleep(3 * time.Second)
		if got := strings.Join(toolNames(c.Tools()), " "); got != "b" || !c.Ready() {
			t.Errorf("after a failed listing: %q", got)
		}
	})
}

func TestCancelledCallTellsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.ClientCounters
		s := &fakeServer{tools: toolsNamed("slow", "tool")}
		c := newClient(mcp.ClientConfig{Counters: &counters})
		v := serve(t, c, s)
		v.ready()
		s.become(nil, func(m wireMessage) ([]string, bool) {
			return nil, m.Method == "tools/call" && strings.Contains(string(m.Params), "slow")
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := c.Call(ctx, "slow", nil)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second || !strings.Contains(err.Error(), "may still take effect") {
			t.Errorf("after %v: %v", took, err)
		}
		synctest.Wait()
		told, call := v.sent("notifications/cancelled"), v.sent("tools/call")[0]
		if len(told) != 1 || !strings.Contains(string(told[0].Params), `"requestId":`+string(call.ID)) {
			t.Errorf("the server was told %+v of %s", told, call.ID)
		}
		s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, call.ID)) // too late
		if res, err := c.Call(t.Context(), "tool", nil); err != nil || res.Text != "tool" {
			t.Errorf("%+v, %v", res, err)
		}
		if counters.Unexpected.Load() != 1 || counters.Timeouts.Load() != 0 {
			t.Errorf("unexpected %d, timeouts %d", counters.Unexpected.Load(), counters.Timeouts.Load())
		}
		if _, err := c.Call(ctx, "tool", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not called") {
			t.Errorf("with an ended context: %v", err)
		}
	})
}

func TestClientTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.ClientCounters
		c := newClient(mcp.ClientConfig{Counters: &counters, CallTimeout: 3 * time.Second})
		v := serve(t, c, &fakeServer{tools: toolsNamed("slow"), answer: insteadOf("tools/call")})
		v.ready()
		began := time.Now()
		_, err := c.Call(t.Context(), "slow", nil)
		if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took != 3*time.Second || !strings.Contains(err.Error(), `tool "slow" of "fake": no answer within 3s; it may still take effect`) {
			t.Errorf("after %v: %v", took, err)
		}
		synctest.Wait()
		if len(v.sent("notifications/cancelled")) != 1 || counters.Timeouts.Load() != 1 || counters.Failures.Load() != 1 {
			t.Errorf("cancelled %d, timeouts %d", len(v.sent("notifications/cancelled")), counters.Timeouts.Load())
		}
	})
}

func TestClientArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(mcp.ClientConfig{})
		v := serve(t, c, &fakeServer{tools: toolsNamed("tool")})
		v.ready()
		for _, args := range []string{"[]", "{", `{"a":"` + strings.Repeat("x", 300<<10) + `"}`} {
			if _, err := c.Call(t.Context(), "tool", json.RawMessage(args)); !errors.Is(err, mcp.ErrArguments) {
				t.Errorf("%.20q: %v", args, err)
			}
		}
		if got := len(v.sent("tools/call")); got != 0 {
			t.Errorf("%d calls were sent", got)
		}
	})
}

func TestCallsRunSideBySideUpToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.ClientCounters
		s := &fakeServer{tools: toolsNamed("tool")}
		c := newClient(mcp.ClientConfig{Counters: &counters})
		v := serve(t, c, s)
		v.ready()
		s.become(nil, func(m wireMessage) ([]string, bool) {
			if m.Method != "tools/call" {
				return nil, false
			}
			go func() {
				time.Sleep(time.Second)
				s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":"done"}`, m.ID))
			}()
			return nil, true
		})
		began := time.Now()
		var calls sync.WaitGroup
		var mu sync.Mutex
		done, busy := 0, 0
		for range 100 {
			calls.Go(func() {
				_, err := c.Call(t.Context(), "tool", nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					done++
				case errors.Is(err, mcp.ErrBusy):
					busy++
				default:
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); done != 64 || busy != 36 || took != time.Second || counters.Busy.Load() != 36 {
			t.Errorf("done %d, busy %d in %v", done, busy, took)
		}
		if _, err := c.Call(t.Context(), "tool", nil); err != nil {
			t.Error(err)
		}
	})
}

// TestServerThatDoesNotRead holds up neither callers nor the end.
func TestServerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{tools: toolsNamed("tool")}
		c := newClient(mcp.ClientConfig{})
		v := serve(t, c, s)
		v.ready()
		stuck := make(chan struct{})
		defer close(stuck)
		s.become(nil, func(wireMessage) ([]string, bool) { <-stuck; return nil, true })
		began := time.Now()
		var calls sync.WaitGroup
		for i := range 4 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				if _, err := c.Call(ctx, "tool", nil); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("the calls took %v", took)
		}
		<-v.done // the session ends by itself
		if took := time.Since(began); took > 12*time.Second || v.err == nil {
			t.Errorf("ended after %v: %v", took, v.err)
		}
	})
}

func TestServeEndsThoughTheServerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, fromClient := io.Pipe()
		toClient, _ := io.Pipe()
		stop := serveUntil(t, newClient(mcp.ClientConfig{}), mcp.LineTransport(toClient, fromClient, 0))
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestRequestsOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.ClientCounters
		s := &fakeServer{tools: toolsNamed("tool")}
		v := serve(t, newClient(mcp.ClientConfig{Counters: &counters}), s)
		v.ready()
		answers := map[string]string{}
		s.become(nil, func(m wireMessage) ([]string, bool) {
			if m.Method == "" {
				answers[string(m.ID)] = string(m.Result) + string(m.Error)
			}
			return nil, m.Method == ""
		})
		s.send(`{"jsonrpc":"2.0","id":"p","method":"ping"}`,
			`{"jsonrpc":"2.0","id":8,"method":"sampling/createMessage","params":{"messages":[],"maxTokens":1}}`,
			`{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"message":"?","requestedSchema":{"type":"object"}}}`,
			`{"jsonrpc":"2.0","id":10,"method":"roots/list"}`,
			`{"jsonrpc":"2.0","id":11,"method":"made/up"}`)
		synctest.Wait()
		if len(answers) != 5 || answers[`"p"`] != "{}" || answers["10"] != `{"roots":[]}` {
			t.Errorf("answers %v", answers)
		}
		for _, id := range []string{"8", "9", "11"} {
			if !strings.Contains(answers[id], `"code":`) {
				t.Errorf("request %s was answered %s", id, answers[id])
			}
		}
		for i := range 500 { // a flood gets some answers, and no more
			s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, 1000+i))
		}
		synctest.Wait()
		if n := len(answers); n > 105 || n < 5+16 || counters.Refused.Load() < 400 {
			t.Errorf("%d answers, %d refused", n, counters.Refused.Load())
		}
	})
}

func TestLogMessagesOfTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		s := &fakeServer{tools: toolsNamed("tool")}
		v := serve(t, mcp.NewClient(mcp.ClientConfig{Label: "weather"}, log), s)
		v.ready()
		s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","logger":"l","data":{"a":"` + strings.Repeat("x", 10000) + `"}}}`)
		for range 500 {
			s.send(`{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"again"}}`)
		}
		v.stop()
		<-v.done
		got := out.String()
		if !strings.Contains(got, `level=DEBUG msg="server says" server=weather`) || !strings.Contains(got, "warning") || len(got) > 20000 {
			t.Errorf("%d bytes of log: %.300s", len(got), got)
		}
	})
}
