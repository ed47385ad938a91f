package broker

import (
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"parley/internal/protocol"
)

// A burst of 40 connections from one address, then 20 a second; another address
// is not concerned.
func TestConnectRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		b := start(t, Config{Listener: l}, r)
		enter := func(n int, from string) {
			for i := range n {
				h := hello{clientID: fmt.Sprintf("g@@@a0_85_e3_00_00_%02x@@@u", i)}
				join(t, l.dial(t, from), h).conn.Close()
				synctest.Wait()
			}
		}
		enter(40, "10.0.0.1:1")
		newPeer(t, l.dial(t, "10.0.0.1:1")).ended()
		enter(1, "10.0.0.2:1")
		time.Sleep(time.Second)
		enter(20, "10.0.0.1:1")
		newPeer(t, l.dial(t, "10.0.0.1:1")).ended()
		if n := b.Stats().Refused[RefusedRate]; n != 2 {
			t.Errorf("%d refused, want 2", n)
		}
	})
}

func TestConnectRateUnlimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		start(t, Config{Listener: l, Limits: Limits{ConnectRate: -1}}, r)
		for range 100 {
			join(t, l.dial(t, "10.0.0.1:1"), hello{clientID: clientID(macA)}).conn.Close()
		}
	})
}

func TestAddressRates(t *testing.T) {
	var r addressRates
	r.init(20, 40)
	now := time.Unix(1e9, 0)
	addr := netip.MustParseAddr
	for range 40 {
		r.allow(addr("2001:db8::1"), now)
	}
	if r.allow(addr("2001:db8::ffff:2"), now) {
		t.Error("an address of the same /64 was allowed")
	}
	if !r.allow(addr("2001:db8:0:1::1"), now) {
		t.Error("an address of another /64 was refused")
	}
	if !r.allow(netip.Addr{}, now) {
		t.Error("an unknown address was refused")
	}
	// However many come at once, the table stays bounded.
	for i := range 3 * maxAddresses {
		r.allow(netip.AddrFrom4([4]byte{byte(i >> 16), byte(i >> 8), byte(i), 1}), now)
	}
	if len(r.byAddr) > maxAddresses {
		t.Errorf("%d addresses, at most %d allowed", len(r.byAddr), maxAddresses)
	}
	// A second later all have their full allowance again and are forgotten.
	r.allow(addr("10.0.0.1"), now.Add(2*time.Second))
	if len(r.byAddr) != 1 {
		t.Errorf("%d addresses remembered, want 1", len(r.byAddr))
	}
}

// Peers who connect and say nothing cannot lock devices out.
func TestPendingEvictsOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		b := start(t, Config{Listener: l, Limits: Limits{MaxPending: 3}}, r)
		var mute []*peer
		for range 3 {
			mute = append(mute, newPeer(t, l.dial(t, "10.0.0.1:1")))
		}
		synctest.Wait()
		if n := b.Stats().Pending; n != 3 {
			t.Errorf("%d pending, want 3", n)
		}
		join(t, l.dial(t, "10.0.0.2:1"), hello{clientID: clientID(macA)})
		mute[0].ended()
		mute[1].write(hello{clientID: clientID(macB)}.packet()...)
		mute[1].next(0x20)
		mute[2].write(0x10)
		synctest.Wait()
		if s := b.Stats(); s.Refused[RefusedPending] != 1 || s.Connected != 2 {
			t.Errorf("stats %+v, want 1 refused, 2 connected", s)
		}
	})
}

// When all places are taken a new device is turned away, and one that is
// connected can still come back.
func TestMaxDevices(t *testing.T) {
	for version, code := range map[byte]byte{4: 3, 5: 0x89} {
		synctest.Test(t, func(t *testing.T) {
			b, l, r, _, p := pair(t, Limits{MaxDevices: 1}, hello{})
			refused(t, l.dial(t, "10.0.0.2:1"), hello{version: version, clientID: clientID(macB)}, code)
			join(t, l.dial(t, "10.0.0.1:2"), hello{clientID: clientID(macA)}).write(0xE0, 0)
			p.ended()
			r.next(t, "disconnected")
			r.next(t, "connect")
			r.next(t, "disconnected")
			synctest.Wait()
			join(t, l.dial(t, "10.0.0.2:1"), hello{clientID: clientID(macB)})
			if n := b.Stats().Refused[RefusedFull]; n != 1 {
				t.Errorf("%d refused, want 1", n)
			}
		})
	}
}

// A burst of 100 packets, then 50 a second, then out.
func TestMessageRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, r, _, p := pair(t, Limits{}, hello{version: 5})
		m := publish(protocol.SharedUplinkTopic, "\x00{}") // no properties, then the payload
		send := func(n int) {
			for range n {
				p.write(m...)
			}
			synctest.Wait()
		}
		send(100)
		time.Sleep(time.Second)
		send(50)
		for range 150 {
			if e := r.next(t, "receive"); e.payload != "{}" {
				t.Fatalf("received %q", e.payload)
			}
		}
		_, _ = p.conn.Write(m) // refused by its header already
		if d := p.next(0xE0); d.body[0] != 0x96 {
			t.Errorf("DISCONNECT code %#x, want 0x96", d.body[0])
		}
		p.ended()
		wantReason(t, r.next(t, "disconnected").reason, ErrFlood)
		if n := b.Stats().Flooded; n != 1 {
			t.Errorf("%d flooded, want 1", n)
		}
	})
}

// Messages of QoS 2 that are never released are bounded.
func TestInflightIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, r, _, p := pair(t, Limits{MessageRate: -1}, hello{version: 5})
		for i := range byte(maxInflight + 1) {
			body := append(appendString(nil, protocol.SharedUplinkTopic), 0, i+1, 0)
			p.write(frame(0x34, body)...)
			if i < maxInflight {
				p.next(0x50)
				r.next(t, "receive")
			}
		}
		if d := p.next(0xE0); d.body[0] != 0x93 {
			t.Errorf("DISCONNECT code %#x, want 0x93", d.body[0])
		}
		wantReason(t, r.next(t, "disconnected").reason, ErrProtocol)
	})
}

// A flood of refusals is counted in full and logged in part.
func TestRefusalsAreLoggedInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r, log := newPipeListener(), newRecorder(), new(logBuffer)
		b := startLogging(t, Config{Listener: l, Limits: Limits{ConnectRate: rate.Inf}}, r, log.logger())
		for range 1000 {
			newPeer(t, l.dial(t, "10.0.0.1:1")).write('G', 'E')
		}
		synctest.Wait()
		lines := strings.Count(log.String(), "connection refused")
		if n := b.Stats().Refused[RefusedMalformed]; n != 1000 || lines != 20 {
			t.Errorf("%d counted and %d logged, want 1000 and 20", n, lines)
		}
		time.Sleep(time.Second)
		newPeer(t, l.dial(t, "10.0.0.1:1")).write('G', 'E')
		synctest.Wait()
		if !strings.Contains(log.String(), "others_not_logged=980") {
			t.Error("the log does not say how many lines are missing")
		}
	})
}

// The log names devices and topics, never what was said, and a fault that repeats
// once a connection; the engine's own lines are debug lines.
func TestLogHoldsNoMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r, log := newPipeListener(), newRecorder(), new(logBuffer)
		startLogging(t, Config{Listener: l}, r, log.logger())
		p := join(t, l.dial(t, "10.0.0.1:1"), hello{clientID: clientID(macA), keepalive: 1})
		p.write(publish(protocol.SharedUplinkTopic, "my secret")...)
		p.write(publish("elsewhere", "my secret")...)
		p.write(publish("elsewhere", "my secret")...)
		p.write(publish("wild/#", "my secret")...)
		p.ended()
		synctest.Wait()
		s := log.String()
		if strings.Contains(s, "my secret") {
			t.Errorf("the log holds a message: %s", s)
		}
		for _, want := range []string{
			"msg=\"device connected\"", "msg=\"device disconnected\"", "publication refused",
			"mqtt engine: client keepalive is below minimum",
		} {
			if strings.Count(s, want) != 1 {
				t.Errorf("the log has %q %d times, want once: %s", want, strings.Count(s, want), s)
			}
		}
		for line := range strings.Lines(s) {
			if strings.Contains(line, "mqtt engine") && !strings.Contains(line, "level=DEBUG") {
				t.Errorf("not a debug line: %s", line)
			}
		}
	})
}

// Whatever the engine may log some day, packets are left out.
func TestEngineLog(t *testing.T) {
	log := new(logBuffer)
	l := slog.New(engineLog{log.logger().Handler()}).With("hook", "parley").WithGroup("g")
	l.Warn("a warning", "pk", "my secret", "packet", "my secret", "will", "my secret", "client", "c")
	l.Error("an error")
	want := []string{
		`level=DEBUG msg="mqtt engine: a warning" hook=parley g.client=c`,
		`level=WARN msg="mqtt engine: an error" hook=parley`,
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, line := range lines {
		if _, got, _ := strings.Cut(line, " "); got != want[i] {
			t.Errorf("line %q, want %q", got, want[i])
		}
	}
	if len(lines) != len(want) {
		t.Errorf("%d lines, want %d", len(lines), len(want))
	}
}
