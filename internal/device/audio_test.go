package device

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
)

// Audio before the device speaks is dropped, audio between the change of state
// and the reset of the decoder is wiped, and the first frame after that is heard.
func TestStartRace(t *testing.T) {
	for _, p := range []Profile{FW24, FW22, FW18, FW17, FW15} {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p, DisplayWork: 80 * ms}, func(b *bench) {
				b.open()
				b.frame() // before tts start
				synctest.Wait()
				b.start()
				time.Sleep(40 * ms)
				b.frames(2)
				synctest.Wait()
				b.frames(2) // queued behind one sounding, one in flight
				time.Sleep(41 * ms)
				b.frame()
				time.Sleep(time.Second)
				b.tally(Report{Played: 3, ClippedState: 1, ClippedStart: 2})
			})
		})
	}
}

// Overflow drops the packet that comes; the length of the queue is the profile's.
func TestQueueLength(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		most    int // beyond the frame sounding and the one in flight
	}{
		{FW24, 42}, {FW22, 42}, {FW18, 42}, {FW17, 40}, {FW162, 10}, {FW160, 5}, {FW15, 200},
		{Py, 166}, // 10 s
	} {
		t.Run(c.profile.String(), func(t *testing.T) {
			run(t, Options{Profile: c.profile}, func(b *bench) {
				b.open()
				b.speak()
				b.frames(2)
				synctest.Wait()
				b.frames(c.most)
				synctest.Wait()
				b.tally(Report{Played: 2, Queued: int64(c.most)})
				if c.profile == FW15 {
					return // as much as memory holds
				}
				b.frames(3)
				synctest.Wait()
				b.tally(Report{Played: 2, Queued: int64(c.most), ClippedOverflow: 3})
				time.Sleep(15 * time.Second)
				b.tally(Report{Played: int64(c.most + 2), ClippedOverflow: 3})
			})
		})
	}
}

// What becomes of queued audio at tts stop, and when listen start follows.
func TestStopWithQueue(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		want    Report
		listen  time.Duration // of the second listen start
	}{
		{FW24, Report{Played: 10}, 480 * ms},
		{FW22, Report{Played: 10}, 480 * ms},
		{FW18, Report{Played: 2, ClippedStop: 8}, 40 * ms},
		{FW17, Report{Played: 2, ClippedStop: 8}, 40 * ms},
		{FW162, Report{Played: 2, ClippedStop: 8}, 40 * ms},
		{FW160, Report{Played: 2, ClippedStop: 5, ClippedOverflow: 3}, 40 * ms},
		{FW15, Report{Played: 2, ClippedStop: 8}, 40 * ms},
		{Py, Report{Played: 2, ClippedStop: 8}, 0},
	} {
		t.Run(c.profile.String(), func(t *testing.T) {
			run(t, Options{Profile: c.profile}, func(b *bench) {
				b.open()
				b.speak()
				at := time.Now()
				b.frames(2)
				synctest.Wait()
				b.frames(8)
				synctest.Wait()
				b.stop()
				time.Sleep(2 * time.Second)
				b.expect(Listening)
				b.tally(c.want)
				if got := b.last(); got.at.Sub(at) != c.listen {
					t.Errorf("%s after %v, want %v", got.text, got.at.Sub(at), c.listen)
				}
			})
		})
	}
}

// The blocked main task of 2.2 does nothing else; the deferred start of 2.4 does.
func TestStopBlocksOrDefers(t *testing.T) {
	for p, want := range map[Profile]time.Duration{FW22: 480 * ms, FW24: 100 * ms} {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p, Tools: slow(0)}, func(b *bench) {
				b.open()
				b.speak()
				at := time.Now()
				b.frames(2)
				synctest.Wait()
				b.frames(8)
				synctest.Wait()
				b.stop()
				time.Sleep(100 * ms)
				b.say(call(1, "self.slow", `{}`))
				time.Sleep(2 * time.Second)
				if got := b.diary.all(ToolCalled)[0].Time.Sub(at); got != want {
					t.Errorf("tool ran after %v, want %v", got, want)
				}
			})
		})
	}
}

// Realtime keeps playing at tts stop, and manual mode does, in idle.
func TestStopKeepsQueue(t *testing.T) {
	for _, p := range []Profile{FW24, FW22, FW18} {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p, Mode: protocol.ModeRealtime}, func(b *bench) {
				b.open()
				b.speak()
				b.frames(10)
				synctest.Wait()
				b.stop()
				time.Sleep(2 * time.Second)
				b.tally(Report{Played: 10})
				same(t, "said", b.said(), []string{"hello", "listen start realtime"})
			})
		})
	}
}

// A realtime device is silenced by tts stop and, after a gap, tts start.
func TestSilenceRealtime(t *testing.T) {
	run(t, Options{Mode: protocol.ModeRealtime}, func(b *bench) {
		b.open()
		b.speak()
		b.frames(2)
		synctest.Wait()
		b.frames(8)
		synctest.Wait()
		b.stop()
		time.Sleep(50 * ms)
		b.start() // acted on 40 ms later
		time.Sleep(time.Second)
		b.tally(Report{Played: 3, ClippedStart: 7})
	})
}

func TestSequenceRules(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		seqs    []uint32
		want    Report
	}{
		{FW24, []uint32{1, 2, 2, 3}, Report{Played: 3, Duplicate: 1}},
		{FW22, []uint32{1, 2, 2, 3}, Report{Played: 4, Repeated: 1}},
		{FW15, []uint32{1, 2, 2, 3}, Report{Played: 4, Repeated: 1}},
		{FW24, []uint32{1, 3, 2, 4}, Report{Played: 3, Late: 1}},
		{FW22, []uint32{1, 3, 2, 4}, Report{Played: 3, Late: 1}},
		{FW24, []uint32{1, 3, 2, 2, 1}, Report{Played: 2, Late: 1, Duplicate: 2}},
		{FW24, []uint32{1, 2, 7, 8}, Report{Played: 4, Lost: 4}},
		{FW24, []uint32{0, 1}, Report{Played: 1, Duplicate: 1}},
		{FW24, []uint32{1, 0xffffffff, 2, 3}, Report{Played: 2, Late: 2, Lost: 0xffffffff - 2}},
		{Py, []uint32{3, 1, 2, 2}, Report{Played: 4, Repeated: 3}},
	} {
		t.Run(c.profile.String(), func(t *testing.T) {
			run(t, Options{Profile: c.profile}, func(b *bench) {
				b.open()
				b.speak()
				for _, seq := range c.seqs {
					b.packet(seq, make([]byte, 60))
					synctest.Wait()
				}
				time.Sleep(time.Second)
				b.tally(c.want)
			})
		})
	}
}

func TestWireRules(t *testing.T) {
	header := func(b *bench, f func(h []byte), payload int) {
		h := b.server.nonce
		binary.BigEndian.PutUint16(h[2:], uint16(payload))
		binary.BigEndian.PutUint32(h[12:], 1)
		f(h[:])
		b.datagram(b.sealed(h, make([]byte, payload)))
	}
	for _, c := range []struct {
		name    string
		send    func(b *bench)
		accepts []Profile
	}{
		{"good", func(b *bench) { header(b, func([]byte) {}, 60) }, Profiles()},
		{"flags and ssrc are not looked at", func(b *bench) { header(b, func(h []byte) { h[1] = 0xff; h[5] ^= 0xff }, 60) }, Profiles()},
		{"type 2", func(b *bench) { header(b, func(h []byte) { h[0] = 2 }, 60) }, []Profile{Py}},
		{"wrong length", func(b *bench) { header(b, func(h []byte) { h[3]++ }, 60) }, []Profile{FW22, FW18, FW17, FW162, FW160, FW15, Py}},
		{"7 bytes", func(b *bench) { header(b, func([]byte) {}, 7) }, []Profile{FW24, Py}},
		{"8 bytes", func(b *bench) { header(b, func([]byte) {}, 8) }, Profiles()},
		{"15 bytes in all", func(b *bench) { b.datagram(make([]byte, 15)) }, nil},
		{"nothing", func(b *bench) { b.datagram(nil) }, nil},
	} {
		accepted := map[Profile]bool{}
		for _, p := range c.accepts {
			accepted[p] = true
		}
		for _, p := range Profiles() {
			t.Run(c.name+" "+p.String(), func(t *testing.T) {
				run(t, Options{Profile: p}, func(b *bench) {
					b.open()
					b.speak()
					c.send(b)
					time.Sleep(time.Second)
					want := Report{Malformed: 1}
					if accepted[p] {
						want = Report{Played: 1}
					}
					b.tally(want)
				})
			})
		}
	}
}

// Gaps inside a sentence are underruns, gaps between sentences pauses, and the
// end of a reply is neither.
func TestUnderruns(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		b.speak()
		b.frame()
		time.Sleep(100 * ms) // 40 ms late
		b.frames(2)
		time.Sleep(200 * ms)
		b.say(`{"type":"tts","session_id":"%s","state":"sentence_start","text":"Two."}`)
		b.frame()
		time.Sleep(time.Second)
		b.stop()
		time.Sleep(time.Second)
		b.speak()
		b.frame()
		time.Sleep(time.Second)
		b.tally(Report{Played: 5, Underruns: 1, UnderrunTime: 40 * ms, Pauses: 1, PauseTime: 80 * ms})
	})
}

// The uplink: sequence from 1, timestamp 0 or the nonce's, 60 ms apart.
func TestUplink(t *testing.T) {
	for _, p := range Profiles() {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p}, func(b *bench) {
				b.open()
				time.Sleep(600 * ms)
				synctest.Wait()
				all := b.uplinks()
				if len(all) < 10 {
					t.Fatalf("%d packets", len(all))
				}
				for i, u := range all {
					if u.header.sequence != uint32(i+1) || u.header.timestamp != 0 || len(u.payload) != 1 {
						t.Errorf("packet %d: %+v with %d bytes", i, u.header, len(u.payload))
					}
					if i > 0 && u.at.Sub(all[i-1].at) != 60*ms {
						t.Errorf("packet %d after %v", i, u.at.Sub(all[i-1].at))
					}
				}
			})
		})
	}
}

// A device whose echo the server cancels returns the timestamps of what its
// speaker has played, one a packet.
func TestServerAEC(t *testing.T) {
	run(t, Options{ServerAEC: true}, func(b *bench) {
		b.open()
		b.speak()
		before := len(b.uplinks())
		for range 5 {
			b.frame()
			time.Sleep(60 * ms)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		var got []uint32
		for _, u := range b.uplinks()[before:] {
			if u.header.timestamp != 0 {
				got = append(got, u.header.timestamp)
			}
		}
		if len(got) != 5 || got[0] != 60 || got[4] != 300 {
			t.Errorf("returned timestamps %v, want 60 120 180 240 300", got)
		}
		if m := b.server.messages[0].text; !contains(m, `"aec":true`) {
			t.Errorf("hello %s", m)
		}
	})
}

// A frozen main task keeps the newest 40 packets of the microphone.
func TestSendQueue(t *testing.T) {
	run(t, Options{Mode: protocol.ModeRealtime, Tools: slow(6010 * ms)}, func(b *bench) {
		b.open()
		before := len(b.uplinks())
		b.say(call(1, "self.slow", `{}`))
		time.Sleep(5900 * ms)
		synctest.Wait()
		if got := len(b.uplinks()); got != before {
			t.Fatalf("%d packets sent by a frozen device", got-before)
		}
		time.Sleep(120 * ms)
		synctest.Wait()
		r := b.Report()
		if got := len(b.uplinks()) - before; got != 40 || r.SendDropped != 60 {
			t.Errorf("%d packets after the freeze and %d dropped, want 40 and 60", got, r.SendDropped)
		}
	})
}

// An unusable frame duration leaves the decoder closed.
func TestFrameDuration(t *testing.T) {
	for _, c := range []struct {
		profile  Profile
		duration string
		want     Report
		heard    time.Duration
	}{
		{FW24, `60`, Report{Played: 2}, 120 * ms},
		{FW24, `20`, Report{Played: 2}, 40 * ms},
		{FW15, `20`, Report{Played: 2}, 120 * ms},
		{FW24, `61`, Report{Undecodable: 2}, 0},
		{FW24, `"60"`, Report{Played: 2}, 120 * ms},
	} {
		t.Run(c.profile.String()+c.duration, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, server: newServer(t)}
				b.server.onHello = func() {
					b.server.sessions++
					b.server.key, b.server.nonce = [16]byte{1}, [16]byte{1}
					b.say(`{"type":"hello","transport":"udp","session_id":"%s","audio_params":{"frame_duration":` + c.duration +
						`},"udp":{"server":"10.0.0.1","port":8884,"key":"01000000000000000000000000000000","nonce":"01000000000000000000000000000000"}}`)
				}
				b.boot(Options{Profile: c.profile})
				b.open()
				b.speak()
				b.frames(2)
				time.Sleep(time.Second)
				b.tally(c.want)
				if got := b.Report().Sounding; got != c.heard {
					t.Errorf("sounded for %v, want %v", got, c.heard)
				}
			})
		})
	}
}
