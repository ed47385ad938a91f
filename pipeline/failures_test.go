package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAFailureAfterTheFinalWordsLosesNothing has a recogniser whose connection
// breaks when everything has been said and understood.
func TestAFailureAfterTheFinalWordsLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.p.ASR = transcriberFunc(func(ctx context.Context, in <-chan []int16, yield func(Transcript, error) bool) {
			if drain(ctx, in) && yield(Transcript{Text: "hello", Final: true}, nil) {
				yield(Transcript{}, errors.New("connection reset"))
			}
		})
		b.ask()
		b.after(20 * time.Second)
		if got := b.dev.log(); !strings.HasPrefix(got, "stt:hello start say:Hi.") {
			t.Errorf("told %q", got)
		}
	})
}

// TestACoughDoesNotEndAReplyBecauseTheRecogniserIsDown: what could not be
// recognised held no words, as far as anybody knows.
func TestACoughDoesNotEndAReplyBecauseTheRecogniserIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.text, b.llm.gap = strings.Repeat("one two three four. ", 5), 0
		b.c.ListenStart(Realtime)
		b.speak(600 * ms)
		b.hush(2 * time.Second)
		if b.dev.played() == 0 {
			t.Fatal("no reply")
		}
		b.asr.err = errors.New("down")
		b.speak(180 * ms)
		b.hush(30 * time.Second)
		if tr := b.traces(); len(tr) != 1 || tr[0].CancelledBy != "" {
			t.Errorf("told %q", b.dev.log())
		}
	})
}

// TestAVoiceThatFailsIsNotHeldUpByATool: a tool may take half a minute, and the
// device waits in silence.
func TestAVoiceThatFailsIsNotHeldUpByATool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.box.delay = 30 * time.Second
		b.c.p.LLM = modelFunc(func(_ context.Context, req *Request, yield func(Delta, error) bool) {
			if req.Messages[len(req.Messages)-1].Role == RoleTool {
				yield(Delta{Text: "It is done."}, nil)
			} else if yield(Delta{Text: "One moment. "}, nil) {
				yield(Delta{Call: &Call{ID: "1", Name: "door", Args: []byte("{}")}}, nil)
			}
		})
		b.c.p.TTS = voiceFunc(func(ctx context.Context, text <-chan string, yield func(Speech, error) bool) {
			<-text
			sleep(ctx, 100*ms) // the tool is at work by now
			yield(Speech{}, errors.New("boom"))
		})
		b.ask()
		b.after(5 * time.Second)
		if got := b.dev.log(); got != "stt:hello start say:Sorry. stop" {
			t.Errorf("told %q within five seconds", got)
		}
		b.after(time.Minute)
		h := b.history()
		checkCalls(t, h)
		found := false
		for _, m := range h {
			found = found || m.Role == RoleTool && m.Text == "door done"
		}
		if !found {
			t.Errorf("what the tool did is forgotten: %+v", h)
		}
	})
}

// TestAFullyHeardReplyIsNotInterrupted: the user answers in the moment between
// the last sound and the stop.
func TestAFullyHeardReplyIsNotInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.ask()
		for len(b.traces()) == 0 && b.dev.played() < len("Hi.How are you?") {
			b.after(10 * ms)
		}
		b.after(3*PacketDuration + 20*ms) // the lead has been heard, the margin has not passed
		b.c.ListenStart(Manual)
		b.after(time.Second)
		tr := b.traces()
		if len(tr) != 1 || tr[0].CancelledBy != "" {
			t.Errorf("traces %+v", tr)
		}
		for _, m := range b.history() {
			if m.Interrupted {
				t.Errorf("history says that %q was cut", m.Text)
			}
		}
	})
}
