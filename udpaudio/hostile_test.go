package udpaudio

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestAMillionHostilePackets mixes a device's packets with a million of others
// that know all one can see on the wire and not the key: made up, replayed,
// truncated, and with bits flipped. None is accepted, the path does not move,
// and the device is heard to its last packet.
func TestAMillionHostilePackets(t *testing.T) {
	f, c := newFeeder(t)
	r := rand.New(rand.NewPCG(3, 4))
	var foreign []netip.AddrPort
	for i := range 16 {
		foreign = append(foreign, netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 2, byte(i)}), 40000))
	}
	const hostile, every = 1_000_000, 250
	sent := uint64(0)
	last := make([]byte, MaxDatagram)
	n := 0
	for i := range hostile {
		if i%every == 0 {
			n = f.next()
			copy(last, f.reader.datagram[:n])
			f.reader.handle(n, f.addr)
			sent++
		}
		b := f.reader.datagram[:]
		copy(b, last[:n])
		length := n
		switch i % 4 {
		case 0: // made up, with the session's SSRC and a sequence that is due
			for j := HeaderSize; j < n; j++ {
				b[j] = byte(r.Uint32())
			}
			h := f.header
			h.Sequence += 1 + r.Uint32N(1000)
			h.Put(b)
		case 1: // replayed
		case 2: // truncated
			length = r.IntN(n)
		case 3: // a bit of the header or the payload flipped
			bit := r.IntN(8 * n)
			b[bit/8] ^= 1 << (bit % 8)
		}
		f.reader.handle(length, foreign[i%len(foreign)])
	}
	s := c.Stats()
	if s.Delivered != sent || s.Moves != 0 || s.Path != f.addr {
		t.Errorf("delivered %d of %d, moved %d times, path %v", s.Delivered, sent, s.Moves, s.Path)
	}
	if got := f.reader.server.Stats().Dropped.Total() + s.Moves; got < hostile*99/100 {
		t.Errorf("%d hostile packets dropped of %d", got, hostile)
	}
	f.reader.handle(f.next(), f.addr)
	if c.Stats().Delivered != sent+1 {
		t.Error("the device is not heard after it")
	}
}
