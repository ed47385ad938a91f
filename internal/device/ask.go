package device

import (
	"context"
	"fmt"
	"slices"
	"time"

	"parley/internal/protocol"
)

// maxRecording bounds the PCM of an [Answer]: ten minutes.
const maxRecording = 10 * 60 * protocol.DownlinkSampleRate // samples

// An Answer is what one question brought, as a person would have met it.
type Answer struct {
	Transcript string   // what the device showed as heard (stt); the last one
	Sentences  []string // what it showed as said (tts sentence_start)
	Emotion    string   // the last face
	Alerts     []string // messages of alerts
	Calls      []ToolCall

	// PCM, with Options.Decode, is what the speaker gave, 24 kHz mono, from the
	// first sound on, with gaps as silence; ten minutes at most.
	PCM []int16

	// Times; zero where it never happened.
	SpeechEnd   time.Time // the person had said everything
	Heard       time.Time // stt arrived
	ReplyStart  time.Time // tts start arrived
	FirstPacket time.Time // the first audio arrived that was queued
	FirstSound  time.Time // it sounded
	ReplyStop   time.Time // tts stop arrived
	Silent      time.Time // the last frame had been heard
}

// A ToolCall is one tool the server ran on the device.
type ToolCall struct {
	Name, Args, Result string
	Time               time.Time // when the reply was sent
}

// An exchange collects an Answer. Device.mu guards it.
type exchange struct {
	answer   Answer
	ended    bool // the main task acted on tts stop
	closed   bool // the session ended
	failed   error
	recorded time.Time // the end of the PCM so far
}

// observe takes an event into the answer.
func (x *exchange) observe(e Event) {
	a := &x.answer
	switch e.Kind {
	case Message:
		x.message(e)
	case ToolCalled:
		a.Calls = append(a.Calls, ToolCall{Name: e.Tool, Args: e.Text, Result: e.Result, Time: e.Time})
	case FirstPacket:
		a.FirstPacket = e.Time
	case FirstSound:
		if x.started() && a.FirstSound.IsZero() {
			a.FirstSound = e.Time
		}
	case Silent:
		a.Silent = e.Time
	case SpeechEnded:
		x.ended = x.started()
	case Closed, Crashed:
		x.closed = true
	case Failed:
		x.closed, x.failed = true, e.Err
	}
}

func (x *exchange) message(e Event) {
	a := &x.answer
	switch e.Type {
	case "stt":
		a.Transcript, a.Heard = e.Text, e.Time
	case "llm":
		a.Emotion = e.Detail
	case "alert":
		a.Alerts = append(a.Alerts, e.Text)
	case "tts":
		switch e.Detail {
		case "start":
			if !x.started() {
				a.ReplyStart = e.Time
			}
		case "sentence_start":
			if x.started() {
				a.Sentences = append(a.Sentences, e.Text)
			}
		case "stop":
			a.ReplyStop = e.Time
		}
	}
}

// end is the error of an exchange that was cut short.
func (x *exchange) end() error {
	switch {
	case !x.closed || x.ended:
		return nil
	case x.failed != nil:
		return fmt.Errorf("%w: %w", ErrEnded, x.failed)
	}
	return ErrEnded
}

func (x *exchange) started() bool { return !x.answer.ReplyStart.IsZero() }

// record appends a frame that sounds at at.
func (x *exchange) record(at time.Time, pcm []int16) {
	if !x.started() {
		return
	}
	if gap := at.Sub(x.recorded); !x.recorded.IsZero() && gap > 0 {
		silence := int(gap * protocol.DownlinkSampleRate / time.Second)
		x.answer.PCM = append(x.answer.PCM, make([]int16, min(silence, maxRecording-len(x.answer.PCM)))...)
	}
	pcm = pcm[:min(len(pcm), maxRecording-len(x.answer.PCM))]
	x.answer.PCM = append(x.answer.PCM, pcm...)
	x.recorded = at.Add(time.Duration(len(pcm)) * time.Second / protocol.DownlinkSampleRate)
}

// heard passes a frame on to the recording and to Options.Hear.
func (d *Device) heard(at time.Time, pcm []int16) {
	d.mu.Lock()
	if d.exchange != nil {
		d.exchange.record(at, pcm)
	}
	d.mu.Unlock()
	if d.opts.Hear != nil {
		d.opts.Hear(at, pcm)
	}
}

// Say speaks pcm, 16 kHz mono, into the air beside the device and returns when
// it is said. The device hears what falls into the time its microphone is on.
func (d *Device) Say(ctx context.Context, pcm []int16) error {
	s := &sound{start: time.Now(), pcm: pcm}
	d.mic.say(s)
	timer := time.NewTimer(time.Duration(len(pcm)) * time.Second / protocol.UplinkSampleRate)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-d.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		d.mic.unsay(s)
		return context.Cause(ctx)
	}
}

// SayEncoded speaks an utterance, which should be of the device's frame length.
// Unlike PCM it waits for the microphone. It returns when the last packet is on
// its way.
func (d *Device) SayEncoded(ctx context.Context, u Utterance) error {
	if len(u.packets) == 0 {
		return nil
	}
	s := &sound{packets: slices.Concat(u.packets, u.tail), tail: len(u.tail), said: make(chan struct{})}
	d.mic.say(s)
	select {
	case <-s.said:
		return nil
	case <-d.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		d.mic.unsay(s)
		return context.Cause(ctx)
	}
}

// Open makes the device listen in its mode, opening a channel where none is
// open, and returns when its microphone is warm. A session that ends meanwhile
// is [ErrEnded].
func (d *Device) Open(ctx context.Context) error {
	_, err := d.ask(ctx, nil)
	return err
}

// press begins a conversation with an idle device.
func (d *Device) press() {
	if d.opts.Mode == protocol.ModeManual {
		d.ButtonDown()
	} else {
		d.Toggle()
	}
}

// warm reports whether what is said now is heard.
func (m *microphone) warm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live
}

// Ask says pcm (16 kHz mono) to the device and waits for the whole reply: it
// opens the conversation where that is needed, presses and releases the button
// in manual mode, and returns when the server has said tts stop, the last frame
// has been heard and the device is listening or idle again. A session that ends
// before is [ErrEnded]; the answer then holds what there was. One Ask at a
// time; another is [ErrBusy].
func (d *Device) Ask(ctx context.Context, pcm []int16) (Answer, error) {
	return d.ask(ctx, func() error { return d.Say(ctx, pcm) })
}

// AskEncoded is [Device.Ask] with an utterance.
func (d *Device) AskEncoded(ctx context.Context, u Utterance) (Answer, error) {
	return d.ask(ctx, func() error { return d.SayEncoded(ctx, u) })
}

func (d *Device) ask(ctx context.Context, say func() error) (Answer, error) {
	x := &exchange{}
	d.mu.Lock()
	if d.exchange != nil {
		d.mu.Unlock()
		return Answer{}, ErrBusy
	}
	d.exchange = x
	d.mu.Unlock()
	err := d.exchangeWith(ctx, x, say)
	d.mu.Lock()
	d.exchange = nil
	d.mu.Unlock()
	return x.answer, err
}

// exchangeWith runs one exchange: open, speak, and wait for the end of the reply.
// Without anything to say it ends when the microphone is warm.
func (d *Device) exchangeWith(ctx context.Context, x *exchange, say func() error) error {
	switch d.State() {
	case Starting:
		return ErrNotConnected
	case Idle:
		d.press()
	}
	if err := d.await(ctx, func() bool { return x.closed || d.mic.warm() }); err != nil {
		return fmt.Errorf("device: waiting for the microphone: %w", err)
	}
	d.mu.Lock()
	err := x.end()
	if err == nil {
		*x = exchange{} // a greeting is not the answer
	}
	d.mu.Unlock()
	if err != nil || say == nil {
		return err
	}
	if err := say(); err != nil {
		return fmt.Errorf("device: speaking: %w", err)
	}
	d.mu.Lock()
	x.answer.SpeechEnd = time.Now()
	d.mu.Unlock()
	if d.opts.Mode == protocol.ModeManual {
		d.ButtonUp()
	}
	err = d.await(ctx, func() bool {
		return x.closed || x.ended && d.speaker.isSilent() && (d.state == Listening || d.state == Idle)
	})
	if err != nil {
		return fmt.Errorf("device: waiting for the reply: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return x.end()
}
