package broker

import (
	"container/list"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// lingerTimeout is how long a connection that is being closed may still take to
// write what was queued.
const lingerTimeout = 500 * time.Millisecond

// maxLastWords is how many bytes of a home client's session are written, at most,
// when the broker shuts down.
const maxLastWords = 1 << 20

// maxKeptBuffer is the capacity in bytes above which a buffer is not used again.
const maxKeptBuffer = 16 << 10

// A conn is an accepted connection. Its owner's goroutine reads from net; what
// is written goes to a bounded queue and never blocks. The engine writes while it
// holds a lock of its client, and whoever calls [Link.Send] is not to wait for a
// full TCP window.
//
// The queue is emptied by flush, a goroutine that lives only while there is
// something to write, so an idle connection costs none. It ends when the queue
// is empty or a write fails, which writeTimeout and lingerTimeout bound; the
// connection's owner waits for it.
type conn struct {
	net  net.Conn   // what to read from, a *tls.Conn if tls
	raw  net.Conn   // the transport below; closing it interrupts everything
	pool *sync.Pool // of *buffer

	limit        int // packets
	writeTimeout time.Duration

	pending *list.Element // in Embedded.pending; guarded by Embedded.mu

	mu       sync.Mutex
	out      *buffer     // nil if empty
	queued   int         // packets in out and in the flusher's hands
	home     *homeClient // has more to write, from its session; nil for a device
	flushing bool
	closing  bool
	v5       bool  // the peer was let in, and understands a DISCONNECT
	tls      bool  // never changes
	cause    error // why it is closing; nil if the reader knows
	flushed  sync.WaitGroup
}

// A buffer holds encoded packets, and is used again.
type buffer struct {
	bytes []byte
	count int // packets
}

// release gives the buffer back to its pool, unless it has grown large.
func (b *buffer) release(pool *sync.Pool) {
	if cap(b.bytes) <= maxKeptBuffer {
		b.bytes, b.count = b.bytes[:0], 0
		pool.Put(b)
	}
}

func newConn(raw net.Conn, tc *tls.Config, b *Embedded) *conn {
	c := &conn{net: raw, raw: raw, pool: &b.buffers, limit: b.limits.MaxQueued, writeTimeout: b.limits.WriteTimeout}
	if tc != nil {
		c.net, c.tls = tls.Server(raw, tc), true
	}
	// An error here would be one of every later call too.
	_ = raw.SetDeadline(time.Now().Add(b.limits.ConnectTimeout))
	return c
}

// enqueue queues the parts of one packet. It wraps ErrGone or ErrSlow.
func (c *conn) enqueue(parts ...[]byte) error {
	c.mu.Lock()
	if c.closing {
		c.mu.Unlock()
		return ErrGone
	}
	if c.queued >= c.limit {
		c.mu.Unlock()
		err := fmt.Errorf("%w: %d messages wait", ErrSlow, c.limit)
		c.fail(err)
		return err
	}
	c.appendLocked(parts...)
	c.startLocked()
	c.mu.Unlock()
	return nil
}

func (c *conn) appendLocked(parts ...[]byte) {
	if c.out == nil {
		c.out = c.pool.Get().(*buffer)
	}
	for _, p := range parts {
		c.out.bytes = append(c.out.bytes, p...)
	}
	c.out.count++
	c.queued++
}

// attend makes the connection that of a home client: it writes what the client's
// session has to say.
func (c *conn) attend(h *homeClient) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.home = h
	c.limit = maxHomeAnswers
	if !c.closing {
		c.startLocked()
	}
}

// wake has the flusher look for what the home client's session has to say.
func (c *conn) wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closing {
		c.startLocked()
	}
}

// startLocked starts the flusher unless it runs.
func (c *conn) startLocked() {
	if !c.flushing {
		c.flushing = true
		c.flushed.Add(1)
		go c.flush()
	}
}

// flush writes what is queued until nothing is, then closes the connection if
// that was asked for.
func (c *conn) flush() {
	defer c.flushed.Done()
	for {
		c.mu.Lock()
		out := c.out
		c.out = nil
		if c.home != nil && !c.closing {
			out = c.home.session.fill(c.home, out, maxKeptBuffer)
		}
		if out == nil {
			c.flushing = false
			closing := c.closing
			c.mu.Unlock()
			if closing {
				_ = c.net.Close()
			}
			return
		}
		timeout := c.writeTimeout
		if c.closing {
			timeout = lingerTimeout
		}
		_ = c.net.SetWriteDeadline(time.Now().Add(timeout))
		c.mu.Unlock()

		_, err := c.net.Write(out.bytes)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = fmt.Errorf("%w: a write took over %v", ErrSlow, timeout)
			} else {
				err = fmt.Errorf("%w: %w", ErrLost, err)
			}
			c.fail(err)
		}
		c.mu.Lock()
		c.queued -= out.count
		c.mu.Unlock()
		out.release(c.pool)
	}
}

// shut ends the connection after what is queued has been written. Only the
// first call has an effect. A nil cause means the reader knows better.
func (c *conn) shut(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return
	}
	c.closing, c.cause = true, cause
	if c.home != nil && errors.Is(cause, ErrShutdown) {
		c.out = c.home.session.fill(c.home, c.out, maxLastWords)
	}
	if c.v5 && cause != nil {
		c.appendLocked([]byte{firstDisconnect, 2, disconnectCode(cause), 0})
	}
	// The reader is freed at once, and a write in progress gets a shorter time.
	_ = c.net.SetReadDeadline(time.Unix(1, 0))
	_ = c.net.SetWriteDeadline(time.Now().Add(lingerTimeout))
	c.startLocked() // it closes the connection when it is done
}

// fail ends the connection at once: what is queued cannot be written.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	if !c.closing {
		c.closing, c.cause = true, cause
	}
	c.out = nil
	c.mu.Unlock()
	_ = c.raw.Close()
}

// end ends the connection after its reader got err, and says why it ended. It
// is nil after an orderly DISCONNECT.
func (c *conn) end(err error) error {
	reason := endReason(err)
	if errors.Is(reason, ErrLost) {
		c.shut(nil) // nobody there to say DISCONNECT to
	} else {
		c.shut(reason)
	}
	if cause := c.because(); cause != nil {
		return cause
	}
	return reason
}

// because is the first cause given for the connection's end, if any.
func (c *conn) because() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// ending reports whether the connection is being closed.
func (c *conn) ending() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closing
}

// letIn notes that the CONNACK was sent to a client of MQTT 5, which is to be
// told with a DISCONNECT packet why the connection ends.
func (c *conn) letIn() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.v5 = true
}

// expect allows the peer a silence from now on, 0 for ever.
func (c *conn) expect(silence time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return // the deadline has passed, and shall stay so
	}
	var t time.Time
	if silence > 0 {
		t = time.Now().Add(silence)
	}
	_ = c.net.SetReadDeadline(t) // an error here is one of the read too
}

// addrPort is the IP address and port of a, zero if it has none.
func addrPort(a net.Addr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	var ap netip.AddrPort
	if t, ok := a.(*net.TCPAddr); ok {
		ap = t.AddrPort()
	} else if p, err := netip.ParseAddrPort(a.String()); err == nil {
		ap = p
	}
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
