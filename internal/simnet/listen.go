package simnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Backlog is how many connections wait to be accepted; more are refused. It is
// the default of Linux, net.core.somaxconn.
const Backlog = 4096

// A listener's fields are guarded by the network's mutex.
type listener struct {
	network *Network
	addr    netip.AddrPort
	changed *sync.Cond
	backlog []*TCPConn
	closed  bool
}

// ListenTCP opens a listener at addr; port 0 chooses one. The address must be
// that of a host, not the unspecified one. It fails with [ErrAddress],
// [ErrAddrInUse] or [ErrNoPort].
func (n *Network) ListenTCP(addr netip.AddrPort) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host, err := checkHost(addr.Addr())
	if err != nil {
		return nil, err
	}
	local := netip.AddrPortFrom(host, addr.Port())
	if addr.Port() == 0 {
		if local, err = n.freePort(host, n.tcpTaken); err != nil {
			return nil, err
		}
	}
	if n.listeners[local] != nil {
		return nil, fmt.Errorf("%w: tcp %v", ErrAddrInUse, local)
	}
	l := &listener{network: n, addr: local, changed: sync.NewCond(&n.mu)}
	n.listeners[local] = l
	return l, nil
}

func (n *Network) tcpTaken(a netip.AddrPort) bool { return n.streams[a] || n.listeners[a] != nil }

// Accept waits for a connection. After Close it returns [net.ErrClosed].
func (l *listener) Accept() (net.Conn, error) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.changed.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	c := l.backlog[0]
	l.backlog[0] = nil
	l.backlog = l.backlog[1:]
	return c, nil
}

// Addr returns the address, a [*net.TCPAddr].
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.addr) }

// Close frees the address and resets the connections nobody has accepted.
func (l *listener) Close() error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.closed = true
	delete(n.listeners, l.addr)
	for _, c := range l.backlog {
		c.reset()
		c.fail(syscall.ECONNRESET)
	}
	l.backlog = nil
	l.changed.Broadcast()
	n.run()
	return nil
}

// DialTCP connects local, on a port the network chooses, to a listener at
// remote. It takes one round trip, and a lost first segment costs as much as
// any other. What the dialing end sends passes up, what it receives passes
// down. It fails with an error wrapping [syscall.ECONNREFUSED] if nobody
// listens, with the error of ctx if that ends first, or with [ErrAddress] or
// [ErrNoPort]. Once it has returned, ctx has no bearing on the connection.
func (n *Network) DialTCP(ctx context.Context, local netip.Addr, remote netip.AddrPort, up, down Path) (*TCPConn, error) {
	c, settled, err := n.connect(local, remote, up, down)
	if err != nil {
		return nil, err
	}
	select {
	case err = <-settled:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: c.RemoteAddr(), Err: err}
	}
	return c, nil
}

// connect makes the dialing end and puts the request on its way. Exactly one
// value is sent on settled, which has room for it.
func (n *Network) connect(local netip.Addr, remote netip.AddrPort, up, down Path) (*TCPConn, <-chan error, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host, err := checkHost(local)
	if err != nil {
		return nil, nil, err
	}
	to, err := checkHost(remote.Addr())
	if err != nil {
		return nil, nil, err
	}
	from, err := n.freePort(host, n.tcpTaken)
	if err != nil {
		return nil, nil, err
	}
	n.streams[from] = true
	there := netip.AddrPortFrom(to, remote.Port())
	a, b := n.newStream(from, there), n.newStream(there, from)
	a.peer, b.peer, a.dialed = b, a, true
	a.out, a.in = n.newLinks(host, up, down)
	b.out, b.in = a.in, a.out

	settled := make(chan error, 1)
	a.handshake(0, settled, func() {
		answer := b.enqueue()
		b.handshake(0, settled, func() { settled <- answer })
	})
	n.run()
	return a, settled, nil
}

func (n *Network) newStream(local, remote netip.AddrPort) *TCPConn {
	return &TCPConn{network: n, local: local, remote: remote,
		changed: sync.NewCond(&n.mu), early: make(map[uint64]segment)}
}

// handshake calls arrived when an empty segment has crossed, outside the
// numbering of the stream, unless the end that dialed has given up.
func (c *TCPConn) handshake(losses int, settled chan<- error, arrived func()) {
	if c.dialed && c.closed || c.peer.dialed && c.peer.closed {
		return
	}
	p := c.out.pass()
	switch {
	case !p.lost:
		c.network.after(p.first, arrived)
	case losses == maxLosses:
		settled <- syscall.ETIMEDOUT
	default:
		c.network.after(Retransmission, func() { c.handshake(losses+1, settled, arrived) })
	}
}

// enqueue offers the accepting end to its listener.
func (c *TCPConn) enqueue() error {
	l := c.network.listeners[c.local]
	if l == nil || len(l.backlog) == Backlog {
		c.closed = true // answers anything that comes with a reset
		return syscall.ECONNREFUSED
	}
	l.backlog = append(l.backlog, c)
	l.changed.Signal()
	return nil
}
