package pipeline

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestATextIsSaidOrGivenBack: whoever had something to say learns, once, if
// nobody was told; and what was said is not given back.
func TestATextIsSaidOrGivenBack(t *testing.T) {
	const text = "Your tea is ready."
	for name, c := range map[string]struct {
		do   func(b *testbed, say func())
		want string // what the device was told
		back int32
	}{
		"it is said": {func(b *testbed, say func()) {
			b.c.ListenStart(Realtime)
			say()
			b.after(20 * time.Second)
		}, "start say:" + text + " stop", 0},
		"the session ends before": {func(_ *testbed, say func()) { say() }, "", 1},
		"the session ends within": {func(b *testbed, say func()) {
			b.c.ListenStart(Realtime)
			say()
			b.after(700 * ms)
		}, "start say:" + text + " stop", 1},
		"the session ends when all of it was heard": {func(b *testbed, say func()) {
			b.c.ListenStart(Realtime)
			say()
			b.after(150*ms + time.Duration(len(text))*PacketDuration + 50*ms)
		}, "start say:" + text + " stop", 0},
		"the voice fails": {func(b *testbed, say func()) {
			b.c.p.TTS = voiceFunc(func(_ context.Context, _ <-chan string, yield func(Speech, error) bool) {
				yield(Speech{}, errors.New("boom"))
			})
			b.c.ListenStart(Auto)
			say()
			b.after(10 * time.Second)
		}, "start say:Sorry. stop", 1},
		"the user has heard enough": {func(b *testbed, say func()) {
			b.c.ListenStart(Auto)
			say()
			b.after(time.Second)
			b.c.Abort()
			b.after(20 * time.Second)
		}, "start say:" + text + " stop", 0},
		"a slow listen start cuts it before a word was heard": {func(b *testbed, say func()) {
			b.c.ListenStart(Auto)
			b.after(time.Second)
			say()
			b.after(100 * ms)
			b.c.ListenStart(Auto)
			b.after(20 * time.Second)
		}, "start stop start say:" + text + " stop", 0},
		"nothing but a face": {func(b *testbed, _ func()) {
			b.c.ListenStart(Auto)
			b.c.Say("[sleepy]", func() { b.t.Error("given back") })
			b.after(time.Second)
		}, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				var back atomic.Int32
				c.do(b, func() {
					if !b.c.Say(text, func() { back.Add(1) }) {
						t.Error("refused")
					}
				})
				b.stop()
				if got := b.dev.log(); got != c.want {
					t.Errorf("told %q, want %q", got, c.want)
				}
				if got := back.Load(); got != c.back {
					t.Errorf("given back %d times, want %d", got, c.back)
				}
				if b.c.Say("Too late.", func() { t.Error("given back, and was refused") }) {
					t.Error("accepted after the end")
				}
			})
		})
	}
}

// TestATextIsGivenBackWhereNothingCanBeSent: the device listens, and no packet of
// it comes, so that nobody knows where to send speech. Its owner reads it instead.
func TestATextIsGivenBackWhereNothingCanBeSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbedWithoutPath(t, nil)
		b.c.ListenStart(Auto)
		listened := time.Now()
		var back []time.Duration
		say := func() { b.c.Say("Tea.", func() { back = append(back, time.Since(listened)) }) }
		say()
		b.after(7 * time.Second)
		say()
		b.after(time.Second)
		if want := b.c.cfg.NoPath; len(back) != 2 || back[0] != want || back[1] != 7*time.Second {
			t.Errorf("given back after %v, want after %v and at once", back, want)
		}
		b.c.PathReady()
		synctest.Wait()
		say()
		b.after(10 * time.Second)
		if got := b.dev.log(); got != "start say:Tea. stop" || len(back) != 2 {
			t.Errorf("told %q, given back %v", got, back)
		}
	})
}

// TestHangingUpOnSomebodyWhoSpeaks: what is being said is heard out first.
func TestHangingUpOnSomebodyWhoSpeaks(t *testing.T) {
	for name, c := range map[string]struct {
		mode Mode
		text string // that is understood
		want string
	}{
		"words in realtime": {Realtime, "wait", "stt:wait start stop"},
		"a cough":           {Realtime, "", "end:asked"},
		"a button is held":  {Manual, "wait", "stt:wait start stop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.asr.text = c.text
				b.c.ListenStart(c.mode)
				b.speak(600 * ms)
				b.c.HangUp()
				b.speak(300 * ms)
				if got := b.dev.log(); got != "" {
					t.Errorf("told %q while the user speaks", got)
				}
				if c.mode == Manual {
					b.c.ListenStop()
				}
				b.hush(20 * time.Second)
				if got := turns(b.dev.log()); got != c.want {
					t.Errorf("told %q, want %q", got, c.want)
				}
			})
		})
	}
}
