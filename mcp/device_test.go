package mcp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/mcp"
)

// start begins discovery and waits for its end in virtual time.
func start(t *testing.T, d *mcp.Device) {
	t.Helper()
	d.Start()
	synctest.Wait()
	select {
	case <-d.Ready():
	default:
		t.Fatal("the device has answered, and its tools are not known")
	}
}

func toolNames(tools []mcp.Tool) []string {
	var names []string
	for _, tool := range tools {
		names = append(names, tool.Name)
	}
	return names
}

func TestDiscoverySaysExactlyWhatDevicesUnderstand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := mcp.Config{Vision: mcp.Vision{URL: "http://parley/vision", Token: "secret"}, Version: "1.2.3"}
		f, d := newFakeDevice(t, cfg, speakerTools()...)
		start(t, d)
		if got, want := f.methods(), "initialize notifications/initialized tools/list"; got != want {
			t.Errorf("sent %q, want %q", got, want)
		}
		sent := f.sent()
		var hello struct {
			ProtocolVersion string
			Capabilities    map[string]json.RawMessage
			ClientInfo      struct{ Name, Version string }
		}
		if err := json.Unmarshal(sent[0].Params, &hello); err != nil {
			t.Fatal(err)
		}
		if hello.ProtocolVersion != "2024-11-05" || hello.ClientInfo.Name != "parley" || hello.ClientInfo.Version != "1.2.3" {
			t.Errorf("initialize says %s", sent[0].Params)
		}
		if got := string(hello.Capabilities["vision"]); got != `{"url":"http://parley/vision","token":"secret"}` {
			t.Errorf("vision is %s", got)
		}
		if got := string(sent[2].Params); got != `{"withUserTools":true}` {
			t.Errorf("tools/list has params %s", got)
		}
	})
}

func TestWithoutVisionNoneIsOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		start(t, d)
		if params := string(f.sent()[0].Params); strings.Contains(params, "vision") {
			t.Errorf("initialize has params %s", params)
		}
	})
}

func TestToolsAreThoseOfTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		if tools := d.Tools(); len(tools) != 0 {
			t.Errorf("tools before discovery: %v", tools)
		}
		start(t, d)
		want := []mcp.Tool{
			{"self.get_device_status", "Provides the real-time information of the device.", json.RawMessage(`{"type":"object","properties":{}}`), false},
			{"self.audio_speaker.set_volume", "Set the volume.", json.RawMessage(`{"type":"object","properties":{"volume":{"type":"integer","minimum":0,"maximum":100}},"required":["volume"]}`), false},
			{"self.reboot", "Reboot the system", json.RawMessage(`{"type":"object","properties":{}}`), true},
			{"self.upgrade_firmware", "Upgrade firmware from a specific URL.", json.RawMessage(`{"type":"object","properties":{"url":{"type":"string","default":"The URL of the firmware binary file to download and install"}}}`), true},
		}
		equal := func(a, b mcp.Tool) bool {
			return a.Name == b.Name && a.Description == b.Description && string(a.Schema) == string(b.Schema) && a.UserOnly == b.UserOnly
		}
		if got := d.Tools(); !slices.EqualFunc(got, want, equal) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	})
}

func TestPagedListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tools []fakeTool
		for i := range 60 {
			tools = append(tools, fakeTool{name: fmt.Sprintf("self.tool.%02d", i), description: strings.Repeat("x", 400)})
		}
		f, d := newFakeDevice(t, mcp.Config{}, tools...)
		start(t, d)
		got := toolNames(d.Tools())
		if len(got) != 60 || !slices.IsSorted(got) {
			t.Errorf("got %d tools: %v", len(got), got)
		}
		if pages := strings.Count(f.methods(), "tools/list"); pages < 4 {
			t.Errorf("the listing took %d pages; the test means to take more", pages)
		}
		for _, m := range f.sent()[2:] {
			if !strings.Contains(string(m.Params), `"withUserTools":true`) {
				t.Errorf("page asked for with %s", m.Params)
			}
		}
	})
}

func TestSilentDeviceIsLeftInPeaceAndResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counters mcp.Counters
		f, d := newFakeDevice(t, mcp.Config{Counters: &counters}, speakerTools()...)
		f.busy(time.Hour)
		began := time.Now()
		d.Start()
		d.Start() // no second attempt beside the first
		time.Sleep(50 * time.Minute)
		var at []int
		for _, m := range f.sent() {
			at = append(at, int(m.at.Sub(began)/time.Second))
		}
		// 15 s for an answer, then a pause of 2, 4, 8, 16, 32 s.
		if want := []int{0, 17, 36, 59, 90, 137}; !slices.Equal(at, want) {
			t.Errorf("asked at %v s, want %v", at, want)
		}
		if counters.Abandoned.Load() != 1 {
			t.Errorf("abandoned: %d", counters.Abandoned.Load())
		}
		// A call asks once more, and fails when that does.
		asked := time.Now()
		if _, err := d.Call(t.Context(), "self.reboot", nil); !errors.Is(err, mcp.ErrTimeout) || time.Since(asked) != 15*time.Second {
			t.Errorf("after %v: %v", time.Since(asked), err)
		}
		time.Sleep(15 * time.Minute) // the device is back
		start(t, d)
		if len(d.Tools()) != 4 || counters.Discovered.Load() != 1 {
			t.Errorf("%d tools, discovered %d", len(d.Tools()), counters.Discovered.Load())
		}
	})
}

func TestCallDuringThePauseAsksAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		f.busy(34 * time.Second)
		d.Start()
		time.Sleep(16 * time.Second) // the first attempt has failed, the second is due in a second
		began := time.Now()
		if _, err := d.Call(t.Context(), "self.reboot", nil); !errors.Is(err, mcp.ErrTimeout) || time.Since(began) != 15*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		<-d.Ready() // the third attempt, 4 s after the second has failed
		if got := strings.Count(f.methods(), "initialize "); got != 3 || time.Since(began) != 19*time.Second {
			t.Errorf("%d attempts in %v", got, time.Since(began))
		}
	})
}

func TestDiscoveryOutlastsTheHelloWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		f.busy(10 * time.Second)
		d.Start()
		began := time.Now()
		<-d.Ready()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
	})
}

func TestSendFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("not connected")
		f, d := newFakeDevice(t, mcp.Config{}, speakerTools()...)
		f.setOffline(gone)
		began := time.Now()
		if _, err := d.Call(t.Context(), "self.reboot", nil); !errors.Is(err, gone) || time.Since(began) != 0 {
			t.Errorf("before discovery, after %v: %v", time.Since(began), err)
		}
		f.setOffline(nil)
		time.Sleep(3 * time.Second)
		<-d.Ready()
		f.setOffline(gone)
		if _, err := d.Call(t.Context(), "self.reboot", nil); !errors.Is(err, gone) {
			t.Errorf("after discovery: %v", err)
		}
		f.setOffline(nil)
		if res, err := d.Call(t.Context(), "self.reboot", nil); err != nil || res.Text != "true" {
			t.Errorf("back online: %+v, %v", res, err)
		}
	})
}

func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, d := newFakeDevice(t, mcp.Config{}, fakeTool{name: "slow", run: waits(5*time.Second, "")})
		start(t, d)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				began := time.Now()
				if _, err := d.Call(t.Context(), "slow", nil); !errors.Is(err, mcp.ErrClosed) || time.Since(began) != time.Second {
					t.Errorf("after %v: %v", time.Since(began), err)
				}
			})
		}
		time.Sleep(time.Second)
		d.Close()
		calls.Wait()
		d.Close()
		d.Start()
		if _, err := d.Call(t.Context(), "slow", nil); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestCloseDuringDiscovery(t *testing.T) {
	for _, wait := range []time.Duration{0, time.Second, 16 * time.Second} { // asking, asking, pausing
		synctest.Test(t, func(t *testing.T) {
			f, d := newFakeDevice(t, mcp.Config{})
			f.busy(time.Minute)
			d.Start()
			time.Sleep(wait)
			d.Close()
			before := len(f.sent())
			time.Sleep(time.Hour)
			if got := len(f.sent()); got != before {
				t.Errorf("%d messages after Close", got-before)
			}
		})
	}
}

func TestCloseBetweenTwoRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan struct{})
		var d *mcp.Device
		d = mcp.NewDevice(deviceID, func(payload json.RawMessage) error {
			var m wireMessage
			if err := json.Unmarshal(payload, &m); err != nil {
				return err
			}
			switch m.Method {
			case "initialize":
				d.Receive(json.RawMessage(`{"id":` + string(m.ID) + `,"result":{}}`))
			case "notifications/initialized":
				go func() { d.Close(); close(closed) }()
				time.Sleep(time.Second)
			default:
				t.Errorf("%s was sent after Close", m.Method)
			}
			return nil
		}, mcp.Config{}, discard())
		if _, err := d.Call(t.Context(), "tool", nil); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("got %v", err)
		}
		<-closed
	})
}
