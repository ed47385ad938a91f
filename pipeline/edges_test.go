package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// transcriberFunc is a recogniser in one function.
type transcriberFunc func(ctx context.Context, in <-chan []int16, yield func(Transcript, error) bool)

func (f transcriberFunc) Transcribe(ctx context.Context, in <-chan []int16) iter.Seq2[Transcript, error] {
	return func(yield func(Transcript, error) bool) { f(ctx, in, yield) }
}

// modelFunc is a model in one function.
type modelFunc func(ctx context.Context, req *Request, yield func(Delta, error) bool)

func (f modelFunc) Chat(ctx context.Context, req *Request) iter.Seq2[Delta, error] {
	return func(yield func(Delta, error) bool) { f(ctx, req, yield) }
}

// voiceFunc is a voice in one function.
type voiceFunc func(ctx context.Context, text <-chan string, yield func(Speech, error) bool)

func (f voiceFunc) Speak(ctx context.Context, text <-chan string) iter.Seq2[Speech, error] {
	return func(yield func(Speech, error) bool) { f(ctx, text, yield) }
}

// drain reads an utterance to its end and reports false if ctx ended first.
func drain(ctx context.Context, in <-chan []int16) bool {
	for {
		select {
		case _, ok := <-in:
			if !ok {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// unstarted is a conversation whose Run has not been called, for steps that the
// loop takes one at a time.
func unstarted(t *testing.T, change func(*Config)) (*Conversation, *fakeDevice) {
	t.Helper()
	cfg := DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	dev := &fakeDevice{}
	c, err := New(cfg, Providers{&fakeASR{}, &fakeLLM{}, BySentence(&fakeTTS{}, nil), &fakeTools{}},
		loudness{}, dev, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return c, dev
}

// TestNoDeadlineFallsBetweenTwoReadingsOfTheClock has the clock pass the moment
// at which speech may be taken between the decision that it may not and the
// decision when to look again. Nothing else would wake the loop.
func TestNoDeadlineFallsBetweenTwoReadingsOfTheClock(t *testing.T) {
	for name, prepare := range map[string]func(*Conversation, *turn, time.Time){
		"the lead": func(c *Conversation, t *turn, at time.Time) {
			c.horizon = at.Add(c.cfg.Lead - PacketDuration)
		},
		"the hold": func(c *Conversation, t *turn, at time.Time) { t.startAt = at },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, _ := unstarted(t, nil)
				now := time.Now()
				at := now.Add(time.Nanosecond)
				c.path, c.lastSound = true, now
				c.turn = &turn{out: make(chan Speech), ended: make(chan struct{}), notes: make(chan note), cancel: func() {}, began: now}
				prepare(c, c.turn, at)
				if out, _ := c.downlink(now); out != nil {
					t.Fatal("speech may be taken already; the test is wrong")
				}
				time.Sleep(time.Microsecond) // the loop is not infinitely fast
				if got := c.wake(now); got.After(at) {
					t.Errorf("the loop sleeps until %v after the moment", got.Sub(at))
				}
			})
		})
	}
}

// TestARecogniserMayTakeItsWordsBack has a hypothesis that the final transcript
// revises to nothing.
func TestARecogniserMayTakeItsWordsBack(t *testing.T) {
	for name, final := range map[string]Transcript{
		"no words": {Final: true},
		"rejected": {Final: true, Rejected: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.c.p.ASR = transcriberFunc(func(ctx context.Context, in <-chan []int16, yield func(Transcript, error) bool) {
					if yield(Transcript{Text: "play"}, nil) && drain(ctx, in) {
						yield(final, nil)
					}
				})
				b.ask()
				b.after(20 * time.Second)
				if got := b.dev.log(); strings.Contains(got, "stt:") {
					t.Errorf("words that were taken back are answered: %q", got)
				}
				if got := len(b.llm.requests); got != 0 {
					t.Errorf("%d requests to the model", got)
				}
			})
		})
	}
}

// TestWordsTakenBackWhileTheirAnswerWaits drives an odd recogniser step by step:
// its first run says it is final and goes on, its second ends, and the first
// then takes its words back.
func TestWordsTakenBackWhileTheirAnswerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, dev := unstarted(t, nil)
		now := time.Now()
		first := &ear{cancel: func() {}, closed: true, trace: newTrace(Auto, now, now)}
		second := &ear{cancel: func() {}, closed: true, trace: newTrace(Auto, now, now)}
		c.asked = []*ear{first, second}
		for _, h := range []hypothesis{
			{ear: first, t: Transcript{Text: "set the volume to", Final: true}},
			{ear: second, ended: true},
			{ear: first, t: Transcript{Text: "…", Final: true}},
			{ear: first, ended: true},
		} {
			c.hypothesis(t.Context(), h)
		}
		defer func() {
			if r := recover(); r != nil {
				t.Errorf("panic: %v", r)
			}
		}()
		time.Sleep(time.Minute)
		c.lastSound = time.Now()
		c.tick(t.Context(), time.Now())
		if got := dev.log(); got != "" {
			t.Errorf("told %q", got)
		}
	})
}

// TestARecogniserThatIsDownIsApologisedForOnce has a user speak on while the
// recogniser fails at once, as one does whose breaker is open.
func TestARecogniserThatIsDownIsApologisedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.p.ASR = transcriberFunc(func(_ context.Context, _ <-chan []int16, yield func(Transcript, error) bool) {
			yield(Transcript{}, errors.New("resting"))
		})
		b.c.ListenStart(Realtime)
		b.speak(6 * time.Second) // one utterance
		b.hush(5 * time.Second)
		if got := strings.Count(b.dev.log(), "start"); got != 1 {
			t.Errorf("%d times tts start for one utterance", got)
		}
		if got := strings.Count(b.dev.log(), "say:Sorry."); got != 1 {
			t.Errorf("%d apologies for one utterance", got)
		}
	})
}

// TestAButtonThatIsHeldIsNotAnswered has a recogniser that finds the end of
// the turn by itself and returns, though the user still holds the button.
func TestAButtonThatIsHeldIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		runs := 0
		b.c.p.ASR = transcriberFunc(func(ctx context.Context, in <-chan []int16, yield func(Transcript, error) bool) {
			if runs++; runs == 1 {
				for range 5 {
					select {
					case <-in:
					case <-ctx.Done():
						return
					}
				}
				yield(Transcript{Text: "turn the lamp on", Final: true, EndOfTurn: true}, nil)
				return
			}
			if drain(ctx, in) {
				yield(Transcript{Text: "and the radio off", Final: true}, nil)
			}
		})
		b.c.ListenStart(Manual)
		b.speak(1200 * ms)
		if got := b.dev.log(); got != "" {
			t.Errorf("told %q while the button is held", got)
		}
		b.c.ListenStop()
		b.after(20 * time.Second)
		if got := b.dev.log(); !strings.HasPrefix(got, "stt:turn the lamp on and the radio off start") {
			t.Errorf("told %q", got)
		}
	})
}

// TestSpeechWithoutAPauseIsAnswered has a room that is never quiet: the bound on
// an utterance must lead to an answer.
func TestSpeechWithoutAPauseIsAnswered(t *testing.T) {
	for _, m := range []Mode{Auto, Realtime} {
		t.Run(m.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.c.ListenStart(m)
				b.speak(2 * time.Minute)
				if got := b.dev.log(); !strings.HasPrefix(got, "stt:hello start") {
					t.Errorf("after two minutes the device was told %q", got)
				}
				if got := len(b.asr.utterances()); got > 1 && !strings.Contains(b.dev.log(), "stt:") {
					t.Errorf("%d utterances are recognised and none is answered", got)
				}
			})
		})
	}
}

// TestAudioThatOvertookAnInterruptionIsHeard has a user press the button while
// the device speaks; the first words arrive before the messages that announce
// them.
func TestAudioThatOvertookAnInterruptionIsHeard(t *testing.T) {
	for name, abort := range map[string]bool{"listen start": false, "abort and listen start": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.llm.text = strings.Repeat("one two three four. ", 10)
				b.ask()
				b.after(5 * time.Second)
				if b.dev.played() == 0 {
					t.Fatal("no reply to interrupt")
				}
				b.speak(480 * ms) // MQTT is half a second late
				if abort {
					b.c.Abort()
				}
				b.c.ListenStart(Manual)
				synctest.Wait()
				b.speak(480 * ms)
				b.c.ListenStop()
				b.after(time.Second)
				if got := b.asr.utterances(); len(got) != 2 || got[1] != 960*ms {
					t.Errorf("the recogniser heard %v, want all 960ms of the second question", got)
				}
			})
		})
	}
}

// TestTheTailOfAQuestionIsNotPartOfTheNext is the other side of it: what was
// still on its way when the reply began is not what interrupts the reply.
func TestTheTailOfAQuestionIsNotPartOfTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.ttft = 10 * time.Second
		b.asr.delay = 0
		b.ask()
		b.speak(120 * ms) // late packets of the first question
		b.after(500 * ms)
		b.c.Abort()
		b.c.ListenStart(Manual)
		synctest.Wait()
		b.speak(480 * ms)
		b.c.ListenStop()
		b.after(time.Second)
		if got := b.asr.utterances(); len(got) != 2 || got[1] != 480*ms {
			t.Errorf("the recogniser heard %v, want 480ms of the second question", got)
		}
	})
}

// TestAnAbortCancelsAReplyThatHasNotBegun: a device that has aborted must not be
// sent back to speaking by what it said before.
func TestAnAbortCancelsAReplyThatHasNotBegun(t *testing.T) {
	t.Run("the recogniser is at work", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newTestbed(t, nil)
			b.ask()
			b.after(100 * ms) // of the recogniser's 200
			b.c.Abort()
			b.after(20 * time.Second)
			if got := b.dev.log(); strings.Contains(got, "start") {
				t.Errorf("told %q after the abort", got)
			}
		})
	})
	t.Run("the words may go on", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := newTestbed(t, nil)
			b.asr.text = "set the volume to"
			b.c.ListenStart(Auto)
			b.speak(600 * ms)
			b.hush(1200 * ms)
			b.c.Abort()
			b.hush(10 * time.Second)
			if got := b.dev.log(); strings.Contains(got, "start") {
				t.Errorf("told %q after the abort", got)
			}
		})
	})
}

// TestAVoiceThatReturnsEarlyEndsItsTurn: the model must not wait for ever for
// somebody to take its words.
func TestAVoiceThatReturnsEarlyEndsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.p.TTS = voiceFunc(func(context.Context, <-chan string, func(Speech, error) bool) {})
		b.llm.text = strings.Repeat("one two three four. ", 10)
		b.ask()
		b.after(5 * time.Minute)
		if got := b.dev.log(); !strings.Contains(got, "stop") {
			t.Errorf("the device still speaks after five minutes; it was told %q", got)
		}
	})
}

// TestAVoiceMayYieldNothingBetween has a voice whose speech has empty items.
func TestAVoiceMayYieldNothingBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.p.TTS = voiceFunc(func(ctx context.Context, text <-chan string, yield func(Speech, error) bool) {
			for range text {
			}
			for _, s := range []Speech{{Sentence: "One."}, {Packet: packetOf(1)}, {}, {Sentence: "Two."}, {Packet: packetOf(2)}} {
				if !yield(s, nil) {
					return
				}
			}
		})
		b.ask()
		b.after(20 * time.Second)
		if tr := b.traces(); len(tr) != 1 || tr[0].Said != "One. Two." {
			t.Errorf("traces %+v", tr)
		}
		if got, want := b.dev.log(), "stt:hello start say:One. say:Two. stop"; strings.Join(strings.Fields(got), " ") != want {
			t.Errorf("told %q, want %q", got, want)
		}
	})
}

// TestAModelMaySayNothing: the turn ends, and the conversation goes on.
func TestAModelMaySayNothing(t *testing.T) {
	call := Delta{Call: &Call{ID: "1", Name: "lamp", Args: []byte("{}")}}
	for name, chat := range map[string]modelFunc{
		"nothing": func(context.Context, *Request, func(Delta, error) bool) {},
		"usage": func(_ context.Context, _ *Request, yield func(Delta, error) bool) {
			yield(Delta{Usage: &Usage{1, 2}}, nil)
		},
		"empty text": func(_ context.Context, _ *Request, yield func(Delta, error) bool) { yield(Delta{}, nil) },
		"only emoji": func(_ context.Context, _ *Request, yield func(Delta, error) bool) { yield(Delta{Text: "🙂"}, nil) },
		"only calls": func(_ context.Context, _ *Request, yield func(Delta, error) bool) { yield(call, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.c.p.LLM = chat
				b.ask()
				b.after(10 * time.Second)
				if got := b.dev.log(); !strings.HasSuffix(got, "stop") {
					t.Errorf("told %q", got)
				}
				b.c.p.LLM = b.llm
				b.ask()
				b.after(10 * time.Second)
				if got := len(b.traces()); got != 2 || b.traces()[1].Said == "" {
					t.Errorf("%d turns: %+v", got, b.traces())
				}
				checkCalls(t, b.llm.requests[len(b.llm.requests)-1].Messages)
			})
		})
	}
}

// TestAModelThatFailsAfterText: what it said is spoken, then the apology.
func TestAModelThatFailsAfterText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		boom := errors.New("boom")
		b.c.p.LLM = modelFunc(func(_ context.Context, _ *Request, yield func(Delta, error) bool) {
			if yield(Delta{Text: "It is. "}, nil) {
				yield(Delta{}, boom)
			}
		})
		b.ask()
		b.after(10 * time.Second)
		if got := b.dev.log(); got != "stt:hello start say:It is. say:Sorry. stop" {
			t.Errorf("told %q", got)
		}
		if tr := b.traces(); len(tr) != 1 || !errors.Is(tr[0].Err, boom) {
			t.Errorf("traces %+v", tr)
		}
	})
}

// checkCalls asserts what services demand: the results of an assistant's calls
// follow it at once, one for each.
func checkCalls(t *testing.T, messages []Message) {
	t.Helper()
	open := map[string]bool{}
	for i, m := range messages {
		if m.Role == RoleTool {
			if !open[m.CallID] {
				t.Errorf("message %d is a result without a call", i)
			}
			delete(open, m.CallID)
			continue
		}
		if len(open) > 0 {
			t.Errorf("message %d (%s) comes before the results of %v", i, m.Role, open)
		}
		open = map[string]bool{}
		for _, c := range m.Calls {
			open[c.ID] = true
		}
	}
	if len(open) > 0 {
		t.Errorf("calls without results: %v", open)
	}
}

// TestCallsAndResultsStayTogether interrupts turns with slow tools at every
// stage and looks at every request the model got.
func TestCallsAndResultsStayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, func(c *Config) { c.History = 12 })
		b.llm.calls, b.llm.always = []string{"lamp", "time"}, true
		for i := range 60 {
			b.box.delay = time.Duration(i%7) * 300 * ms
			b.ask()
			b.after(time.Duration(i*97%2900) * ms)
			if i%3 == 0 {
				b.c.Abort()
			}
		}
		b.after(time.Minute)
		for i, r := range b.llm.requests {
			checkCalls(t, r.Messages)
			if t.Failed() {
				t.Fatalf("in request %d", i)
			}
		}
		checkCalls(t, b.history())
	})
}

// TestRepliesWithoutAQuestionDoNotGrowTheHistory: nothing of the user's stands
// between apologies.
func TestRepliesWithoutAQuestionDoNotGrowTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.text, b.asr.rejected = "", true
		for range 100 {
			b.ask()
			b.after(6 * time.Second)
		}
		if got, bound := len(b.history()), DefaultConfig().History; got > bound {
			t.Errorf("%d messages, bound %d", got, bound)
		}
	})
}

// TestWhatIsRememberedIsNotShared gives two conversations the same past, as a
// session and the one that replaces it have.
func TestWhatIsRememberedIsNotShared(t *testing.T) {
	past := append(make([]Message, 0, 8), Message{Role: RoleUser, Text: "the past"})
	var all []*Conversation
	for i := range 2 {
		c, _ := unstarted(t, nil)
		c.Remember(past)
		c.remember(Message{Role: RoleUser, Text: fmt.Sprint("question ", i)})
		all = append(all, c)
	}
	for i, c := range all {
		if got, want := c.History()[1].Text, fmt.Sprint("question ", i); got != want {
			t.Errorf("conversation %d remembers %q, want %q", i, got, want)
		}
	}
}

// TestTypedTextWithoutWordsIsNotAQuestion: a client's input line may be empty.
func TestTypedTextWithoutWordsIsNotAQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.ListenStart(Auto)
		b.c.Detect(" ")
		b.after(20 * time.Second)
		if got := b.dev.log(); got != "" {
			t.Errorf("told %q", got)
		}
	})
}

// TestNoiseDoesNotKeepTheSession: a fan is not somebody who says something, and
// no device hangs up by itself.
func TestNoiseDoesNotKeepTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.text = ""
		b.c.ListenStart(Auto)
		for range 60 { // ten minutes
			b.speak(9 * time.Second)
			b.hush(time.Second)
		}
		if got := b.dev.log(); !strings.Contains(got, "end:silence") {
			t.Errorf("after ten minutes of noise the session still runs; told %q", got)
		}
	})
}

// TestAReplyIsFinishedInANoisyRoom: a possible interruption without words holds
// a reply for two seconds, not for as long as the noise lasts.
func TestAReplyIsFinishedInANoisyRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.text, b.llm.gap = strings.Repeat("one two three four. ", 5), 0
		b.c.ListenStart(Realtime)
		b.speak(600 * ms)
		b.hush(2 * time.Second)
		if b.dev.played() == 0 {
			t.Fatal("no reply")
		}
		b.asr.text = ""
		b.speak(25 * time.Second) // a vacuum cleaner
		if got := b.dev.log(); !strings.HasSuffix(got, "stop") {
			t.Errorf("%d packets of a reply of 5.7 s played in 25 s of noise", b.dev.played())
		}
	})
}

// TestAnUtteranceThatBeginsAndPausesInOnePieceIsHeard uses the longest packet.
func TestAnUtteranceThatBeginsAndPausesInOnePieceIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := unstarted(t, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer c.work.Wait()
		defer cancel()
		c.listening, c.mode = true, Auto
		frame := func(loud ...bool) (pcm []int16) {
			for _, l := range loud {
				for range detectorSamples {
					if l {
						pcm = append(pcm, 12000)
					} else {
						pcm = append(pcm, 0)
					}
				}
			}
			return pcm
		}
		c.sound(ctx, frame(false, true, true, true, true, true), time.Now())
		c.sound(ctx, frame(true, false, false, false, true, true), time.Now())
		if c.ends.speaking && c.ear == nil {
			t.Error("the user speaks and no recogniser listens; nothing will end this utterance")
		}
	})
}

// TestManualAbortAndNewQuestion is the order in which a device interrupts in
// manual mode: nothing may start between its stop and the next answer.
func TestManualAbortAndNewQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.text = strings.Repeat("one two three four. ", 10)
		for _, wait := range []time.Duration{0, 150 * ms, 210 * ms, 450 * ms, 600 * ms, 2 * time.Second} {
			b.ask()
			b.after(wait)
			b.c.Abort()
			before := b.dev.log()
			b.c.ListenStart(Manual)
			b.speak(600 * ms)
			after := strings.TrimPrefix(b.dev.log(), before)
			if strings.Contains(after, "start") {
				t.Errorf("aborted after %v, told %q while the user speaks", wait, after)
			}
			b.c.ListenStop()
			b.after(30 * time.Second)
		}
		if got, want := strings.Count(b.dev.log(), "start"), strings.Count(b.dev.log(), "stop"); got != want {
			t.Errorf("%d starts, %d stops", got, want)
		}
	})
}
