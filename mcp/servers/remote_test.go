package servers

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
	"sync/atomic"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/mcp"
)

// streamable serves a good server by streamable HTTP.
func streamable(t *testing.T) http.Handler {
	return sdk.NewStreamableHTTPHandler(good(t), nil)
}

// events serves a good server by SSE.
func events(t *testing.T) http.Handler { return sdk.NewSSEHandler(good(t), nil) }

// good returns a good server whose sessions end with the test, the ones to which
// nobody said goodbye, too.
func good(t *testing.T) func(*http.Request) *sdk.Server {
	server := goodServer()
	t.Cleanup(func() {
		for session := range server.Sessions() {
			session.Close()
		}
	})
	return func(*http.Request) *sdk.Server { return server }
}

// serve serves until the test ends. The server is closed after what uses it.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// service is the configuration of a service.
func service(url string) Config { return Config{Name: "service", URL: url} }

// TestTransportsAreFoundOut has services of both kinds, asked for by name or not.
func TestTransportsAreFoundOut(t *testing.T) {
	for name, c := range map[string]struct {
		handler         http.Handler
		path, transport string
	}{
		"http":                {streamable(t), "/mcp", HTTP},
		"http, not said":      {streamable(t), "/mcp", ""},
		"http behind /sse":    {streamable(t), "/sse", ""},
		"sse":                 {events(t), "/events", SSE},
		"sse, not said":       {events(t), "/events", ""},
		"sse behind /sse":     {events(t), "/sse/?a=b", ""},
		"sse that says 404":   {onlyGet(events(t), http.StatusNotFound), "/mcp", ""},
		"sse that says 405":   {onlyGet(events(t), http.StatusMethodNotAllowed), "/mcp", ""},
		"http without stream": {silentGet(streamable(t)), "/mcp", HTTP},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := service(serve(t, c.handler).URL + c.path)
			cfg.Transport = c.transport
			f := run(t, cfg, Options{})
			f.waitState(Ready)
			for range 2 { // the stream of sse must outlast the greeting
				if r := f.call("add", `{"A":20,"B":22}`); r.Text != "42" {
					t.Errorf("add says %q", r.Text)
				}
			}
			if n := f.Health().Restarts; n != 0 {
				t.Errorf("it took %d restarts", n)
			}
			f.stop()
		})
	}
}

// onlyGet refuses messages that go to the service's own address, as a service
// does that has only SSE there.
func onlyGet(h http.Handler, status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && r.URL.RawQuery == "" {
			http.Error(w, "no", status)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// silentGet takes requests for a stream and never says anything.
func silentGet(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			<-r.Context().Done()
			return
		}
		h.ServeHTTP(w, r)
	})
}

// A keyed service demands a key in three places and notes what came with each
// request.
type keyed struct {
	http.Handler
	mu   sync.Mutex
	seen []http.Header
}

func (k *keyed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	k.mu.Lock()
	k.seen = append(k.seen, r.Header.Clone())
	k.mu.Unlock()
	if user, password, _ := r.BasicAuth(); r.Header.Get("X-Key") != "secret-header" || user != "me" || password != "secret-password" {
		http.Error(w, "no", http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet && r.URL.Query().Get("key") != "secret-query" && r.URL.Query().Get("sessionid") == "" {
		http.Error(w, "no", http.StatusForbidden)
		return
	}
	k.Handler.ServeHTTP(w, r)
}

// TestKeysReachTheServiceAndNobodyElse looks for the keys in whatever is logged
// or told, in good times and after the service is gone.
func TestKeysReachTheServiceAndNobodyElse(t *testing.T) {
	for name, handler := range map[string]http.Handler{HTTP: streamable(t), SSE: events(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keyed{Handler: handler}
			server := serve(t, k)
			cfg := service(strings.Replace(server.URL, "http://", "http://me:secret-password@", 1) + "/secret-path?key=secret-query")
			cfg.Transport = name
			cfg.Headers = map[string]string{"X-Key": "secret-header", "Content-Type": "secret/type"}
			f := run(t, cfg, Options{})
			f.waitState(Ready)
			f.call("add", "{\"A\":1,\"B\":1}")
			k.mu.Lock()
			for i, h := range k.seen {
				if h.Get("X-Key") != "secret-header" || h.Get("Content-Length") != "" && h.Get("Content-Type") != "application/json" {
					t.Errorf("request %d has headers %v", i, h)
				}
			}
			k.mu.Unlock()
			server.CloseClientConnections()
			server.Listener.Close()
			_, err := f.Call(t.Context(), "add", nil)
			if err == nil {
				t.Error("a call to a service that is gone has a result")
			}
			// The session is given up, over SSE at once and over HTTP after some
			// attempts to have its stream back, which are not waited for.
			h := f.Health()
			if name == SSE && !eventually(func() bool { h = f.Health(); return h.Err != nil }) {
				t.Error("health has no error")
			}
			if told := fmt.Sprint(err, h.Err, f.log); strings.Contains(told, "secret") {
				t.Errorf("a key was told:\n%s", told)
			}
			f.stop()
		})
	}
}

// TestRedirections are followed on the service's own host and no further.
func TestRedirections(t *testing.T) {
	var leaked atomic.Bool
	other := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) }))
	mux := http.NewServeMux()
	mux.Handle("/mcp/", streamable(t))
	mux.Handle("/mcp", http.RedirectHandler("/mcp/", http.StatusTemporaryRedirect))
	mux.Handle("/old", http.RedirectHandler("/mcp", http.StatusMovedPermanently))
	mux.Handle("/round", http.RedirectHandler("/round", http.StatusTemporaryRedirect))
	mux.Handle("/away", http.RedirectHandler(other.URL+"/mcp?key=secret", http.StatusTemporaryRedirect))
	home := serve(t, mux)
	for path, want := range map[string]string{
		"/mcp":   "",
		"/old":   "",
		"/round": "more than 3 times",
		"/away":  "put that into url",
	} {
		t.Run(path, func(t *testing.T) {
			cfg := service(home.URL + path)
			cfg.Headers = map[string]string{"Authorization": "Bearer x"}
			f := run(t, cfg, Options{})
			defer f.stop()
			if want == "" {
				f.waitState(Ready)
				f.call("add", `{"A":1,"B":1}`)
				return
			}
			if h := f.waitState(Waiting); h.Err == nil || !strings.Contains(h.Err.Error(), want) || strings.Contains(h.Err.Error(), "secret") {
				t.Errorf("health says %v", h.Err)
			}
		})
	}
	if leaked.Load() {
		t.Error("a request reached the other host")
	}
}

// TestMessagesForAnotherHost has an SSE service that wants messages elsewhere.
func TestMessagesForAnotherHost(t *testing.T) {
	var leaked atomic.Bool
	other := serve(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { leaked.Store(true) }))
	home := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "event: endpoint\ndata: %s/messages\n\n", other.URL)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	cfg := service(home.URL)
	cfg.Transport = SSE
	f := run(t, cfg, Options{})
	if h := f.waitState(Waiting); h.Err == nil || !strings.Contains(h.Err.Error(), "another host") {
		t.Errorf("health says %v", h.Err)
	}
	f.stop()
	if leaked.Load() {
		t.Error("a request reached the other host")
	}
}

// TestBadServices each do harm to nobody but themselves.
func TestBadServices(t *testing.T) {
	endless := func(contentType string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", contentType)
			piece := []byte(strings.Repeat("x", 1<<20))
			for {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		})
	}
	answer := func(status int, contentType, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}
	for name, c := range map[string]struct {
		handler http.Handler
		want    string
	}{
		"no key":         {answer(http.StatusUnauthorized, "text/plain", "no"), "put the right token into headers"},
		"another key":    {answer(http.StatusForbidden, "text/plain", "no"), "put the right token into headers"},
		"a web page":     {answer(http.StatusOK, "text/html", "<h1>Welcome</h1>"), "content type"},
		"rubbish":        {answer(http.StatusOK, "application/json", "}{"), "over http"},
		"not there":      {answer(http.StatusNotFound, "text/plain", "no"), "over sse"},
		"endless":        {endless("application/json"), "more than 16777216 bytes"},
		"endless error":  {endless("text/plain"), "over http"},
		"endless stream": {endless("text/event-stream"), "over http"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := run(t, service(serve(t, c.handler).URL+"/mcp"), Options{})
			h := f.waitState(Waiting)
			if h.Err == nil || !strings.Contains(h.Err.Error(), c.want) {
				t.Errorf("health says %v, want %q", h.Err, c.want)
			}
			f.stop()
		})
	}
}

// TestAServiceThatIsDown comes up later.
func TestAServiceThatIsDown(t *testing.T) {
	var up atomic.Bool
	inner := streamable(t)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !up.Load() {
			http.Error(w, "not yet", http.StatusServiceUnavailable)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	f := run(t, service(server.URL), Options{})
	f.waitState(Waiting)
	up.Store(true)
	if h := f.waitState(Ready); h.Restarts == 0 {
		t.Errorf("health is %+v", h)
	}
	f.stop()
}

// TestAServiceThatWasRestarted forgets its sessions.
func TestAServiceThatWasRestarted(t *testing.T) {
	var life atomic.Pointer[http.Handler]
	begin := func() {
		h := streamable(t)
		life.Store(&h)
	}
	begin()
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*life.Load()).ServeHTTP(w, r) }))
	f := run(t, service(server.URL), Options{})
	f.waitState(Ready)
	begin()
	if _, err := f.Call(t.Context(), "add", json.RawMessage(`{"A":1,"B":1}`)); err == nil {
		t.Error("a call of a session that is forgotten has a result")
	}
	if !eventually(func() bool { h := f.Health(); return h.State == Ready && h.Restarts == 1 }) {
		t.Errorf("health is %+v", f.Health())
	}
	f.call("add", `{"A":1,"B":1}`)
	f.stop()
}

// TestTheServiceSpeaks of its own accord, on its stream, of tools that came.
func TestTheServiceSpeaks(t *testing.T) {
	for _, kind := range []string{HTTP, SSE} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := good(t)(nil)
			get := func(*http.Request) *sdk.Server { return server }
			handler := http.Handler(sdk.NewStreamableHTTPHandler(get, nil))
			if kind == SSE {
				handler = sdk.NewSSEHandler(get, nil)
			}
			cfg := service(serve(t, handler).URL)
			cfg.Transport = kind
			f := run(t, cfg, Options{})
			f.waitState(Ready)
			server.AddTool(&sdk.Tool{Name: "new", InputSchema: map[string]any{"type": "object"}},
				func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) { return nil, nil })
			if !eventually(func() bool { return f.Health().Tools == 6 }) {
				t.Errorf("health is %+v", f.Health())
			}
			f.stop()
		})
	}
}

// TestGoodbye sees the session ended at the service when Parley ends.
func TestGoodbye(t *testing.T) {
	var goodbyes atomic.Int32
	inner := streamable(t)
	server := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			goodbyes.Add(1)
		}
		inner.ServeHTTP(w, r)
	}))
	cfg := service(server.URL)
	f := run(t, cfg, Options{})
	f.waitState(Ready)
	called := make(chan error, 1)
	go func() {
		_, err := f.Call(context.Background(), "hang", nil)
		called <- err
	}()
	f.stop()
	if err := <-called; !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("the call that was under way says %v", err)
	}
	if n := goodbyes.Load(); n != 1 {
		t.Errorf("%d goodbyes were said", n)
	}
}
