package broker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// inHome runs a test with a broker in virtual time.
func inHome(t *testing.T, limits HomeLimits, f func(t *testing.T, b *Embedded, l *pipeListener)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		cfg := homeConfig(l)
		cfg.Limits.Home = limits
		f(t, start(t, cfg, quiet{}), l)
	})
}

// home connects a client of the user that may do everything.
func home(t *testing.T, l *pipeListener, id string) *homePeer {
	t.Helper()
	return joinHome(t, l.dial(t, "10.0.0.1:1"), asUser("admin", id))
}

func home5(t *testing.T, l *pipeListener, h hello) *homePeer {
	t.Helper()
	h.version, h.username, h.password = 5, "admin", homePassword
	return joinHome(t, l.dial(t, "10.0.0.1:1"), h)
}

func TestRouting(t *testing.T) {
	topics := []string{"a", "a/b", "a/b/c", "/a", "a/", "b", "b/b", "x/y"}
	for _, c := range []struct {
		filter string
		want   []string
	}{
		{"#", topics},
		{"a", []string{"a"}},
		{"a/#", []string{"a", "a/b", "a/b/c", "a/"}},
		{"a/+", []string{"a/b", "a/"}},
		{"+/b", []string{"a/b", "b/b"}},
		{"+", []string{"a", "b"}},
		{"+/+", []string{"a/b", "/a", "a/", "b/b", "x/y"}},
		{"/+", []string{"/a"}},
		{"+/+/#", []string{"a/b", "a/b/c", "/a", "a/", "b/b", "x/y"}},
		{"a/b/c/#", []string{"a/b/c"}},
		{"A", nil},
	} {
		t.Run(c.filter, func(t *testing.T) {
			inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
				in, out := home(t, l, "in"), home(t, l, "out")
				var ours, want []string
				cancel, err := b.Home().Subscribe(c.filter, func(m Message) { ours = append(ours, m.Topic) })
				if err != nil {
					t.Fatal(err)
				}
				in.mustSubscribe(c.filter, 0)
				for _, topic := range topics {
					out.send(topic, "x", 0, true, 0)
				}
				out.ping()
				for _, topic := range c.want {
					want = append(want, topic+" x")
				}
				in.hears(want...)
				if !slices.Equal(ours, c.want) {
					t.Errorf("the bus heard %q, want %q", ours, c.want)
				}
				// The same again, retained, in any order.
				cancel()
				late := home(t, l, "late")
				late.mustSubscribe(c.filter, 0)
				var got []string
				for range c.want {
					pk := late.heard()
					if !pk.FixedHeader.Retain {
						t.Errorf("%s came without the retain flag", pk.TopicName)
					}
					got = append(got, pk.TopicName)
				}
				slices.Sort(got)
				if want := slices.Sorted(slices.Values(c.want)); !slices.Equal(got, want) {
					t.Errorf("retained %q, want %q", got, want)
				}
				for _, p := range []*homePeer{in, out, late} {
					p.quiet()
				}
				// And no more after UNSUBSCRIBE.
				in.write(frame(0xA2, appendString([]byte{0, 9}, c.filter))...)
				in.next(firstUnsuback)
				out.send("a", "x", 0, false, 0)
				out.ping()
				in.quiet()
				if s := b.Stats().Home; s.Subscriptions != 1 || s.Retained != int64(len(topics)) || s.Connected != 3 {
					t.Errorf("stats %+v", s)
				}
			})
		})
	}
}

func TestRetained(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		out, in := home(t, l, "out"), home(t, l, "in")
		in.mustSubscribe("s/#", 1)
		out.send("s/1", "on", 1, true, 1)
		out.next(firstPuback)
		if pk := in.heard(); pk.FixedHeader.Retain || pk.FixedHeader.Qos != 1 {
			t.Errorf("live message with header %+v, want QoS 1 and no retain flag", pk.FixedHeader)
		} else {
			in.acknowledge(pk)
		}
		out.send("s/1", "off", 0, true, 0) // replaces
		out.send("s/2", "x", 0, true, 0)
		out.send("s/2", "", 0, true, 0) // removes, and is delivered
		out.send("s/3", "not kept", 0, false, 0)
		in.hears("s/1 off", "s/2 x", "s/2 ", "s/3 not kept")
		late := home(t, l, "late")
		late.mustSubscribe("s/#", 2)
		pk := late.heard()
		if string(pk.Payload) != "off" || !pk.FixedHeader.Retain || pk.FixedHeader.Qos != 0 {
			t.Errorf("retained message %q with header %+v", pk.Payload, pk.FixedHeader)
		}
		late.quiet()
		late.mustSubscribe("s/1", 0) // every SUBSCRIBE brings them again
		late.hears("s/1 off")
		late.quiet()
		if s := b.Stats().Home; s.Retained != 1 || s.RetainedBytes == 0 {
			t.Errorf("stats %+v, want one message retained", s)
		}
	})
}

// The options of a subscription in MQTT 5, section 3.8.3.1, and its identifier.
func TestSubscriptionOptions(t *testing.T) {
	const noLocal, asPublished, ifNew, never = 1 << 2, 1 << 3, 1 << 4, 2 << 4
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		if err := b.Home().Publish("t", []byte("kept"), true); err != nil {
			t.Fatal(err)
		}
		p := home5(t, l, hello{clientID: "p"})
		p.mustSubscribe("t", 0)
		p.hears("t kept")
		for _, o := range []byte{never, ifNew} {
			if code := p.subscribe("t", o); code != 0 {
				t.Errorf("options %#x: code %#x", o, code)
			}
			p.quiet()
		}
		if code := p.subscribe("t", noLocal|asPublished|never); code != 0 {
			t.Errorf("code %#x", code)
		}
		p.send("t", "mine", 0, false, 0)
		p.quiet()
		if err := b.Home().Publish("t", []byte("flag"), true); err != nil {
			t.Fatal(err)
		}
		if pk := p.heard(); !pk.FixedHeader.Retain || string(pk.Payload) != "flag" {
			t.Errorf("%q with header %+v, want the retain flag as published", pk.Payload, pk.FixedHeader)
		}
		// Two filters with identifiers match: one message with both, at the higher QoS.
		for id, f := range map[byte]string{11: "i/#", 12: "i/+"} {
			qos := id - 11
			p.write(frame(0x82, append(appendString([]byte{0, 1, 2, 0x0B, id}, f), qos))...)
			p.next(firstSuback)
		}
		if err := b.Home().Publish("i/1", []byte("x"), false); err != nil {
			t.Fatal(err)
		}
		pk := p.heard()
		ids := slices.Sorted(slices.Values(pk.Properties.SubscriptionIdentifier))
		if !slices.Equal(ids, []int{11, 12}) || pk.FixedHeader.Qos != 1 {
			t.Errorf("identifiers %v, QoS %d", ids, pk.FixedHeader.Qos)
		}
		p.acknowledge(pk)
		p.quiet()
	})
}

// What MQTT 5 says about a message arrives with it, and MQTT 3.1.1 gets the rest.
func TestProperties(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		var ours []Message
		if _, err := b.Home().Subscribe("ask", func(m Message) {
			m.Payload, m.CorrelationData = slices.Clone(m.Payload), slices.Clone(m.CorrelationData)
			ours = append(ours, m)
		}); err != nil {
			t.Fatal(err)
		}
		old, in, out := home(t, l, "old"), home5(t, l, hello{clientID: "in"}), home5(t, l, hello{clientID: "out"})
		old.mustSubscribe("ask", 0)
		in.mustSubscribe("ask", 0)
		props := slices.Concat([]byte{0x01, 1}, seconds(0x02, 100), property(0x03, "text/plain"), property(0x08, "answer"),
			property(0x09, "cor"), property(0x26, "k"), appendString(nil, "v"))
		out.write(frame(0x31, slices.Concat(appendString(nil, "ask"), []byte{byte(len(props))}, props, []byte("hi")))...)
		out.ping()
		if pk := old.heard(); string(pk.Payload) != "hi" {
			t.Errorf("MQTT 3.1.1 got %q", pk.Payload)
		}
		want := func(p *homePeer, expiry uint32) {
			t.Helper()
			got := p.heard().Properties
			if got.ContentType != "text/plain" || got.ResponseTopic != "answer" || string(got.CorrelationData) != "cor" ||
				len(got.User) != 1 || got.User[0] != (packets.UserProperty{Key: "k", Val: "v"}) ||
				got.PayloadFormat != 1 || got.MessageExpiryInterval != expiry {
				t.Errorf("properties %+v, want expiry %d", got, expiry)
			}
		}
		want(in, 100)
		if len(ours) != 1 || ours[0].ResponseTopic != "answer" || string(ours[0].CorrelationData) != "cor" {
			t.Errorf("the bus heard %+v", ours)
		}
		time.Sleep(40 * time.Second)
		late := home5(t, l, hello{clientID: "late"})
		late.mustSubscribe("ask", 0)
		want(late, 60)
		time.Sleep(60 * time.Second) // it has expired
		late.mustSubscribe("ask", 0)
		late.quiet()
		if s := b.Stats().Home; s.Retained != 0 || s.RetainedBytes != 0 {
			t.Errorf("stats %+v, want nothing retained", s)
		}
	})
}

// Each QoS, from and to a client; twice the same packet of QoS 2 is one message.
func TestQoS(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		for from := range byte(3) {
			for to := range byte(3) {
				out, in := home(t, l, "out"), home(t, l, "in")
				in.mustSubscribe("t", to)
				out.send("t", "x", from, false, 5)
				switch from {
				case 1:
					out.next(firstPuback)
				case 2:
					out.next(firstPubrec)
					out.send("t", "x", from, false, 5) // it did not see the PUBREC
					out.next(firstPubrec)
					for range 2 {
						out.write(ackPacket(firstPubrel, 5, 0, false)...)
						out.next(firstPubcomp)
					}
				}
				pk := in.heard()
				if pk.FixedHeader.Qos != min(from, to) {
					t.Errorf("sent with QoS %d, subscribed with %d: QoS %d", from, to, pk.FixedHeader.Qos)
				}
				in.acknowledge(pk)
				in.quiet()
				in.leave()
				out.leave()
			}
		}
	})
}

// A client that subscribes and publishes with packet ids of its own is not
// disturbed by those of the messages it has not acknowledged.
func TestPacketIDsOfBothSides(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p, out := home(t, l, "p"), home(t, l, "out")
		p.mustSubscribe("in/#", 2)
		var sent []packets.Packet
		for i := range 8 {
			out.send(fmt.Sprint("in/", i), "x", 1, false, 1)
			out.next(firstPuback)
			sent = append(sent, p.heard())
		}
		for id := range uint16(8) { // all ids that are in use
			p.write(frame(0x82, append(appendString([]byte{0, byte(id + 1)}, fmt.Sprint("f/", id)), 0))...)
			if ack := p.next(firstSuback); ack.body[2] != 0 {
				t.Errorf("SUBSCRIBE with packet id %d: code %#x", id+1, ack.body[2])
			}
			p.send("out/x", "x", 2, false, id+1)
			p.next(firstPubrec)
			p.write(ackPacket(firstPubrel, id+1, 0, false)...)
			p.next(firstPubcomp)
		}
		for _, pk := range sent {
			p.acknowledge(pk)
		}
		p.vanish()
		p = home(t, l, "p")
		if p.present {
			t.Error("a clean session outlived its connection")
		}
	})
}

// A client of MQTT 5 that refuses a message of QoS 2 is done with it.
func TestRefusedByClient(t *testing.T) {
	inHome(t, HomeLimits{MaxInflight: 1}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p, out := home5(t, l, hello{clientID: "p"}), home(t, l, "out")
		p.mustSubscribe("t", 2)
		for i := range 3 {
			out.send("t", fmt.Sprint(i), 2, false, uint16(i+1))
			out.next(firstPubrec)
			out.write(ackPacket(firstPubrel, uint16(i+1), 0, false)...)
			out.next(firstPubcomp)
		}
		for i := range 3 {
			pk := p.heard()
			if string(pk.Payload) != fmt.Sprint(i) {
				t.Errorf("heard %q, want %d", pk.Payload, i)
			}
			p.write(ackPacket(firstPubrec, pk.PacketID, 0x97, true)...)
		}
		p.quiet()
		// An answer to nothing is answered, and changes nothing.
		p.write(ackPacket(firstPubrec, 77, 0, true)...)
		if rel := p.next(firstPubrel); len(rel.body) != 3 || rel.body[2] != 0x92 {
			t.Errorf("PUBREL %x, want code 0x92", rel.body)
		}
		p.write(ackPacket(firstPuback, 77, 0, true)...)
		p.write(ackPacket(firstPubcomp, 77, 0, true)...)
		p.quiet()
	})
}
