package udpaudio

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func TestParseHeader(t *testing.T) {
	packet := func(header string, payload int) []byte {
		b, err := hex.DecodeString(header)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, make([]byte, payload)...)
	}
	for _, c := range []struct {
		name string
		in   []byte
		want Header
		err  error
	}{
		{"uplink", packet("01000003ccba97200000000000000001", 3), Header{0, 3, 0xccba9720, 0, 1}, nil},
		{"downlink", packet("01800102ccba97200000003c80000001", 258), Header{FlagDownlink, 258, 0xccba9720, 60, 0x80000001}, nil},
		{"empty payload", packet("01000000ccba97200000000000000001", 0), Header{SSRC: 0xccba9720, Sequence: 1}, nil},
		{"longest", packet("010005ccccba97200000000000000001", 1484), Header{PayloadLen: 1484, SSRC: 0xccba9720, Sequence: 1}, nil},
		{"nothing", nil, Header{}, ErrShort},
		{"one byte short", packet("01000000ccba972000000000000000", 0), Header{}, ErrShort},
		{"one byte long", packet("010005cdccba97200000000000000001", 1485), Header{}, ErrLong},
		{"type 0", packet("00000003ccba97200000000000000001", 3), Header{}, ErrType},
		{"type 2", packet("02000003ccba97200000000000000001", 3), Header{}, ErrType},
		{"one byte missing", packet("01000003ccba97200000000000000001", 2), Header{}, ErrLength},
		{"one byte extra", packet("01000003ccba97200000000000000001", 4), Header{}, ErrLength},
	} {
		if got, err := ParseHeader(c.in); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: got %+v, %v; want %+v, %v", c.name, got, err, c.want, c.err)
		}
	}
}

// Whatever is parsed is written back the same.
func FuzzParseHeader(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x03\xcc\xba\x97\x20\x00\x00\x00\x00\x00\x00\x00\x01abc"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseHeader(b)
		if err != nil {
			if h != (Header{}) {
				t.Errorf("%+v with %v", h, err)
			}
			return
		}
		var again [HeaderSize]byte
		h.Put(again[:])
		if !bytes.Equal(again[:], b[:HeaderSize]) || int(h.PayloadLen) != len(b)-HeaderSize {
			t.Errorf("%x parsed as %+v, written as %x", b[:HeaderSize], h, again)
		}
	})
}
