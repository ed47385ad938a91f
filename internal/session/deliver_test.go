package session_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/broker"
	"parley/internal/audio"
	"parley/internal/device"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/mcp"
	"parley/pipeline"
)

// A newWire is a wire of firmware that can be asked to open a session. Once cut
// nothing can be sent.
type newWire struct {
	wire
	cut  atomic.Bool
	hook func(payload string) // called before each message, if set
}

func (w *newWire) Device() broker.Device {
	return broker.Device{ID: w.id, Local: mqttAddr, Enrolment: protocol.Enrolment{Agent: "board/2.5.1"}}
}

func (w *newWire) Send(payload []byte) error {
	if w.cut.Load() {
		return broker.ErrGone
	}
	if w.hook != nil {
		w.hook(string(payload))
	}
	return w.wire.Send(payload)
}

// plug connects w. The device is written by the test; end disconnects it.
func (h *house) plug(w *newWire) (send func(map[string]string), end func()) {
	r := h.sessions.Attach(w)
	end = sync.OnceFunc(func() { w.cut.Store(true); r.Disconnected(errors.New("gone")) })
	h.t.Cleanup(end)
	return func(m map[string]string) {
		payload, err := json.Marshal(m)
		if err != nil {
			h.t.Fatal(err)
		}
		r.Receive(payload)
	}, end
}

var (
	speakReady = map[string]string{"type": "speak_ready", "state": "ready"}
	timer      = session.Notice{Status: "Timer", Text: reminder}
)

// TestANoticeReachesItsUserOrIsReturned: whatever happens after Deliver has taken
// a notice, it is spoken once, or shown once with its headline, or given back.
func TestANoticeReachesItsUserOrIsReturned(t *testing.T) {
	for name, c := range map[string]struct {
		do    func(h *house, send func(map[string]string), deliver func() session.Way, end func())
		shown int
		lost  int32
	}{
		"asked, and gone before it answers": {func(_ *house, _ func(map[string]string), deliver func() session.Way, end func()) {
			deliver()
			end()
		}, 0, 1},
		"asked, and gone after its hello": {func(_ *house, send func(map[string]string), deliver func() session.Way, end func()) {
			deliver()
			send(hello)
			end()
		}, 0, 1},
		"asked, and never answers": {func(_ *house, _ func(map[string]string), deliver func() session.Way, _ func()) {
			deliver()
			time.Sleep(time.Minute)
		}, 1, 0},
		"asked, and sends no audio": {func(h *house, send func(map[string]string), deliver func() session.Way, _ func()) {
			deliver()
			send(hello)
			send(speakReady)
			time.Sleep(5*time.Second + ms)
		}, 1, 0},
		"listens, and sends no audio": {func(h *house, send func(map[string]string), deliver func() session.Way, _ func()) {
			send(hello)
			send(listenStart)
			if way := deliver(); way != session.WaySpoken {
				h.t.Errorf("delivered by %q", way)
			}
			time.Sleep(5*time.Second + ms)
		}, 1, 0},
		"says goodbye before it is said": {func(_ *house, send func(map[string]string), deliver func() session.Way, _ func()) {
			send(hello)
			deliver()
			send(goodbye)
		}, 1, 0},
		"greets again, and has time to answer": {func(_ *house, send func(map[string]string), deliver func() session.Way, _ func()) {
			deliver()
			send(hello)
			send(hello)
			time.Sleep(time.Second) // it moves to the session that replaces the first
			send(speakReady)
			time.Sleep(5*time.Second - ms)
		}, 0, 0},
		"greets again and goes": {func(_ *house, send func(map[string]string), deliver func() session.Way, end func()) {
			deliver()
			send(hello)
			send(hello)
			synctest.Wait()
			end()
		}, 0, 1},
		"asked, and the server stops": {func(h *house, _ func(map[string]string), deliver func() session.Way, _ func()) {
			deliver()
			h.stop()
			if way := deliver(); way != session.WayShown {
				h.t.Errorf("%q of a server that opens no session", way)
			}
		}, 2, 0},
		"the server stops": {func(h *house, send func(map[string]string), deliver func() session.Way, _ func()) {
			send(hello)
			deliver()
			h.stop()
		}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				h := newHouse(t, nil)
				w := &newWire{wire: wire{id: deviceOne}}
				send, end := h.plug(w)
				var lost atomic.Int32
				n := timer
				n.Lost = func() { lost.Add(1) }
				c.do(h, send, func() session.Way {
					way, err := h.sessions.Deliver(deviceOne, n)
					if err != nil {
						t.Error(err)
					}
					return way
				}, end)
				synctest.Wait()
				if got := w.count(`"alert","status":"Timer","message":"` + reminder); got != c.shown {
					t.Errorf("shown %d times, want %d: %q", got, c.shown, w.sent)
				}
				if got := lost.Load(); got != c.lost {
					t.Errorf("given back %d times, want %d", got, c.lost)
				}
			})
		})
	}
}

// TestEveryNoticeMayWaitItsTime: the second does not inherit what the first has
// left of its patience.
func TestEveryNoticeMayWaitItsTime(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		w := &newWire{wire: wire{id: deviceOne}}
		h.plug(w)
		for range 2 {
			if way, err := h.sessions.Deliver(deviceOne, timer); err != nil || way != session.WayRequested {
				t.Fatalf("%q, %v", way, err)
			}
			time.Sleep(7 * time.Second)
		}
		if got := w.count("alert"); got != 0 {
			t.Errorf("%d shown while the device may still answer", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := w.count("alert"); got != 2 {
			t.Errorf("%d of 2 shown", got)
		}
	})
}

// TestADeviceThatComesTooLateIsSentHome: what it was asked for has been shown, and
// it would stay in speaking, deaf, until the session's silence ends it.
func TestADeviceThatComesTooLateIsSentHome(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		w := &newWire{wire: wire{id: deviceOne}}
		send, _ := h.plug(w)
		if way, err := h.sessions.Deliver(deviceOne, timer); err != nil || way != session.WayRequested {
			t.Fatalf("%q, %v", way, err)
		}
		time.Sleep(10 * time.Second)
		send(hello)
		send(speakReady)
		synctest.Wait()
		if shown, gone := w.count(`"alert"`), w.count(`"goodbye"`); shown != 1 || gone != 1 {
			t.Errorf("shown %d times, %d goodbyes: %q", shown, gone, w.sent)
		}
	})
}

// TestADeviceThatEchoesIsNotCalled: nobody would speak to it there.
func TestADeviceThatEchoesIsNotCalled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, func(_ *session.Config, r *session.Role) { r.Echo = true })
		w := &newWire{wire: wire{id: deviceOne}}
		send, _ := h.plug(w)
		for range 2 {
			if way, err := h.sessions.Deliver(deviceOne, timer); err != nil || way != session.WayShown {
				t.Errorf("%q, %v", way, err)
			}
			send(hello)
		}
	})
}

// TestADeviceMayAnswerARequestTwice: it is told once, in the session that stays.
func TestADeviceMayAnswerARequestTwice(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var n noted
		d := h.device(1, line{}, func(o *device.Options) {
			o.MQTT.Username = protocol.Enrolment{Agent: "board/2.5.1"}.Username()
			o.SpeakRequest = true
			n.watch(o)
		})
		time.Sleep(time.Second)
		if way, err := h.sessions.Deliver(deviceOne, timer); err != nil || way != session.WayRequested {
			t.Fatalf("%q, %v", way, err)
		}
		time.Sleep(20 * ms)
		if way, err := h.sessions.Deliver(deviceOne, session.Notice{Text: "The tea is ready."}); err != nil {
			t.Fatalf("%q, %v", way, err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		alerts, spoken := n.get()
		if want := []string{reminder, "The tea is ready."}; !slices.Equal(spoken, want) || len(alerts) != 0 || d.Report().Clipped() != 0 {
			t.Errorf("spoken %q, shown %q, clipped %d", spoken, alerts, d.Report().Clipped())
		}
	})
}

// TestANoticeIsShownWhenTheVoiceFails: the apology alone would leave the user to
// wonder.
func TestANoticeIsShownWhenTheVoiceFails(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, func(_ *session.Config, r *session.Role) {
			r.TTS = pipeline.BySentence(mute{}, audio.NewEncoderPool(1))
		})
		var n noted
		d := h.device(1, line{}, n.watch)
		_, _ = h.ask(d) // fails
		time.Sleep(5 * time.Second)
		if way, err := h.sessions.Deliver(deviceOne, timer); err != nil || way != session.WaySpoken {
			t.Fatalf("%q, %v", way, err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if alerts, _ := n.get(); !slices.Equal(alerts, []string{reminder}) {
			t.Errorf("shown %q", alerts)
		}
	})
}

// mute is a synthesizer that always fails.
type mute struct{}

func (mute) Synthesize(context.Context, string) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) { yield(pipeline.Audio{}, errors.New("boom")) }
}

// TestEventsComeInOrder: whoever watches may act on what they see, even end the
// session, and never sees one close that has not opened, nor live after its end.
func TestEventsComeInOrder(t *testing.T) {
	for name, end := range map[string]string{"the reply to hello": `"hello"`, "the opening": "", "the answer": `"start"`} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				var h *house
				var mu sync.Mutex
				var got []string
				h = newHouse(t, func(c *session.Config, _ *session.Role) {
					c.OnEvent = func(e session.Event) {
						mu.Lock()
						got = append(got, strings.TrimPrefix(string(e.Kind), "session_"))
						mu.Unlock()
						_ = h.sessions.Devices()
						if end == "" && e.Kind == session.EventOpened {
							if err := h.sessions.End(e.Device.ID, "a watcher"); err != nil {
								t.Error(err)
							}
						}
					}
				})
				w := &newWire{wire: wire{id: deviceOne}}
				w.hook = func(payload string) {
					if end != "" && strings.Contains(payload, end) && strings.Contains(payload, `"hello"`) {
						_ = h.sessions.End(deviceOne, "an operator")
					}
					if end == `"start"` && strings.Contains(payload, end) {
						go func() { _ = h.sessions.End(deviceOne, "an operator") }() // ends soon
					}
				}
				send, gone := h.plug(w)
				send(hello)
				send(listenStart)
				send(typed("hello"))
				time.Sleep(time.Second)
				gone()
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				want := "connected opened closed disconnected"
				if end == `"start"` {
					want = "connected opened listening speaking closed disconnected"
				}
				if got := strings.Join(got, " "); got != want {
					t.Errorf("events %q, want %q", got, want)
				}
			})
		})
	}
}

// TestToolsLearnForWhomTheyAreCalled: a timer is set for the device that is spoken
// to.
func TestToolsLearnForWhomTheyAreCalled(t *testing.T) {
	virtual(t, func(t *testing.T) {
		var asked clerk
		h := newHouse(t, func(c *session.Config, _ *session.Role) {
			c.Sources = func(protocol.DeviceID, *session.Role) []mcp.Member {
				return []mcp.Member{{Label: "clerk", Source: &asked}}
			}
		})
		h.llm.tool, h.llm.args = "who_asks", "{}"
		d := h.device(1, line{}, nil)
		if _, err := h.ask(d); err != nil {
			t.Fatal(err)
		}
		if want := (mcp.Caller{Device: deviceOne, Session: d.SessionID(), Role: "test"}); asked.caller != want {
			t.Errorf("called for %+v, want %+v", asked.caller, want)
		}
		if tools := h.turns()[0].Tools; len(tools) != 1 || !tools[0].Failed || tools[0].Result == "" {
			t.Errorf("an error without words: %+v", tools)
		}
	})
}

// A clerk is a source of one tool, which notes for whom it was called and fails
// without a word.
type clerk struct{ caller mcp.Caller }

func (*clerk) Tools() []mcp.Tool { return []mcp.Tool{{Name: "who_asks"}} }

func (c *clerk) Call(ctx context.Context, _ string, _ json.RawMessage) (mcp.Result, error) {
	c.caller, _ = mcp.CallerOf(ctx)
	return mcp.Result{IsError: true}, nil
}
