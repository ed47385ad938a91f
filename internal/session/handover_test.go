package session_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/broker"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/pipeline"
)

// A wire is a link that records what a device is sent.
type wire struct {
	id   protocol.DeviceID
	mu   sync.Mutex
	sent []string
}

func (w *wire) Device() broker.Device { return broker.Device{ID: w.id, Local: mqttAddr} }
func (w *wire) Close(string)          {}
func (w *wire) Send(payload []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = append(w.sent, string(payload))
	return nil
}

// count is how many messages with the text were sent.
func (w *wire) count(text string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sent {
		if strings.Contains(s, text) {
			n++
		}
	}
	return n
}

// attach connects a device whose messages the test writes itself.
func (h *house) attach(id protocol.DeviceID) (*wire, func(m map[string]string)) {
	w := &wire{id: id}
	r := h.sessions.Attach(w)
	h.t.Cleanup(func() { r.Disconnected(nil) })
	return w, func(m map[string]string) {
		payload, err := json.Marshal(m)
		if err != nil {
			h.t.Fatal(err)
		}
		r.Receive(payload)
	}
}

var (
	hello       = map[string]string{"type": "hello", "transport": "udp"}
	listenStart = map[string]string{"type": "listen", "state": "start", "mode": "auto"}
	goodbye     = map[string]string{"type": "goodbye"}
)

func typed(text string) map[string]string {
	return map[string]string{"type": "listen", "state": "detect", "text": text}
}

// said reports whether text was said, by whomever but the prompt.
func said(messages []pipeline.Message, text string) bool {
	for _, m := range messages {
		if m.Role != pipeline.RoleSystem && strings.Contains(m.Text, text) {
			return true
		}
	}
	return false
}

// TestASecondHelloKeepsWhatWasSaid: the session that replaces another is the
// device's next.
func TestASecondHelloKeepsWhatWasSaid(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var seen []pipeline.Message
		h.llm.seen = &seen
		_, send := h.attach("02:00:00:00:00:01")
		send(hello)
		send(listenStart)
		send(typed("my name is Bob"))
		time.Sleep(50 * ms) // the model takes 100 ms and does not heed its context
		send(hello)
		send(listenStart)
		send(typed("what is my name"))
		time.Sleep(time.Second)
		synctest.Wait()
		if !said(seen, "what is my name") || !said(seen, "my name is Bob") {
			t.Errorf("the model was asked %+v", seen)
		}
		h.stop()
	})
}

// TestASlowEndDoesNotBringBackThePast has a session's provider return long
// after the session was replaced.
func TestASlowEndDoesNotBringBackThePast(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var seen []pipeline.Message
		_, send := h.attach("02:00:00:00:00:01")
		h.llm.delay = 5 * time.Second // it does not heed its context
		send(hello)
		send(listenStart)
		send(typed("one"))
		synctest.Wait()
		h.llm.delay = 0
		send(hello)
		send(listenStart)
		send(typed("two"))
		time.Sleep(time.Second)
		send(goodbye)
		time.Sleep(10 * time.Second)
		h.llm.seen = &seen
		send(hello)
		send(listenStart)
		send(typed("three"))
		time.Sleep(time.Second)
		synctest.Wait()
		if !said(seen, "three") || !said(seen, "two") {
			t.Errorf("the model was asked %+v", seen)
		}
		h.stop()
	})
}

// TestAHelloDuringShutdownIsNotForgotten has the shutdown come while a hello is
// being answered: its session must be refused or ended with the others.
func TestAHelloDuringShutdownIsNotForgotten(t *testing.T) {
	for name, speaking := range map[string]bool{"alone": false, "while another device speaks": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) { helloDuringShutdown(t, speaking) })
		})
	}
}

func helloDuringShutdown(t *testing.T, speaking bool) {
	var drain func()
	h := newHouse(t, func(cfg *session.Config, _ *session.Role) {
		roles := cfg.Roles
		cfg.Roles = func(id protocol.DeviceID) *session.Role {
			if drain != nil {
				drain()
			}
			return roles(id)
		}
	})
	if speaking {
		_, send := h.attach("02:00:00:00:00:02")
		send(hello)
		send(listenStart)
		send(typed("talk"))
		synctest.Wait()
	}
	w, send := h.attach("02:00:00:00:00:01")
	drained := make(chan struct{})
	drain = func() {
		go func() {
			defer close(drained)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			h.sessions.Drain(ctx)
		}()
		time.Sleep(ms)
	}
	send(hello)
	time.Sleep(10 * time.Second)
	select {
	case <-drained:
	default:
		t.Error("Drain has not returned long after its time")
	}
	if got := h.sessions.Stats().Sessions; got != 0 {
		t.Errorf("%d sessions live after Drain", got)
	}
	if a, b := w.count(`"hello"`), w.count(`"goodbye"`); a != b {
		t.Errorf("hellos answered %d, goodbyes %d", a, b)
	}
	send(goodbye) // let the test end
	h.stop()
}

// TestNothingOfAnOldSessionIsSentAfterItsEnd looks at the order of messages when
// a device says hello in the middle of an answer, and again goodbye.
func TestNothingOfAnOldSessionIsSentAfterItsEnd(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		w, send := h.attach("02:00:00:00:00:01")
		send(hello)
		send(listenStart)
		send(typed("one"))
		time.Sleep(50 * ms)
		send(hello)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.count(`"start"`) != 1 || w.count(`"stop"`) != 0 {
			t.Errorf("sent %q", w.sent)
		}
		send(listenStart)
		send(typed("two"))
		time.Sleep(50 * ms)
		send(goodbye)
		send(goodbye)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.count(`"start"`) != 2 || w.count(`"stop"`) != 0 || w.count(`"goodbye"`) != 0 {
			t.Errorf("sent %q", w.sent)
		}
		if got := h.sessions.Stats().Sessions; got != 0 {
			t.Errorf("%d sessions live", got)
		}
		h.stop()
	})
}
