package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
)

// pair is a broker with device A connected in virtual time.
func pair(t *testing.T, limits Limits, h hello) (*Embedded, *pipeListener, *recorder, *Link, *peer) {
	t.Helper()
	l, r := newPipeListener(), newRecorder()
	b := start(t, Config{Listener: l, Limits: limits}, r)
	if h.clientID == "" {
		h.clientID = clientID(macA)
	}
	p := join(t, l.dial(t, "10.0.0.1:1"), h)
	return b, l, r, r.next(t, "connect").link, p
}

func TestTakeover(t *testing.T) {
	for _, version := range []byte{4, 5} {
		synctest.Test(t, func(t *testing.T) {
			b, l, r, first, p := pair(t, Limits{}, hello{version: version})
			// The same device, under another client id.
			q := join(t, l.dial(t, "10.0.0.2:1"), hello{version: version, clientID: "other@@@" + string(macA)})
			if version == 5 {
				if d := p.next(0xE0); d.body[0] != 0x8E {
					t.Errorf("DISCONNECT code %#x, want 0x8e", d.body[0])
				}
			}
			p.ended()
			// In this order.
			e := r.next(t, "disconnected")
			if e.link != first {
				t.Error("the new connection was told to end")
			}
			wantReason(t, e.reason, ErrTakenOver)
			second := r.next(t, "connect").link
			if second == first || second.Device().ID != macA {
				t.Errorf("second link %+v", second.Device())
			}
			wantReason(t, first.Send([]byte("{}")), ErrGone)
			if err := second.Send([]byte("{}")); err != nil {
				t.Error(err)
			}
			q.next(0x30)
			if s := b.Stats(); s.TakenOver != 1 || s.Connected != 1 {
				t.Errorf("stats %+v, want 1 taken over, 1 connected", s)
			}
		})
	}
}

// stuck is a Handler whose receivers block in Receive until released.
type stuck struct {
	*recorder
	release chan struct{}
}

func (s stuck) Connect(l *Link) Receiver {
	return stuckReceiver{s.recorder.Connect(l), s.release}
}

type stuckReceiver struct {
	Receiver
	release chan struct{}
}

func (s stuckReceiver) Receive(p []byte) {
	<-s.release
	s.Receiver.Receive(p)
}

// A receiver that blocks keeps its device's new connections out, in order, and
// nobody else.
func TestTakeoverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		s := stuck{r, make(chan struct{})}
		b := start(t, Config{Listener: l}, s)
		p := join(t, l.dial(t, "10.0.0.1:1"), hello{clientID: clientID(macA)})
		r.next(t, "connect")
		p.write(publish(protocol.SharedUplinkTopic, "stuck")...)

		begin := time.Now()
		refused(t, l.dial(t, "10.0.0.1:2"), hello{clientID: clientID(macA)}, 3)
		if took := time.Since(begin); took != takeoverTimeout {
			t.Errorf("refused after %v, want %v", took, takeoverTimeout)
		}
		join(t, l.dial(t, "10.0.0.1:3"), hello{clientID: clientID(macB)})
		if d := r.next(t, "connect").link.Device(); d.ID != macB {
			t.Errorf("%v connected, want %v", d.ID, macB)
		}

		o := newPeer(t, l.dial(t, "10.0.0.1:4"))
		o.write(hello{clientID: clientID(macA)}.packet()...)
		synctest.Wait()
		q := newPeer(t, l.dial(t, "10.0.0.1:5"))
		q.write(hello{clientID: clientID(macA)}.packet()...)
		o.ended()               // overtaken while it waits, it gives up at once
		time.Sleep(time.Second) // virtual: it waits, and is let in when the first is done
		close(s.release)
		q.next(0x20)
		r.next(t, "receive")
		wantReason(t, r.next(t, "disconnected").reason, ErrTakenOver)
		r.next(t, "connect")
		if s := b.Stats(); s.Refused[RefusedBusy] != 1 || s.Refused[RefusedOvertaken] != 1 {
			t.Errorf("refused %v, want one as busy and one as overtaken", s.Refused)
		}
	})
}

func TestKeepalive(t *testing.T) {
	for seconds, after := range map[uint16]time.Duration{
		10: 15 * time.Second, 240: 6 * time.Minute,
		// Above 43,690 s one and a half times it overflows 16 bits.
		50000: 75000 * time.Second, 65535: 98302*time.Second + 500*time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			b, _, r, _, p := pair(t, Limits{}, hello{keepalive: seconds})
			time.Sleep(after - time.Nanosecond)
			p.ping()
			begin := time.Now()
			p.ended()
			if took := time.Since(begin); took != after {
				t.Errorf("keepalive %d: ended after %v, want %v", seconds, took, after)
			}
			wantReason(t, r.next(t, "disconnected").reason, ErrSilent)
			if b.Stats().Silent != 1 {
				t.Errorf("stats %+v, want 1 silent", b.Stats())
			}
		})
	}
	synctest.Test(t, func(t *testing.T) { // none
		_, _, _, _, p := pair(t, Limits{}, hello{})
		time.Sleep(30 * 24 * time.Hour)
		p.ping()
	})
}

// The device reads nothing. Sending never blocks, the queue is bounded, and
// another device notices nothing.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		b := start(t, Config{Listener: l}, r)
		c := l.dial(t, "10.0.0.1:1")
		if _, err := c.Write(hello{version: 5, clientID: clientID(macA)}.packet()); err != nil {
			t.Fatal(err)
		}
		slow := r.next(t, "connect").link
		synctest.Wait() // a write of the CONNACK hangs in the pipe
		begin := time.Now()
		var err error
		n := 0
		for ; err == nil; n++ {
			err = slow.Send([]byte("{}"))
		}
		// The CONNACK is one of the 64.
		if n != 64 || !errors.Is(err, ErrSlow) {
			t.Errorf("message %d failed with %v, want the 64th with %v", n, err, ErrSlow)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("sending took %v, want no time", took)
		}
		wantReason(t, r.next(t, "disconnected").reason, ErrSlow)
		wantReason(t, slow.Send([]byte("{}")), ErrGone)
		if _, err := c.Write([]byte{0xC0, 0}); err == nil {
			t.Error("the connection is still open")
		}
		p := join(t, l.dial(t, "10.0.0.2:1"), hello{clientID: clientID(macB)})
		p.ping()
		synctest.Wait() // the count follows the receiver
		if s := b.Stats(); s.Slow != 1 || s.Connected != 1 {
			t.Errorf("stats %+v, want 1 slow, 1 connected", s)
		}
	})
}

// One message that cannot be written is enough, after the write timeout.
func TestWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		start(t, Config{Listener: l}, r)
		c := l.dial(t, "10.0.0.1:1")
		if _, err := c.Write(hello{clientID: clientID(macA)}.packet()); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r.next(t, "connect")
		wantReason(t, r.next(t, "disconnected").reason, ErrSlow)
		if took := time.Since(begin); took != 10*time.Second {
			t.Errorf("ended after %v, want 10 s", took)
		}
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, r, link, p := pair(t, Limits{}, hello{version: 5})
		for i := range 60 {
			if err := link.Send(fmt.Append(nil, i)); err != nil {
				t.Fatal(err)
			}
		}
		link.Close("test is over")
		link.Close("twice")
		for range 60 {
			p.next(0x30) // what was queued still arrives
		}
		if d := p.next(0xE0); d.body[0] != 0x98 {
			t.Errorf("DISCONNECT code %#x, want 0x98", d.body[0])
		}
		p.ended()
		e := r.next(t, "disconnected")
		wantReason(t, e.reason, ErrClosed)
		if !strings.Contains(e.reason.Error(), "test is over") {
			t.Errorf("reason %q", e.reason)
		}
	})
}

func TestHandlerRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		r.refuse = true
		start(t, Config{Listener: l}, r)
		p := join(t, l.dial(t, "10.0.0.1:1"), hello{clientID: clientID(macA)})
		p.ended()
	})
}

// Why a connection ended, as the receiver hears it.
func TestReasons(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes []byte // then the peer closes
		want  error
	}{
		{"DISCONNECT", []byte{0xE0, 0}, nil},
		{"DISCONNECT with will", []byte{0xE0, 1, 4}, nil},
		{"closed", nil, ErrLost},
		{"closed inside a packet", []byte{0x30, 9, 0}, ErrLost},
		{"second CONNECT", hello{clientID: clientID(macB)}.packet(), ErrProtocol},
		{"PUBCOMP", []byte{0x70, 2, 0, 1}, ErrProtocol},
		{"reserved type", []byte{0xF0, 0}, ErrProtocol},
		{"PUBLISH with QoS 3", []byte{0x36, 2, 0, 0}, ErrProtocol},
		{"PUBLISH to a wildcard", publish("#", ""), ErrProtocol},
		{"length of five bytes", []byte{0x30, 0xFF, 0xFF, 0xFF, 0xFF, 1}, ErrProtocol},
		// The engine's decoder panics on this one.
		{"SUBSCRIBE without options", []byte{0x82, 6, 0, 1, 0, 0, 1, 'x'}, ErrProtocol},
		{"too large", []byte{0x30, 0x81, 0x80, 4}, ErrTooLarge},
		{"large SUBSCRIBE", []byte{0x82, 0x81, 8}, ErrTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, l, r, _, p := pair(t, Limits{}, hello{version: 5})
				other := join(t, l.dial(t, "10.0.0.2:1"), hello{clientID: clientID(macB)})
				r.next(t, "connect")
				_, _ = p.conn.Write(c.bytes) // the broker may close before it read all
				synctest.Wait()
				p.conn.Close()
				e := r.next(t, "disconnected")
				wantReason(t, e.reason, c.want)
				if bad := errors.Is(c.want, ErrProtocol) || errors.Is(c.want, ErrTooLarge); bad != (b.Stats().Violated == 1) {
					t.Errorf("%d violations counted", b.Stats().Violated)
				}
				other.ping()
			})
		})
	}
}

// A packet as large as the limit arrives, whatever pieces it comes in.
func TestLargestPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, _, r, link, p := pair(t, Limits{}, hello{})
		payload := strings.Repeat("x", 64<<10-2-len(protocol.SharedUplinkTopic))
		whole := publish(protocol.SharedUplinkTopic, payload)
		for len(whole) > 0 {
			n := min(len(whole), 1+len(whole)%1000)
			p.write(whole[:n]...)
			whole = whole[n:]
		}
		if e := r.next(t, "receive"); e.payload != payload {
			t.Errorf("received %d bytes, want %d", len(e.payload), len(payload))
		}
		down := bytes.Repeat([]byte("y"), 64<<10-2-len(protocol.DownlinkTopic(macA)))
		if err := link.Send(down); err != nil {
			t.Error(err)
		}
		if m := p.next(0x30); !bytes.HasSuffix(m.body, down) {
			t.Error("the largest message arrived changed")
		}
		wantReason(t, link.Send(append(down, 'y')), ErrTooLarge)
		p.ping()
	})
}

// When the context ends every device hears of it, and neither a peer that says
// nothing nor one that reads nothing holds Serve up.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		b, err := New(Config{Listener: l}, r, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Serve(ctx) }()
		good := join(t, l.dial(t, "10.0.0.1:1"), hello{version: 5, clientID: clientID(macA)})
		link := r.next(t, "connect").link
		deaf := l.dial(t, "10.0.0.1:2")
		if _, err := deaf.Write(hello{clientID: clientID(macB)}.packet()); err != nil {
			t.Fatal(err)
		}
		r.next(t, "connect")
		mute := l.dial(t, "10.0.0.1:3")
		half := l.dial(t, "10.0.0.1:4")
		if _, err := half.Write([]byte{0x10, 100, 0}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := link.Send([]byte("goodbye")); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		cancel()
		good.next(0x30)
		if d := good.next(0xE0); d.body[0] != 0x8B {
			t.Errorf("DISCONNECT code %#x, want 0x8b", d.body[0])
		}
		good.ended()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(begin); took > time.Second {
			t.Errorf("Serve took %v, want at most 1 s", took)
		}
		for range 2 {
			wantReason(t, r.next(t, "disconnected").reason, ErrShutdown)
		}
		for _, c := range []net.Conn{deaf, mute, half} {
			if _, err := c.Write([]byte{0}); err == nil {
				t.Error("a connection is still open")
			}
			c.Close()
		}
		if s := b.Stats(); s.Connected != 0 || s.Pending != 0 || s.Refused[RefusedShutdown] != 2 {
			t.Errorf("stats %+v, want nobody connected, 2 refused by the shutdown", s)
		}
		if err := b.Serve(t.Context()); err == nil {
			t.Error("Serve could be called twice")
		}
	})
}

// A listener that somebody else closes is an error, not a silent stop.
func TestListenerFails(t *testing.T) {
	l := newPipeListener()
	b, err := New(Config{Listener: l}, newRecorder(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	wantReason(t, b.Serve(t.Context()), net.ErrClosed)
}

// A failing accept is retried: descriptors run out and come back.
func TestAcceptRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		start(t, Config{Listener: &flakyListener{pipeListener: l, left: 10}}, r)
		join(t, l.dial(t, "10.0.0.1:1"), hello{clientID: clientID(macA)})
	})
}

type flakyListener struct {
	*pipeListener
	left int
}

func (f *flakyListener) Accept() (net.Conn, error) {
	if f.left--; f.left >= 0 {
		return nil, syscall.EMFILE
	}
	return f.pipeListener.Accept()
}

func TestNewErrors(t *testing.T) {
	b, err := New(Config{Listen: "127.0.0.1:0"}, newRecorder(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	addr := b.Addr().String()
	if b.TLSAddr() != nil {
		t.Errorf("TLS address %v without a TLS listener", b.TLSAddr())
	}
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "set Listen"},
		{Config{TLSListen: ":0"}, "set CertificateFile"},
		{Config{TLSListen: ":0", CertificateFile: "/nonexistent.pem", KeyFile: "/nonexistent.key"}, "no such file"},
		{Config{Listen: addr}, "address already in use"},
		{Config{Listen: ":0", Limits: Limits{MaxQueued: -1}}, "MaxQueued is negative"},
		{Config{Listen: ":0", Limits: Limits{MaxConnect: 1 << 20}}, "MaxConnect"},
	} {
		_, err := New(c.cfg, newRecorder(), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v, want an error with %q", c.cfg, err, c.want)
		}
		if c.cfg.Listen == addr {
			wantReason(t, err, syscall.EADDRINUSE)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	again, err := New(Config{Listen: addr}, newRecorder(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	again.Close()
}
