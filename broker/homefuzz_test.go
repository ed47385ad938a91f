package broker

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

// FuzzHome writes bytes as a home client into a broker, and checks that other
// home clients and a device are served as before.
func FuzzHome(f *testing.F) {
	l := newPipeListener()
	cfg := homeConfig(l)
	cfg.Limits.MessageRate = -1
	cfg.Limits.Home = HomeLimits{MessageRate: -1, MaxRetained: 64, MaxClients: 16}
	b := startLogging(f, cfg, quiet{}, slog.New(slog.DiscardHandler))
	// What the fuzzed clients can name is not heard by this one, nor can they have
	// its place: that is another user's.
	in := joinHome(f, l.dial(f, "10.0.0.2:1"), asUser("lamp", "in"))
	in.mustSubscribe("shared/+/set", 0)
	device := join(f, l.dial(f, "10.0.0.3:1"), signed(clientID(macB)))
	for _, seed := range [][]byte{
		publish("a/b", "x"), frame(0x35, []byte{0, 1, 'a', 0, 1, 0}), frame(0x82, []byte{0, 1, 0, 0, 1, '#', 1}),
		frame(0x82, []byte{0, 1, 0, 1, '#', 2}), frame(0x82, []byte{0, 1, 0, 0, 1, 'a'}), frame(0xA2, []byte{0, 1, 0, 1, '#'}),
		{0x40, 2, 0, 1}, {0x50, 2, 0, 1}, {0x62, 2, 0, 1}, {0x70, 2, 0, 1}, {0x50, 3, 0, 1, 0x80}, {0xE0, 1, 4}, {0xE0, 7, 0, 5, 0x11, 0, 0, 0, 9},
		{0xC0, 0}, {0xF0, 0}, asUser("admin", "x").packet(), {0x82, 0xFF, 0xFF, 0xFF, 0x7F},
	} {
		for version := range uint8(3) {
			f.Add(seed, version+3, true)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, version uint8, unclean bool) {
		h := asUser("admin", "fuzz")
		h.version, h.unclean = version%3+3, unclean
		h.last = &lastWord{topic: "fuzz/will", payload: "x", qos: version / 3 % 3, retain: true}
		p := newPeer(t, l.dial(t, "10.0.0.1:1"))
		in.t = t
		p.write(h.packet()...)
		p.next(firstConnack)
		_, _ = p.conn.Write(data) // the broker may close before it has read all
		p.conn.Close()
		for range p.in { // until it has ended
		}
		if err := b.Home().Publish("shared/x/set", []byte("on"), false); err != nil {
			t.Fatal(err)
		}
		for got := in.heard(); string(got.Payload) != "on"; {
			got = in.heard() // what a fuzzed client said to that topic
		}
		if _, err := device.conn.Write([]byte{0xC0, 0}); err != nil {
			t.Fatal(err)
		}
		if got := <-device.in; got.first != 0xD0 {
			t.Fatalf("the device got packet 0x%02x, want PINGRESP", got.first)
		}
		if s := b.Stats(); s.Connected != 1 || s.Home.Retained > 64 || s.Home.Sessions > 16 {
			t.Fatalf("stats %+v", s)
		}
	})
}

// FuzzDecodeHome decodes what a home client may send. Nothing may panic: a fault
// of a decoder that only its last guard catches is a failure, too.
func FuzzDecodeHome(f *testing.F) {
	for first := 0x10; first < 0x100; first += 0x10 {
		for _, body := range [][]byte{nil, {0, 1}, {0, 1, 0}, {0, 1, 0x80, 0}, {0, 1, 0, 0, 1, 'a'}, {0, 1, 0, 1, 'a', 0}, {0, 1, 0x10, 5, 0x26, 0, 1, 'k', 0}} {
			f.Add(byte(first), body, true)
			f.Add(byte(first)|2, body, false)
		}
	}
	f.Fuzz(func(t *testing.T, first byte, body []byte, v5 bool) {
		version := byte(4)
		if v5 {
			version = 5
		}
		var h packets.FixedHeader
		if h.Decode(first) != nil {
			return
		}
		h.Remaining = len(body)
		if _, err := decodeHome(h, version, body); err != nil &&
			(!errors.Is(err, ErrProtocol) || strings.Contains(err.Error(), "the decoder failed")) {
			t.Fatal(err)
		}
	})
}
