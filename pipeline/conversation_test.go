package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const ms = time.Millisecond

func TestVoiceToVoiceIsTheProvidersDelaysAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		end := b.ask()
		b.after(20 * time.Second)
		// The model's first sentence is "Hi." and known to be over one token
		// later, at the space: 3 gaps of 20 ms.
		want := 200*ms + 300*ms + 3*20*ms + 150*ms
		if got := b.dev.frames[0].Sub(end); got != want {
			t.Errorf("voice to voice %v, want %v", got, want)
		}
		tr := b.traces()[0]
		if got := tr.VoiceToVoice(); got != want {
			t.Errorf("the trace says %v, want %v", got, want)
		}
		stages := fmt.Sprint(tr.Stages())
		if want := "[{endpoint 0s} {asr 200ms} {llm 300ms} {tts 210ms} {start 0s}]"; stages != want {
			t.Errorf("stages %s, want %s", stages, want)
		}
		if got, want := b.dev.log(), "stt:hello start say:Hi. say:How are you? stop"; got != want {
			t.Errorf("the device was told %q, want %q", got, want)
		}
		if len(b.dev.frames) != len("Hi.")+len("How are you?") {
			t.Errorf("%d packets", len(b.dev.frames))
		}
	})
}

func TestEndpointingAddsItsDelayOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.ListenStart(Auto)
		b.hush(300 * ms)
		b.speak(900 * ms)
		quiet := time.Now()
		b.hush(3 * time.Second)
		b.after(20 * time.Second)
		tr := b.traces()[0]
		// Silence is judged in frames of 20 ms as packets of 60 ms arrive: 500 ms
		// are complete with the ninth packet, which arrives after eight.
		if got, want := tr.Endpoint.Sub(quiet), 8*60*ms; got != want {
			t.Errorf("endpoint %v after the first silent packet, want %v", got, want)
		}
		if got, want := b.dev.frames[0].Sub(tr.Endpoint), 200*ms+300*ms+60*ms+150*ms; got != want {
			t.Errorf("first packet %v after the endpoint, want %v", got, want)
		}
		// The recogniser got the pre-roll, the speech and the silence.
		if got := b.asr.utterances(); len(got) != 1 || got[0] < 900*ms+300*ms || got[0] > 900*ms+500*ms+540*ms {
			t.Errorf("the recogniser heard %v", got)
		}
	})
}

func TestCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.text, b.llm.gap = strings.Repeat("a", 50)+".", 0
		b.ask()
		b.after(20 * time.Second)
		first := b.dev.frames[0]
		for i, at := range b.dev.frames {
			// One every 40 ms until the lead is made, then one every 60 ms.
			want := max(time.Duration(i)*40*ms, time.Duration(i-2)*PacketDuration)
			if got := at.Sub(first); got != want {
				t.Fatalf("packet %d sent %v after the first, want %v", i, got, want)
			}
		}
		end := first.Add(time.Duration(len(b.dev.frames)) * PacketDuration)
		if got := b.dev.when(t, "stop", 0).Sub(end); got != 2*PacketDuration {
			t.Errorf("stop %v after the last packet was heard, want %v", got, 2*PacketDuration)
		}
	})
}

func TestFirstPacketIsHeldUntilTheDeviceIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.ttft, b.llm.gap, b.tts.ttfb = 0, 0, 0
		b.ask()
		b.after(10 * time.Second)
		if got := b.dev.frames[0].Sub(b.dev.when(t, "start", 0)); got != 150*ms {
			t.Errorf("first packet %v after start, want exactly the hold of 150ms", got)
		}
	})
}

func TestAbortStopsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.text, b.llm.gap = strings.Repeat("one two three four. ", 20), 0
		b.ask()
		b.after(5 * time.Second)
		n := b.dev.played()
		before := time.Now()
		b.c.Abort()
		synctest.Wait()
		if got := b.dev.when(t, "stop", 0); !got.Equal(before) {
			t.Errorf("stop %v after the abort", got.Sub(before))
		}
		b.after(10 * time.Second)
		if got := b.dev.played(); got != n || n == 0 {
			t.Errorf("%d packets before the abort, %d after", n, got-n)
		}
		tr := b.traces()[0]
		if tr.CancelledBy != "abort" || tr.Said == "" {
			t.Errorf("trace: cancelled by %q, said %q", tr.CancelledBy, tr.Said)
		}
		h := b.history()
		last := h[len(h)-1]
		if !last.Interrupted || last.Text != tr.Said || len(last.Text) >= len(b.llm.text) {
			t.Errorf("history ends with %+v", last)
		}
	})
}

func TestParallelToolsCostTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.box.delay = []string{"lamp", "time", "door"}, time.Second
		end := b.ask()
		b.after(20 * time.Second)
		want := 200*ms + 300*ms + time.Second + 300*ms + 60*ms + 150*ms
		if got := b.dev.frames[0].Sub(end); got != want {
			t.Errorf("first packet after %v, want %v", got, want)
		}
		tr := b.traces()[0]
		if len(tr.Tools) != 3 || tr.Tools[0].Took != time.Second {
			t.Errorf("traced tools %+v", tr.Tools)
		}
		// Each call has exactly one result, in the order of the calls.
		msgs := b.llm.requests[1].Messages
		round := msgs[len(msgs)-4:]
		if len(round[0].Calls) != 3 {
			t.Fatalf("the model sees %+v", msgs)
		}
		for i, call := range round[0].Calls {
			if r := round[i+1]; r.Role != RoleTool || r.CallID != call.ID || r.Text != call.Name+" done" {
				t.Errorf("result %d is %+v", i, r)
			}
		}
	})
}

func TestToolRoundsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.llm.always = []string{"lamp"}, true
		b.ask()
		b.after(60 * time.Second)
		if n := len(b.llm.requests); n != 6 || b.llm.requests[5].Tools != nil {
			t.Errorf("%d requests, tools in the last: %v", n, b.llm.requests[n-1].Tools)
		}
		if !strings.Contains(b.dev.log(), "say:Hi.") {
			t.Errorf("no answer: %q", b.dev.log())
		}
	})
}

func TestAnAbortDoesNotCutAToolCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.box.delay = []string{"door"}, 3*time.Second
		b.ask()
		b.after(time.Second)
		b.c.Abort()
		b.after(10 * time.Second)
		if len(b.box.calls) != 1 {
			t.Fatalf("calls that ended: %v", b.box.calls)
		}
		var got []string
		for _, m := range b.history() {
			got = append(got, fmt.Sprintf("%s:%s%d", m.Role, m.Text, len(m.Calls)))
		}
		if want := "user:hello0 assistant:1 tool:door done0"; strings.Join(got, " ") != want {
			t.Errorf("history %q, want %q", got, want)
		}
	})
}

func TestBargeIn(t *testing.T) {
	start := func(t *testing.T) *testbed {
		b := newTestbed(t, nil)
		b.llm.text, b.llm.gap = strings.Repeat("one two three four. ", 10), 0
		b.c.ListenStart(Realtime)
		b.speak(600 * ms)
		b.hush(3 * time.Second)
		if b.dev.played() == 0 {
			t.Fatal("no reply to interrupt")
		}
		return b
	}
	t.Run("words end the reply", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			b.asr.text = "be quiet"
			b.speak(900 * ms)
			paused := b.dev.played()
			b.hush(2 * time.Second)
			if tr := b.traces(); len(tr) != 1 || tr[0].CancelledBy != "barge-in" {
				t.Fatalf("traces %+v", tr)
			}
			if got := b.dev.frames[paused].Sub(b.dev.when(t, "start", 1)); got < 0 {
				t.Error("the interrupted reply went on before the new one started")
			}
			if !strings.Contains(b.dev.log(), "stop stt:be quiet start") {
				t.Errorf("told %q", b.dev.log())
			}
		})
	})
	t.Run("noise does not, and nothing is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			b.asr.text = ""
			b.speak(900 * ms)
			paused := b.dev.played()
			b.hush(120 * ms)
			if got := b.dev.played(); got != paused {
				t.Errorf("%d packets while paused", got-paused)
			}
			b.hush(60 * time.Second)
			if tr := b.traces(); len(tr) != 1 || tr[0].CancelledBy != "" {
				t.Fatalf("traces %+v", tr)
			}
			var said strings.Builder
			for _, p := range b.dev.packets {
				said.WriteByte(p[1])
			}
			if want := strings.Repeat("one two three four.", 10); said.String() != want {
				t.Errorf("played %q", said.String())
			}
		})
	})
	t.Run("a cough is not even a pause", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := start(t)
			b.asr.text = ""
			n := b.dev.played()
			b.speak(180 * ms)
			b.hush(300 * ms)
			if got := b.dev.played() - n; got != 8 {
				t.Errorf("%d packets in 480 ms, want 8", got)
			}
		})
	})
}

func TestInAutoModeTheMicrophoneIsDeafWhileSpeaking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.text, b.llm.gap = strings.Repeat("one two three four. ", 10), 0
		b.c.ListenStart(Auto)
		b.speak(600 * ms)
		b.hush(1500 * ms)
		b.speak(3 * time.Second) // its own echo
		b.hush(30 * time.Second)
		if tr := b.traces(); len(tr) != 1 || tr[0].CancelledBy != "" {
			t.Fatalf("traces %+v", tr)
		}
		if got := b.asr.utterances(); len(got) != 1 {
			t.Errorf("recogniser runs %v", got)
		}
	})
}

func TestFailuresAreSpokenAndEnd(t *testing.T) {
	boom := errors.New("boom")
	for name, fail := range map[string]func(*testbed){
		"recogniser": func(b *testbed) { b.asr.err = boom },
		"model":      func(b *testbed) { b.llm.err = boom },
		"voice":      func(b *testbed) { b.tts.err = boom },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				fail(b)
				b.ask()
				b.after(20 * time.Second)
				told := b.dev.log()
				if !strings.HasSuffix(told, "say:Sorry. stop") || strings.Count(told, "start") != 1 {
					t.Errorf("told %q", told)
				}
				tr := b.traces()
				if len(tr) != 1 || !errors.Is(tr[0].Err, boom) {
					t.Fatalf("traces %+v", tr)
				}
				// The conversation goes on.
				b.asr.err, b.llm.err, b.tts.err = nil, nil, nil
				b.ask()
				b.after(20 * time.Second)
				if got := len(b.traces()); got != 2 || b.traces()[1].Err != nil {
					t.Errorf("after the failure: %d turns", got)
				}
			})
		})
	}
}

func TestSpeechNobodyUnderstandsIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.text, b.asr.rejected = "", true
		b.ask()
		b.after(10 * time.Second)
		if got := b.dev.log(); got != "start say:Sorry, I did not understand that. stop" {
			t.Errorf("told %q", got)
		}
		if len(b.llm.requests) != 0 {
			t.Error("the model was asked")
		}
	})
}

func TestNoiseIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.text = ""
		b.c.ListenStart(Auto)
		b.speak(300 * ms)
		b.hush(5 * time.Second)
		if got := b.dev.log(); got != "" {
			t.Errorf("told %q", got)
		}
	})
}

func TestSilenceEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.ListenStart(Auto)
		b.after(0)
		from := time.Now()
		b.hush(59 * time.Second)
		if got := b.dev.log(); got != "" {
			t.Fatalf("told %q before the time", got)
		}
		b.hush(2 * time.Second)
		if got := b.dev.when(t, "end:silence", 0).Sub(from); got != time.Minute {
			t.Errorf("ended after %v, want 1m", got)
		}
	})
}

func TestAStuckButtonEndsTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		from := time.Now()
		b.c.ListenStart(Manual)
		b.speak(2 * time.Minute)
		if got := b.dev.when(t, "end:silence", 0).Sub(from); got != time.Minute {
			t.Errorf("ended after %v", got)
		}
	})
}

func TestAudioThatOvertookItsListenStartIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.speak(480 * ms) // MQTT is half a second late
		b.c.ListenStart(Manual)
		b.speak(480 * ms)
		b.c.ListenStop()
		b.after(time.Second)
		if got := b.asr.utterances(); len(got) != 1 || got[0] != 960*ms {
			t.Errorf("the recogniser heard %v, want all 960ms", got)
		}
	})
}

func TestTheWakeWordIsNotPartOfTheQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		for range 33 { // the pre-roll comes as a burst
			b.seq++
			b.c.Hear(b.seq, tonePacket)
		}
		b.c.Detect("hi there")
		b.after(120 * ms)
		b.c.ListenStart(Manual)
		b.speak(480 * ms)
		b.c.ListenStop()
		b.after(time.Second)
		if got := b.asr.utterances(); len(got) != 1 || got[0] != 480*ms {
			t.Errorf("the recogniser heard %v, want 480ms", got)
		}
	})
}

// TestARecogniserMayEndByItself has a recogniser that returns before the button
// is released.
func TestARecogniserMayEndByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.impatient = 300 * ms
		b.c.ListenStart(Manual)
		b.speak(960 * ms)
		b.c.ListenStop()
		b.after(10 * time.Second)
		if got := b.dev.log(); !strings.Contains(got, "stt:hello start") {
			t.Errorf("told %q", got)
		}
		if got := len(b.asr.utterances()); got < 2 {
			t.Errorf("%d recogniser runs for one long press", got)
		}
	})
}

func TestTypedTextIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.ListenStart(Auto)
		b.c.Detect("what time is it")
		b.after(20 * time.Second)
		if got := b.dev.log(); !strings.HasPrefix(got, "stt:what time is it start say:Hi.") {
			t.Errorf("told %q", got)
		}
	})
}

func TestASentenceInTwoBreathsIsOneQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.texts = []string{"set the volume to", "fifty"}
		b.c.ListenStart(Auto)
		b.speak(900 * ms)
		b.hush(1200 * ms) // longer than an endpoint
		b.speak(600 * ms)
		b.hush(10 * time.Second)
		if got := b.dev.log(); !strings.HasPrefix(got, "stt:set the volume to fifty start") {
			t.Errorf("told %q", got)
		}
	})
}

func TestAnUnfinishedSentenceIsAnsweredInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.asr.text = "set the volume to"
		b.c.ListenStart(Auto)
		b.speak(900 * ms)
		quiet := time.Now()
		b.hush(10 * time.Second)
		// Silence is known to 20 ms frames within packets of 60 ms.
		if got := b.dev.when(t, "start", 0).Sub(quiet); got < 2900*ms || got > 3100*ms {
			t.Errorf("answered %v after the last word, want about 3s", got)
		}
	})
}

func TestWithoutAPathNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbedWithoutPath(t, nil)
		b.ask()
		b.after(20 * time.Second)
		if b.dev.played() != 0 {
			t.Error("packets were sent nowhere")
		}
		if got := b.traces(); len(got) != 1 || got[0].CancelledBy != "no path" {
			t.Errorf("traces %+v", got)
		}
		if !strings.HasSuffix(b.dev.log(), "stop") {
			t.Errorf("told %q", b.dev.log())
		}
	})
}

func TestHistoryIsBoundedAndWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, func(c *Config) { c.History = 10 })
		b.llm.calls = []string{"lamp", "time"}
		for range 8 {
			b.ask()
			b.after(10 * time.Second)
		}
		h := b.history()
		if len(h) > 10 || h[0].Role != RoleUser { // these turns have a question each
			t.Fatalf("%d messages, the first of role %s", len(h), h[0].Role)
		}
		open := map[string]bool{}
		for _, m := range h {
			for _, c := range m.Calls {
				open[c.ID] = true
			}
			if m.Role == RoleTool && !open[m.CallID] {
				t.Errorf("result without its call: %+v", m)
			}
		}
	})
}

func TestRunEndsWithEverythingItStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, func(c *Config) { c.ToolTimeout = 2 * time.Hour })
		b.llm.calls, b.box.delay = []string{"door"}, time.Hour
		b.ask()
		b.after(time.Second)
		b.stop() // the bubble fails if a goroutine is left
		if got := b.traces(); len(got) != 1 || got[0].CancelledBy != "session end" {
			t.Errorf("traces %+v", got)
		}
	})
}

func TestAFloodOfPacketsIsCountedNotQueued(t *testing.T) {
	c := &Conversation{inbox: newInbox()}
	for i := range uplinkBound + 10 {
		c.Hear(uint32(i), tonePacket)
	}
	if got := c.Stats().Refused; got != 10 {
		t.Errorf("%d refused, want 10", got)
	}
}

func TestPacketsAreRepeatedOnAPathThatLosesSome(t *testing.T) {
	for name, lost := range map[string]bool{"some lost": true, "none lost": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, func(c *Config) { c.Repeat = 30 * ms })
				b.llm.text, b.llm.gap = strings.Repeat("a", 20)+".", 0
				b.c.ListenStart(Manual)
				b.speak(300 * ms)
				if lost {
					b.seq++
				}
				b.speak(600 * ms)
				b.c.ListenStop()
				b.after(20 * time.Second)
				want := 0
				if lost {
					want = len(b.dev.frames)
				}
				if got := len(b.dev.repeats); got != want {
					t.Fatalf("%d of %d packets repeated, want %d", got, len(b.dev.frames), want)
				}
				for i, at := range b.dev.repeats {
					if after := at.Sub(b.dev.frames[i]); after != 30*ms {
						t.Errorf("repeat %d comes %v after its packet", i, after)
					}
				}
			})
		})
	}
}
