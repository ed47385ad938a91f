package simnet

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// QueueLength is how many datagrams wait in a socket for its reader. More are
// dropped and counted in [Stats], as a kernel does when its buffer is full.
const QueueLength = 4096

// maxDatagram is the largest UDP payload over IPv4, in bytes.
const maxDatagram = 65507

type datagram struct {
	from netip.AddrPort
	data []byte
}

// A socket is what both kinds of UDP socket have. Its fields are guarded by
// the network's mutex.
type socket struct {
	network  *Network
	local    netip.AddrPort
	queue    []datagram
	changed  *sync.Cond // queue, closed or deadline
	closed   bool
	deadline deadline
}

// A udpEndpoint is a socket as datagrams find it.
type udpEndpoint interface {
	base() *socket
	takes(from netip.AddrPort) bool // connected sockets take from one address
	inbound() *link                 // nil if the way is free of impairments
}

func (s *socket) base() *socket { return s }

// A PacketConn is a UDP socket that is not connected, a server's. It has the
// methods of [net.UDPConn] that such servers use.
type PacketConn struct{ socket }

func (*PacketConn) takes(netip.AddrPort) bool { return true }
func (*PacketConn) inbound() *link            { return nil }

// ListenUDP opens a socket at addr; port 0 chooses one. The address must be
// that of a host, not the unspecified one. It fails with [ErrAddress],
// [ErrAddrInUse] or [ErrNoPort].
func (n *Network) ListenUDP(addr netip.AddrPort) (*PacketConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host, err := checkHost(addr.Addr())
	if err != nil {
		return nil, err
	}
	local := netip.AddrPortFrom(host, addr.Port())
	if addr.Port() == 0 {
		if local, err = n.freePort(host, n.udpTaken); err != nil {
			return nil, err
		}
	}
	if n.udpTaken(local) {
		return nil, fmt.Errorf("%w: udp %v", ErrAddrInUse, local)
	}
	c := &PacketConn{socket{network: n, local: local, changed: sync.NewCond(&n.mu)}}
	n.udp[local] = c
	return c, nil
}

func (n *Network) udpTaken(a netip.AddrPort) bool { return n.udp[a] != nil }

// ReadFromUDPAddrPort waits for a datagram and copies it to b; what does not
// fit is lost.
func (c *PacketConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) { return c.read(b) }

// WriteToUDPAddrPort sends a datagram. It never waits, and a datagram that
// does not arrive is no error.
func (c *PacketConn) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := c.checkWrite(b); err != nil {
		return 0, err
	}
	n.stats.Sent++
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	end := n.udp[to]
	if end == nil {
		n.stats.Unreachable++
		return len(b), nil
	}
	n.send(b, c.local, to, end.inbound())
	return len(b), nil
}

// A UDPConn is a connected UDP socket, a device's, and a [net.Conn]. It takes
// datagrams only from the address it is connected to.
type UDPConn struct {
	socket
	remote   netip.AddrPort
	up, down *link
}

func (c *UDPConn) takes(from netip.AddrPort) bool { return from == c.remote }
func (c *UDPConn) inbound() *link                 { return c.down }

// DialUDP opens a socket at local, on a port the network chooses, that is
// connected to remote. What it sends passes up, what it receives passes down.
// Nobody need be at remote. It fails with [ErrAddress] or [ErrNoPort].
func (n *Network) DialUDP(local netip.Addr, remote netip.AddrPort, up, down Path) (*UDPConn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	host, err := checkHost(local)
	if err != nil {
		return nil, err
	}
	to, err := checkHost(remote.Addr())
	if err != nil {
		return nil, err
	}
	addr, err := n.freePort(host, n.udpTaken)
	if err != nil {
		return nil, err
	}
	c := &UDPConn{socket: socket{network: n, local: addr, changed: sync.NewCond(&n.mu)},
		remote: netip.AddrPortFrom(to, remote.Port())}
	c.up, c.down = n.newLinks(host, up, down)
	n.udp[addr] = c
	return c, nil
}

// SetPaths replaces what happens to datagrams sent from now on.
func (c *UDPConn) SetPaths(up, down Path) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.up.path, c.down.path = up, down
}

// Rebind does what a NAT does that has forgotten a mapping: from now on
// datagrams leave from a new port, and those sent to the old one, even if
// already on their way, are lost. It does nothing on a closed socket.
func (c *UDPConn) Rebind() {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return
	}
	addr, err := n.freePort(c.local.Addr(), n.udpTaken) // finds another: the old one is still taken
	if err != nil {
		return // 16,384 sockets at one address: the mapping stays
	}
	delete(n.udp, c.local)
	c.local = addr
	n.udp[addr] = c
}

// Read waits for a datagram and copies it to b; what does not fit is lost.
func (c *UDPConn) Read(b []byte) (int, error) {
	n, _, err := c.read(b)
	return n, err
}

// Write sends a datagram. It never waits, and a datagram that does not arrive
// is no error.
func (c *UDPConn) Write(b []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := c.checkWrite(b); err != nil {
		return 0, err
	}
	n.stats.Sent++
	n.send(b, c.local, c.remote, c.up)
	return len(b), nil
}

// RemoteAddr returns the address the socket is connected to, a [*net.UDPAddr].
func (c *UDPConn) RemoteAddr() net.Addr { return net.UDPAddrFromAddrPort(c.remote) }

// SetDeadline is SetReadDeadline: writes never wait.
func (c *UDPConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes never wait.
func (c *UDPConn) SetWriteDeadline(time.Time) error { return nil }

// send puts a copy of b on its way over l. The caller holds mu.
func (n *Network) send(b []byte, from, to netip.AddrPort, l *link) {
	d := datagram{from, append([]byte(nil), b...)}
	deliver := func() { n.deliver(d, to) }
	var p passage
	if l != nil {
		p = l.pass()
	}
	if p.lost {
		n.stats.Lost++
		return
	}
	if p.heldBack {
		n.stats.HeldBack++
		p.first += l.path.ReorderBy
	}
	n.after(p.first, deliver)
	if p.duplicated {
		n.stats.Duplicated++
		n.after(p.second, deliver)
	}
	n.run()
}

// deliver puts d into the queue of whoever is at to by now. The caller holds mu.
func (n *Network) deliver(d datagram, to netip.AddrPort) {
	end := n.udp[to]
	if end == nil || !end.takes(d.from) {
		n.stats.Unreachable++
		return
	}
	s := end.base()
	if len(s.queue) == QueueLength {
		n.stats.Overflowed++
		return
	}
	n.stats.Delivered++
	s.queue = append(s.queue, d)
	s.changed.Signal()
}

func (s *socket) read(b []byte) (int, netip.AddrPort, error) {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	for {
		switch {
		case s.closed:
			return 0, netip.AddrPort{}, s.fault("read", net.ErrClosed)
		case s.deadline.expired:
			return 0, netip.AddrPort{}, s.fault("read", os.ErrDeadlineExceeded)
		case len(s.queue) > 0:
			d := s.queue[0]
			s.queue[0] = datagram{}
			s.queue = s.queue[1:]
			return copy(b, d.data), d.from, nil
		}
		s.changed.Wait()
	}
}

func (s *socket) checkWrite(b []byte) error {
	if s.closed {
		return s.fault("write", net.ErrClosed)
	}
	if len(b) > maxDatagram {
		return s.fault("write", fmt.Errorf("datagram of %d bytes, at most %d fit", len(b), maxDatagram))
	}
	return nil
}

func (s *socket) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "udp", Addr: net.UDPAddrFromAddrPort(s.local), Err: err}
}

// LocalAddr returns the address datagrams leave from, a [*net.UDPAddr].
func (s *socket) LocalAddr() net.Addr {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	return net.UDPAddrFromAddrPort(s.local)
}

// SetReadDeadline makes reads fail from t on with [os.ErrDeadlineExceeded],
// those under way included. The zero time takes the deadline away.
func (s *socket) SetReadDeadline(t time.Time) error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.closed {
		return s.fault("set", net.ErrClosed)
	}
	s.deadline.set(t, s.changed)
	return nil
}

// Close frees the address, throws away what has not been read and makes all
// calls fail with [net.ErrClosed], those under way included.
func (s *socket) Close() error {
	s.network.mu.Lock()
	defer s.network.mu.Unlock()
	if s.closed {
		return s.fault("close", net.ErrClosed)
	}
	s.closed = true
	s.queue = nil
	s.deadline.set(time.Time{}, s.changed)
	delete(s.network.udp, s.local)
	s.changed.Broadcast()
	return nil
}
