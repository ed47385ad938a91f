package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/mcp"
)

func newClient(cfg mcp.ClientConfig) *mcp.Client {
	cfg.Label = "fake"
	return mcp.NewClient(cfg, discard())
}

// standardServer is the SDK's own server with some tools.
func standardServer() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "standard", Version: "1"}, &sdk.ServerOptions{PageSize: 2})
	type sum struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "add", Description: "Add."}, func(_ context.Context, _ *sdk.CallToolRequest, in sum) (*sdk.CallToolResult, any, error) {
		if in.A < 0 {
			return nil, nil, errors.New("negative")
		}
		return &sdk.CallToolResult{Content: []sdk.Content{
			&sdk.TextContent{Text: fmt.Sprint(in.A + in.B)},
			&sdk.ImageContent{MIMEType: "image/png", Data: []byte("png")},
		}}, nil, nil
	})
	for _, name := range []string{"b", "c", "d"} {
		server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object","properties":{"z":{},"a":{}}}`)},
			func(_ context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
				meta, _ := json.Marshal(req.Params.Meta["parley/device"])
				return &sdk.CallToolResult{StructuredContent: map[string]any{"for": json.RawMessage(meta)}}, nil
			})
	}
	return server
}

// useStandard asks of a client of standardServer what any server does.
func useStandard(t *testing.T, c *mcp.Client) {
	t.Helper()
	if got := strings.Join(toolNames(c.Tools()), " "); got != "add b c d" {
		t.Errorf("tools %q", got)
	}
	res, err := c.Call(t.Context(), "add", json.RawMessage(`{"a":2,"b":3}`))
	if err != nil || res.IsError || res.Text != "5\n[image image/png, 3 bytes]" || len(res.Images) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
	for _, args := range []string{`{"a":-1,"b":1}`, `{"a":"x"}`} {
		if res, err := c.Call(t.Context(), "add", json.RawMessage(args)); err != nil || !res.IsError || res.Text == "" {
			t.Errorf("%s: %+v, %v", args, res, err)
		}
	}
	if _, err := c.Call(t.Context(), "e", nil); !errors.Is(err, mcp.ErrUnknownTool) {
		t.Errorf("unknown tool: %v", err)
	}
	ctx := mcp.WithCaller(t.Context(), mcp.Caller{Device: deviceID})
	if res, err := c.Call(ctx, "b", nil); err != nil || !strings.Contains(res.Text, `"for":`) {
		t.Errorf("structured content: %+v, %v", res, err)
	}
}

// serveUntil runs Serve until the returned function is called, which waits for
// it and returns its error.
func serveUntil(t *testing.T, c *mcp.Client, transport sdk.Transport) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	result := make(chan error, 1)
	go func() { result <- c.Serve(ctx, transport) }()
	return sync.OnceValue(func() error {
		cancel()
		return <-result
	})
}

func TestStandardServersOverPipes(t *testing.T) {
	for _, version := range []string{"", "2026-07-28", "2025-11-25", "2025-06-18", "2024-11-05"} {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				toServer, fromClient := io.Pipe()
				toClient, fromServer := io.Pipe()
				server := standardServer()
				session, err := server.Connect(t.Context(), &sdk.IOTransport{Reader: toServer, Writer: fromServer}, nil)
				if err != nil {
					t.Fatal(err)
				}
				defer session.Close()
				c := newClient(mcp.ClientConfig{Protocol: version})
				stop := serveUntil(t, c, mcp.LineTransport(toClient, fromClient, 0))
				defer stop()
				synctest.Wait()
				useStandard(t, c)
				server.RemoveTools("b", "c", "d")
				time.Sleep(3 * time.Second)
				if got := strings.Join(toolNames(c.Tools()), " "); got != "add" {
					t.Errorf("after a change: %q", got)
				}
				if err := stop(); err != nil || c.Ready() || len(c.Tools()) != 0 {
					t.Errorf("Serve: %v, ready %v", err, c.Ready())
				}
			})
		})
	}
}

func TestStandardServerInThisProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := sdk.NewInMemoryTransports()
		session, err := standardServer().Connect(t.Context(), far, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		c := newClient(mcp.ClientConfig{TellCaller: true})
		stop := serveUntil(t, c, near)
		defer stop()
		synctest.Wait()
		useStandard(t, c)
		ctx := mcp.WithCaller(t.Context(), mcp.Caller{Device: deviceID})
		if res, err := c.Call(ctx, "b", nil); err != nil || res.Text != `{"for":"`+string(deviceID)+`"}` {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// TestStandardServerOverHTTP runs on a real socket. Its clients learn of changes
// on a stream that is open only if nothing stands between SDK and SDK.
func TestStandardServerOverHTTP(t *testing.T) {
	for _, version := range []string{"", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			server := standardServer()
			web := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil))
			defer web.Close()
			changed := make(chan struct{}, 16)
			c := newClient(mcp.ClientConfig{Protocol: version, OnChange: func() { changed <- struct{}{} }})
			web.Client().Transport.(*http.Transport).DisableKeepAlives = true
			stop := serveUntil(t, c, &sdk.StreamableClientTransport{Endpoint: web.URL, HTTPClient: web.Client()})
			<-changed
			useStandard(t, c)
			server.RemoveTools("b", "c", "d")
			<-changed
			if got := strings.Join(toolNames(c.Tools()), " "); got != "add" {
				t.Errorf("after a change: %q", got)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOldServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		schema := `{"type":"object","properties":{"z":{"type":"number","minimum":1e-30},"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{}}}`
		c := newClient(mcp.ClientConfig{Version: "1.2.3"})
		v := serve(t, c, &fakeServer{tools: []string{
			`{"name":"calc","description":"d","inputSchema":` + schema + `,"annotations":{"audience":["user"]}}`,
			`{"name":"odd","inputSchema":{"type":7,"required":"x"}}`, `{"name":7}`, `null`, `"x"`, `{"name":"none"}`,
		}})
		v.ready()
		if got, want := v.methods(), "server/discover initialize notifications/initialized tools/list"; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
		var hello struct {
			ProtocolVersion string
			ClientInfo      struct{ Name, Version string }
		}
		if err := json.Unmarshal(v.sent("initialize")[0].Params, &hello); err != nil || hello.ClientInfo.Version != "1.2.3" || hello.ProtocolVersion != "2025-11-25" {
			t.Errorf("%+v, %v", hello, err)
		}
		tools := c.Tools()
		if got := strings.Join(toolNames(tools), " "); got != "calc odd none" {
			t.Fatalf("tools %q", got)
		}
		if string(tools[0].Schema) != schema || !tools[0].UserOnly || tools[1].UserOnly {
			t.Errorf("%+v", tools)
		}
		if res, err := c.Call(t.Context(), "odd", json.RawMessage(` {"x": 1} `)); err != nil || res.Text != "odd" {
			t.Errorf("%+v, %v", res, err)
		}
		if got := string(v.sent("tools/call")[0].Params); got != `{"name":"odd","arguments":{"x":1}}` && got != `{"arguments":{"x":1},"name":"odd"}` {
			t.Errorf("called with %s", got)
		}
	})
}

func TestGreetings(t *testing.T) {
	for name, test := range map[string]struct {
		answer func(wireMessage) ([]string, bool)
		after  time.Duration // the time the greeting takes
	}{
		"silence about discovery": {insteadOf("server/discover"), 3 * time.Second},
		"odd discovery":           {insteadOf("server/discover", `{"jsonrpc":"2.0","id":%d,"result":{}}`), 0},
		"discovery is no object":  {insteadOf("server/discover", `{"jsonrpc":"2.0","id":%d,"result":7}`), 0},
		"unknown revision":        {insteadOf("initialize", `{"id":%d,"result":{"protocolVersion":"1999-01-01"}}`), 0},
		"revision to come":        {insteadOf("initialize", `{"id":%d,"result":{"protocolVersion":"2026-07-28","serverInfo":"me","capabilities":[]}}`), 0},
		"empty greeting":          {insteadOf("initialize", `{"id":"%d","result":{}}`), 0},
		"rubbish first": {insteadOf("initialize", `Welcome to the "server"!`, ``, `[1,2]`, `7`, `{"id":null}`,
			`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}`, `{"id":%d,"result":{}}`), 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(mcp.ClientConfig{})
				v := serve(t, c, &fakeServer{tools: toolsNamed("tool"), answer: test.answer})
				time.Sleep(test.after)
				v.ready()
				if strings.Contains(v.methods(), "cancelled") {
					t.Errorf("an old server was told of a cancellation: %q", v.methods())
				}
				if res, err := c.Call(t.Context(), "tool", nil); err != nil || res.Text != "tool" {
					t.Errorf("%+v, %v", res, err)
				}
			})
		})
	}
}

func TestDiscoveryFails(t *testing.T) {
	silent := func(wireMessage) ([]string, bool) { return nil, true }
	for name, test := range map[string]struct {
		answer func(wireMessage) ([]string, bool)
		after  time.Duration
		want   string
	}{
		"silence":          {silent, 15 * time.Second, "greeting: no answer within 15s"},
		"refused":          {insteadOf("initialize", `{"id":%d,"error":{"message":"go away"}}`), 0, "go away"},
		"no list":          {insteadOf("tools/list"), 15 * time.Second, "listing tools: no answer within 15s"},
		"list refused":     {insteadOf("tools/list", `{"id":%d,"error":"no"}`), 0, "listing tools"},
		"list unreadable":  {insteadOf("tools/list", `{"id":%d,"result":7}`), 0, "listing tools"},
		"empty answer":     {insteadOf("tools/list", `{"id":%d}`), 0, "neither result nor error"},
		"answer of nulls":  {insteadOf("tools/list", `{"id":%d,"result":null,"error":null}`), 0, "neither result nor error"},
		"nothing but dots": {insteadOf("tools/list", strings.Repeat(".\n", 1000)), 15 * time.Second, "listing tools"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := serve(t, newClient(mcp.ClientConfig{}), &fakeServer{answer: test.answer})
				began := time.Now()
				<-v.done
				if took := time.Since(began); took != test.after || v.err == nil || !strings.Contains(v.err.Error(), test.want) || !strings.Contains(v.err.Error(), `"fake"`) {
					t.Errorf("after %v: %v", took, v.err)
				}
				if v.client.Ready() {
					t.Error("ready")
				}
			})
		})
	}
}

func TestServerWithoutTools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := serve(t, newClient(mcp.ClientConfig{}), &fakeServer{
			answer: insteadOf("tools/list", `{"id":%d,"error":{"code":-32601,"message":"Method not found"}}`),
		})
		v.ready()
		if got := v.client.Tools(); len(got) != 0 {
			t.Errorf("tools %v", got)
		}
	})
}

// TestServerThatDiesOfTheNewestGreeting is met again, and greeted the old way.
func TestServerThatDiesOfTheNewestGreeting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(mcp.ClientConfig{})
		fresh := func() *fakeServer {
			s := &fakeServer{tools: toolsNamed("tool")}
			s.answer = func(m wireMessage) ([]string, bool) {
				if m.Method == "server/discover" {
					s.out.Close()
				}
				return nil, false
			}
			return s
		}
		first := serve(t, c, fresh())
		<-first.done
		if first.err == nil {
			t.Error("the first session ended without an error")
		}
		second := serve(t, c, fresh())
		second.ready()
		if got := second.methods(); strings.Contains(got, "discover") {
			t.Errorf("sent %q", got)
		}
	})
}

func TestServeTwiceAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(mcp.ClientConfig{})
		v := serve(t, c, &fakeServer{tools: toolsNamed("tool")})
		v.ready()
		near, _ := sdk.NewInMemoryTransports()
		if err := c.Serve(t.Context(), near); err == nil || !c.Ready() {
			t.Errorf("got %v", err)
		}
	})
}

func TestSessionsFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes := 0
		var counters mcp.ClientCounters
		c := newClient(mcp.ClientConfig{Counters: &counters, OnChange: func() { changes++ }})
		for i := range 3 {
			if _, err := c.Call(t.Context(), "slow", nil); !errors.Is(err, mcp.ErrClosed) {
				t.Errorf("without a session: %v", err)
			}
			before := c.Version()
			v := serve(t, c, &fakeServer{tools: toolsNamed("tool", "slow"), answer: func(m wireMessage) ([]string, bool) {
				return nil, m.Method == "tools/call" && strings.Contains(string(m.Params), "slow")
			}})
			v.ready()
			if c.Version() == before || changes != 2*i+1 {
				t.Errorf("version %d, changes %d", c.Version(), changes)
			}
			var calls sync.WaitGroup
			for range 5 {
				calls.Go(func() {
					began := time.Now()
					_, err := c.Call(t.Context(), "slow", nil)
					if !errors.Is(err, mcp.ErrClosed) || time.Since(began) != time.Second || !strings.Contains(err.Error(), "may still take effect") {
						t.Errorf("after %v: %v", time.Since(began), err)
					}
				})
			}
			time.Sleep(time.Second)
			if i == 0 {
				v.stop()
			} else {
				v.out.Close() // the program ends
			}
			<-v.done
			calls.Wait()
			if i == 0 && v.err != nil || i > 0 && !errors.Is(v.err, mcp.ErrClosed) || len(c.Tools()) != 0 || c.Ready() {
				t.Errorf("session %d: %v, tools %v", i, v.err, c.Tools())
			}
		}
		if counters.Sessions.Load() != 3 || counters.Calls.Load() != 15 {
			t.Errorf("sessions %d, calls %d", counters.Sessions.Load(), counters.Calls.Load())
		}
	})
}
