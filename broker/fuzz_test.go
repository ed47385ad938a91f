package broker

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"parley/internal/protocol"
)

// FuzzDecode decodes what may follow a CONNECT. Nothing may panic, and what is
// refused is refused for a reason the session knows.
func FuzzDecode(f *testing.F) {
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
		pk, err := decode(h, version, body)
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatalf("error %v does not wrap ErrProtocol", err)
		}
		if err == nil && len(pk.Payload) > len(body) {
			t.Fatalf("payload of %d bytes from a body of %d", len(pk.Payload), len(body))
		}
	})
}

// FuzzConnect reads and judges what may come first.
func FuzzConnect(f *testing.F) {
	remote := netip.MustParseAddr("10.0.0.1")
	f.Fuzz(func(t *testing.T, data []byte, key []byte) {
		client, server := net.Pipe()
		go func() {
			_, _ = client.Write(data) // the reader may have had enough
			client.Close()
		}()
		pk, r := readConnect(server, false, 2048)
		server.Close()
		if r != nil {
			return
		}
		con, r := judge(pk, key, netip.AddrPortFrom(remote, 1))
		if r != nil {
			if r.v3 == 0 || r.v5 == 0 || r.err == nil {
				t.Fatalf("refusal %+v has no code or no error", r)
			}
			return
		}
		if con.signed != (len(key) > 0) || con.id.Device == "" {
			t.Fatalf("let in as %+v", con)
		}
	})
}

// FuzzConnection writes bytes into a broker, before or after a CONNECT, and
// checks that another device is served as before.
func FuzzConnection(f *testing.F) {
	l := newPipeListener()
	b := startLogging(f, Config{Listener: l, Limits: Limits{ConnectRate: -1, MessageRate: -1}}, quiet{}, slog.New(slog.DiscardHandler))
	// Its id is in no corpus, so that no input takes its place by connecting as it.
	other := join(f, l.dial(f, "10.0.0.2:1"), hello{clientID: clientID("42:9d:0e:c7:f1:58")})
	f.Fuzz(func(t *testing.T, data []byte, version uint8) {
		p := newPeer(t, l.dial(t, "10.0.0.1:1"))
		if version %= 8; version >= 3 && version <= 5 {
			p.write(hello{version: version, clientID: clientID(macA)}.packet()...)
			p.next(0x20)
		}
		_, _ = p.conn.Write(data) // the broker may close before it has read all
		p.conn.Close()
		for range p.in { // until it has ended
		}
		if _, err := other.conn.Write(publish(protocol.SharedUplinkTopic, "{}")); err != nil {
			t.Fatal(err)
		}
		if _, err := other.conn.Write([]byte{0xC0, 0}); err != nil {
			t.Fatal(err)
		}
		if got := <-other.in; got.first != 0xD0 {
			t.Fatalf("packet 0x%02x, want PINGRESP", got.first)
		}
		if n := b.Stats().Connected; n < 1 || n > 2 {
			t.Fatalf("%d devices connected", n)
		}
	})
}

// quiet is a Handler that wants everyone and listens to nobody.
type quiet struct{}

func (quiet) Connect(*Link) Receiver { return ignore{} }
