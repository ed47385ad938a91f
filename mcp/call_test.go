package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/mcp"
)

func TestCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var volume any
		tools := speakerTools()
		tools[1].run = func(args map[string]any) (string, error) { volume = args["volume"]; return "true", nil }
		f, d := newFakeDevice(t, mcp.Config{}, tools...)
		start(t, d)
		for _, args := range []string{"", "null", " {} "} {
			res, err := d.Call(t.Context(), "self.get_device_status", json.RawMessage(args))
			if err != nil || res.Text != `{"audio_speaker":{"volume":70}}` || res.IsError {
				t.Errorf("arguments %q: %+v, %v", args, res, err)
			}
		}
		res, err := d.Call(t.Context(), "self.audio_speaker.set_volume", json.RawMessage(`{"volume": 30}`))
		if err != nil || res.Text != "true" || volume != 30.0 {
			t.Errorf("%+v, %v, the device set %v", res, err, volume)
		}
		// A refusal is for the model to read.
		res, err = d.Call(t.Context(), "self.audio_speaker.set_volume", json.RawMessage(`{}`))
		if err != nil || !res.IsError || res.Text != "Missing valid argument: volume" {
			t.Errorf("%+v, %v", res, err)
		}
		if got := strings.Count(f.methods(), "initialize "); got != 1 {
			t.Errorf("the device was initialized %d times", got)
		}
		seen := map[string]bool{}
		for _, m := range f.sent() {
			if string(m.Params) == "null" {
				t.Errorf("%s has params null", m.Method)
			}
			if m.Method == "notifications/initialized" {
				continue
			}
			if id, err := strconv.Atoi(string(m.ID)); err != nil || id < 1 || id > math.MaxInt32 || seen[string(m.ID)] {
				t.Errorf("%s has id %s", m.Method, m.ID)
			}
			seen[string(m.ID)] = true
		}
	})
}

func TestArgumentsAreCheckedBeforeSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		start(t, d)
		before := len(f.sent())
		for _, args := range []string{"[]", `"x"`, "{", `{"a":}`, "{}{}", `{"a":"` + strings.Repeat("x", 17<<10) + `"}`} {
			if _, err := d.Call(t.Context(), "self.reboot", json.RawMessage(args)); !errors.Is(err, mcp.ErrArguments) {
				t.Errorf("arguments %.20q: %v", args, err)
			}
		}
		if _, err := d.Call(t.Context(), "self.nothing", nil); !errors.Is(err, mcp.ErrUnknownTool) {
			t.Errorf("unknown tool: %v", err)
		}
		if got := len(f.sent()); got != before {
			t.Errorf("%d messages were sent", got-before)
		}
	})
}

func TestCallWaitsForDiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		f.busy(9 * time.Second) // the device waits for its hello
		began := time.Now()
		res, err := d.Call(t.Context(), "self.reboot", nil) // nobody called Start
		if err != nil || res.Text != "true" {
			t.Fatalf("%+v, %v", res, err)
		}
		if took := time.Since(began); took != 9*time.Second {
			t.Errorf("took %v", took)
		}
		if got, want := f.methods(), "initialize notifications/initialized tools/list tools/call"; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
	})
}

func TestOneCallAtATimeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		tools := make([]fakeTool, 6)
		var f *fakeDevice
		for i := range tools {
			name := fmt.Sprint("tool", i)
			tools[i] = fakeTool{name: name, run: func(map[string]any) (string, error) {
				order = append(order, name)
				if n := strings.Count(f.methods(), "tools/call"); n != len(order) {
					t.Errorf("%d calls sent while running number %d", n, len(order))
				}
				time.Sleep(time.Second)
				return name, nil
			}}
		}
		f, d := newFakeDevice(t, mcp.Config{}, tools...)
		start(t, d)
		var calls sync.WaitGroup
		for i := range tools {
			calls.Go(func() {
				if res, err := d.Call(t.Context(), fmt.Sprint("tool", i), nil); err != nil || res.Text != fmt.Sprint("tool", i) {
					t.Errorf("%d: %+v, %v", i, res, err)
				}
			})
			synctest.Wait()
		}
		calls.Wait()
		if got, want := strings.Join(order, " "), "tool0 tool1 tool2 tool3 tool4 tool5"; got != want {
			t.Errorf("ran %q", got)
		}
	})
}

func TestTimeLimits(t *testing.T) {
	for tool, want := range map[string]time.Duration{
		"self.get_device_status": 10 * time.Second,
		"self.camera.take_photo": 30 * time.Second,
		"take_photo":             30 * time.Second,
		"self.screen.snapshot":   30 * time.Second,
		"self.screen.set_theme":  10 * time.Second,
	} {
		t.Run(tool, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var counters mcp.Counters
				_, d := newFakeDevice(t, mcp.Config{Counters: &counters},
					fakeTool{name: tool, run: waits(40*time.Second, "late")},
					fakeTool{name: "next", run: waits(0, "prompt")})
				start(t, d)
				began := time.Now()
				_, err := d.Call(t.Context(), tool, nil)
				if took := time.Since(began); !errors.Is(err, mcp.ErrTimeout) || took != want {
					t.Errorf("after %v: %v", took, err)
				}
				if !strings.Contains(err.Error(), want.String()) || !strings.Contains(err.Error(), tool) {
					t.Errorf("the error does not say what happened: %v", err)
				}
				time.Sleep(time.Minute) // the late reply comes
				if res, err := d.Call(t.Context(), "next", nil); err != nil || res.Text != "prompt" {
					t.Errorf("the next call: %+v, %v", res, err)
				}
				if counters.Timeouts.Load() != 1 || counters.Unexpected.Load() != 1 {
					t.Errorf("timeouts %d, unexpected %d", counters.Timeouts.Load(), counters.Unexpected.Load())
				}
			})
		})
	}
}

func TestCancelledCallHoldsTheNextBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{},
			fakeTool{name: "slow", run: waits(6*time.Second, "slow")},
			fakeTool{name: "next", run: waits(0, "next")})
		start(t, d)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := d.Call(ctx, "slow", nil)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		if !strings.Contains(err.Error(), "may still take effect") {
			t.Errorf("the error hides that the tool runs: %v", err)
		}
		res, err := d.Call(t.Context(), "next", nil)
		if took := time.Since(began); err != nil || res.Text != "next" || took != 6*time.Second {
			t.Errorf("after %v: %+v, %v", took, res, err)
		}
		if methods := f.methods(); strings.Contains(methods, "cancelled") {
			t.Errorf("sent %q", methods)
		}
	})
}

func TestCancelledWhileWaitingIsNeverSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "slow", run: waits(5*time.Second, "")}, fakeTool{name: "open_door"})
		start(t, d)
		var calls sync.WaitGroup
		calls.Go(func() { _, _ = d.Call(t.Context(), "slow", nil) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Call(ctx, "open_door", nil); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "was not called") {
			t.Errorf("got %v", err)
		}
		if _, err := d.Call(ctx, "open_door", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with an ended context: %v", err)
		}
		calls.Wait()
		synctest.Wait()
		if n := strings.Count(f.methods(), "tools/call"); n != 1 {
			t.Errorf("%d calls sent", n)
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.Counters
		_, d := newFakeDevice(t, mcp.Config{Counters: &counters}, fakeTool{name: "slow", run: waits(time.Second, "")})
		start(t, d)
		const asked, served = 20, 1 + 8 // one runs, eight wait
		var calls sync.WaitGroup
		var mu sync.Mutex
		busy, done := 0, 0
		for range asked {
			calls.Go(func() {
				_, err := d.Call(t.Context(), "slow", nil)
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
			synctest.Wait()
		}
		calls.Wait()
		if done != served || busy != asked-served || counters.Busy.Load() != asked-served || counters.Calls.Load() != served {
			t.Errorf("done %d, busy %d, counted %d of %d", done, busy, counters.Busy.Load(), counters.Calls.Load())
		}
	})
}

// TestLateReplyIsNotTakenForTheNext lets a reply come when its call has timed out
// and the next one waits for its own.
func TestLateReplyIsNotTakenForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := newFakeDevice(t, mcp.Config{},
			fakeTool{name: "slow", run: waits(15*time.Second, "slow")},
			fakeTool{name: "next", run: waits(0, "next")})
		start(t, d)
		if _, err := d.Call(t.Context(), "slow", nil); !errors.Is(err, mcp.ErrTimeout) {
			t.Errorf("slow: %v", err)
		}
		if res, err := d.Call(t.Context(), "next", nil); err != nil || res.Text != "next" {
			t.Errorf("next: %+v, %v", res, err)
		}
	})
}

// TestConnectionsDoNotShareIDs: a device may answer over its new connection what
// it was asked over the last one.
func TestConnectionsDoNotShareIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ids := map[string]bool{}
		for range 4 {
			f, d := newFakeDevice(t, mcp.Config{})
			start(t, d)
			for _, m := range f.sent() {
				if m.ID != nil && ids[string(m.ID)] {
					t.Errorf("id %s was used twice", m.ID)
				}
				ids[string(m.ID)] = true
			}
		}
	})
}
