package udpaudio

import (
	"testing"
	"time"

	"parley/internal/simnet"
)

func TestFirstAddressIsAdopted(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		if w.channel.Stats().Path.IsValid() || w.heard.ready != 0 {
			t.Error("a path before any packet")
		}
		w.sendRaw(d, sealUp(w.key, w.nonce, 1, 0, nil)) // silence will do
		w.wantPath("after the first packet", d)
		w.send(d, 2)
		if w.heard.ready != 1 {
			t.Errorf("PathReady %d times", w.heard.ready)
		}
		w.wantHeard("both", 1, 2)
	})
}

// A step is a packet somebody sends.
type step struct {
	from     int // 0 the device's first address, 1 and 2 others
	sequence uint32
	bad      bool          // decrypts to nonsense
	silence  bool          // nothing to judge by
	after    time.Duration // to wait before
}

func TestPathMoves(t *testing.T) {
	const n = 10 // of the device's packets before
	for _, c := range []struct {
		name  string
		steps []step
		path  int      // whose it is at the end
		heard []uint32 // after the first n
	}{
		{"one is not enough", []step{{from: 1, sequence: 11}}, 0, nil},
		{"two are not enough", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}}, 0, nil},
		{"three are, and none is lost", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13}}, 1, []uint32{11, 12, 13}},
		{"gaps are no matter", []step{{from: 1, sequence: 11}, {from: 1, sequence: 19}, {from: 1, sequence: 400}}, 1, []uint32{11, 19, 400}},
		{"what follows is delivered at once", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 1, sequence: 14}}, 1, []uint32{11, 12, 13, 14}},
		{"older than the old path's does not count", []step{{from: 0, sequence: 20}, {from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 1, sequence: 21}, {from: 1, sequence: 22}}, 0, []uint32{20}},
		{"the old path's breaks the row", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 0, sequence: 13}, {from: 1, sequence: 14}, {from: 1, sequence: 15}}, 0, []uint32{13}},
		{"unless it is a straggler", []step{{from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 0, sequence: 11}, {from: 1, sequence: 14}}, 1, []uint32{11, 12, 13, 14}},
		{"a third address begins a row of its own", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 2, sequence: 13}, {from: 2, sequence: 14}}, 0, nil},
		{"and can end it", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 2, sequence: 13}, {from: 2, sequence: 14}, {from: 2, sequence: 15}}, 2, []uint32{13, 14, 15}},
		{"a repeated packet is one", []step{{from: 1, sequence: 11}, {from: 1, sequence: 11}, {from: 1, sequence: 11}, {from: 1, sequence: 12}}, 0, nil},
		{"falling numbers are no row", []step{{from: 1, sequence: 13}, {from: 1, sequence: 12}, {from: 1, sequence: 11}}, 0, nil},
		{"silence is no evidence", []step{{from: 1, sequence: 11, silence: true}, {from: 1, sequence: 12, silence: true}, {from: 1, sequence: 13, silence: true}, {from: 1, sequence: 14, silence: true}}, 0, nil},
		{"nor does it break the row", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12, silence: true}, {from: 1, sequence: 13}, {from: 1, sequence: 14}}, 1, []uint32{11, 13, 14}},
		{"nonsense breaks the row and costs a second", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13, bad: true}, {from: 1, sequence: 14, after: 999 * time.Millisecond}, {from: 1, sequence: 15}, {from: 1, sequence: 16}}, 0, nil},
		{"which ends", []step{{from: 2, sequence: 11, bad: true}, {from: 1, sequence: 12, after: time.Second}, {from: 1, sequence: 13}, {from: 1, sequence: 14}}, 1, []uint32{12, 13, 14}},
		{"nonsense from the old path costs nothing", []step{{from: 0, sequence: 11, bad: true}, {from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 1, sequence: 14}}, 1, []uint32{12, 13, 14}},
		{"foreign packets do not move the window", []step{{from: 1, sequence: 30000}, {from: 1, sequence: 32000}, {from: 0, sequence: 11}}, 0, []uint32{11}},
		{"not twice a second", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 2, sequence: 14, after: 999 * time.Millisecond}, {from: 2, sequence: 15}, {from: 2, sequence: 16}, {from: 2, sequence: 17}}, 1, []uint32{11, 12, 13}},
		{"but after one", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 2, sequence: 14, after: time.Second}, {from: 2, sequence: 15}, {from: 2, sequence: 16}}, 2, []uint32{11, 12, 13, 14, 15, 16}},
		{"and back", []step{{from: 1, sequence: 11}, {from: 1, sequence: 12}, {from: 1, sequence: 13}, {from: 0, sequence: 14, after: time.Second}, {from: 0, sequence: 15}, {from: 0, sequence: 16}}, 0, []uint32{11, 12, 13, 14, 15, 16}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) { w.walk(n, c.steps, c.path, c.heard) })
		})
	}
}

// walk has the device's first address send n packets, takes the steps, and
// checks what has been delivered after the n and whose the path is.
func (w *world) walk(n uint32, steps []step, path int, heard []uint32) {
	from := []*simnet.UDPConn{w.dial(20), w.dial(21), w.dial(22)}
	want := []uint32{}
	for seq := uint32(1); seq <= n; seq++ {
		w.send(from[0], seq)
		want = append(want, seq)
	}
	for _, s := range steps {
		time.Sleep(s.after)
		opus := speech(s.sequence, 80)
		switch {
		case s.bad:
			opus[0] |= 4
		case s.silence:
			opus = nil
		}
		w.sendRaw(from[s.from], sealUp(w.key, w.nonce, s.sequence, 0, opus))
	}
	w.wantHeard("in the end", append(want, heard...)...)
	for i, d := range w.heard.calls {
		if d.opus != "" && d.opus != string(speech(d.sequence, len(d.opus))) {
			w.t.Errorf("delivery %d is not what was sent as %d", i, d.sequence)
		}
	}
	w.wantPath("in the end", from[path], append(from[:path:path], from[path+1:]...)...)
	if w.heard.ready != 1 {
		w.t.Errorf("PathReady %d times", w.heard.ready)
	}
}

// A device behind a NAT that rebinds in mid-flow loses no uplink, and gets its
// downlink again after three packets.
func TestRebind(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		var want []uint32
		for seq := uint32(1); seq <= 40; seq++ {
			if seq == 20 {
				d.Rebind()
			}
			w.send(d, seq)
			want = append(want, seq)
			time.Sleep(60 * time.Millisecond)
			if _, err := w.channel.Send(speech(seq, 100)); err != nil {
				t.Fatal(err)
			}
			got := w.read(d) != nil
			if lost := seq == 20 || seq == 21; got == lost {
				t.Errorf("downlink %d arrived: %v", seq, got)
			}
		}
		w.wantHeard("over a rebinding", want...)
		if got := w.channel.Stats(); got.Moves != 1 || got.Lost != 0 || w.server.Stats().Moves != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// One who floods from another address, knowing all that can be seen on the
// wire but not the key, does not get the path. With 20 ms frames one guess in
// twelve passes for audio, and without the wait after a wrong one some fifty
// moves would be expected here.
func TestFloodDoesNotMoveThePath(t *testing.T) {
	inWorld(t, func(w *world) {
		const before, flood = 20, 100000
		d, attacker := w.dial(20), w.dial(66)
		opus := speech(0, 101)
		opus[0] = 1 << 3 // SILK narrowband 20 ms
		var want []uint32
		for seq := uint32(1); seq <= before; seq++ {
			w.sendRaw(d, sealUp(w.key, w.nonce, seq, 0, opus))
			want = append(want, seq)
		}
		// The device is silent meanwhile: the worst case.
		for i := range uint32(flood) {
			seq := before + 1 + i%(windowAhead-before-1)
			attacker.Write(sealUp([16]byte{0xba, 0xd0}, w.nonce, seq, 0, opus))
			if i%1000 == 0 {
				time.Sleep(100 * time.Millisecond) // ten seconds in all
			}
		}
		w.wantHeard("after a flood", want...)
		w.wantPath("after a flood", d, attacker)
		w.sendRaw(d, sealUp(w.key, w.nonce, before+1, 0, opus))
		w.wantHeard("the device's next", append(want, before+1)...)
	})
}
