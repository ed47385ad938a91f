package home_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"parley/internal/home"
	"parley/mcp"
)

// A bus in memory: synchronous, with retained messages and wildcards, so that
// tests in virtual time can use it.
type bus struct {
	mu       sync.Mutex
	retained map[string]string
	subs     map[int]*subscription
	next     int
	log      []sent // what Publish was given
}

type subscription struct {
	filter string
	f      func(home.Message)
}

// A sent is one publication.
type sent struct {
	topic, payload string
	retain         bool
}

func newBus() *bus { return &bus{retained: map[string]string{}, subs: map[int]*subscription{}} }

func (b *bus) Publish(topic string, payload []byte, retain bool) error {
	b.mu.Lock()
	b.log = append(b.log, sent{topic, string(payload), retain})
	b.mu.Unlock()
	b.send(topic, string(payload), retain)
	return nil
}

// send is a publication of somebody else.
func (b *bus) send(topic, payload string, retain bool) {
	b.mu.Lock()
	if retain && payload == "" {
		delete(b.retained, topic)
	} else if retain {
		b.retained[topic] = payload
	}
	var to []*subscription
	for _, s := range b.subs {
		if matches(s.filter, topic) {
			to = append(to, s)
		}
	}
	b.mu.Unlock()
	for _, s := range to {
		s.f(home.Message{Topic: topic, Payload: []byte(payload)})
	}
}

// replay delivers a message as one that was retained before the subscription.
func (b *bus) replay(topic, payload string) {
	for _, s := range b.subs {
		if matches(s.filter, topic) {
			s.f(home.Message{Topic: topic, Payload: []byte(payload), Retained: true})
		}
	}
}

func (b *bus) Subscribe(filter string, f func(home.Message)) (func(), error) {
	b.mu.Lock()
	id := b.next
	b.next++
	b.subs[id] = &subscription{filter, f}
	var topics []string
	for topic := range b.retained {
		if matches(filter, topic) {
			topics = append(topics, topic)
		}
	}
	slices.Sort(topics)
	messages := make([]home.Message, 0, len(topics))
	for _, topic := range topics {
		messages = append(messages, home.Message{Topic: topic, Payload: []byte(b.retained[topic]), Retained: true})
	}
	b.mu.Unlock()
	for _, m := range messages {
		f(m)
	}
	return func() { b.mu.Lock(); defer b.mu.Unlock(); delete(b.subs, id) }, nil
}

func matches(filter, topic string) bool {
	f, t := strings.Split(filter, "/"), strings.Split(topic, "/")
	for i := range f {
		if f[i] == "#" {
			return true
		}
		if i >= len(t) || f[i] != "+" && f[i] != t[i] {
			return false
		}
	}
	return len(f) == len(t)
}

// taken returns what was published since the last time.
func (b *bus) taken() []sent {
	b.mu.Lock()
	defer b.mu.Unlock()
	log := b.log
	b.log = nil
	return log
}

func (b *bus) subscriptions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.subs)
}

// load publishes the samples of a file, retained.
func (b *bus) load(t testing.TB, files ...string) {
	t.Helper()
	for _, file := range files {
		data, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSuffix(line, "\n")
			topic, payload, ok := strings.Cut(line, " ")
			if ok && topic != "#" {
				b.send(topic, payload, true)
			}
		}
	}
}

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// A house is a Home that runs on a bus in a bubble of virtual time.
type house struct {
	*home.Home
	*bus
	t       testing.TB
	source  mcp.Source
	answers []func() // end the devices that answer
}

// inHouse runs f with a Home, in virtual time. What was published at the start is
// forgotten.
func inHouse(t *testing.T, cfg home.Config, b *bus, f func(h *house)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hm, err := home.New(cfg, b, discard())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := hm.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		defer func() { // also when f gives up
			cancel()
			running.Wait()
		}()
		synctest.Wait()
		b.taken()
		h := &house{hm, b, t, hm.Source(), nil}
		f(h)
		for _, end := range h.answers {
			end()
		}
		cancel()
		running.Wait()
		if n := b.subscriptions(); n != 0 {
			t.Errorf("%d subscriptions are left", n)
		}
		if tools := hm.Source().Tools(); len(tools) > len(cfg.Tools) {
			t.Errorf("tools are left: %d", len(tools))
		}
	})
}

// tell publishes as a device of the house does, and waits until it is known.
func (h *house) tell(topic, payload string) {
	h.send(topic, payload, true)
	synctest.Wait()
}

// answer has a device answer a command with a message, as devices do.
func (h *house) answer(command, topic, payload string) {
	cancel, err := h.Subscribe(command, func(m home.Message) {
		if !m.Retained {
			h.send(topic, payload, true)
		}
	})
	if err != nil {
		h.t.Fatal(err)
	}
	h.answers = append(h.answers, cancel)
}

// A reply is the result of a tool of the house.
type reply struct {
	Name      string `json:"name"`
	Value     any    `json:"value"`
	Unit      string `json:"unit"`
	Text      string `json:"text"`
	Seen      string `json:"seen"`
	Confirmed bool   `json:"confirmed"`
}

// call runs a tool that must succeed.
func (h *house) call(tool, args string) reply {
	h.t.Helper()
	res, err := h.source.Call(h.t.Context(), tool, json.RawMessage(args))
	if err != nil || res.IsError {
		h.t.Fatalf("%s %s: %+v, %v", tool, args, res, err)
	}
	var r reply
	if err := json.Unmarshal([]byte(res.Text), &r); err != nil {
		h.t.Fatalf("%s %s gave %s: %v", tool, args, res.Text, err)
	}
	return r
}

// refused runs a tool that must refuse, and returns why.
func (h *house) refused(tool, args string) string {
	h.t.Helper()
	res, err := h.source.Call(h.t.Context(), tool, json.RawMessage(args))
	if err != nil || !res.IsError {
		h.t.Fatalf("%s %s was not refused: %+v, %v", tool, args, res, err)
	}
	return res.Text
}

// names lists what a tool offers, nil if it is absent.
func (h *house) names(tool string) []string {
	h.t.Helper()
	for _, t := range h.source.Tools() {
		if t.Name != tool {
			continue
		}
		var schema struct {
			Properties map[string]struct{ Enum []string }
		}
		if err := json.Unmarshal(t.Schema, &schema); err != nil {
			h.t.Fatal(err)
		}
		return schema.Properties["name"].Enum
	}
	return nil
}
