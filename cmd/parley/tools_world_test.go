package main

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/BurntSushi/toml"

	"parley/internal/config"
	"parley/internal/device"
	"parley/internal/ota"
	"parley/internal/protocol"
)

// patience is how long a test waits for what must happen. Nothing depends on it
// but how long a failure takes.
const patience = 30 * time.Second

// The devices of these tests.
const (
	kitchen = "02:00:00:00:00:a1"
	study   = "02:00:00:00:00:a2"
)

// A logbook keeps what is logged.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// until waits for what another process or goroutine brings about and nothing tells
// of.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-limit.C:
			t.Fatalf("waited in vain: %s", what)
		case <-look.C:
		}
	}
}

// configure writes a configuration and returns where.
func configure(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	write(t, path, text)
	return path
}

// rules puts rules before those of the configuration, and has the offline voice
// speak as fast as it can: these tests hear every answer to its end.
func rules(t *testing.T, text string) func(*config.Config) {
	t.Helper()
	var doc struct {
		Rule []config.Rule `toml:"rule"`
	}
	if _, err := toml.Decode(text, &doc); err != nil {
		t.Fatal(err)
	}
	return func(cfg *config.Config) {
		r := cfg.LLM["rules"].Rules
		r.Rule = slices.Concat(doc.Rule, r.Rule)
		voice := cfg.TTS["espeak"].Command
		voice.Command = append(slices.Clone(voice.Command), "-s", "450")
	}
}

// A phone is a voice device with a user who types.
type phone struct {
	*device.Device
	t *testing.T

	mu      sync.Mutex
	events  []device.Event
	changed chan struct{} // closed and replaced with each event
}

// connect boots a device and waits until its tools are known.
func connect(t *testing.T, n *node, mac string, change func(*device.Options)) *phone {
	t.Helper()
	p := &phone{t: t, changed: make(chan struct{})}
	o := device.Options{
		ID: parseMAC(t, mac), OTA: fmt.Sprintf("http://127.0.0.1:%d%s", n.webPort(), ota.Path), OnEvent: p.notice,
		HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
	}
	if change != nil {
		change(&o)
	}
	d, err := device.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	p.Device = d
	if err := d.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	until(t, "the device's tools", func() bool {
		_, ready, err := n.sessions.Tools(d.ID())
		return err == nil && ready
	})
	return p
}

func (p *phone) notice(e device.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
	close(p.changed)
	p.changed = make(chan struct{})
}

// now is the place in the events that follows all there are.
func (p *phone) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.events)
}

// await returns the first event from a place on that is the one, and the place
// after it.
func (p *phone) await(what string, from int, is func(device.Event) bool) (device.Event, int) {
	p.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		p.mu.Lock()
		events, changed := p.events, p.changed
		p.mu.Unlock()
		for ; from < len(events); from++ {
			if is(events[from]) {
				return events[from], from + 1
			}
		}
		select {
		case <-changed:
		case <-limit.C:
			p.t.Fatalf("%s: waited in vain for %s; %d events came, the last is %+v", p.ID(), what, len(events), events[len(events)-1])
		}
	}
}

// between lists the texts of messages of a type and a detail from one place to
// another.
func (p *phone) between(from, to int, kind, detail string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var texts []string
	for _, e := range p.events[from:to] {
		if e.Kind == device.Message && e.Type == kind && e.Detail == detail {
			texts = append(texts, e.Text)
		}
	}
	return texts
}

// calls lists the tools that ran on the device from a place on, with their
// arguments.
func (p *phone) calls(from int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var calls []string
	for _, e := range p.events[from:] {
		if e.Kind == device.ToolCalled {
			calls = append(calls, e.Tool+" "+e.Text)
		}
	}
	return calls
}

// hears waits for a reply from a place on and returns its sentences, and the place
// after it.
func (p *phone) hears(from int) (sentences []string, after int) {
	p.t.Helper()
	_, begin := p.await("a reply", from, func(e device.Event) bool {
		return e.Kind == device.Message && e.Type == "tts" && e.Detail == "start"
	})
	_, after = p.await("the end of the reply", begin, is(device.SpeechEnded))
	return p.between(begin, after, "tts", "sentence_start"), after
}

// closes waits for the end of the session from a place on, and for the device to
// rest.
func (p *phone) closes(from int) {
	p.t.Helper()
	_, at := p.await("the end of the session", from, is(device.Closed))
	p.await("rest", at, inState(device.Idle))
}

// hangUp presses the button of a device that listens.
func (p *phone) hangUp() {
	p.t.Helper()
	open(p)
	from := p.now()
	p.Toggle()
	p.closes(from)
}

func is(kind device.Kind) func(device.Event) bool {
	return func(e device.Event) bool { return e.Kind == kind }
}

func inState(s device.State) func(device.Event) bool {
	return func(e device.Event) bool { return e.Kind == device.StateChanged && e.State == s }
}

// open has the device listen, in the session it has or in a new one, and be heard:
// until its first packet there is nowhere to send speech to.
func open(p *phone) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	idle, from, sent := p.State() == device.Idle, p.now(), p.Report().Sent
	if err := p.Open(ctx); err != nil {
		p.t.Fatalf("%s: %v", p.ID(), err)
	}
	if idle {
		p.await("the microphone", from, is(device.Microphone))
		until(p.t, "sound from the device", func() bool { return p.Report().Sent > sent })
	}
}

// typed types a text and returns the sentences of the reply, as they were spoken.
func typed(p *phone, text string) []string {
	p.t.Helper()
	open(p)
	from := p.now()
	p.Type(text)
	sentences, _ := p.hears(from)
	return sentences
}

// says asserts what a device answers to a text that is typed.
func says(p *phone, text string, want ...string) {
	p.t.Helper()
	if got := typed(p, text); !slices.Equal(got, want) {
		p.t.Errorf("to %q %s says %q, want %q", text, p.ID(), got, want)
	}
}

// contains reports whether one of the texts holds a part.
func contains(texts []string, part string) bool {
	return slices.ContainsFunc(texts, func(s string) bool { return strings.Contains(s, part) })
}

func parseMAC(t *testing.T, mac string) protocol.DeviceID {
	t.Helper()
	id, err := protocol.ParseDeviceID(mac)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
