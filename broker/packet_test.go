package broker

import (
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// The reason for wellFormedSubscribe. When this test fails the engine was
// repaired, and the check can go.
func TestEngineStillPanicsOnSubscribeWithoutOptions(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("packets.SubscribeDecode no longer panics")
		}
	}()
	pk := packets.Packet{ProtocolVersion: 5}
	_ = pk.SubscribeDecode([]byte{0, 1, 0, 0, 1, 'x'})
}

func TestWellFormedSubscribe(t *testing.T) {
	for _, c := range []struct {
		body string
		want bool
	}{
		{"\x00\x01\x00\x00\x01x\x01", true},
		{"\x00\x01\x00\x00\x01x\x01\x00\x02yy\x00", true},
		{"\x00\x01\x02\x0b\x05\x00\x01x\x01", true},
		{"\x00\x01\x00", true}, // no filter: the engine refuses that by itself
		{"\x00\x01\x00\x00\x01x", false},
		{"\x00\x01\x00\x00\x01x\x01\x00\x02yy", false},
		{"\x00\x01\x00\x00\x05x\x01", false},
		{"\x00\x01\x00\x00", false},
		{"\x00\x01\x09\x0b\x05\x00\x01x\x01", false},
		{"\x00\x01\x80\x80\x80\x80\x00", false},
		{"\x00\x01", false},
		{"\x00", false},
		{"", false},
	} {
		if got := wellFormedSubscribe([]byte(c.body)); got != c.want {
			t.Errorf("wellFormedSubscribe(%q) = %v, want %v", c.body, got, c.want)
		}
	}
}

func TestLength(t *testing.T) {
	for _, n := range []int{0, 127, 128, 16383, 16384, 2097151, 2097152, 268435455} {
		b := appendLength(nil, n)
		if got, rest, ok := cutLength(append(b, 'x')); got != n || string(rest) != "x" || !ok {
			t.Errorf("%d came back as %d, rest %q, %v", n, got, rest, ok)
		}
		if _, _, ok := cutLength(b[:len(b)-1]); ok {
			t.Errorf("a part of %d was taken for a number", n)
		}
	}
}
