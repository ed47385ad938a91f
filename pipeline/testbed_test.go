package pipeline

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"parley/internal/audio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A testbed is a conversation with providers of exact delays, in virtual time.
type testbed struct {
	t    *testing.T
	c    *Conversation
	dev  *fakeDevice
	asr  *fakeASR
	llm  *fakeLLM
	tts  *fakeTTS
	box  *fakeTools
	seq  uint32
	mu   sync.Mutex
	done []Trace
	stop func() // ends the conversation and waits for it
}

// newTestbed starts a conversation whose path is ready. It must be called in a
// synctest bubble.
func newTestbed(t *testing.T, change func(*Config)) *testbed {
	t.Helper()
	b := newTestbedWithoutPath(t, change)
	b.c.PathReady()
	synctest.Wait()
	return b
}

func newTestbedWithoutPath(t *testing.T, change func(*Config)) *testbed {
	t.Helper()
	b := &testbed{
		t: t, dev: &fakeDevice{}, asr: &fakeASR{text: "hello", delay: 200 * time.Millisecond},
		llm: &fakeLLM{ttft: 300 * time.Millisecond, gap: 20 * time.Millisecond, text: "Hi. How are you?"},
		tts: &fakeTTS{ttfb: 150 * time.Millisecond}, box: &fakeTools{},
	}
	cfg := DefaultConfig()
	cfg.ManualTail = 0
	cfg.Apology = Clip{Text: "Sorry.", Packets: [][]byte{packetOf(0xA0), packetOf(0xA1)}}
	if change != nil {
		change(&cfg)
	}
	var err error
	b.c, err = New(cfg, Providers{b.asr, b.llm, BySentence(b.tts, audio.NewEncoderPool(1)), b.box}, loudness{}, b.dev, func(tr Trace) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.done = append(b.done, tr)
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { b.c.Run(ctx); close(ended) }()
	b.stop = sync.OnceFunc(func() { cancel(); <-ended })
	t.Cleanup(b.stop)
	return b
}

// speak sends d of loud audio, in packets of 60 ms at the pace of a microphone.
func (b *testbed) speak(d time.Duration) { b.send(tonePacket, d) }

// hush sends d of silence.
func (b *testbed) hush(d time.Duration) { b.send(silencePacket, d) }

func (b *testbed) send(packet []byte, d time.Duration) {
	for ; d > 0; d -= PacketDuration {
		b.seq++
		b.c.Hear(b.seq, packet)
		time.Sleep(PacketDuration)
	}
	synctest.Wait()
}

// ask says something with a button and returns when it was released.
func (b *testbed) ask() time.Time {
	b.c.ListenStart(Manual)
	b.speak(600 * time.Millisecond)
	b.c.ListenStop()
	return time.Now()
}

// after waits in virtual time until everything is quiet.
func (b *testbed) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (b *testbed) traces() []Trace {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]Trace(nil), b.done...)
}

// history ends the conversation and returns what it remembers.
func (b *testbed) history() []Message {
	b.stop()
	return b.c.History()
}

// fakeDevice records what it is told, and when.
type fakeDevice struct {
	mu      sync.Mutex
	told    []string
	at      []time.Time
	frames  []time.Time
	packets [][]byte
	playErr error
	repeats []time.Time
}

func (d *fakeDevice) tell(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told, d.at = append(d.told, s), append(d.at, time.Now())
}
func (d *fakeDevice) Transcript(t string)     { d.tell("stt:" + t) }
func (d *fakeDevice) Start()                  { d.tell("start") }
func (d *fakeDevice) Sentence(t string)       { d.tell("say:" + t) }
func (d *fakeDevice) Emotion(n, emoji string) { d.tell("face:" + n + emoji) }
func (d *fakeDevice) Stop()                   { d.tell("stop") }
func (d *fakeDevice) End(reason string)       { d.tell("end:" + reason) }
func (d *fakeDevice) Play(p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frames, d.packets = append(d.frames, time.Now()), append(d.packets, append([]byte(nil), p...))
	return d.playErr
}

func (d *fakeDevice) Repeat() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.repeats = append(d.repeats, time.Now())
	return nil
}

func (d *fakeDevice) played() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.frames)
}

func (d *fakeDevice) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.told, " ")
}

// when returns the time of the n-th message s, from 0.
func (d *fakeDevice) when(t *testing.T, s string, n int) time.Time {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, m := range d.told {
		if m == s {
			if n == 0 {
				return d.at[i]
			}
			n--
		}
	}
	t.Fatalf("the device was never told %q; it was told %q", s, d.told)
	return time.Time{}
}

// loudness is a detector for synthetic audio: everything loud is speech.
type loudness struct{}

func (loudness) Close() {}
func (loudness) Speech(frame []int16) bool {
	var sum float64
	for _, s := range frame {
		sum += float64(s) * float64(s)
	}
	return math.Sqrt(sum/float64(len(frame))) > 500
}

// fakeASR answers delay after the audio ends.
type fakeASR struct {
	mu       sync.Mutex
	delay    time.Duration
	text     string   // of every utterance, unless texts has more
	texts    []string // of the utterances in order
	rejected bool
	err      error
	partial  string // yielded after the first second of audio
	// impatient ends a run without words after so much audio.
	impatient time.Duration
	heard     []time.Duration
}

func (f *fakeASR) Transcribe(ctx context.Context, in <-chan []int16) iter.Seq2[Transcript, error] {
	return func(yield func(Transcript, error) bool) {
		samples := 0
		for more := true; more; {
			select {
			case pcm, ok := <-in:
				samples += len(pcm)
				more = ok
				if f.impatient > 0 && ok && time.Duration(samples)*time.Second/SampleRate >= f.impatient {
					f.mu.Lock()
					f.heard = append(f.heard, f.impatient)
					f.mu.Unlock()
					return
				}
				if f.partial != "" && ok && samples >= SampleRate && samples-len(pcm) < SampleRate {
					if !yield(Transcript{Text: f.partial}, nil) {
						return
					}
				}
			case <-ctx.Done():
				yield(Transcript{}, ctx.Err())
				return
			}
		}
		f.mu.Lock()
		text := f.text
		if len(f.texts) > 0 {
			text, f.texts = f.texts[0], f.texts[1:]
		}
		f.heard = append(f.heard, time.Duration(samples)*time.Second/SampleRate)
		f.mu.Unlock()
		if !sleep(ctx, f.delay) || f.err != nil {
			yield(Transcript{}, f.err)
			return
		}
		yield(Transcript{Text: text, Final: true, Rejected: f.rejected}, nil)
	}
}

func (f *fakeASR) utterances() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]time.Duration(nil), f.heard...)
}

// fakeLLM calls tools once, if it has calls, and says its text rune by rune.
type fakeLLM struct {
	ttft, gap time.Duration
	text      string
	calls     []string
	always    bool // calls tools in every round it may
	err       error
	mu        sync.Mutex
	requests  []Request
}

func (f *fakeLLM) Chat(ctx context.Context, req *Request) iter.Seq2[Delta, error] {
	f.mu.Lock()
	f.requests = append(f.requests, Request{Messages: append([]Message(nil), req.Messages...), Tools: req.Tools})
	f.mu.Unlock()
	return func(yield func(Delta, error) bool) {
		if !sleep(ctx, f.ttft) {
			yield(Delta{}, ctx.Err())
			return
		}
		if f.err != nil {
			yield(Delta{}, f.err)
			return
		}
		answered := req.Messages[len(req.Messages)-1].Role == RoleTool
		if len(f.calls) > 0 && req.Tools != nil && (!answered || f.always) {
			for i, name := range f.calls {
				if !yield(Delta{Call: &Call{ID: fmt.Sprint("call", i), Name: name, Args: []byte("{}")}}, nil) {
					return
				}
			}
			return
		}
		for _, r := range f.text {
			if !yield(Delta{Text: string(r)}, nil) || !sleep(ctx, f.gap) {
				return
			}
		}
	}
}

// fakeTTS yields one marked packet for every letter, the first after ttfb. The
// second byte of a packet is the letter.
type fakeTTS struct {
	ttfb  time.Duration
	err   error // after the first sentence
	mu    sync.Mutex
	calls []string
	at    []time.Time
}

func (f *fakeTTS) Synthesize(ctx context.Context, s string) iter.Seq2[Audio, error] {
	f.mu.Lock()
	n := len(f.calls)
	f.calls, f.at = append(f.calls, s), append(f.at, time.Now())
	f.mu.Unlock()
	return func(yield func(Audio, error) bool) {
		if !sleep(ctx, f.ttfb) {
			yield(Audio{}, ctx.Err())
			return
		}
		if f.err != nil && n > 0 {
			yield(Audio{}, f.err)
			return
		}
		for i := range len(s) {
			if !yield(Audio{Opus: packetOf(s[i])}, nil) {
				return
			}
		}
	}
}

type fakeTools struct {
	delay  time.Duration
	images []Image
	err    error
	mu     sync.Mutex
	calls  []string
}

func (f *fakeTools) Tools() []Tool {
	return []Tool{{Name: "lamp", Schema: []byte(`{"type":"object"}`)}, {Name: "time"}, {Name: "door"}}
}

func (f *fakeTools) Call(ctx context.Context, c Call) (ToolResult, error) {
	if !sleep(ctx, f.delay) {
		return ToolResult{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, c.Name)
	return ToolResult{Text: c.Name + " done", Images: f.images}, f.err
}

// sleep reports false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// packetOf is a valid 60 ms Opus packet (SILK, 24 kHz voice is not needed to
// pass it on) that carries a mark.
func packetOf(mark byte) []byte {
	const silk60 = 3 << 3 // TOC: SILK narrow band, 60 ms, mono, one frame
	return []byte{silk60, mark, 2, 3, 4, 5, 6, 7}
}

var tonePacket, silencePacket = uplinkPackets()

// uplinkPackets are 60 ms of a tone and of silence as a microphone sends them.
func uplinkPackets() (tone, silence []byte) {
	encode := func(amplitude float64) []byte {
		e, err := audio.NewEncoder(audio.EncoderConfig{Rate: SampleRate, Bitrate: 24000, Complexity: 0})
		if err != nil {
			panic(err)
		}
		pcm := make([]int16, SampleRate*60/1000)
		for i := range pcm {
			pcm[i] = int16(amplitude * math.Sin(2*math.Pi*440*float64(i)/SampleRate))
		}
		var packet []byte
		buf := make([]byte, 1275)
		for range 3 { // past the encoder's start
			n, err := e.Encode(pcm, buf)
			if err != nil {
				panic(err)
			}
			packet = append([]byte(nil), buf[:n]...)
		}
		return packet
	}
	return encode(12000), encode(0)
}
