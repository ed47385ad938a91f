package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestMaxHomeClients(t *testing.T) {
	inHome(t, HomeLimits{MaxClients: 2}, func(t *testing.T, b *Embedded, l *pipeListener) {
		for i := range 3 { // absent sessions make room, the one nearest its end first
			h := kept(fmt.Sprint("away", i))
			joinHome(t, l.dial(t, "10.0.0.1:1"), h).leave()
			time.Sleep(time.Minute)
		}
		if s := b.Stats().Home; s.Sessions != 2 {
			t.Errorf("%d sessions, want 2", s.Sessions)
		}
		if !joinHome(t, l.dial(t, "10.0.0.1:1"), kept("away2")).present {
			t.Error("the newest absent session made room, want the oldest")
		}
		home(t, l, "b")
		refused(t, l.dial(t, "10.0.0.1:1"), asUser("admin", "c"), 3)
		home(t, l, "b") // takes its own place
		// Devices are not concerned.
		join(t, l.dial(t, "10.0.0.2:1"), signed(clientID(macA)))
		if s := b.Stats(); s.Refused[RefusedFull] != 1 || s.Home.Connected != 2 || s.Connected != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestRetainedLimits(t *testing.T) {
	inHome(t, HomeLimits{MaxRetained: 3, MaxRetainedBytes: 100, MaxRetainedPayload: 60}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := home(t, l, "p")
		p.mustSubscribe("#", 0)
		bus := b.Home()
		put := func(topic string, size int, want error) {
			t.Helper()
			if err := bus.Publish(topic, make([]byte, size), true); !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("%d bytes to %q: %v, want %v", size, topic, err, want)
			}
			if got := p.heard(); got.TopicName != topic || len(got.Payload) != size {
				t.Errorf("heard %q with %d bytes", got.TopicName, len(got.Payload)) // delivered in any case
			}
		}
		put("a", 61, ErrRetainedFull)
		put("a", 60, nil)
		put("b", 40, ErrRetainedFull) // 102 bytes
		put("a", 20, nil)             // in place of 60
		put("b", 40, nil)
		put("c", 1, nil)
		put("d", 1, ErrRetainedFull) // the fourth
		put("c", 2, nil)
		put("b", 0, nil)
		put("d", 1, nil)
		p.send("e", "x", 1, true, 1) // a client is acknowledged as ever
		p.next(firstPuback)
		p.hears("e x")
		if s := b.Stats().Home; s.Retained != 3 || s.RetainedBytes != 26 || s.NotRetained != 4 {
			t.Errorf("stats %+v, want 3 messages of 26 bytes, 4 refused", s)
		}
		b.home.mu.Lock()
		defer b.home.mu.Unlock()
		if n := len(b.home.root.next); n != 4 { // a, c, d and #
			t.Errorf("%d nodes in the tree, want 4", n)
		}
	})
}

// A client that sends too fast is read more slowly, and loses nothing.
func TestHomeRate(t *testing.T) {
	inHome(t, HomeLimits{MessageRate: 10, MessageBurst: 20}, func(t *testing.T, b *Embedded, l *pipeListener) {
		heard := 0
		if _, err := b.Home().Subscribe("#", func(Message) { heard++ }); err != nil {
			t.Fatal(err)
		}
		fast, other := home(t, l, "fast"), home(t, l, "other")
		began := time.Now()
		for range 70 {
			fast.send("t", "x", 0, false, 0)
		}
		fast.ping() // is the 71st
		if took := time.Since(began); took != 5100*time.Millisecond || heard != 70 {
			t.Errorf("%d messages took %v, want 70 in 5.1 s", heard, took)
		}
		other.ping()
		if s := b.Stats().Home; s.Throttled != 51 || s.Connected != 2 {
			t.Errorf("stats %+v, want 51 throttled", s)
		}
	})
}

func TestHomePackets(t *testing.T) {
	tooLarge := frame(firstPublish, append(appendString(nil, "t"), make([]byte, 100)...))
	var tooMany []byte
	for id := range byte(5) {
		tooMany = append(tooMany, frame(0x34, []byte{0, 1, 't', 0, id + 1})...)
	}
	for name, data := range map[string][]byte{
		"too large":             tooLarge,
		"too many without end":  tooMany,
		"wildcard":              frame(firstPublish, appendString(nil, "a/+")),
		"second CONNECT":        asUser("admin", "p").packet(),
		"SUBSCRIBE of nothing":  {0x82, 2, 0, 1},
		"packet id 0":           frame(0x32, []byte{0, 1, 't', 0, 0}),
		"SUBACK":                {0x90, 3, 0, 1, 0},
		"flags of SUBSCRIBE":    {0x80, 2, 0, 1},
		"length of five bytes":  {0xC0, 0x80, 0x80, 0x80, 0x80, 0},
		"not UTF-8":             frame(firstPublish, appendString(nil, "a\xff")),
		"short PUBACK":          {0x40, 1, 0},
		"AUTH":                  {0xF0, 0},
		"SUBSCRIBE cut short":   {0x82, 5, 0, 1, 0, 1, 'a'},
		"UNSUBSCRIBE of nothng": {0xA2, 2, 0, 1},
		"too many filters":      append([]byte{0x82, 14}, "\x00\x01\x00\x01a\x00\x00\x01b\x00\x00\x01c\x00"...),
	} {
		t.Run(name, func(t *testing.T) {
			inHome(t, HomeLimits{MaxPacket: 100, MaxInflight: 4, MaxSubscriptions: 2}, func(t *testing.T, b *Embedded, l *pipeListener) {
				other := home(t, l, "other")
				for _, version := range []byte{4, 5} {
					h := asUser("admin", "p")
					h.version = version
					p := joinHome(t, l.dial(t, "10.0.0.1:1"), h)
					go func() { _, _ = p.conn.Write(data) }() // the broker may close first
					var last packet
					for last = range p.in {
					}
					if said := last.first == firstDisconnect; said != (version == 5) {
						t.Errorf("version %d: last packet 0x%02x", version, last.first)
					}
					synctest.Wait()
				}
				other.ping()
				if s := b.Stats().Home; s.Violated != 2 || s.Connected != 1 {
					t.Errorf("stats %+v, want 2 violations", s)
				}
			})
		})
	}
}

// A client that does not read is dropped; who publishes does not wait for it, and
// everybody else hears everything.
func TestSlowHomeClient(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits HomeLimits
		size   int
	}{
		{"messages", HomeLimits{MaxQueued: 50}, 10},
		{"bytes", HomeLimits{MaxQueuedBytes: 64 << 10}, 8 << 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			inHome(t, c.limits, func(t *testing.T, b *Embedded, l *pipeListener) {
				slow := l.dial(t, "10.0.0.1:1")
				defer slow.Close()
				if _, err := slow.Write(asUser("admin", "slow").packet()); err != nil {
					t.Fatal(err)
				}
				if _, err := slow.Read(make([]byte, 4)); err != nil { // CONNACK, and nothing after it
					t.Fatal(err)
				}
				if _, err := slow.Write(frame(0x82, append(appendString([]byte{0, 1}, "#"), 0))); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				good := home(t, l, "good")
				good.mustSubscribe("#", 0)
				began := time.Now()
				for i := range 200 {
					topic := fmt.Sprint("t/", i)
					if err := b.Home().Publish(topic, make([]byte, c.size), false); err != nil {
						t.Fatal(err)
					}
					if pk := good.heard(); pk.TopicName != topic {
						t.Fatalf("heard %q, want %q", pk.TopicName, topic)
					}
				}
				synctest.Wait()
				if s := b.Stats().Home; s.Slow != 1 || s.Connected != 1 || s.Dropped == 0 || !time.Now().Equal(began) {
					t.Errorf("stats %+v after %v, want one slow client dropped at once", s, time.Since(began))
				}
			})
		})
	}
}

// A client that reads but acknowledges nothing gets no more than it may have
// unacknowledged, and is dropped when too much waits.
func TestUnacknowledged(t *testing.T) {
	inHome(t, HomeLimits{MaxInflight: 4, MaxQueued: 10}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := home5(t, l, hello{clientID: "p", props: []byte{0x21, 0, 3}}) // Receive Maximum 3
		q := home(t, l, "q")
		q.mustSubscribe("t", 1)
		p.mustSubscribe("t", 1)
		for i := range 8 {
			if err := b.Home().Publish("t", fmt.Append(nil, i), false); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 3 {
			if pk := p.heard(); string(pk.Payload) != fmt.Sprint(i) {
				t.Errorf("heard %q, want %d", pk.Payload, i)
			}
		}
		p.quiet()
		p.write(ackPacket(firstPuback, 1, 0, false)...)
		if pk := p.heard(); string(pk.Payload) != "3" {
			t.Errorf("heard %q after an acknowledgement, want 3", pk.Payload)
		}
		p.quiet()
		for range 20 {
			if err := b.Home().Publish("t", []byte("x"), false); err != nil {
				t.Fatal(err)
			}
		}
		for range p.in { // until it has ended
		}
		for range 4 {
			q.heard()
		}
		q.ended()
		synctest.Wait()
		if s := b.Stats().Home; s.Slow != 2 || s.Connected != 0 {
			t.Errorf("stats %+v, want both dropped", s)
		}
	})
}

// An absent client's queue is bounded, too, and keeps what came first.
func TestAbsentQueue(t *testing.T) {
	inHome(t, HomeLimits{MaxQueued: 3}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		p.mustSubscribe("t", 1)
		p.leave()
		for i := range 5 {
			if err := b.Home().Publish("t", fmt.Append(nil, i), false); err != nil {
				t.Fatal(err)
			}
		}
		p = joinHome(t, l.dial(t, "10.0.0.1:1"), kept("p"))
		p.hears("t 0", "t 1", "t 2")
		p.quiet()
		if s := b.Stats().Home; s.Dropped != 2 {
			t.Errorf("%d dropped, want 2", s.Dropped)
		}
	})
}

// More is retained than may wait for a client, and all of it arrives.
func TestManyRetained(t *testing.T) {
	inHome(t, HomeLimits{MaxQueued: 10}, func(t *testing.T, b *Embedded, l *pipeListener) {
		const n = 2000
		for i := range n {
			if err := b.Home().Publish(fmt.Sprint("t/", i), []byte(repeatJSON(100)), true); err != nil {
				t.Fatal(err)
			}
		}
		p := home(t, l, "p")
		p.mustSubscribe("t/#", 1)
		seen := make(map[string]bool)
		for range n {
			pk := p.heard()
			seen[pk.TopicName] = true
			p.acknowledge(pk)
		}
		if p.quiet(); len(seen) != n {
			t.Errorf("%d topics, want %d", len(seen), n)
		}
	})
}

// A message larger than an MQTT 5 client accepts is not sent to it.
func TestClientsMaximum(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := home5(t, l, hello{clientID: "p", props: seconds(0x27, 50)})
		p.mustSubscribe("t", 1)
		for _, size := range []int{42, 43, 10} { // and 8 of header, topic, id and properties
			if err := b.Home().Publish("t", []byte(strings.Repeat("x", size)), false); err != nil {
				t.Fatal(err)
			}
		}
		for _, size := range []int{42, 10} {
			if pk := p.heard(); len(pk.Payload) != size {
				t.Errorf("%d bytes, want %d", len(pk.Payload), size)
			}
		}
		if s := b.Stats().Home; s.Dropped != 1 {
			t.Errorf("%d dropped, want 1", s.Dropped)
		}
	})
}

// The broker stops within its time, whatever the clients do, and what was said
// before reaches those that read. Wills are not for a broker that stops.
func TestHomeShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		b, err := New(homeConfig(l), quiet{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- b.Serve(ctx) }()
		for i := range 20 { // they read CONNACK and no more
			h := kept(fmt.Sprint("stuck", i))
			h.last = &lastWord{topic: "t/will", payload: "x"}
			c := l.dial(t, "10.0.0.1:1")
			defer c.Close()
			for _, p := range [][]byte{h.packet(), frame(0x82, append(appendString([]byte{0, 1}, "#"), 1))} {
				if _, err := c.Write(p); err != nil {
					t.Fatal(err)
				}
				if p[0] == 0x10 {
					_, _ = c.Read(make([]byte, 4))
				}
			}
		}
		good, good5 := home(t, l, "good"), home5(t, l, hello{clientID: "good5"})
		good.mustSubscribe("t/#", 1)
		good5.mustSubscribe("t/#", 1)
		for i := range 30 {
			if err := b.Home().Publish("t/x", fmt.Append(nil, i), false); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Serve took %v to return", took)
		}
		for _, p := range []*homePeer{good, good5} {
			for i := range 30 {
				if pk := p.heard(); string(pk.Payload) != fmt.Sprint(i) {
					t.Fatalf("heard %q, want %d", pk.Payload, i)
				}
			}
		}
		if d := good5.next(firstDisconnect); d.body[0] != 0x8B {
			t.Errorf("DISCONNECT code %#x", d.body[0])
		}
		good.ended()
		good5.ended()
		if err := b.Home().Publish("t", nil, false); !errors.Is(err, ErrShutdown) {
			t.Errorf("Publish after the end: %v", err)
		}
	})
}

// A client that asks for all that is retained again and again, and reads none of
// it, is dropped.
func TestRetainedNotRead(t *testing.T) {
	inHome(t, HomeLimits{MaxRetained: 30}, func(t *testing.T, b *Embedded, l *pipeListener) {
		for i := range 30 {
			if err := b.Home().Publish(fmt.Sprint("t/", i), []byte("x"), true); err != nil {
				t.Fatal(err)
			}
		}
		c := l.dial(t, "10.0.0.1:1")
		defer c.Close()
		data := asUser("admin", "p").packet()
		for i := range byte(8) {
			data = append(data, frame(0x82, append(appendString([]byte{0, i + 1}, "#"), 0))...)
		}
		go func() { _, _ = c.Write(data) }()
		_, _ = c.Read(make([]byte, 4)) // CONNACK, if it was written in time, and nothing after it
		synctest.Wait()
		if s := b.Stats().Home; s.Slow != 1 || s.Connected != 0 {
			t.Errorf("stats %+v, want it dropped", s)
		}
	})
}

// A client that is held back for a minute does not hold up the broker's end.
func TestShutdownWhileThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		cfg := homeConfig(l)
		cfg.Limits.Home = HomeLimits{MessageRate: 1, MessageBurst: 1}
		b, err := New(cfg, quiet{}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- b.Serve(ctx) }()
		p := home(t, l, "p")
		body := []byte{0, 1}
		for i := range 60 {
			body = append(appendString(body, fmt.Sprint("t/", i)), 0)
		}
		p.write(frame(0x82, body)...)
		synctest.Wait()
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("Serve took %v to return", took)
		}
	})
}
