package openaiapi_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"go.uber.org/goleak"

	"parley/internal/openaiapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"

func serve(t *testing.T, h http.HandlerFunc) (*openaiapi.Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return client(t, openaiapi.Config{BaseURL: server.URL + "/v1"}), server
}

func client(t *testing.T, cfg openaiapi.Config) *openaiapi.Client {
	t.Helper()
	cfg.Table, cfg.APIKey, cfg.Model, cfg.HTTP = "llm.openai", key, "some-model", openaiapi.NewHTTPClient(0)
	t.Cleanup(cfg.HTTP.CloseIdleConnections)
	c, err := openaiapi.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []struct{ baseURL, key, says string }{
		{"127.0.0.1:11434/v1", "", "base_url"},
		{"localhost", "", "http:// or https://"},
		{"ftp://host/v1", "", "http:// or https://"},
		{"https://", "", "host"},
		{"https://user:hunter2@host/v1", "", "api_key"},
		{"https://host:port/hunter2", "", "not a URL"},
		{"", "hunter2\n", "line break"},
		{"", "hunter2 x", "line break"},
	} {
		_, err := openaiapi.New(openaiapi.Config{Table: "llm.openai", BaseURL: c.baseURL, APIKey: c.key})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), "[llm.openai]: ") {
			t.Errorf("base_url %q, key %q: %v", c.baseURL, c.key, err)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error holds the secret: %v", err)
		}
	}
}

func TestRequestIsSentAsConfigured(t *testing.T) {
	var got http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { got = *r }))
	defer server.Close()
	c := client(t, openaiapi.Config{BaseURL: server.URL + "/gateway/v1/?api-version=7"})
	resp, err := c.PostJSON(t.Context(), "chat/completions", map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	resp.Close()
	if got.URL.String() != "/gateway/v1/chat/completions?api-version=7" ||
		got.Header.Get("Authorization") != "Bearer "+key || got.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", got.URL, got.Header)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		header [2]string
		body   string
		says   []string
	}{
		"401":            {401, [2]string{}, `{"error":{"message":"no such key","code":"invalid_api_key"}}`, []string{"401 Unauthorized: no such key", "check api_key of [llm.openai]"}},
		"404":            {404, [2]string{}, `404 page not found`, []string{"404 page not found", `model "some-model"`, "/v1/x", "end in /v1"}},
		"429":            {429, [2]string{"Retry-After", "7"}, `{"error":{"message":"slow down"}}`, []string{"slow down", "wait 7s"}},
		"quota":          {429, [2]string{}, `{"error":{"message":"insufficient_quota"}}`, []string{"quota"}},
		"500 plain":      {500, [2]string{}, "oh\nno", []string{"500 Internal Server Error: oh no"}},
		"502 html":       {502, [2]string{"Content-Type", "text/html"}, "<html>Bad gateway", []string{"502 Bad Gateway"}},
		"ollama":         {404, [2]string{}, `{"error":"model \"x\" not found, try pulling it first"}`, []string{"try pulling it first"}},
		"vllm":           {400, [2]string{}, `{"object":"error","message":"too long","code":400}`, []string{"too long"}},
		"fastapi":        {422, [2]string{}, `{"detail":[{"msg":"field required"}]}`, []string{"field required"}},
		"redirect":       {301, [2]string{"Location", "https://elsewhere/v1"}, "", []string{`redirects to "https://elsewhere/v1"`, "base_url"}},
		"unknown status": {599, [2]string{}, "", []string{"599"}},
	} {
		api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if c.header[0] != "" {
				w.Header().Set(c.header[0], c.header[1])
			}
			w.WriteHeader(c.status)
			io.WriteString(w, c.body)
		})
		_, err := api.Post(t.Context(), "x", "text/plain", nil)
		refusal, ok := errors.AsType[*openaiapi.Error](err)
		if !ok || refusal.Status != c.status {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, s := range c.says {
			if !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %q does not say %q", name, err, s)
			}
		}
		if strings.Contains(err.Error(), "<html") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %q", name, err)
		}
		if fault := c.status == 400 || c.status == 422; refusal.RequestFault() != fault {
			t.Errorf("%s: RequestFault is %v", name, !fault)
		}
	}
}

func TestErrorsDoNotRepeatTheKey(t *testing.T) {
	for _, echo := range []string{
		key,
		"Bearer " + key,
		`"` + key + `".`,
		"sk-proj-****6789",
		key[:12] + "...",
		"…" + key[len(key)-8:],
		"headers={'authorization':'Bearer " + key + "'}",
	} {
		api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(401)
			io.WriteString(w, `{"error":{"message":`+quote("Incorrect API key provided: "+echo+" was given")+`}}`)
		})
		_, err := api.Post(t.Context(), "x", "text/plain", nil)
		text := err.Error()
		for _, part := range []string{"abcdefgh", "6789", "sk-proj"} {
			if strings.Contains(text, part) {
				t.Errorf("%q: the error %q holds %q", echo, text, part)
			}
		}
		if !strings.Contains(text, "Incorrect API key provided: ") || !strings.Contains(text, "was given") {
			t.Errorf("%q: the error %q has lost its message", echo, text)
		}
	}
	if _, err := openaiapi.New(openaiapi.Config{BaseURL: "https://host/?key=" + key + "\x7f"}); err == nil || strings.Contains(err.Error(), key) {
		t.Errorf("a base_url that does not parse: %v", err)
	}
}

func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }

func TestErrorMessageIsBounded(t *testing.T) {
	api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(500)
		io.WriteString(w, strings.Repeat("é", 100_000))
	})
	_, err := api.Post(t.Context(), "x", "text/plain", nil)
	if n := len(err.Error()); n > 500 || strings.ContainsRune(err.Error(), '\ufffd') {
		t.Errorf("the error has %d bytes: %q", n, err)
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	_, err = client(t, openaiapi.Config{BaseURL: "http://" + addr + "/v1?secret=hunter2"}).Post(t.Context(), "x", "", nil)
	if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "cannot reach base_url http://"+addr+"/v1: ") {
		t.Errorf("%v", err)
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error repeats the query: %v", err)
	}
}

func TestCallersReasonIsReturned(t *testing.T) {
	reason := errors.New("the user hung up")
	arrived := make(chan struct{})
	api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/mid-answer" {
			w.WriteHeader(200)
			http.NewResponseController(w).Flush()
		}
		close(arrived)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() { <-arrived; cancel(reason) }()
	if _, err := api.Post(ctx, "before", "", nil); err != reason {
		t.Errorf("before the answer: %v", err)
	}
	arrived = make(chan struct{})
	ctx, cancel = context.WithCancelCause(t.Context())
	resp, err := api.Post(ctx, "mid-answer", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	cancel(reason)
	if _, err := io.ReadAll(resp); err != reason {
		t.Errorf("in mid-answer: %v", err)
	}
}

func TestBrokenAnswerIsAnError(t *testing.T) {
	api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	resp, err := api.Post(t.Context(), "x", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	got, err := io.ReadAll(resp)
	if string(got) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(err.Error(), "[llm.openai]") {
		t.Errorf("%q, %v", got, err)
	}
	if explained := resp.Explain(errors.New("a parser stumbled")); explained != err {
		t.Errorf("explained as %v", explained)
	}
}

func TestAnswerIsBounded(t *testing.T) {
	api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		piece := make([]byte, 1<<20)
		for range 17 {
			w.Write(piece)
		}
	})
	resp, err := api.Post(t.Context(), "x", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Close()
	if n, err := io.Copy(io.Discard, resp); n != openaiapi.MaxResponse || err == nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

// TestConnectionServesTheNextTurn counts connections: a new one for each turn
// costs a round trip, or three with TLS, before every answer.
func TestConnectionServesTheNextTurn(t *testing.T) {
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: [DONE]\n\n")
		http.NewResponseController(w).Flush()
	}))
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	defer server.Close()
	api := client(t, openaiapi.Config{BaseURL: server.URL})
	for range 5 {
		resp, err := api.Post(t.Context(), "x", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		for range resp.Events() {
			resp.Drain()
			break
		}
		resp.Close()
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("5 turns took %d connections", n)
	}
}

func TestDrainDoesNotWaitForever(t *testing.T) {
	api, server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "data: [DONE]\n\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	resp, err := api.Post(t.Context(), "x", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Drain()
	resp.Close()
	server.Close() // would wait for the handler, and with it for the client
}

func TestRetryAfterDate(t *testing.T) {
	api, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", time.Now().Add(48*time.Hour).UTC().Format(http.TimeFormat))
		w.WriteHeader(503)
	})
	_, err := api.Post(t.Context(), "x", "", nil)
	if refusal, ok := errors.AsType[*openaiapi.Error](err); !ok || refusal.RetryAfter != time.Hour {
		t.Errorf("%v", err)
	}
}

// refusing is an [http.RoundTripper] that refuses everything with one body.
type refusing string

func (r refusing) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 401, Body: io.NopCloser(strings.NewReader(string(r))), Request: req}, nil
}

// FuzzErrorText checks what holds for any body of an error: its text is one
// bounded line of valid UTF-8 without a part of the key.
func FuzzErrorText(f *testing.F) {
	f.Add(`{"error":{"message":"Incorrect API key provided: ` + key + `.","code":"401"}}`)
	f.Add(`{"error":"` + key[4:20] + `"}`)
	f.Add("\x1b[31m\xff" + key + "\r\n")
	f.Fuzz(func(t *testing.T, body string) {
		api, err := openaiapi.New(openaiapi.Config{Table: "t", APIKey: key, HTTP: &http.Client{Transport: refusing(body)}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = api.Post(t.Context(), "x", "", nil)
		text := err.Error()
		if len(text) > 600 || !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			t.Errorf("%q gives %q", body, text)
		}
		for i := range len(key) - 8 {
			if strings.Contains(text, key[i:i+8]) {
				t.Errorf("%q gives %q, with a part of the key", body, text)
			}
		}
	})
}
