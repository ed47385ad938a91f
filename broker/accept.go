package broker

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// maxAcceptDelay bounds the pause after a failed accept. The usual cause is a
// lack of file descriptors, which only time heals.
const maxAcceptDelay = time.Second

// accept takes connections from l until it is closed. If that was not because
// ctx ended, it cancels with the error.
func (b *Embedded) accept(ctx context.Context, l net.Listener, tc *tls.Config, cancel context.CancelCauseFunc) {
	var delay time.Duration
	for {
		raw, err := l.Accept()
		switch {
		case err == nil:
			delay = 0
			b.admit(raw, tc)
		case ctx.Err() != nil:
			return
		case errors.Is(err, net.ErrClosed):
			cancel(fmt.Errorf("broker: listener %v closed by another: %w", l.Addr(), err))
			return
		default:
			delay = min(max(2*delay, 5*time.Millisecond), maxAcceptDelay)
			b.log.Warn("accept failed", "listener", l.Addr().String(), "error", err, "retry_ms", delay.Milliseconds())
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return
			}
		}
	}
}

// admit applies the limits that need no byte of the peer's, and starts the
// connection's goroutine. That goroutine owns the connection until it is closed.
func (b *Embedded) admit(raw net.Conn, tc *tls.Config) {
	b.stats.accepted.Add(1)
	remote := addrPort(raw.RemoteAddr()).Addr()
	if !b.rates.allow(remote, time.Now()) {
		b.refuse(raw.RemoteAddr(), "", &refusal{why: RefusedRate,
			err: fmt.Errorf("over %v connections a second from this address", b.limits.ConnectRate)})
		_ = raw.Close()
		return
	}
	if t, ok := raw.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true) // Nagle's wait for an ACK would cost 40 ms a message
	}
	c := newConn(raw, tc, b)
	oldest, ok := b.track(c)
	if !ok {
		_ = raw.Close() // shutting down
		return
	}
	if oldest != nil {
		oldest.fail(errEvicted)
	}
	b.wg.Go(func() { b.serve(c) })
}

// errEvicted ends the oldest connection that has not said CONNECT.
var errEvicted = errors.New("too many connections without CONNECT; the oldest is dropped")

// track adds a connection to those without a CONNECT. It returns the one to drop
// if there are too many.
func (b *Embedded) track(c *conn) (oldest *conn, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closing {
		return nil, false
	}
	if b.pending.Len() >= b.limits.MaxPending {
		oldest = b.pending.Remove(b.pending.Front()).(*conn)
		oldest.pending = nil
	}
	b.conns[c] = struct{}{}
	c.pending = b.pending.PushBack(c)
	return oldest, true
}

// settle takes a connection off those without a CONNECT.
func (b *Embedded) settle(c *conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.pending != nil {
		b.pending.Remove(c.pending)
		c.pending = nil
	}
}

// serve owns one connection from accept until it is closed.
func (b *Embedded) serve(c *conn) {
	switch s, home := b.enter(c); {
	case home != nil:
		home.run()
	case s != nil:
		b.stats.connected.Add(1)
		s.run()
		b.stats.connected.Add(-1)
		b.leave(s.link)
	}
	c.shut(nil)
	c.flushed.Wait()
	b.mu.Lock()
	delete(b.conns, c)
	b.mu.Unlock()
}

// enter reads and judges the CONNECT packet and gives the device its seat or the
// home client its session. It returns nil for both if the connection is not let
// in, after saying so to the peer.
// It is apart from serve so that nothing of the packet stays on the stack for
// the months a device is connected.
func (b *Embedded) enter(c *conn) (s *session, home *homeClient) {
	pk, r := readConnect(c.net, c.tls, b.limits.MaxConnect)
	b.settle(c)
	if r != nil {
		r = evicted(c, r)
	} else if u := b.home.user(pk.Connect.Username); u != nil {
		// This is the one place where the two classes part. Whoever names a user
		// is that user's client or nobody; everybody else is a device or nobody.
		if home, r = b.enterHome(c, u, &pk); r == nil {
			return nil, home
		}
	} else if s, r = b.enterDevice(c, pk); r == nil {
		return s, nil
	}
	b.refuse(c.raw.RemoteAddr(), pk.Connect.ClientIdentifier, r)
	if r.v5 != 0 {
		_ = c.enqueue(r.connack(pk.ProtocolVersion)) // the peer may be gone, which is as well
	}
	return nil, nil
}

// enterHome judges a home client's CONNECT packet. A password that is short enough
// for a lamp, and not encrypted, is none for the whole Internet.
func (b *Embedded) enterHome(c *conn, u *User, pk *packets.Packet) (*homeClient, *refusal) {
	if remote := addrPort(c.raw.RemoteAddr()).Addr(); !c.tls && remote.IsValid() && !isLocal(remote) {
		return nil, &refusal{why: RefusedPublic, v3: 5, v5: 0x87,
			err: errors.New("home clients from public addresses need TLS; use the TLS port")}
	}
	return b.home.admit(c, u, pk)
}

// enterDevice judges a device's CONNECT packet and gives the device its seat.
func (b *Embedded) enterDevice(c *conn, pk packets.Packet) (*session, *refusal) {
	con, r := judge(pk, b.key, addrPort(c.raw.RemoteAddr()))
	if r != nil {
		return nil, r
	}
	l := newLink(b, c, con)
	if r := b.sit(l); r != nil {
		return nil, r
	}
	l.session = newSession(l, con)
	return l.session, nil
}

// evicted corrects the refusal of a connection that we ended ourselves.
func evicted(c *conn, r *refusal) *refusal {
	switch cause := c.because(); {
	case errors.Is(cause, errEvicted):
		return &refusal{why: RefusedPending, err: cause}
	case errors.Is(cause, ErrShutdown):
		return &refusal{why: RefusedShutdown, err: cause}
	}
	return r
}

// sit makes the link its device's newest, ends the previous one and waits until
// that one's receiver has been told.
func (b *Embedded) sit(l *Link) *refusal {
	b.mu.Lock()
	s := b.seats[l.device.ID]
	if s == nil {
		if len(b.seats) >= b.limits.MaxDevices {
			b.mu.Unlock()
			return &refusal{why: RefusedFull, v3: 3, v5: 0x89,
				err: fmt.Errorf("%d devices are connected, the limit", b.limits.MaxDevices)}
		}
		s = &seat{owner: make(chan struct{}, 1)}
		b.seats[l.device.ID] = s
	}
	s.users++
	old := s.current
	s.current = l
	overtaken := make(chan struct{})
	l.overtaken = overtaken
	if old != nil && old.overtaken != nil {
		close(old.overtaken)
	}
	b.mu.Unlock()

	if old != nil {
		old.conn.shut(ErrTakenOver)
	}
	var r *refusal
	select {
	case s.owner <- struct{}{}:
	case <-overtaken:
		r = &refusal{why: RefusedOvertaken, err: errors.New("a newer connection of the device came while this one waited")}
	case <-time.After(takeoverTimeout):
		r = &refusal{why: RefusedBusy, v3: 3, v5: 0x89,
			err: fmt.Errorf("the device's previous connection did not end in %v", takeoverTimeout)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.overtaken = nil; r != nil {
		b.standLocked(l)
	}
	return r
}

// leave gives the seat up.
func (b *Embedded) leave(l *Link) {
	b.mu.Lock()
	defer b.mu.Unlock()
	<-b.standLocked(l).owner // never blocks: it holds our token
}

// standLocked takes the link off its seat, and removes the seat after the last.
func (b *Embedded) standLocked(l *Link) *seat {
	s := b.seats[l.device.ID]
	if s.current == l {
		s.current = nil
	}
	if s.users--; s.users == 0 {
		delete(b.seats, l.device.ID)
	}
	return s
}

// refuse counts a connection that is not let in and says why, in at most a few
// lines a second: a port scan shall not fill the disk.
func (b *Embedded) refuse(remote net.Addr, clientID string, r *refusal) {
	b.stats.refused(r.why)
	if !b.refusals.Allow() {
		b.stats.unlogged.Add(1)
		return
	}
	attrs := []any{"remote", remote.String(), "reason", string(r.why), "error", r.err}
	if clientID != "" {
		attrs = append(attrs, "client_id", clientID)
	}
	if n := b.stats.unlogged.Swap(0); n > 0 {
		attrs = append(attrs, "others_not_logged", n)
	}
	b.log.Warn("connection refused", attrs...)
}
