package device

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
)

func TestAutoConversation(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		begin := time.Now()
		b.open()
		same(t, "said", b.said(), []string{"hello", "listen start auto"})
		// Two state changes are drawn, then the microphone warms up.
		if got := b.diary.all(Microphone)[0].Time.Sub(begin); got != 40*ms+40*ms+120*ms {
			t.Errorf("microphone warm after %v", got)
		}
		b.speak()
		sent := time.Now()
		b.frames(2)
		for range 3 {
			time.Sleep(60 * ms)
			b.frame()
		}
		time.Sleep(120 * ms)
		b.stop()
		time.Sleep(time.Second)
		b.expect(Listening)
		same(t, "said", b.said(), []string{"hello", "listen start auto", "listen start auto"})
		b.tally(Report{Played: 5})
		if got := b.diary.all(FirstSound); len(got) != 1 || got[0].Time != sent {
			t.Errorf("first sound %v, want one at %v: the speaker has no threshold", got, sent)
		}
		if got := b.diary.all(Silent); len(got) != 1 || got[0].Time.Sub(sent) != 300*ms {
			t.Errorf("silent %v, want one 300 ms after the first frame", got)
		}
	})
}

// The microphone of auto mode rests while the device speaks; the one of realtime
// does not, and no listen start is repeated.
func TestMicrophoneByMode(t *testing.T) {
	for _, mode := range []protocol.Mode{protocol.ModeAuto, protocol.ModeRealtime} {
		t.Run(string(mode), func(t *testing.T) {
			run(t, Options{Mode: mode}, func(b *bench) {
				b.open()
				b.speak()
				before := len(b.uplinks())
				time.Sleep(600 * ms)
				synctest.Wait()
				sent := len(b.uplinks()) - before
				b.stop()
				time.Sleep(time.Second)
				b.expect(Listening)
				want, said := 0, []string{"hello", "listen start auto", "listen start auto"}
				if mode == protocol.ModeRealtime {
					want, said = 10, []string{"hello", "listen start realtime"}
				}
				if sent != want {
					t.Errorf("%d packets while speaking, want %d", sent, want)
				}
				same(t, "said", b.said(), said)
			})
		})
	}
}

func TestManualConversation(t *testing.T) {
	run(t, Options{Mode: protocol.ModeManual}, func(b *bench) {
		b.ButtonDown()
		time.Sleep(time.Second)
		b.expect(Listening)
		b.ButtonUp()
		time.Sleep(100 * ms)
		b.expect(Idle)
		quiet := len(b.uplinks())
		b.speak() // idle to speaking: the channel stayed open
		b.frames(3)
		synctest.Wait()
		b.stop()
		time.Sleep(time.Second)
		b.expect(Idle)
		b.tally(Report{Played: 3}) // what is queued plays on in idle
		if got := len(b.uplinks()); got != quiet {
			t.Errorf("%d packets sent with the button up", got-quiet)
		}
		b.ButtonDown() // no second hello
		time.Sleep(time.Second)
		b.ButtonUp()
		time.Sleep(time.Second)
		same(t, "said", b.said(), []string{"hello", "listen start manual", "listen stop", "listen start manual", "listen stop"})
	})
}

// Interrupting with the button in manual mode listens at once and flushes; what
// is lost is the user's doing.
func TestManualInterrupt(t *testing.T) {
	run(t, Options{Mode: protocol.ModeManual}, func(b *bench) {
		b.ButtonDown()
		time.Sleep(time.Second)
		b.ButtonUp()
		time.Sleep(100 * ms)
		b.speak()
		b.frames(2)
		synctest.Wait()
		b.frames(8)
		synctest.Wait()
		b.ButtonDown()
		time.Sleep(100 * ms)
		b.expect(Listening)
		b.frame() // still on its way from the server
		synctest.Wait()
		b.stop()
		time.Sleep(time.Second)
		b.expect(Listening) // a late tts stop is ignored
		same(t, "said", b.said()[3:], []string{"abort", "listen start manual"})
		b.tally(Report{Played: 2, Interrupted: 9})
	})
}

// After a button abort the device keeps speaking until the server says stop.
func TestAbortKeepsSpeaking(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		b.speak()
		b.frames(2)
		synctest.Wait()
		b.frames(3)
		b.Toggle()
		time.Sleep(10 * time.Second)
		b.expect(Speaking)
		same(t, "said", b.said()[2:], []string{"abort"})
		b.tally(Report{Played: 5}) // heard to the end
		b.stop()
		time.Sleep(time.Second)
		b.expect(Listening)
	})
}

// Firmware up to 1.7 silences itself at an abort.
func TestAbortSilences(t *testing.T) {
	for _, p := range []Profile{FW17, FW162, FW160, FW15} {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p}, func(b *bench) {
				b.open()
				b.speak()
				b.frames(2)
				synctest.Wait()
				b.frames(3)
				synctest.Wait()
				b.Abort()
				time.Sleep(time.Second)
				b.expect(Speaking)
				b.tally(Report{Played: 2, Interrupted: 3})
			})
		})
	}
}

// A wake word while speaking: abort, and since 2.2.3 listening too.
func TestWakeWhileSpeaking(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		mode    protocol.Mode
		state   State
		said    []string
		tally   Report
	}{
		{FW24, protocol.ModeAuto, Listening, []string{"abort wake_word_detected", "listen start auto"}, Report{Played: 10}},
		{FW22, protocol.ModeAuto, Listening, []string{"abort wake_word_detected", "listen start auto"}, Report{Played: 10}},
		{FW24, protocol.ModeRealtime, Listening, []string{"abort wake_word_detected", "listen start realtime"}, Report{Played: 2, Interrupted: 8}},
		{FW18, protocol.ModeAuto, Speaking, []string{"abort wake_word_detected"}, Report{Played: 10}},
	} {
		t.Run(fmt.Sprintf("%v %v", c.profile, c.mode), func(t *testing.T) {
			run(t, Options{Profile: c.profile, Mode: c.mode}, func(b *bench) {
				b.open()
				b.speak()
				b.frames(2)
				synctest.Wait()
				b.frames(8)
				synctest.Wait()
				b.Wake("computer", nil)
				time.Sleep(2 * time.Second)
				b.expect(c.state)
				same(t, "said", b.said()[2:], c.said)
				b.tally(c.tally)
			})
		})
	}
}

func TestWakeFromIdle(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.Wake("computer", make([]int16, 3*protocol.UplinkSampleRate))
		time.Sleep(90 * ms)
		synctest.Wait()
		same(t, "said", b.said(), []string{"hello", "listen detect computer", "listen start auto"})
		burst := b.uplinks()
		if len(burst) != 33 {
			t.Fatalf("%d packets of pre-roll, want 33 (two seconds)", len(burst))
		}
		detect := b.server.messages[1].at
		for i, p := range burst {
			if p.header.timestamp != 0 || p.header.sequence != uint32(i+1) {
				t.Errorf("packet %d: %+v", i, p.header)
			}
			if p.at.After(detect) {
				t.Errorf("packet %d came after detect", i)
			}
		}
	})
}

// A wake word in an idle device with an open channel needs no hello.
func TestWakeReusesChannel(t *testing.T) {
	run(t, Options{Mode: protocol.ModeManual}, func(b *bench) {
		b.ButtonDown()
		time.Sleep(time.Second)
		b.ButtonUp()
		time.Sleep(time.Second)
		b.Wake("computer", nil)
		time.Sleep(time.Second)
		same(t, "said", b.said()[3:], []string{"listen detect computer", "listen start auto"})
	})
}

func TestWakeWhileListening(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		b.Wake("computer", nil)
		time.Sleep(time.Second)
		same(t, "said", b.said()[2:], []string{"abort wake_word_detected", "listen start auto"})
		b.expect(Listening)
	})
}

// What each state does with tts start, tts stop, audio and the button.
func TestStateTable(t *testing.T) {
	idle := func(b *bench) { // with an open channel
		b.open()
		b.ButtonUp()
		time.Sleep(100 * ms)
		b.expect(Idle)
	}
	listening := func(b *bench) { b.open() }
	speaking := func(b *bench) { b.open(); b.speak() }
	type row struct {
		name  string
		enter func(*bench)
		act   func(*bench)
		state State
		said  string // the last message
		want  Report
	}
	rows := []row{
		{"idle audio", idle, (*bench).frame1, Idle, "listen stop", Report{ClippedState: 1}},
		{"idle start", idle, (*bench).start1, Speaking, "listen stop", Report{}},
		{"idle stop", idle, (*bench).stop1, Idle, "listen stop", Report{}},
		{"idle toggle", idle, func(b *bench) { b.Toggle() }, Listening, "listen start auto", Report{}},
		{"listening audio", listening, (*bench).frame1, Listening, "listen start auto", Report{ClippedState: 1}},
		{"listening start", listening, (*bench).start1, Speaking, "listen start auto", Report{}},
		{"listening stop", listening, (*bench).stop1, Listening, "listen start auto", Report{}},
		{"listening toggle", listening, func(b *bench) { b.Toggle() }, Idle, "goodbye", Report{}},
		{"speaking audio", speaking, (*bench).frame1, Speaking, "listen start auto", Report{Played: 1}},
		{"speaking start", speaking, func(b *bench) { b.frames(3); b.start() }, Speaking, "listen start auto", Report{Played: 3}},
		{"speaking stop", speaking, (*bench).stop1, Listening, "listen start auto", Report{}},
		{"speaking toggle", speaking, func(b *bench) { b.Toggle() }, Speaking, "abort", Report{}},
		{"speaking button up", speaking, func(b *bench) { b.ButtonUp() }, Speaking, "listen start auto", Report{}},
	}
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			run(t, Options{}, func(b *bench) {
				r.enter(b)
				r.act(b)
				time.Sleep(500 * ms)
				b.expect(r.state)
				said := b.said()
				if got := said[len(said)-1]; got != r.said {
					t.Errorf("last said %q, want %q", got, r.said)
				}
				b.tally(r.want)
			})
		})
	}
}

func (b *bench) frame1() { b.frame() }
func (b *bench) start1() { b.start() }
func (b *bench) stop1()  { b.stop() }

// Since 2.2 the work of a state change is done in a later pass and looks at the
// state of then: a tts start and stop together go unnoticed, a start before the
// device came to listen suppresses listen start.
func TestStatesCollapse(t *testing.T) {
	run(t, Options{Tools: slow(time.Second)}, func(b *bench) {
		b.open()
		b.say(call(1, "self.slow", `{}`)) // freezes the main task while both arrive
		synctest.Wait()
		b.start()
		b.stop()
		time.Sleep(2 * time.Second)
		b.expect(Listening)
		if got := b.diary.all(StateChanged); len(got) != 5 { // idle, connecting, listening, speaking, listening
			t.Errorf("%d state changes", len(got))
		}
		same(t, "said", b.said(), []string{"hello", "listen start auto", "mcp"})
	})
}

// connecting refuses tts start.
func TestStartWhileConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: newServer(t)}
		b.server.onHello = func() { b.start() }
		b.boot(Options{})
		b.Toggle()
		time.Sleep(5 * time.Second)
		b.expect(Connecting)
		time.Sleep(6 * time.Second)
		b.expect(Speaking) // scheduled during the wait, legal once idle
	})
}

// A deferred listen start is forgotten when the conversation ends meanwhile.
func TestDeferredListenForgotten(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		b.speak()
		b.frames(10)
		synctest.Wait()
		b.stop()
		time.Sleep(100 * ms)
		b.Toggle() // listening, with audio still to play
		time.Sleep(5 * time.Second)
		b.expect(Idle)
		same(t, "said", b.said(), []string{"hello", "listen start auto", "goodbye"})
	})
}

// In one pass of the main task events come before scheduled work, and among them
// the microphone's packets before the wake word: what a frozen task had waiting
// goes out as audio, abort, and only then the tool's reply.
func TestOrderOfPass(t *testing.T) {
	run(t, Options{Mode: protocol.ModeRealtime, Tools: slow(time.Second)}, func(b *bench) {
		b.open()
		b.speak()
		before := len(b.uplinks())
		b.say(call(1, "self.slow", `{}`))
		synctest.Wait()
		b.Wake("computer", nil)
		time.Sleep(1010 * ms)
		synctest.Wait()
		if n := len(b.uplinks()) - before; n < 16 {
			t.Errorf("%d packets, want the 16 or 17 of the freeze", n)
		}
		same(t, "said", b.said()[2:], []string{"abort wake_word_detected", "mcp"})
		time.Sleep(time.Second)
		same(t, "said", b.said()[4:], []string{"listen start realtime"})
	})
}
