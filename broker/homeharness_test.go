package broker

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"
)

const homePassword = "open sesame"

// homeUsers are the users of the tests: one who may do everything, and one whose
// clients have a corner each.
func homeUsers() []User {
	return []User{
		{Name: "admin", Password: Secret(homePassword), Publish: []string{"#"}, Subscribe: []string{"#"}},
		{Name: "lamp", Password: Secret(homePassword),
			Publish:   []string{"lamps/%u/%c/#", "shared/+/state"},
			Subscribe: []string{"cmnd/%c/#", "shared/+/set"}},
	}
}

func homeConfig(l net.Listener) Config {
	return Config{Listener: l, Key: testKey, Users: homeUsers(), Limits: Limits{ConnectRate: -1}}
}

// asUser is the CONNECT of a home client.
func asUser(user, id string) hello {
	return hello{clientID: id, username: user, password: homePassword}
}

// A homePeer is a home client that speaks bytes.
type homePeer struct {
	*peer
	version byte
	present bool // a session was there
	ack     []byte
}

// joinHome connects a home client and expects it to be let in.
func joinHome(t testing.TB, c net.Conn, h hello) *homePeer {
	t.Helper()
	if h.version == 0 {
		h.version = 4
	}
	p := newPeer(t, c)
	p.write(h.packet()...)
	ack := p.next(firstConnack)
	if ack.body[1] != 0 {
		t.Fatalf("CONNACK code %#x, want 0", ack.body[1])
	}
	return &homePeer{peer: p, version: h.version, present: ack.body[0] == 1, ack: ack.body}
}

// send publishes with QoS 0, or with another and the packet id.
func (p *homePeer) send(topic, payload string, qos byte, retain bool, id uint16) {
	p.t.Helper()
	body := appendString(nil, topic)
	if qos > 0 {
		body = binary.BigEndian.AppendUint16(body, id)
	}
	if p.version == 5 {
		body = append(body, 0)
	}
	first := firstPublish | qos<<1
	if retain {
		first |= 1
	}
	p.write(frame(first, append(body, payload...))...)
}

// subscribe sends one filter with its options and returns the code.
func (p *homePeer) subscribe(filter string, options byte) byte {
	p.t.Helper()
	body := []byte{0, 7}
	if p.version == 5 {
		body = append(body, 0)
	}
	p.write(frame(0x82, append(appendString(body, filter), options))...)
	ack := p.next(firstSuback)
	return ack.body[len(ack.body)-1]
}

func (p *homePeer) mustSubscribe(filter string, qos byte) {
	p.t.Helper()
	if code := p.subscribe(filter, qos); code != qos {
		p.t.Fatalf("SUBSCRIBE %q: code %#x, want %d", filter, code, qos)
	}
}

// heard is the next packet, which must be a PUBLISH.
func (p *homePeer) heard() packets.Packet {
	p.t.Helper()
	got, ok := <-p.in
	if !ok || got.first>>4 != packets.Publish {
		p.t.Fatalf("packet 0x%02x %q (open %v), want PUBLISH", got.first, got.body, ok)
	}
	pk := packets.Packet{ProtocolVersion: p.version}
	if err := pk.FixedHeader.Decode(got.first); err != nil {
		p.t.Fatal(err)
	}
	if err := pk.PublishDecode(got.body); err != nil {
		p.t.Fatal(err)
	}
	return pk
}

// hears expects messages, each as "topic payload", and acknowledges them.
func (p *homePeer) hears(want ...string) {
	p.t.Helper()
	for _, w := range want {
		pk := p.heard()
		if got := pk.TopicName + " " + string(pk.Payload); got != w {
			p.t.Fatalf("heard %q, want %q", got, w)
		}
		p.acknowledge(pk)
	}
}

func (p *homePeer) acknowledge(pk packets.Packet) {
	p.t.Helper()
	switch pk.FixedHeader.Qos {
	case 1:
		p.write(ackPacket(firstPuback, pk.PacketID, 0, false)...)
	case 2:
		p.write(ackPacket(firstPubrec, pk.PacketID, 0, false)...)
		p.next(firstPubrel)
		p.write(ackPacket(firstPubcomp, pk.PacketID, 0, false)...)
	}
}

// quiet makes sure that nothing more is on its way to the client. Answers are
// written before messages, so what was on its way at the first one has come
// before the second.
func (p *homePeer) quiet() {
	p.t.Helper()
	p.ping()
	p.ping()
}

// leave says DISCONNECT and waits for the end.
func (p *homePeer) leave() {
	p.t.Helper()
	p.write(firstDisconnect, 0)
	for got := range p.in {
		p.t.Fatalf("packet 0x%02x, want the connection's end", got.first)
	}
}

// vanish closes the connection without a word.
func (p *homePeer) vanish() {
	p.conn.Close()
	for range p.in { // until it has ended
	}
}

// property is one of MQTT 5 with a string.
func property(id byte, s string) []byte { return appendString([]byte{id}, s) }

// seconds is a property of MQTT 5 with four bytes.
func seconds(id byte, n uint32) []byte { return binary.BigEndian.AppendUint32([]byte{id}, n) }

func repeatJSON(n int) string { return `{"x":"` + strings.Repeat("x", n) + `"}` }
