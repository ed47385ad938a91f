package api_test

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"parley/internal/api"
)

// fuzzAPI is an API to throw things at, without sockets.
func fuzzAPI(f *testing.F) (*api.API, *fakeFleet) {
	fleet := newFleet()
	a, err := api.New(api.Config{Tokens: tokens(), Gateway: true, GatewayKey: gatewayKey}, fleet, slog.New(slog.DiscardHandler))
	if err != nil {
		f.Fatal(err)
	}
	return a, fleet
}

func serve(a *api.API, path, body string) (*http.Request, reply) {
	r := httptest.NewRequest(post, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+all)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	rec := httptest.NewRecorder()
	a.ServeHTTP(rec, r)
	out := reply{status: rec.Code, header: rec.Header(), body: rec.Body.String()}
	_ = json.Unmarshal(rec.Body.Bytes(), &out.json)
	return r, out
}

// FuzzBodies sends any body to every path that takes one. Each answer must be a
// documented one, and say and alert must accept just what the document allows.
func FuzzBodies(f *testing.F) {
	for _, seed := range []string{
		`{"text":"Dinner is ready."}`,
		`{"text":"a","text":"b"}`,
		`{"Text":"a"}`,
		`{"status":"a","message":"b","emotion":"happy"}`,
		`{"status":"\ud800","message":"\u0000","emotion":""}`,
		`{"text":"\u3000"}`,
		`{"text":null}`,
		`{"type":"mcp","payload":{"method":"tools/call","params":{"name":"self.reboot","arguments":{}}}}`,
		`{"type":"mcp","payload":{"method":"tools/call","params":{"name":"a","NAME":"b"}}}`,
		`{"clientIds":["GID@@@a0_85_e3_f4_49_34@@@x"]}`,
		ping,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"say","arguments":{"device":"a0:85:e3:f4:49:34","text":"a"}}}`,
		`[{"jsonrpc":"2.0","id":1,"method":"ping"}]`,
		`{}{}`, `[[[[`, `"`, "\xff", ``,
	} {
		f.Add([]byte(seed))
	}
	a, fleet := fuzzAPI(f)
	s := newSpec(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{
			devicePath + "/say", devicePath + "/alert", devicePath + "/reboot", devicePath + "/tools/self.camera.take_photo",
			"/api/commands/" + kitchenClient, "/api/devices/status", "/mcp",
		} {
			req, r := serve(a, path, string(body))
			if r.status == http.StatusOK && path == "/mcp" && !strings.HasPrefix(strings.TrimSpace(r.body), "{") {
				continue // the answer to a batch of an old version is an array
			}
			s.check(t, req, r)
			if strings.HasSuffix(path, "/say") || strings.HasSuffix(path, "/alert") {
				agree(t, s, req, r, body)
			}
			for _, asked := range fleet.requests() {
				// Whatever it is, it is valid JSON when it reaches a device.
				if _, params, ok := strings.Cut(asked, "request tools/call "); ok && !json.Valid([]byte(params)) {
					t.Errorf("%s: a device was asked %s", path, asked)
				}
			}
		}
	})
}

// agree fails the test if a body was accepted that the document does not allow,
// or refused that it does.
func agree(t *testing.T, s *spec, req *http.Request, r reply, body []byte) {
	t.Helper()
	_, pattern := s.mux.Handler(req)
	schema := s.schema(t, s.operation(t, pattern).RequestBody.Content["application/json"].Schema)
	var value map[string]any
	err := json.Unmarshal(body, &value)
	if err == nil && value == nil {
		err = errors.New("null")
	}
	if err == nil {
		err = schema.Validate(value)
	}
	if err == nil { // a pattern of Go knows no blanks but those of ASCII
		for _, text := range value {
			if strings.TrimSpace(text.(string)) == "" {
				return
			}
		}
	}
	if accepted := r.status < 300; accepted != (err == nil) && len(body) <= api.MaxBody {
		t.Errorf("%s %s: %d, and the document says %v", pattern, body, r.status, err)
	}
}

// FuzzQuery sends any query string to the list of devices.
func FuzzQuery(f *testing.F) {
	for _, seed := range []string{"limit=1&cursor=a0:85:e3:f4:49:34", "state=idle&role=&board=x", "limit=-1", "limit=1;cursor=x", "%zz", "a=%00&a=b"} {
		f.Add(seed)
	}
	a, _ := fuzzAPI(f)
	s := newSpec(f)
	f.Fuzz(func(t *testing.T, query string) {
		r := httptest.NewRequest(get, "/api/v1/devices", nil)
		r.URL.RawQuery = query
		r.Header.Set("Authorization", "Bearer "+all)
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, r)
		s.check(t, r, reply{status: rec.Code, header: rec.Header(), body: rec.Body.String()})
	})
}
