package udpaudio

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A span is the counter blocks a packet uses, first to last, and whose it is.
type span struct {
	first, last [16]byte
	uplink      bool
}

// spanOf returns the counter blocks of a packet.
func spanOf(b []byte, uplink bool) span {
	s := span{[16]byte(b), [16]byte(b), uplink}
	blocks := RoundUp(len(b)-HeaderSize) / 16
	high, low := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	end := low + uint64(max(blocks-1, 0))
	if end < low {
		high++
	}
	binary.BigEndian.PutUint64(s.last[:], high)
	binary.BigEndian.PutUint64(s.last[8:], end)
	return s
}

// Over a whole session no counter block of the downlink is used twice, nor is
// one by the uplink, whether the device sends timestamp 0, as most do, or
// echoes those of the downlink, and however the lengths fall.
func TestDownlinkKeystreamIsUsedOnce(t *testing.T) {
	for _, echoes := range []bool{false, true} {
		inWorld(t, func(w *world) {
			r := rand.New(rand.NewPCG(11, 12))
			d := w.dial(20)
			w.send(d, 1)
			var spans []span
			timestamp := uint32(0)
			sequence := uint32(1)
			for i := range 20000 {
				// A few lengths only, so that equal ones are close together,
				// and both directions near the same numbers.
				n := 160 + r.IntN(4)
				if i%100 == 0 {
					n = MaxPayload
				}
				echoed, err := w.channel.Send(speech(0, n))
				if err != nil {
					t.Fatal(err)
				}
				b := w.read(d)
				spans = append(spans, spanOf(b, false))
				if echoes {
					timestamp = echoed
				}
				sequence++
				up := sealUp(w.key, w.nonce, sequence, timestamp, speech(0, n))
				spans = append(spans, spanOf(up, true))
				d.Write(up)
				if r.IntN(10) == 0 {
					time.Sleep(time.Duration(r.IntN(500)) * time.Millisecond)
				}
			}
			if down, cross := overlaps(spans); down != 0 || cross != 0 {
				t.Errorf("echoed timestamps %v: %d overlaps within the downlink, %d with the uplink", echoes, down, cross)
			}
		})
	}
}

// overlaps counts the spans that share a block with the one before them in
// order, by what they are. Overlaps within the uplink, which the server cannot
// prevent, are not counted.
func overlaps(spans []span) (down, cross int) {
	slices.SortFunc(spans, func(a, b span) int { return slices.Compare(a.first[:], b.first[:]) })
	var ends [2]*span // the furthest reaching so far: downlink, uplink
	for i := range spans {
		s := &spans[i]
		own := 0
		if s.uplink {
			own = 1
		}
		for kind, end := range ends {
			if end == nil || slices.Compare(end.last[:], s.first[:]) < 0 {
				continue
			}
			switch {
			case kind != own:
				cross++
			case !s.uplink:
				down++
			}
		}
		if ends[own] == nil || slices.Compare(ends[own].last[:], s.last[:]) < 0 {
			ends[own] = s
		}
	}
	return down, cross
}

// The measure itself works: without the flag and the rising timestamp there
// are overlaps, and it finds them.
func TestOverlapsAreFound(t *testing.T) {
	packet := func(flags byte, timestamp, sequence uint32, n int) []byte {
		b := make([]byte, HeaderSize+n)
		Header{flags, uint16(n), 7, timestamp, sequence}.Put(b)
		return b
	}
	for _, c := range []struct {
		name        string
		spans       []span
		down, cross int
	}{
		{"constant timestamp", []span{spanOf(packet(0x80, 0, 1, 160), false), spanOf(packet(0x80, 0, 10, 160), false)}, 1, 0},
		{"far enough", []span{spanOf(packet(0x80, 0, 1, 160), false), spanOf(packet(0x80, 0, 11, 160), false)}, 0, 0},
		{"rising timestamp", []span{spanOf(packet(0x80, 60, 1, 160), false), spanOf(packet(0x80, 120, 2, 160), false)}, 0, 0},
		{"no flag", []span{spanOf(packet(0, 60, 1, 160), false), spanOf(packet(0, 60, 5, 160), true)}, 0, 1},
		{"flag", []span{spanOf(packet(0x80, 60, 1, 160), false), spanOf(packet(0, 60, 5, 160), true)}, 0, 0},
		{"carried into the timestamp", []span{spanOf(packet(0, 60, 0xffffffff, 160), false), spanOf(packet(0, 61, 5, 160), true)}, 0, 1},
	} {
		if down, cross := overlaps(c.spans); down != c.down || cross != c.cross {
			t.Errorf("%s: %d and %d overlaps, want %d and %d", c.name, down, cross, c.down, c.cross)
		}
	}
}
