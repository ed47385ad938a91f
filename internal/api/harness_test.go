package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"parley/internal/api"
	"parley/internal/simnet"
)

// Secrets of the tokens of [tokens], by what they are for.
const (
	reader   = "reader-0123456789abcdef"
	operator = "operator-0123456789abcdef"
	admin    = "admin-0123456789abcdef"
	all      = "everything-0123456789abcdef"
)

func tokens() []api.Token {
	return []api.Token{
		{Name: "dashboard", Secret: reader, Scopes: []api.Scope{api.Read}},
		{Name: "automation", Secret: operator, Scopes: []api.Scope{api.Control}},
		{Name: "janitor", Secret: admin, Scopes: []api.Scope{api.Admin}},
		{Name: "root", Secret: all, Scopes: []api.Scope{api.Read, api.Control, api.Admin}},
	}
}

// A journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

// take returns the lines since the last time.
func (j *journal) take(t *testing.T) []map[string]any {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	var lines []map[string]any
	for line := range bytes.Lines(j.text.Bytes()) {
		var m map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
	}
	j.text.Reset()
	return lines
}

// A world is an API behind a real HTTP server, its fleet, and a client that
// holds every answer against the OpenAPI document.
type world struct {
	t      *testing.T
	fleet  *fakeFleet
	api    *api.API
	log    *journal
	url    string
	client *http.Client
	server *http.Server // of newVirtual
	spec   *spec
}

func newAPI(t *testing.T, cfg api.Config) *world {
	t.Helper()
	w := &world{t: t, fleet: newFleet(), log: &journal{}, spec: newSpec(t)}
	var err error
	if w.api, err = api.New(cfg, w.fleet, slog.New(slog.NewJSONHandler(w.log, nil))); err != nil {
		t.Fatal(err)
	}
	return w
}

// newWorld serves on a loopback socket.
func newWorld(t *testing.T, cfg api.Config) *world {
	t.Helper()
	w := newAPI(t, cfg)
	server := httptest.NewServer(w.api)
	t.Cleanup(server.Close)
	w.url, w.client = server.URL, server.Client()
	return w
}

var simulated = netip.MustParseAddrPort("10.0.0.1:8003")

// newVirtual serves in virtual time, with the time limits of Parley's server, to
// clients at 10.0.0.2 and others.
func newVirtual(t *testing.T, cfg api.Config) *world {
	t.Helper()
	w := newAPI(t, cfg)
	network := simnet.New(1)
	listener, err := network.ListenTCP(simulated)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: w.api, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute}
	w.server = server
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // ends with Close
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		server.Close()
		serving.Wait()
	})
	w.url = "http://" + simulated.String()
	w.from(network, "10.0.0.2")
	w.client.Transport.(*http.Transport).DisableKeepAlives = true
	return w
}

// from lets the next requests come from an address of the network.
func (w *world) from(network *simnet.Network, ip string) {
	w.client = &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return network.DialTCP(ctx, netip.MustParseAddr(ip), simulated, simnet.Path{}, simnet.Path{})
	}}}
}

// A reply is an HTTP response, read.
type reply struct {
	status int
	header http.Header
	body   string
	json   map[string]any // nil where the body is no JSON object
}

func (r reply) code() string { s, _ := r.json["code"].(string); return s }

// do sends a request, with a bearer token unless it is "", and checks the
// response. Headers come in pairs.
func (w *world) do(method, path, token, body string, headers ...string) reply {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, w.url+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		if pair[0] == "Host" {
			req.Host = pair[1]
		}
		req.Header.Set(pair[0], pair[1])
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	r := reply{status: res.StatusCode, header: res.Header, body: string(text)}
	_ = json.Unmarshal(text, &r.json)
	w.spec.check(w.t, req, r)
	return r
}

// A spec is the OpenAPI document, to hold answers against.
type spec struct {
	doc struct {
		Paths      map[string]map[string]json.RawMessage `json:"paths"`
		Components struct {
			Responses map[string]json.RawMessage `json:"responses"`
			Schemas   map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	defs json.RawMessage
	mux  *http.ServeMux // of the documented paths

	mu       sync.Mutex
	resolved map[string]*jsonschema.Resolved // by the text of the schema
}

type specOperation struct {
	Responses   map[string]json.RawMessage `json:"responses"`
	RequestBody specResponse               `json:"requestBody"`
}

type specResponse struct {
	Ref     string `json:"$ref"`
	Headers map[string]struct {
		Required bool `json:"required"`
	} `json:"headers"`
	Content map[string]struct {
		Schema json.RawMessage `json:"schema"`
	} `json:"content"`
}

func newSpec(t testing.TB) *spec {
	t.Helper()
	s := &spec{mux: http.NewServeMux(), resolved: map[string]*jsonschema.Resolved{}}
	if err := json.Unmarshal(api.Document(), &s.doc); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.defs, err = json.Marshal(s.doc.Components.Schemas); err != nil {
		t.Fatal(err)
	}
	s.defs = bytes.ReplaceAll(s.defs, []byte("#/components/schemas/"), []byte("#/$defs/"))
	for _, p := range s.patterns() {
		s.mux.HandleFunc(p, func(http.ResponseWriter, *http.Request) {})
	}
	return s
}

// patterns are the documented operations as patterns of a mux.
func (s *spec) patterns() []string {
	var out []string
	for path, item := range s.doc.Paths {
		for key := range item {
			if key != "parameters" {
				out = append(out, strings.ToUpper(key)+" "+path)
			}
		}
	}
	slices.Sort(out)
	return out
}

func (s *spec) operation(t testing.TB, pattern string) specOperation {
	t.Helper()
	method, path, _ := strings.Cut(pattern, " ")
	var op specOperation
	if err := json.Unmarshal(s.doc.Paths[path][strings.ToLower(method)], &op); err != nil {
		t.Fatalf("%s: %v", pattern, err)
	}
	return op
}

// schema resolves a schema of the document.
func (s *spec) schema(t testing.TB, raw json.RawMessage) *jsonschema.Resolved {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.resolved[string(raw)]; known != nil {
		return known
	}
	var inner map[string]any
	if err := json.Unmarshal(bytes.ReplaceAll(raw, []byte("#/components/schemas/"), []byte("#/$defs/")), &inner); err != nil {
		t.Fatal(err)
	}
	inner["$defs"] = s.defs
	text, err := json.Marshal(inner)
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.resolved[string(raw)] = resolved
	return resolved
}

// check fails the test if the document does not allow r as the answer to req.
// What is not documented may only be answered with a problem.
func (s *spec) check(t testing.TB, req *http.Request, r reply) {
	t.Helper()
	_, pattern := s.mux.Handler(req)
	media, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	if pattern == "" {
		if r.status < 400 || media != "application/problem+json" {
			t.Errorf("%s %s is not documented and answers %d %q", req.Method, req.URL.Path, r.status, media)
		}
		s.valid(t, json.RawMessage(`{"$ref":"#/components/schemas/Problem"}`), pattern, r)
		return
	}
	raw, ok := s.operation(t, pattern).Responses[strconv.Itoa(r.status)]
	if !ok {
		t.Errorf("%s: %d is not documented: %s", pattern, r.status, r.body)
		return
	}
	var want specResponse
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if name, ok := strings.CutPrefix(want.Ref, "#/components/responses/"); ok {
		if err := json.Unmarshal(s.doc.Components.Responses[name], &want); err != nil {
			t.Fatalf("%s: %s: %v", pattern, want.Ref, err)
		}
	}
	for name, h := range want.Headers {
		if h.Required && r.header.Get(name) == "" {
			t.Errorf("%s: %d comes without %s", pattern, r.status, name)
		}
	}
	content, ok := want.Content[media]
	switch {
	case len(want.Content) == 0:
		if r.body != "" {
			t.Errorf("%s: %d has a body: %s", pattern, r.status, r.body)
		}
	case !ok:
		t.Errorf("%s: %d has the type %q, documented are %v", pattern, r.status, media, slices.Sorted(maps.Keys(want.Content)))
	case media != "text/plain" && media != "text/event-stream":
		s.valid(t, content.Schema, pattern, r)
	}
}

// valid fails the test if the schema does not allow r's body.
func (s *spec) valid(t testing.TB, schema json.RawMessage, pattern string, r reply) {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(r.body), &value); err != nil {
		t.Errorf("%s: %d is no JSON: %q", pattern, r.status, r.body)
		return
	}
	if err := s.schema(t, schema).Validate(value); err != nil {
		t.Errorf("%s: %d breaks its schema: %v\n%s", pattern, r.status, err, r.body)
	}
}
