package session_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/device"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/pipeline"
)

const (
	deviceOne = protocol.DeviceID("02:00:00:00:00:01")
	nobody    = protocol.DeviceID("02:00:00:00:00:7f")
)

// noted collects the alerts and sentences of a device.
type noted struct {
	mu             sync.Mutex
	alerts, spoken []string
}

func (n *noted) watch(o *device.Options) {
	before := o.OnEvent
	o.OnEvent = func(e device.Event) {
		if before != nil {
			before(e)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		switch {
		case e.Kind == device.Message && e.Type == "alert":
			n.alerts = append(n.alerts, e.Text)
		case e.Kind == device.Message && e.Type == "tts" && e.Detail == "sentence_start":
			n.spoken = append(n.spoken, e.Text)
		}
	}
}

func (n *noted) get() (alerts, spoken []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.alerts), slices.Clone(n.spoken)
}

const reminder = "The eggs are done."

// The ladder: an open channel; a request to open one; an alert; and the error of
// a device that is not there, for whoever can try again.
func TestDeliver(t *testing.T) {
	for _, tt := range []struct {
		name    string
		agent   string
		open    bool // a session is open
		answers bool // the device answers a speak_request
		way     session.Way
		spoken  bool // in the end, else it is shown
	}{
		{name: "a session is open", open: true, way: session.WaySpoken, spoken: true},
		{name: "the device can be asked", agent: "board/2.5.1", answers: true, way: session.WayRequested, spoken: true},
		{name: "the device is asked and does not answer", agent: "board/2.5.1", way: session.WayRequested},
		{name: "older firmware", agent: "board/2.4.2", way: session.WayShown},
		{name: "firmware that nobody knows", way: session.WayShown},
	} {
		t.Run(tt.name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				h := newHouse(t, nil)
				var n noted
				d := h.device(1, line{}, func(o *device.Options) {
					o.MQTT.Username = protocol.Enrolment{Agent: tt.agent}.Username()
					o.SpeakRequest = tt.answers
					n.watch(o)
				})
				synctest.Wait() // the server knows of it a moment after the device
				if tt.open {
					if _, err := h.ask(d); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second)
				}
				before := d.Report()
				way, err := h.sessions.Deliver(deviceOne, session.Notice{Status: "Timer", Text: reminder})
				if err != nil || way != tt.way {
					t.Fatalf("%q, %v; want %q", way, err, tt.way)
				}
				time.Sleep(20 * time.Second)
				synctest.Wait()
				alerts, spoken := n.get()
				if got := slices.Contains(spoken, reminder); got != tt.spoken {
					t.Errorf("spoken %q, want the reminder: %t", spoken, tt.spoken)
				}
				if got := slices.Contains(alerts, reminder); got == tt.spoken {
					t.Errorf("shown %q, want the reminder: %t", alerts, !tt.spoken)
				}
				r := d.Report()
				if played := r.Played - before.Played; tt.spoken && played < int64(len(reminder)-3) || r.Clipped() != 0 {
					t.Errorf("%d frames played, %d clipped", played, r.Clipped())
				}
			})
		})
	}
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		if way, err := h.sessions.Deliver(nobody, session.Notice{Text: reminder}); !errors.Is(err, session.ErrAbsent) {
			t.Errorf("to nobody: %q, %v", way, err)
		}
	})
}

// What was to be spoken and whose session ends before is shown.
func TestNoticesOutliveTheirSession(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.llm.text = "A very long answer that nobody hears to its end. " + h.llm.text
		var n noted
		d := h.device(1, line{}, n.watch)
		go func() { _, _ = h.ask(d) }() // is cut
		time.Sleep(4 * time.Second)
		if way, err := h.sessions.Deliver(deviceOne, session.Notice{Text: reminder}); err != nil || way != session.WaySpoken {
			t.Fatalf("%q, %v", way, err)
		}
		if err := h.sessions.End(deviceOne, "an operator"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if alerts, _ := n.get(); !slices.Contains(alerts, reminder) {
			t.Errorf("alerts %q lack the notice", alerts)
		}
	})
}

func TestFleet(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []session.EventKind
		h := newHouse(t, func(c *session.Config, _ *session.Role) {
			c.OnEvent = func(e session.Event) {
				mu.Lock()
				defer mu.Unlock()
				if e.Device.ID == deviceOne {
					events = append(events, e.Kind)
				}
			}
		})
		d2 := h.device(2, line{}, nil)
		d1 := h.device(1, line{}, nil)
		time.Sleep(10 * time.Second) // the tools are told

		all := h.sessions.Devices()
		if len(all) != 2 || all[0].Device.ID != deviceOne || all[1].Device.ID != d2.ID() {
			t.Fatalf("devices %+v", all)
		}
		if i := all[0]; i.Role != "test" || i.SessionID != "" || i.Phase != "" || i.Tools == 0 || time.Since(i.ConnectedAt) != 10*time.Second {
			t.Errorf("before a session: %+v", i)
		}
		tools, ready, err := h.sessions.Tools(deviceOne)
		if err != nil || !ready || len(tools) != all[0].Tools {
			t.Errorf("%d tools, ready %t, %v", len(tools), ready, err)
		}
		r, err := h.sessions.Call(t.Context(), deviceOne, "self.get_device_status", nil)
		if err != nil || r.IsError || r.Text == "" {
			t.Errorf("call: %+v, %v", r, err)
		}
		if err := h.sessions.HangUp(deviceOne); !errors.Is(err, session.ErrNoSession) {
			t.Errorf("hanging up nothing: %v", err)
		}

		if _, err := h.ask(d1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		i, err := h.sessions.Device(deviceOne)
		if err != nil || i.SessionID != d1.SessionID() || i.Phase != "listening" || i.SessionStart.IsZero() {
			t.Errorf("in a session: %+v, %v", i, err)
		}
		if err := h.sessions.HangUp(deviceOne); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if i, _ := h.sessions.Device(deviceOne); i.SessionID != "" || d1.State() != device.Idle {
			t.Errorf("after hanging up: %+v, device %v", i, d1.State())
		}
		if err := h.sessions.Reboot(deviceOne); err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if i, err := h.sessions.Device(deviceOne); err != nil || time.Since(i.ConnectedAt) > 5*time.Second {
			t.Errorf("after a restart: %+v, %v", i, err)
		}
		mu.Lock()
		got := slices.Clone(events)
		mu.Unlock()
		want := []session.EventKind{
			session.EventConnected, session.EventOpened, session.EventListening, session.EventSpeaking, session.EventSilent,
			session.EventListening, session.EventClosed, session.EventDisconnected, session.EventConnected,
		}
		if !slices.Equal(got, want) {
			t.Errorf("events %q\nwant %q", got, want)
		}
		for name, err := range map[string]error{
			"call":   second(h.sessions.Call(t.Context(), nobody, "x", nil)),
			"device": second(h.sessions.Device(nobody)),
			"alert":  h.sessions.Alert(nobody, "a", "b", "c"),
			"end":    h.sessions.End(nobody, "x"),
		} {
			if !errors.Is(err, session.ErrAbsent) {
				t.Errorf("%s of a device that is not there: %v", name, err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// py-xiaozhi connects anew for every conversation and goes on where it was.
func TestMemoryOutlivesTheConnection(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var seen []pipeline.Message
		h.llm.seen = &seen
		for turn := range 2 {
			d := h.device(1, line{}, func(o *device.Options) { o.Profile = device.Py })
			if _, err := h.ask(d); err != nil {
				t.Fatal(err)
			}
			d.Close()
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := seen; len(got) != 2+2*turn { // prompt, what was said before, question
				t.Errorf("conversation %d: the model was shown %d messages", turn+1, len(got))
			}
		}
		time.Sleep(time.Hour)
		d := h.device(1, line{}, func(o *device.Options) { o.Profile = device.Py })
		if _, err := h.ask(d); err != nil {
			t.Fatal(err)
		}
		if got := seen; len(got) != 2 {
			t.Errorf("an hour later the model was shown %d messages", len(got))
		}
	})
}
