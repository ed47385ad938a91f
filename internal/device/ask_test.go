package device

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hraban/opus"

	"parley/internal/protocol"
)

// tone is a rich tone whose pitch and loudness move as a voice's do; an encoder
// with DTX takes a steady one for background.
func tone(d time.Duration, rate int) []int16 {
	pcm := make([]int16, int(d*time.Duration(rate)/time.Second))
	for i := range pcm {
		t := float64(i) / float64(rate)
		pitch := 2 * math.Pi * (150*t + 8*math.Sin(2*math.Pi*3*t))
		v := math.Sin(pitch) + math.Sin(3*pitch)/2 + math.Sin(7*pitch)/3
		pcm[i] = int16(6000 * v * (0.8 + 0.2*math.Sin(2*math.Pi*5*t)))
	}
	return pcm
}

// speech is n frames of a tone as a server sends them.
func speech(t *testing.T, n int) [][]byte {
	t.Helper()
	enc, err := opus.NewEncoder(protocol.DownlinkSampleRate, 1, opus.AppVoIP)
	if err != nil {
		t.Fatal(err)
	}
	pcm := tone(time.Duration(n)*60*ms, protocol.DownlinkSampleRate)
	var frames [][]byte
	for i := range n {
		buf := make([]byte, 1000)
		k, err := enc.Encode(pcm[i*1440:(i+1)*1440], buf)
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, buf[:k:k])
	}
	return frames
}

func level(pcm []int16) float64 {
	var sum float64
	for _, v := range pcm {
		sum += float64(v) * float64(v)
	}
	return math.Sqrt(sum / float64(max(len(pcm), 1)))
}

// reply answers a question: what was heard after a second of thought, then ten
// frames in two sentences with a pause of 120 ms between them.
func reply(b *bench, frames [][]byte) {
	b.say(`{"type":"stt","session_id":"%s","text":"What time is it?"}`)
	b.say(`{"type":"llm","session_id":"%s","emotion":"happy","text":"🙂"}`)
	b.start()
	time.Sleep(200 * ms)
	for half := range 2 {
		b.say(`{"type":"tts","session_id":"%s","state":"sentence_start","text":"Noon."}`)
		for i := range 5 {
			b.audioFrame(frames[half*5+i])
		}
		time.Sleep(420 * ms)
	}
	b.stop()
}

// A question in each mode of each profile: the reply is heard whole, and Ask
// returns what a person would have met.
func TestAsk(t *testing.T) {
	frames := speech(t, 10)
	for _, p := range Profiles() {
		for _, mode := range []protocol.Mode{protocol.ModeAuto, protocol.ModeManual, protocol.ModeRealtime} {
			t.Run(p.String()+" "+string(mode), func(t *testing.T) {
				run(t, Options{Profile: p, Mode: mode, Decode: true}, func(b *bench) {
					for range 2 { // the second question finds the channel open
						done := make(chan struct{})
						var a Answer
						var err error
						go func() {
							defer close(done)
							a, err = b.Ask(context.Background(), tone(time.Second, protocol.UplinkSampleRate))
						}()
						time.Sleep(2 * time.Second)
						replied := time.Now()
						reply(b, frames)
						<-done
						if err != nil {
							t.Fatal(err)
						}
						check(t, b, a, replied)
					}
				})
			})
		}
	}
}

func check(t *testing.T, b *bench, a Answer, replied time.Time) {
	t.Helper()
	if a.Transcript != "What time is it?" || len(a.Sentences) != 2 || a.Emotion != "happy" {
		t.Errorf("answer %q %q %q", a.Transcript, a.Sentences, a.Emotion)
	}
	if a.Heard != replied || a.ReplyStart != replied || !a.SpeechEnd.Before(replied) {
		t.Errorf("speech end %v, heard %v, start %v, want %v", a.SpeechEnd, a.Heard, a.ReplyStart, replied)
	}
	first := replied.Add(200 * ms)
	if a.FirstPacket != first || a.FirstSound != first {
		t.Errorf("first packet %v and sound %v, want %v", a.FirstPacket, a.FirstSound, first)
	}
	// Ten frames and the pause between the sentences.
	if want := 720 * ms; a.Silent.Sub(first) != want || len(a.PCM) != int(want*24000/time.Second) {
		t.Errorf("sounded %v, %d samples", a.Silent.Sub(first), len(a.PCM))
	}
	quiet, loud := level(a.PCM[300*24:420*24]), level(a.PCM[60*24:300*24])
	if quiet != 0 || loud < 3000 {
		t.Errorf("level %.0f in speech, %.0f in the pause", loud, quiet)
	}
	if r := b.Report(); r.Clipped() != 0 || r.Underruns != 0 || r.Undecodable != 0 {
		t.Errorf("report %+v", r)
	}
}

// What is said reaches the server: as much of it as falls into the time the
// microphone is on, and not before.
func TestSay(t *testing.T) {
	for _, frame := range []time.Duration{20 * ms, 40 * ms, 60 * ms} {
		run(t, Options{Mode: protocol.ModeRealtime, Frame: frame}, func(b *bench) {
			b.open()
			before := len(b.uplinks())
			if err := b.Say(context.Background(), tone(1200*ms, protocol.UplinkSampleRate)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			dec, err := opus.NewDecoder(protocol.UplinkSampleRate, 1)
			if err != nil {
				t.Fatal(err)
			}
			loud := 0
			for _, u := range b.uplinks()[before:] {
				pcm := make([]int16, 1920)
				n, err := dec.Decode(u.payload, pcm)
				if err != nil {
					t.Fatal(err)
				}
				if level(pcm[:n]) > 1000 {
					loud++
				}
			}
			if want := int(1200 * ms / frame); loud < want-1 || loud > want+1 {
				t.Errorf("%v: %d loud packets, want %d", frame, loud, want)
			}
		})
	}
}

// An utterance is sent as it was encoded, one packet a frame, and so is the
// silence after it, which nobody waits for.
func TestSayEncoded(t *testing.T) {
	u, err := Encode(tone(600*ms, protocol.UplinkSampleRate), 0)
	if err != nil || u.Len() != 600*ms {
		t.Fatalf("%v, %v", u.Len(), err)
	}
	if n := len(u.tail); n < 2 || n > 20 || len(u.tail[n-1]) > dtxLen {
		t.Fatalf("%d packets of tail", n)
	}
	run(t, Options{}, func(b *bench) {
		b.open()
		before := len(b.uplinks())
		if err := b.SayEncoded(context.Background(), u); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := len(b.uplinks()) - before; n != 10 {
			t.Errorf("said after %d packets, want 10", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		got := b.uplinks()[before:]
		for i, p := range slices.Concat(u.packets, u.tail) {
			if string(got[i].payload) != string(p) {
				t.Errorf("packet %d differs", i)
			}
		}
	})
}

// Speech without a channel is lost, and a question whose session ends is an
// error with what there was.
func TestAskEnded(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		type result struct {
			a   Answer
			err error
		}
		done := make(chan result, 1)
		go func() {
			a, err := b.Ask(context.Background(), make([]int16, 16000))
			done <- result{a, err}
		}()
		time.Sleep(2 * time.Second)
		if _, err := b.Ask(context.Background(), nil); !errors.Is(err, ErrBusy) {
			t.Errorf("second ask: %v", err)
		}
		b.say(`{"type":"stt","session_id":"%s","text":"Bye."}`)
		b.say(`{"type":"goodbye","session_id":"%s"}`)
		r := <-done
		if !errors.Is(r.err, ErrEnded) || r.a.Transcript != "Bye." {
			t.Errorf("%+v %v", r.a, r.err)
		}
	})
}

func TestAskDeadline(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if _, err := b.Ask(ctx, make([]int16, 16000)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ask: %v", err)
		}
		short, cancel := context.WithTimeout(context.Background(), 50*ms)
		defer cancel()
		if _, err := b.Ask(short, make([]int16, 16000)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ask: %v", err)
		}
	})
}

// py-xiaozhi listens before it says so, keeps listening in realtime, and speaks
// again at once after an abort.
func TestPy(t *testing.T) {
	run(t, Options{Profile: Py, Mode: protocol.ModeRealtime, Frame: 20 * ms}, func(b *bench) {
		if n := len(b.control()); n != 0 {
			t.Errorf("connected before the conversation")
		}
		b.open()
		b.start()
		time.Sleep(100 * ms)
		b.expect(Listening)
		b.frame()
		time.Sleep(100 * ms)
		b.tally(Report{Played: 1})
		same(t, "said", b.said(), []string{"hello", "listen start realtime"})
		b.Type("hello there")
		time.Sleep(100 * ms)
		same(t, "said", b.said()[2:], []string{"listen detect hello there"})
		b.say(`{"type":"goodbye","session_id":"%s"}`)
		time.Sleep(time.Second)
		b.expect(Idle)
		if n := len(b.diary.all(Disconnected)); n != 1 {
			t.Errorf("%d disconnects after goodbye", n)
		}
	})
	run(t, Options{Profile: Py}, func(b *bench) {
		b.open()
		b.speak()
		b.Abort()
		time.Sleep(100 * ms)
		b.expect(Listening)
		same(t, "said", b.said()[2:], []string{"abort user_interruption", "listen start auto"})
	})
}

func TestPySubscribes(t *testing.T) {
	for topic, want := range map[string]int{"devices/p2p/x": 2, "null": 1, "": 1} {
		run(t, Options{Profile: Py, MQTT: Credentials{Endpoint: "10.0.0.1", PublishTopic: "up", SubscribeTopic: topic}}, func(b *bench) {
			b.open()
			if got := len(b.control()); got != want {
				b.Errorf("subscribe_topic %q: %d packets, want %d", topic, got, want)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	good := Options{ID: "AA_BB_CC_DD_EE_FF", MQTT: Credentials{Endpoint: "h"}}
	d, err := New(good)
	if err != nil || d.ID() != "aa:bb:cc:dd:ee:ff" {
		t.Fatalf("%v", err)
	}
	d.Close()
	for name, change := range map[string]func(*Options){
		"ID":       func(o *Options) { o.ID = "x" },
		"Endpoint": func(o *Options) { o.MQTT.Endpoint = "" },
		"Mode":     func(o *Options) { o.Mode = "loud" },
		"Frame":    func(o *Options) { o.Frame = 10 * ms },
		"Tools":    func(o *Options) { o.Tools = []Tool{{Name: "a"}} },
	} {
		o := good
		change(&o)
		if _, err := New(o); !errors.Is(err, ErrOptions) || !contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, p := range Profiles() {
		if got, err := ParseProfile(p.String()); err != nil || got != p {
			t.Errorf("%v: %v %v", p, got, err)
		}
	}
	if _, err := ParseProfile("fw99"); err == nil {
		t.Error("fw99 parsed")
	}
}
