package pipeline

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// TestJitter: what the network does to a stream counts, however long its packets
// are, and what the device does of its own accord does not.
func TestJitter(t *testing.T) {
	const frame = PacketDuration
	random := rand.New(rand.NewPCG(1, 2))
	steady := func(i int) (uint32, time.Duration) { return uint32(i + 1), time.Duration(i) * frame }
	for name, c := range map[string]struct {
		packet   func(i int) (seq uint32, at time.Duration)
		from, to time.Duration
	}{
		"none": {steady, 0, 0},
		// Two delays of 0 to 60 ms differ by 20 ms in the mean.
		"delays of up to 60 ms": {func(i int) (uint32, time.Duration) {
			seq, at := steady(i)
			return seq, at + time.Duration(random.Int64N(int64(60*ms)))
		}, 12 * ms, 30 * ms},
		"two by two": {func(i int) (uint32, time.Duration) {
			seq, _ := steady(i)
			return seq, time.Duration(i/2) * 2 * frame
		}, 50 * ms, 65 * ms},
		"silence is not sent": {func(i int) (uint32, time.Duration) {
			seq, at := steady(i)
			return seq, at + time.Duration(i/5)*400*ms
		}, 0, ms},
		"nor any of it but a sign of life": {func(i int) (uint32, time.Duration) {
			return uint32(i + 1), time.Duration(i) * 400 * ms
		}, 0, ms},
		"a burst is lost": {func(i int) (uint32, time.Duration) {
			seq, at := steady(i + i/20*8)
			return seq, at
		}, 0, 0},
		"an outage": {func(i int) (uint32, time.Duration) {
			seq, at := steady(i)
			return seq, at + time.Duration(i/30)*2*time.Second
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var u uplink
				if err := u.init(); err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				most := time.Duration(0)
				for i := range 200 {
					seq, at := c.packet(i)
					time.Sleep(time.Until(begin.Add(at)))
					u.arrival(&packet{seq: seq, at: time.Now()})
					if i > 50 {
						most = max(most, u.jitter)
					}
				}
				if most < c.from || most > c.to {
					t.Errorf("%v at most, want %v to %v", most, c.from, c.to)
				}
			})
		})
	}
}

// TestASilentClientIsNoJitteryOne: its answers are not sent further ahead than
// those of any other, because all that is ahead is heard after an abort.
func TestASilentClientIsNoJitteryOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, func(c *Config) { c.LeadMost = 6 * PacketDuration })
		b.c.ListenStart(Realtime)
		for range 10 {
			b.speak(180 * ms)
			b.after(400 * ms) // nothing is sent
		}
		b.speak(300 * ms)
		b.hush(20 * time.Second)
		traces := b.traces()
		if l := traces[len(traces)-1].Line; l.Lead != 3*PacketDuration || l.Jitter > ms {
			t.Errorf("lead %v, jitter %v", l.Lead, l.Jitter)
		}
	})
}

// TestShortPacketsThatBeginInSilence: the first packets of a client of 20 ms hold
// no sound, and are no longer for that.
func TestShortPacketsThatBeginInSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silk20 = 9 << 3 // TOC: SILK wide band, 20 ms, mono, one frame
		var u uplink
		if err := u.init(); err != nil {
			t.Fatal(err)
		}
		samples := 0
		for seq := range uint32(20) {
			u.take(newPacket(seq+1, []byte{silk20}), func(pcm []int16) { samples += len(pcm) })
			time.Sleep(20 * ms)
		}
		if got := time.Duration(samples) * time.Second / SampleRate; got != 400*ms || u.jitter != 0 {
			t.Errorf("%v of silence of 400ms, jitter %v", got, u.jitter)
		}
	})
}

// TestDryIsTheVoicesFault: the loudspeaker runs out where the voice is slow, and
// not where an answer was paused.
func TestDryIsTheVoicesFault(t *testing.T) {
	for name, c := range map[string]struct {
		do  func(b *testbed)
		dry int
	}{
		"a pause": {func(b *testbed) {
			b.llm.text, b.llm.gap, b.asr.texts = long, 0, []string{"hello", ""}
			b.c.ListenStart(Realtime)
			b.speak(600 * ms)
			b.hush(3 * time.Second)
			b.speak(900 * ms) // a cough
			b.hush(30 * time.Second)
		}, 0},
		"a slow voice": {func(b *testbed) {
			b.llm.gap = 400 * ms // of the second sentence's words
			b.ask()
			b.after(30 * time.Second)
		}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				c.do(b)
				if tr := b.traces(); len(tr) != 1 || tr[0].Line.Dry != c.dry || tr[0].CancelledBy != "" {
					t.Errorf("%+v", tr)
				}
			})
		})
	}
}
