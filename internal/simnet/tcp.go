package simnet

import (
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

const (
	// Window is how many bytes a stream takes in one direction that its reader
	// has not read; a writer waits for room. The default of small devices and
	// of the same order as a kernel's.
	Window = 64 << 10
	// Retransmission is how long a lost segment of a stream waits to be sent
	// again: the shortest retransmission timeout of Linux, TCP_RTO_MIN.
	Retransmission = 200 * time.Millisecond
	// maxSegment is how many bytes of a stream are delayed or lost together:
	// what an Ethernet frame holds.
	maxSegment = 1460
	// maxLosses is how often a segment is sent again before the connection is
	// given up, some 15 minutes, as Linux does with tcp_retries2 = 15.
	maxLosses = 924 * int(time.Second/Retransmission)
)

// A segment is a piece of a stream, or its end.
type segment struct {
	data []byte
	end  bool
}

// A TCPConn is one end of a stream. Calls may be made concurrently; concurrent
// writes are not interleaved.
type TCPConn struct {
	network       *Network
	local, remote netip.AddrPort
	peer          *TCPConn
	out, in       *link // to the peer and from it

	// Guarded by the network's mutex, like the rest.
	changed   *sync.Cond
	next      uint64 // number of the next segment to be received
	early     map[uint64]segment
	unread    []byte
	ended     bool   // everything the peer sent before its Close has arrived
	sent      uint64 // segments
	flight    int    // bytes sent which the peer has not read
	writing   bool   // a Write is under way; others wait
	closed    bool
	broken    error // the connection was reset or given up
	dialed    bool  // this end made the connection, and holds its port
	readLimit deadline
	sendLimit deadline
}

// SetPaths replaces what happens from now on: up is the direction from the end
// that dialed to the one that accepted, whichever end this is.
func (c *TCPConn) SetPaths(up, down Path) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if !c.dialed {
		up, down = down, up
	}
	c.out.path, c.in.path = up, down
}

// Read waits for bytes and copies as many to b as there are. After the peer's
// Close, and everything sent before it, it returns [io.EOF].
func (c *TCPConn) Read(b []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fault("read", net.ErrClosed)
		case c.readLimit.expired:
			return 0, c.fault("read", os.ErrDeadlineExceeded)
		case len(b) == 0:
			return 0, nil
		case len(c.unread) > 0:
			k := copy(b, c.unread)
			c.unread = c.unread[k:]
			c.peer.flight -= k
			c.peer.changed.Broadcast()
			return k, nil
		case c.ended:
			return 0, io.EOF
		case c.broken != nil:
			return 0, c.fault("read", c.broken)
		}
		c.changed.Wait()
	}
}

// Write sends b, and waits while the peer leaves more than [Window] bytes
// unread.
func (c *TCPConn) Write(b []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	// A second mutex would do, but a goroutine waiting for a mutex does not
	// let time pass in a synctest bubble.
	for c.writing && c.writeFault() == nil {
		c.changed.Wait()
	}
	if err := c.writeFault(); err != nil {
		return 0, c.fault("write", err)
	}
	c.writing = true
	defer func() {
		c.writing = false
		c.changed.Broadcast()
	}()
	written := 0
	for written < len(b) {
		for c.flight >= Window && c.writeFault() == nil {
			c.changed.Wait()
		}
		if err := c.writeFault(); err != nil {
			return written, c.fault("write", err)
		}
		k := min(len(b)-written, maxSegment, Window-c.flight)
		c.flight += k
		c.send(segment{data: append([]byte(nil), b[written:written+k]...)})
		n.run()
		written += k
	}
	return written, nil
}

// writeFault is why nothing can be written now, or nil.
func (c *TCPConn) writeFault() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.sendLimit.expired:
		return os.ErrDeadlineExceeded
	}
	return c.broken
}

// send numbers a segment and puts it on its way.
func (c *TCPConn) send(s segment) {
	number := c.sent
	c.sent++
	c.transmit(number, s, 0)
}

// transmit tries a segment until it arrives. Segments travel independently;
// the receiver puts them in order.
func (c *TCPConn) transmit(number uint64, s segment, losses int) {
	if c.broken != nil || c.closed && c.peer.closed {
		return
	}
	p := c.out.pass()
	if !p.lost {
		c.network.after(p.first, func() { c.peer.receive(number, s) })
		return
	}
	if losses == maxLosses {
		c.fail(syscall.ETIMEDOUT)
		c.peer.fail(syscall.ETIMEDOUT)
		return
	}
	c.network.after(Retransmission, func() { c.transmit(number, s, losses+1) })
}

// receive takes a segment that has arrived.
func (c *TCPConn) receive(number uint64, s segment) {
	if c.broken != nil {
		return
	}
	if c.closed {
		if !s.end {
			c.reset() // as a kernel answers data nobody will read
		}
		return
	}
	c.early[number] = s
	for {
		s, ok := c.early[c.next]
		if !ok {
			break
		}
		delete(c.early, c.next)
		c.next++
		c.unread = append(c.unread, s.data...)
		c.ended = c.ended || s.end
	}
	c.changed.Broadcast()
}

// reset tells the peer that the connection is gone.
func (c *TCPConn) reset() {
	c.network.after(c.out.path.Delay, func() { c.peer.fail(syscall.ECONNRESET) })
}

// fail breaks this end of the connection. What has arrived can still be read.
func (c *TCPConn) fail(err error) {
	if c.broken == nil {
		c.broken = err
		c.changed.Broadcast()
	}
}

// Close ends the stream: the peer reads what was written before and then
// [io.EOF]. With bytes unread at this end the peer's connection is reset
// instead, as RFC 1122 §4.2.2.13 asks. Calls under way fail with
// [net.ErrClosed].
func (c *TCPConn) Close() error {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.fault("close", net.ErrClosed)
	}
	c.close()
	n.run()
	return nil
}

func (c *TCPConn) close() {
	c.closed = true
	c.readLimit.set(time.Time{}, c.changed)
	c.sendLimit.set(time.Time{}, c.changed)
	if c.dialed {
		delete(c.network.streams, c.local)
	}
	if c.broken == nil {
		if len(c.unread) > 0 {
			c.reset()
		} else {
			c.send(segment{end: true})
		}
	}
	c.unread, c.early = nil, nil
	c.changed.Broadcast()
}

// LocalAddr returns the address of this end, a [*net.TCPAddr].
func (c *TCPConn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr returns the address of the other end, a [*net.TCPAddr].
func (c *TCPConn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline sets both deadlines.
func (c *TCPConn) SetDeadline(t time.Time) error {
	return c.setDeadlines(t, &c.readLimit, &c.sendLimit)
}

// SetReadDeadline makes reads fail from t on with [os.ErrDeadlineExceeded],
// those under way included. The zero time takes the deadline away.
func (c *TCPConn) SetReadDeadline(t time.Time) error { return c.setDeadlines(t, &c.readLimit) }

// SetWriteDeadline does for writes what SetReadDeadline does for reads.
func (c *TCPConn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(t, &c.sendLimit) }

func (c *TCPConn) setDeadlines(t time.Time, limits ...*deadline) error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.closed {
		return c.fault("set", net.ErrClosed)
	}
	for _, d := range limits {
		d.set(t, c.changed)
	}
	return nil
}

func (c *TCPConn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}
