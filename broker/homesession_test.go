package broker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

func kept(id string) hello {
	h := asUser("admin", id)
	h.unclean = true
	return h
}

// A client that was away hears what it missed, in order, with QoS 1 and 2, and
// again what it did not acknowledge.
func TestSessionIsKept(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		out := home(t, l, "out")
		p := joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		if p.present {
			t.Error("a session before there was one")
		}
		p.mustSubscribe("t/#", 2)
		out.send("t/1", "not acknowledged", 1, false, 1)
		out.next(firstPuback)
		first := p.heard()
		out.send("t/2", "received", 2, false, 1)
		out.next(firstPubrec)
		second := p.heard()
		p.write(ackPacket(firstPubrec, second.PacketID, 0, false)...)
		p.next(firstPubrel) // and no PUBCOMP
		p.vanish()
		synctest.Wait()
		var want []string
		for i := range 40 {
			topic := fmt.Sprint("t/away", i)
			out.send(topic, "x", 1, false, 2)
			out.next(firstPuback)
			out.send("t/qos0", "is not kept", 0, false, 0)
			want = append(want, topic+" x")
		}
		out.ping()

		p = joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		if !p.present {
			t.Error("no session")
		}
		if rel := p.next(firstPubrel); rel.body[1] != byte(second.PacketID) {
			t.Errorf("PUBREL for %d, want %d", rel.body[1], second.PacketID)
		}
		p.write(ackPacket(firstPubcomp, second.PacketID, 0, false)...)
		again := p.heard()
		if string(again.Payload) != "not acknowledged" || !again.FixedHeader.Dup || again.PacketID != first.PacketID {
			t.Errorf("first came %q, dup %v, id %d; want the unacknowledged with id %d", again.Payload, again.FixedHeader.Dup, again.PacketID, first.PacketID)
		}
		p.acknowledge(again)
		p.hears(want...)
		p.quiet()
		p.vanish()
		p = joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		p.quiet() // nothing twice
		// A clean session ends the one that was there.
		p.leave()
		if home(t, l, "p").present {
			t.Error("a session after asking for a clean one")
		}
		if s := b.Stats().Home; s.Subscriptions != 0 || s.Sessions != 2 {
			t.Errorf("stats %+v, want no subscription left", s)
		}
	})
}

// Of QoS 2 the client's half outlives a connection, too.
func TestSessionRemembersReceived(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		heard := 0
		if _, err := b.Home().Subscribe("t", func(Message) { heard++ }); err != nil {
			t.Fatal(err)
		}
		p := joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		for range 2 {
			p.send("t", "once", 2, false, 9)
			p.next(firstPubrec)
			p.vanish()
			p = joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		}
		if heard != 1 {
			t.Errorf("heard %d times, want once", heard)
		}
	})
}

func TestSessionExpiry(t *testing.T) {
	const limit = time.Hour
	for _, c := range []struct {
		name   string
		asked  uint32 // s, MQTT 5; 0: MQTT 3.1.1
		told   bool
		expiry time.Duration
	}{
		{"3.1.1", 0, false, limit},
		{"5", 60, false, time.Minute},
		{"5, longer than we keep", 1 << 31, true, limit},
	} {
		t.Run(c.name, func(t *testing.T) {
			inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
				h := kept("p")
				if c.asked > 0 {
					h.version, h.props = 5, seconds(0x11, c.asked)
				}
				for _, away := range []time.Duration{c.expiry - time.Millisecond, c.expiry} {
					p := joinHome(t, l.dial(t, "10.0.0.1:1"), h)
					if c.told {
						pk := packets.Packet{ProtocolVersion: 5, FixedHeader: packets.FixedHeader{Type: packets.Connack}}
						if err := pk.ConnackDecode(p.ack); err != nil || pk.Properties.SessionExpiryInterval != 3600 {
							t.Errorf("told %d s, error %v", pk.Properties.SessionExpiryInterval, err)
						}
					}
					p.mustSubscribe("t", 1)
					p.leave()
					synctest.Wait()
					time.Sleep(away)
					synctest.Wait()
					want := int64(0)
					if away < c.expiry {
						want = 1
					}
					if s := b.Stats().Home; s.Sessions != want || s.Subscriptions != want {
						t.Errorf("after %v %d sessions and %d subscriptions, want %d", away, s.Sessions, s.Subscriptions, want)
					}
				}
			})
		})
	}
}

// The newest connection of a user and client id has the session; other users with
// the same id are others.
func TestHomeTakeover(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		other := joinHome(t, l.dial(t, "10.0.0.1:1"), asUser("lamp", "p"))
		h := kept("p")
		h.version, h.props = 5, seconds(0x11, 60)
		old := joinHome(t, l.dial(t, "10.0.0.1:1"), h)
		old.mustSubscribe("t", 1)
		p := joinHome(t, l.dial(t, "10.0.0.1:2"), kept("p"))
		if d := old.next(firstDisconnect); d.body[0] != packets.ErrSessionTakenOver.Code {
			t.Errorf("DISCONNECT code %#x", d.body[0])
		}
		old.ended()
		if !p.present {
			t.Error("no session")
		}
		if err := b.Home().Publish("t", []byte("x"), false); err != nil {
			t.Fatal(err)
		}
		p.hears("t x")
		other.quiet()
		if s := b.Stats().Home; s.TakenOver != 1 || s.Sessions != 2 || s.Connected != 2 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestWill(t *testing.T) {
	offline := &lastWord{topic: "lamp/online", payload: "offline", qos: 1, retain: true}
	delayed := &lastWord{topic: "lamp/online", payload: "offline", retain: true, props: seconds(0x18, 30)}
	session := seconds(0x11, 60)
	for _, c := range []struct {
		name  string
		h     hello
		end   func(*testing.T, *pipeListener, *homePeer)
		after time.Duration // -1: never
	}{
		{"lost", hello{last: offline}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.vanish() }, 0},
		{"silent", hello{last: offline, keepalive: 10}, func(*testing.T, *pipeListener, *homePeer) {}, 15 * time.Second},
		{"long keepalive", hello{last: offline, keepalive: 50_000}, func(*testing.T, *pipeListener, *homePeer) {}, 75_000 * time.Second},
		{"protocol error", hello{last: offline}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.write(0xFF, 0) }, 0},
		{"in good order", hello{last: offline}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.leave() }, -1},
		{"wanted", hello{version: 5, last: offline}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.write(firstDisconnect, 1, 4) }, 0},
		{"in good order, 5", hello{version: 5, last: offline}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.write(firstDisconnect, 2, 0, 0) }, -1},
		{"delayed", hello{version: 5, last: delayed, props: session}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.vanish() }, 30 * time.Second},
		{"delayed beyond the session", hello{version: 5, last: delayed, props: seconds(0x11, 20)}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.vanish() }, 20 * time.Second},
		{"delayed without a session", hello{version: 5, last: delayed}, func(_ *testing.T, _ *pipeListener, p *homePeer) { p.vanish() }, 0},
		{"delayed, and back in time", hello{version: 5, last: delayed, props: session, unclean: true}, func(t *testing.T, l *pipeListener, p *homePeer) {
			p.vanish()
			time.Sleep(29 * time.Second)
			home5(t, l, hello{clientID: "lamp", props: session, unclean: true})
		}, -1},
		{"session ended on leaving", hello{version: 5, last: delayed, props: session}, func(_ *testing.T, _ *pipeListener, p *homePeer) {
			p.write(append([]byte{firstDisconnect, 7, 4, 5}, seconds(0x11, 0)...)...)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
				began := time.Now()
				var heard []time.Duration
				if _, err := b.Home().Subscribe("lamp/#", func(m Message) {
					if string(m.Payload) == "offline" {
						heard = append(heard, time.Since(began))
					}
				}); err != nil {
					t.Fatal(err)
				}
				c.h.clientID, c.h.username, c.h.password = "lamp", "admin", homePassword
				p := joinHome(t, l.dial(t, "10.0.0.1:1"), c.h)
				c.end(t, l, p)
				time.Sleep(30 * time.Hour)
				synctest.Wait()
				switch {
				case c.after < 0 && len(heard) > 0:
					t.Errorf("will after %v, want none", heard)
				case c.after >= 0 && (len(heard) != 1 || heard[0] != c.after):
					t.Errorf("will after %v, want %v", heard, c.after)
				}
				if s := b.Stats().Home; s.Retained != int64(len(heard)) {
					t.Errorf("%d retained", s.Retained)
				}
			})
		})
	}
}

// A lamp that lost its Wi-Fi comes back before its old connection has timed out.
// "offline" of the old one must not come after "online" of the new one.
func TestWillBeforeSuccessor(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		var heard []string
		if _, err := b.Home().Subscribe("lamp/online", func(m Message) { heard = append(heard, string(m.Payload)) }); err != nil {
			t.Fatal(err)
		}
		h := asUser("admin", "lamp")
		h.last = &lastWord{topic: "lamp/online", payload: "offline", retain: true}
		var want []string
		for range 20 {
			p := joinHome(t, l.dial(t, "10.0.0.1:1"), h)
			p.send("lamp/online", "online", 0, true, 0)
			p.ping()
			want = append(want, "online", "offline")
		}
		synctest.Wait()
		if want = want[:len(want)-1]; !slices.Equal(heard, want) {
			t.Errorf("heard %v, want %v", heard, want)
		}
	})
}

// A will that is kept for a minute is kept from when it is published.
func TestWillExpiry(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := home5(t, l, hello{clientID: "p", last: &lastWord{topic: "w", payload: "gone", retain: true, props: seconds(0x02, 60)}})
		time.Sleep(time.Hour)
		p.vanish()
		time.Sleep(50 * time.Second)
		late := home5(t, l, hello{clientID: "late"})
		late.mustSubscribe("w", 0)
		if pk := late.heard(); pk.Properties.MessageExpiryInterval != 10 {
			t.Errorf("expires in %d s, want 10", pk.Properties.MessageExpiryInterval)
		}
	})
}

// What has expired while a client was away is not news.
func TestExpiredWhileAway(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p, out := joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p")), home5(t, l, hello{clientID: "out"})
		p.mustSubscribe("t", 1)
		p.leave()
		for _, expiry := range []uint32{59, 61} {
			props := seconds(0x02, expiry)
			out.write(frame(0x32, append(append(appendString(nil, "t"), 0, 1, byte(len(props))), append(props, fmt.Sprint(expiry)...)...))...)
			out.next(firstPuback)
		}
		time.Sleep(time.Minute)
		p = joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		p.hears("t 61")
		p.quiet()
	})
}
