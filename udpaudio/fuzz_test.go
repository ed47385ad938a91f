package udpaudio

import (
	"encoding/binary"
	"log/slog"
	"net/netip"
	"testing"
	"testing/cryptotest"
)

// A ledger is a Receiver that checks what may be promised of any input.
type ledger struct {
	t         *testing.T
	delivered map[uint32]bool
	newest    uint32
	ready     int
}

func (l *ledger) PathReady() { l.ready++ }

func (l *ledger) Audio(sequence, _ uint32, opus []byte) {
	switch {
	case l.ready != 1:
		l.t.Errorf("Audio after %d PathReady", l.ready)
	case l.delivered[sequence]:
		l.t.Errorf("sequence %d delivered twice", sequence)
	case sequence == 0, int64(sequence) <= int64(l.newest)-windowBehind, int64(sequence) >= int64(l.newest)+windowAhead:
		l.t.Errorf("sequence %d delivered with newest %d", sequence, l.newest)
	case len(opus) > maxSilence && opusDuration(opus) == 0:
		l.t.Errorf("delivered what is no mono Opus: %x", opus)
	}
	l.delivered[sequence] = true
	l.newest = max(l.newest, sequence)
}

// FuzzDatagrams feeds a session datagrams of any bytes from four addresses.
// The input is a list: a byte that says from which address (bits 0 and 1) and
// what is meant by the rest (bit 2), a byte for the length, and so many bytes.
// They are the datagram itself, or a sequence number and plaintext that are
// made a valid packet first, so that the fuzzer reaches what is behind the
// header, the table and the cipher.
func FuzzDatagrams(f *testing.F) {
	f.Add([]byte{4, 6, 0, 1, 3 << 3, 1, 2, 3, 5, 6, 0, 2, 3 << 3, 1, 2, 3, 5, 6, 0, 3, 3 << 3, 1, 2, 3, 5, 6, 0, 4, 3 << 3, 1, 2, 3})
	f.Add([]byte{0, 16, 1, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, input []byte) {
		s := New(&brokenConn{}, Config{MaxChannels: 4}, slog.New(slog.DiscardHandler))
		l := &ledger{t: t, delivered: make(map[uint32]bool)}
		cryptotest.SetGlobalRandom(t, 1)
		c, err := s.Open(l)
		if err != nil {
			t.Fatal(err)
		}
		key, nonce := c.Offer()
		r := &reader{server: s}
		datagrams := uint64(0)
		for len(input) >= 2 {
			how, n := input[0], min(int(input[1]), len(input)-2)
			b := input[2 : 2+n]
			input = input[2+n:]
			if how&4 != 0 && n >= 2 {
				b = sealUp(key, nonce, uint32(binary.BigEndian.Uint16(b)), 0, b[2:])
			}
			from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 168, 1, how & 3}), 4000)
			before, moves := c.Stats().Path, c.Stats().Moves
			r.handle(copy(r.datagram[:], b), from)
			datagrams++
			if after := c.Stats(); after.Path != before && before.IsValid() && (after.Path != from || after.Moves != moves+1) {
				t.Errorf("a packet from %v moved the path from %v to %v", from, before, after.Path)
			}
		}
		held := uint64(c.path.held)
		if got := s.Stats(); got.Delivered+got.Dropped.Total()+held != datagrams || got.Moves > 1 || got.Sent != 0 {
			t.Errorf("%d datagrams, %d held: %+v", datagrams, held, got)
		}
		c.Close()
		if got := s.Stats(); got.Delivered != uint64(len(l.delivered)) || got.Delivered+got.Dropped.Total() != datagrams {
			t.Errorf("%d datagrams, %d delivered: %+v", datagrams, len(l.delivered), got)
		}
	})
}
