package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
	"parley/mcp"
)

func TestNotificationsReachSubscribers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.Counters
		_, d := newFakeDevice(t, mcp.Config{Counters: &counters})
		var one, two []string
		cancel := d.Subscribe(func(method string, params json.RawMessage) { one = append(one, method+string(params)) })
		d.Subscribe(func(method string, _ json.RawMessage) { two = append(two, method) })
		d.Receive(json.RawMessage(`{"jsonrpc":"2.0","method":"notifications/state","params":{"a":1}}`))
		d.Receive(json.RawMessage(`{"method":"notifications/b","params":null,"id":null}`))
		synctest.Wait()
		cancel()
		cancel()
		d.Receive(json.RawMessage(`{"method":"notifications/c"}`))
		synctest.Wait()
		if got := strings.Join(one, " "); got != `notifications/state{"a":1} notifications/b` {
			t.Errorf("the first got %q", got)
		}
		if got := strings.Join(two, " "); got != "notifications/state notifications/b notifications/c" {
			t.Errorf("the second got %q", got)
		}
		if counters.Notices.Load() != 3 || counters.Unexpected.Load() != 0 {
			t.Errorf("notices %d, unexpected %d", counters.Notices.Load(), counters.Unexpected.Load())
		}
	})
}

// TestSlowSubscriberHoldsNothingUp: Receive does not wait, and what is too much
// is dropped; calls go on; Close waits for the subscriber.
func TestSlowSubscriberHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.Counters
		_, d := newFakeDevice(t, mcp.Config{Counters: &counters}, fakeTool{name: "tool"})
		start(t, d)
		got := 0
		d.Subscribe(func(string, json.RawMessage) { time.Sleep(time.Minute); got++ })
		began := time.Now()
		for range 100 {
			d.Receive(json.RawMessage(`{"method":"notifications/x"}`))
		}
		if _, err := d.Call(t.Context(), "tool", nil); err != nil || time.Since(began) != 0 {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		d.Close()
		if took := time.Since(began); took != time.Minute || got != 1 {
			t.Errorf("Close took %v, the subscriber got %d", took, got)
		}
		d.Receive(json.RawMessage(`{"method":"notifications/x"}`))
		if counters.Unexpected.Load() < 83 || counters.Unexpected.Load() > 84 {
			t.Errorf("%d were dropped", counters.Unexpected.Load())
		}
	})
}

func TestDeviceChangesItsTools(t *testing.T) {
	const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "old"}, fakeTool{name: "both"})
		start(t, d)
		set, err := mcp.NewSet(mcp.Rules{}, mcp.Member{Label: "device", Source: d})
		if err != nil {
			t.Fatal(err)
		}
		before := d.Version()
		if got := strings.Join(toolNames(set.Tools()), " "); got != "old both" || d.Count() != 2 {
			t.Fatalf("tools %q", got)
		}
		time.Sleep(time.Minute)
		f.become(fakeTool{name: "both"}, fakeTool{name: "new"})
		d.Receive(json.RawMessage(changed))
		time.Sleep(time.Millisecond)
		if got := strings.Join(toolNames(set.Tools()), " "); got != "both new" || d.Version() == before {
			t.Errorf("tools %q", got)
		}
		if _, err := set.Call(t.Context(), "old", nil); !errors.Is(err, mcp.ErrUnknownTool) {
			t.Errorf("old: %v", err)
		}
		if res, err := set.Call(t.Context(), "new", nil); err != nil || res.Text != "true" {
			t.Errorf("new: %+v, %v", res, err)
		}
		asked, began := f.listings(), time.Now()
		for time.Since(began) < 20*time.Second {
			d.Receive(json.RawMessage(changed))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := f.listings() - asked; n < 9 || n > 11 {
			t.Errorf("asked %d times in 20 s", n)
		}
		// The same tools again are no change.
		version := d.Version()
		d.Receive(json.RawMessage(changed))
		time.Sleep(time.Minute)
		if d.Version() != version {
			t.Error("the version rose for nothing")
		}
		// A device that does not answer keeps its tools, and is asked once.
		f.setOffline(errors.New("gone"))
		asked = f.listings()
		d.Receive(json.RawMessage(changed))
		time.Sleep(time.Hour)
		if n := f.listings() - asked; n != 1 || d.Count() != 2 {
			t.Errorf("asked %d times, %d tools", n, d.Count())
		}
	})
}

func TestRequestsOfTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.Counters
		f, d := newFakeDevice(t, mcp.Config{Counters: &counters})
		for _, m := range []string{
			`{"jsonrpc":"2.0","id":7,"method":"ping"}`, // answered
			`{"jsonrpc":"2.0","id":8,"method":"ping"}`, // too soon
		} {
			d.Receive(json.RawMessage(m))
		}
		time.Sleep(time.Second)
		for _, m := range []string{
			`{"jsonrpc":"2.0","id":{},"method":"ping"}`,
			`{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{}}`,
			`{"jsonrpc":"2.0","id":9,"method":7}`,
			`{"jsonrpc":"2.0","id":"x","method":"ping","params":{}}`, // answered
		} {
			d.Receive(json.RawMessage(m))
		}
		var answers []string
		for _, m := range f.sent() {
			answers = append(answers, string(m.ID)+string(m.Result)+m.Version)
		}
		if got := strings.Join(answers, " "); got != `7{}2.0 "x"{}2.0` || counters.Unexpected.Load() != 4 {
			t.Errorf("answers %q, unexpected %d", got, counters.Unexpected.Load())
		}
	})
}

func TestBrokenErrorsAreSalvaged(t *testing.T) {
	for name, test := range map[string]struct {
		reply string // %d is the id
		want  string // "" where it cannot be salvaged
	}{
		"firmware":           {`{"jsonrpc":"2.0","id":%d,"error":{"message":"Unknown tool: "x"y"}}`, `Unknown tool: "x"y`},
		"spaces":             {`{ "id" : %d , "error" : { "message" : "a "b" c" } }`, `a "b" c`},
		"a newline":          {"{\"id\":%d,\"error\":{\"message\":\"a\nb\x00\"}}", "a b"},
		"cut off":            {`{"id":%d,"error":{"message":"no such th`, "no such th"},
		"no text":            {`{"id":%d,"error":{"message":"""}}`, `"`},
		"nothing of it":      {`{"id":%d,"error":{"mess`, "the device's answer is unreadable"},
		"long":               {`{"id":%d,"error":{"message":""` + strings.Repeat("é", 1000) + `"}}`, `"` + strings.Repeat("é", 255)},
		"not its id":         {`{"id":1%d,"error":{"message":"a "b""}}`, ""},
		"a fraction":         {`{"id":%d.5,"error":{"message":"a "b""}}`, ""},
		"an exponent":        {`{"id":%de1,"error":{"message":"a "b""}}`, ""},
		"in quotes":          {`{"id":"%d","error":{"message":"a "b""}}`, ""},
		"id in the text":     {`{"id":5,"error":{"message":"a "id":%d, b"}}`, ""},
		"id of another part": {`{"error":{"message":"a "x""},"ids":%d}`, ""},
		"broken result":      {`{"id":%d,"result":{"content":"a "b""}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var counters mcp.Counters
				f, d := newFakeDevice(t, mcp.Config{Counters: &counters}, fakeTool{name: "tool"})
				start(t, d)
				f.mangle = func(id int64, _ string) []string {
					return []string{strings.ReplaceAll(test.reply, "%d", fmt.Sprint(id))}
				}
				res, err := d.Call(t.Context(), "tool", nil)
				if test.want == "" {
					if !errors.Is(err, mcp.ErrTimeout) || counters.Malformed.Load() != 1 {
						t.Errorf("%+v, %v", res, err)
					}
				} else if err != nil || !res.IsError || res.Text != test.want || counters.Salvaged.Load() != 1 {
					t.Errorf("%+v, %v", res, err)
				}
				f.mangle = nil
				if res, err := d.Call(t.Context(), "tool", nil); err != nil || res.Text != "true" {
					t.Errorf("the next call: %+v, %v", res, err)
				}
			})
		})
	}
}

func TestBrokenListingErrorIsSalvaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "tool"})
		f.override = func(method string) (string, bool) {
			return `"error":{"message":"no "tools" yet"}`, method == "tools/list"
		}
		_, err := d.Call(t.Context(), "tool", nil)
		if err == nil || !strings.Contains(err.Error(), `no "tools" yet`) {
			t.Errorf("got %v", err)
		}
	})
}

func TestFirmwareIsNotUpgradedFromNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		start(t, d)
		before := len(f.sent())
		for _, args := range []string{"", "{}", `{"url":""}`, `{"url":" "}`, `{"url":null}`, `{"url":7}`, `{"URI":"http://x"}`} {
			if _, err := d.Call(t.Context(), "self.upgrade_firmware", json.RawMessage(args)); !errors.Is(err, mcp.ErrArguments) {
				t.Errorf("arguments %q: %v", args, err)
			}
		}
		if n := len(f.sent()) - before; n != 0 {
			t.Errorf("%d messages were sent", n)
		}
		if _, err := d.Call(t.Context(), "self.upgrade_firmware", json.RawMessage(`{"url":"http://x/f.bin"}`)); err != nil {
			t.Error(err)
		}
	})
}

func TestVisionOfTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{
			Vision: mcp.Vision{URL: "http://all", Token: "all"},
			VisionFor: func(id protocol.DeviceID) mcp.Vision {
				return mcp.Vision{URL: "http://one", Token: "for " + string(id)}
			},
		}, speakerTools()...)
		start(t, d)
		if params := string(f.sent()[0].Params); !strings.Contains(params, `"vision":{"url":"http://one","token":"for a0:85:e3:f4:49:34"}`) {
			t.Errorf("initialize has params %s", params)
		}
	})
}

// TestAThousandDevicesAtOnce makes one call on each of a thousand devices, all
// under way at the same time.
func TestAThousandDevicesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const count = 1000
		began := time.Now()
		results := make(chan error, count)
		for i := range count {
			text := fmt.Sprint("answer ", i)
			_, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "tool", run: waits(5*time.Second, text)})
			go func() {
				res, err := d.Call(t.Context(), "tool", nil)
				if err == nil && res.Text != text {
					err = fmt.Errorf("device %d answered %q", i, res.Text)
				}
				results <- err
			}()
		}
		for range count {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
