package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/api"
)

// TestSlowToolsOutlastTheServersLimits: the server gives requests 15 s to be
// read and answers 30 s to be written; a tool may take longer.
func TestSlowToolsOutlastTheServersLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		hold := make(chan struct{})
		w.fleet.set(func(f *fakeFleet) { f.hold = hold })
		time.AfterFunc(50*time.Second, func() { close(hold) })
		began := time.Now()
		r := w.do(post, devicePath+"/tools/self.camera.take_photo", operator, `{"question":"?"}`)
		if took := time.Since(began); r.status != 200 || took != 50*time.Second {
			t.Errorf("after %v: %d %s", took, r.status, r.body)
		}
	})
}

func TestSlowToolsOfAgents(t *testing.T) {
	for _, version := range []string{"2025-03-26", ""} {
		synctest.Test(t, func(t *testing.T) {
			w := newVirtual(t, api.Config{Tokens: tokens()})
			hold := make(chan struct{})
			session := w.connect(all, version)
			w.fleet.set(func(f *fakeFleet) { f.hold = hold })
			time.AfterFunc(50*time.Second, func() { close(hold) })
			began := time.Now()
			res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "reboot_device", Arguments: map[string]any{"device": kitchen}})
			if took := time.Since(began); err != nil || res.IsError || took != 50*time.Second {
				t.Errorf("version %q, after %v: %+v, %v", version, took, res, err)
			}
			session.Close()
		})
	}
}

func TestOperationsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		w.fleet.set(func(f *fakeFleet) { f.hold = make(chan struct{}) })
		began := time.Now()
		r := w.do(post, devicePath+"/reboot", admin, "")
		if took := time.Since(began); r.status != 504 || r.code() != "timeout" || took != api.OperationTimeout {
			t.Errorf("after %v: %d %s", took, r.status, r.body)
		}
		if lines := w.log.take(t); len(lines) != 1 || lines[0]["result"] != "timeout" || lines[0]["took_ms"] != 60000.0 {
			t.Errorf("logged %v", lines)
		}
	})
}

// TestWhoHangsUpEndsTheOperation also for MCP clients of old versions, whose
// calls the SDK itself would let run on.
func TestWhoHangsUpEndsTheOperation(t *testing.T) {
	for name, request := range map[string]func(w *world) (method, path, body string){
		"rest": func(*world) (string, string, string) { return post, devicePath + "/reboot", "" },
		"mcp": func(*world) (string, string, string) {
			body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": "reboot_device", "arguments": map[string]any{"device": kitchen}}})
			return post, "/mcp", string(body)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newVirtual(t, api.Config{Tokens: tokens()})
				w.fleet.set(func(f *fakeFleet) { f.hold = make(chan struct{}) })
				method, path, body := request(w)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				req, err := http.NewRequestWithContext(ctx, method, w.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+admin)
				req.Header.Set("Content-Type", "application/json")
				req.Header.Set("Accept", "application/json, text/event-stream")
				res, err := w.client.Do(req)
				if err == nil {
					res.Body.Close()
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
				synctest.Wait()
				lines := w.log.take(t)
				if len(lines) != 1 || lines[0]["result"] != "failed" || lines[0]["took_ms"] != 20000.0 {
					t.Errorf("logged %v", lines)
				}
			})
		})
	}
}

func TestOperationsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		hold, holding := make(chan struct{}), make(chan struct{}, api.MaxOperations)
		w.fleet.set(func(f *fakeFleet) { f.hold, f.holding = hold, holding })
		var calls sync.WaitGroup
		for range api.MaxOperations {
			calls.Go(func() {
				if r := w.do(post, devicePath+"/reboot", admin, ""); r.status != 204 {
					t.Errorf("%d %s", r.status, r.body)
				}
			})
		}
		for range api.MaxOperations {
			<-holding
		}
		if r := w.do(post, devicePath+"/reboot", admin, ""); r.status != 503 || r.code() != "server_busy" || r.header.Get("Retry-After") == "" {
			t.Errorf("%d %s", r.status, r.body)
		}
		if r := w.do(get, devicePath, reader, ""); r.status != 200 {
			t.Errorf("looking is not an operation on a device: %d", r.status)
		}
		close(hold)
		calls.Wait()
		w.fleet.set(func(f *fakeFleet) { f.hold = nil })
		if r := w.do(post, devicePath+"/reboot", admin, ""); r.status != 204 {
			t.Errorf("%d %s", r.status, r.body)
		}
		if s := w.api.Stats(); s.Overload != 1 || s.Actions != api.MaxOperations+2 {
			t.Errorf("%+v", s)
		}
	})
}
