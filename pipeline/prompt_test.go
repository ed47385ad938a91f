package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// long is a reply of some 17 s.
var long = strings.Repeat("one two three four. ", 15)

func TestATextNobodyAskedForIsSpoken(t *testing.T) {
	for _, m := range []Mode{Auto, Manual, Realtime} {
		t.Run(m.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.c.ListenStart(m)
				if m == Manual {
					b.speak(180 * ms)
					b.asr.text = "" // nothing was meant
					b.c.ListenStop()
				}
				b.after(time.Second)
				asked := time.Now()
				if !b.c.Say("🙂 Your tea is ready.", nil) {
					t.Fatal("refused")
				}
				synctest.Wait()
				if got := b.dev.when(t, "start", 0); !got.Equal(asked) {
					t.Errorf("tts start %v after it was asked for", got.Sub(asked))
				}
				b.after(20 * time.Second)
				if got, want := b.dev.log(), "start face:happy🙂 say:Your tea is ready. stop"; got != want {
					t.Errorf("told %q, want %q", got, want)
				}
				tr := b.traces()
				if len(tr) != 1 || !tr[0].Prompted || tr[0].Mode != m || tr[0].Said != "Your tea is ready." {
					t.Fatalf("traces %+v", tr)
				}
				// 150 ms of the voice, which is also the hold.
				if got := tr[0].VoiceToVoice(); got != 150*ms {
					t.Errorf("the first packet came after %v", got)
				}
				if h := b.history(); len(h) != 1 || h[0].Role != RoleAssistant || h[0].Text != "Your tea is ready." || h[0].Interrupted {
					t.Errorf("history %+v", h)
				}
			})
		})
	}
}

func TestATextWaitsForItsTurn(t *testing.T) {
	const text = "start say:Tea. stop"
	for name, c := range map[string]struct {
		before func(b *testbed) // ends with the text given to Say
		want   string
	}{
		"until the reply has been heard": {func(b *testbed) {
			b.ask()
			b.after(time.Second)
			b.c.Say("Tea.", nil)
		}, "stt:hello start say:Hi. say:How are you? stop " + text},
		"while the model thinks": {func(b *testbed) {
			b.ask()
			b.after(300 * ms)
			b.c.Say("Tea.", nil)
		}, "stt:hello start say:Hi. say:How are you? stop " + text},
		"until what the user says is answered": {func(b *testbed) {
			b.c.ListenStart(Realtime)
			b.speak(600 * ms)
			b.c.Say("Tea.", nil)
			b.speak(600 * ms)
			b.hush(20 * time.Second)
		}, "stt:hello start say:Hi. say:How are you? stop " + text},
		"while the button is held": {func(b *testbed) {
			b.c.ListenStart(Manual)
			synctest.Wait()
			b.c.Say("Tea.", nil)
			b.speak(3 * time.Second)
			b.c.ListenStop()
		}, "stt:hello start say:Hi. say:How are you? stop " + text},
		"until noise is known to be none": {func(b *testbed) {
			b.asr.text = ""
			b.c.ListenStart(Auto)
			b.speak(300 * ms)
			b.c.Say("Tea.", nil)
			b.hush(5 * time.Second)
		}, text},
		"before the device has begun to listen": {func(b *testbed) {
			b.c.Say("Tea.", nil)
			b.after(5 * time.Second)
			if got := b.dev.log(); got != "" {
				b.t.Errorf("told %q before its listen start", got)
			}
			b.c.ListenStart(Auto)
		}, text},
		"for the one before it": {func(b *testbed) {
			b.c.ListenStart(Realtime)
			b.c.Say("One.", nil)
			b.c.Say("Tea.", nil)
		}, "start say:One. stop " + text},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				c.before(b)
				b.after(30 * time.Second)
				if got := b.dev.log(); got != c.want {
					t.Errorf("told %q, want %q", got, c.want)
				}
				for _, tr := range b.traces() {
					if tr.CancelledBy != "" {
						t.Errorf("a turn was cut by %q", tr.CancelledBy)
					}
				}
			})
		})
	}
}

// TestAfterAReplyADeviceMayFirstSayThatItListens: its listen start would cut what
// is said before it comes. A device that never says so is not waited for.
func TestAfterAReplyADeviceMayFirstSayThatItListens(t *testing.T) {
	for name, resumes := range map[string]time.Duration{"as always": 400 * ms, "never": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.c.ListenStart(Auto)
				b.c.Say("One.", nil)
				b.c.Say("Tea.", nil)
				for len(b.traces()) == 0 {
					b.after(10 * ms)
				}
				want := resumeTime
				if resumes > 0 {
					b.after(resumes)
					b.c.ListenStart(Auto)
					want = resumes
				}
				b.after(20 * time.Second)
				if got, want := b.dev.log(), "start say:One. stop start say:Tea. stop"; got != want {
					t.Errorf("told %q, want %q", got, want)
				}
				if got := b.dev.when(t, "start", 1).Sub(b.dev.when(t, "stop", 0)); got < want || got > want+10*ms {
					t.Errorf("the second began %v after the first, want %v", got, want)
				}
			})
		})
	}
}

// TestAnAbortCancelsOneText: the user has had enough of this one, and the word
// for a moment.
func TestAnAbortCancelsOneText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.ListenStart(Auto)
		b.c.Say(long, nil)
		b.c.Say("Tea.", nil)
		b.after(3 * time.Second)
		aborted := time.Now()
		b.c.Abort()
		b.after(300 * ms)
		b.c.ListenStart(Auto)
		again := time.Now()
		b.after(20 * time.Second)
		if got := b.dev.when(t, "stop", 0); !got.Equal(aborted) {
			t.Errorf("stopped %v after the abort", got.Sub(aborted))
		}
		if got := b.dev.when(t, "start", 1).Sub(again); got != floorTime {
			t.Errorf("the next text came %v after the user had begun to talk, want %v", got, floorTime)
		}
		if tr := b.traces(); len(tr) != 2 || tr[0].CancelledBy != "abort" || tr[1].CancelledBy != "" || tr[1].Said != "Tea." {
			t.Errorf("traces %+v", tr)
		}
	})
}

// TestAWakeWordComesFirst: the user is about to speak.
func TestAWakeWordComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.ask()
		b.after(20 * time.Second)
		b.c.Detect("hi there")
		b.c.Say("Tea.", nil)
		b.after(200 * ms)
		b.ask()
		b.after(20 * time.Second)
		if got, want := b.dev.log(), "stt:hello start say:Hi. say:How are you? stop stt:hello start say:Hi. say:How are you? stop start say:Tea. stop"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

func TestTextsThatCannotBeSaidAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil) // nothing is said before a listen start
		for i := range sayBound {
			if !b.c.Say(fmt.Sprint("Text ", i), nil) {
				t.Errorf("text %d refused", i)
			}
		}
		for _, text := range []string{"One too many", "", "…", strings.Repeat("x", MaxSay+1)} {
			if b.c.Say(text, nil) {
				t.Errorf("%.20q accepted", text)
			}
		}
		b.stop()
		if got := b.c.Stats().Unspoken; got != 4 {
			t.Errorf("%d counted, want 4", got)
		}
	})
}

func TestAVoiceThatFailsOnATextIsApologisedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.p.TTS = voiceFunc(func(_ context.Context, _ <-chan string, yield func(Speech, error) bool) {
			yield(Speech{}, errors.New("boom"))
		})
		b.c.ListenStart(Auto)
		b.c.Say("Tea.", nil)
		b.after(10 * time.Second)
		if got := b.dev.log(); got != "start say:Sorry. stop" {
			t.Errorf("told %q", got)
		}
	})
}

func TestHangUp(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(b *testbed)
		want string // what the device was told in the end
	}{
		"nothing is said": {func(b *testbed) {
			b.c.ListenStart(Auto)
			b.after(time.Second)
			b.c.HangUp()
			synctest.Wait()
		}, "end:asked"},
		"a reply is heard to its end": {func(b *testbed) {
			b.ask()
			b.after(time.Second)
			b.c.HangUp()
			b.after(20 * time.Second)
		}, "stt:hello start stop end:asked"},
		"texts that wait are heard, too": {func(b *testbed) {
			b.c.ListenStart(Realtime)
			b.c.Say("One.", nil)
			b.c.Say("Good night.", nil)
			b.c.HangUp()
			b.after(20 * time.Second)
		}, "start stop start stop end:asked"},
		"a text that is nothing but a face": {func(b *testbed) {
			b.c.ListenStart(Realtime)
			b.c.Say("[sleepy]", nil)
			b.c.HangUp()
			b.after(time.Second)
		}, "end:asked"},
		"an abort ends it at once": {func(b *testbed) {
			b.ask()
			b.after(1200 * ms)
			b.c.HangUp()
			b.after(ms)
			b.c.Abort()
			synctest.Wait()
		}, "stt:hello start stop end:asked"},
		"who speaks on stays": {func(b *testbed) {
			b.llm.text, b.llm.gap = long, 0
			b.c.ListenStart(Realtime)
			b.speak(600 * ms)
			b.hush(3 * time.Second)
			b.c.HangUp()
			b.asr.text, b.llm.text = "wait", "Yes?"
			b.speak(900 * ms)
			b.hush(30 * time.Second)
		}, "stt:hello start stop stt:wait start stop"},
		"who presses the button stays": {func(b *testbed) {
			b.ask()
			b.after(1200 * ms)
			b.c.HangUp()
			b.ask()
			b.after(10 * time.Second)
		}, "stt:hello start stop stt:hello start stop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				c.do(b)
				if got := turns(b.dev.log()); got != c.want {
					t.Errorf("told %q, want %q", got, c.want)
				}
			})
		})
	}
}

// turns is a log without what was said.
func turns(log string) string {
	words := slices.DeleteFunc(strings.Fields(log), func(w string) bool {
		return w != "start" && w != "stop" && !strings.HasPrefix(w, "stt:") && !strings.HasPrefix(w, "end:")
	})
	return strings.Join(words, " ")
}

// TestATurnMayHangUp has a model say goodbye: its tool runs before the words.
func TestATurnMayHangUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.llm.text = []string{"door"}, "Good night."
		b.c.p.Tools = toolFunc(func(context.Context, Call) (ToolResult, error) {
			b.c.HangUp()
			return ToolResult{Text: "the session ends after your words"}, nil
		})
		b.ask()
		b.after(20 * time.Second)
		if got, want := b.dev.log(), "stt:hello start say:Good night. stop end:asked"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		heard := b.dev.frames[0].Add(time.Duration(len("Good night.")) * PacketDuration)
		if got := b.dev.when(t, "end:asked", 0).Sub(heard); got < 0 {
			t.Errorf("ended %v before the last word was heard", -got)
		}
	})
}

// toolFunc is a toolbox of one tool in one function.
type toolFunc func(context.Context, Call) (ToolResult, error)

func (f toolFunc) Tools() []Tool                                        { return []Tool{{Name: "door"}} }
func (f toolFunc) Call(ctx context.Context, c Call) (ToolResult, error) { return f(ctx, c) }

func TestPhases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		want := func(p Phase, when string) {
			t.Helper()
			synctest.Wait()
			if got := b.c.Phase(); got != p {
				t.Errorf("%s: %v, want %v", when, got, p)
			}
		}
		want(Idle, "before it began")
		b.c.ListenStart(Auto)
		want(Listening, "listening")
		b.speak(600 * ms)
		want(Listening, "the user speaks")
		b.hush(600 * ms)
		want(Thinking, "recogniser and model are at work")
		for b.dev.played() == 0 {
			b.after(10 * ms)
		}
		want(Speaking, "the answer is heard")
		b.after(20 * time.Second)
		want(Idle, "the device has not said that it listens")
		b.c.ListenStart(Realtime)
		want(Listening, "listening again")
		b.stop()
		want(Idle, "ended")
	})
}

func TestAnEchoSaysNothingOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dev := &fakeDevice{}
		e, err := NewEcho(DefaultConfig(), loudness{}, dev, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { e.Run(ctx); close(ended) }()
		e.ListenStart(Realtime)
		synctest.Wait()
		if e.Say("Tea.", nil) || e.Phase() != Speaking {
			t.Errorf("an echo speaks, in phase %v", e.Phase())
		}
		e.HangUp()
		synctest.Wait()
		if got := dev.log(); got != "start stop end:asked" {
			t.Errorf("told %q", got)
		}
		cancel()
		<-ended
	})
}
