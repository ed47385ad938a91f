package udpaudio

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// DefaultMaxChannels is how many sessions a server has at once if the
	// configuration does not say. Each has some 2 KB here.
	DefaultMaxChannels = 16384

	// socketBuffer is the size asked of the kernel for each direction of the
	// socket, in bytes: half a second of packets from 10,000 talking devices,
	// at the 250 bytes and more a kernel accounts for a small one.
	socketBuffer = 4 << 20

	// maxReadErrors is how many reads of the socket may fail in a row, the
	// waits between them doubling from 1 ms to half a second, before Serve
	// gives up: a second in all, which a network interface may need to come
	// back.
	maxReadErrors = 10
)

// Errors of [Server.Open] and [Channel.Send].
var (
	// ErrClosed means that the channel is closed, or the server no longer served.
	ErrClosed = errors.New("udpaudio: closed")
	// ErrFull means that as many channels are open as the configuration allows.
	ErrFull = errors.New("udpaudio: too many open channels")
)

// A PacketConn is a UDP socket. A [*net.UDPConn] is one.
type PacketConn interface {
	ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	LocalAddr() net.Addr
	Close() error
}

// A Config sets the limits of a server. The zero Config has the defaults.
type Config struct {
	// MaxChannels is how many channels may be open at once; 0 means
	// [DefaultMaxChannels]. A slot of a table is kept for each, 16 to 32 bytes.
	MaxChannels int

	// Readers is how many goroutines read the socket; 0 means 1. One handles
	// some hundred thousand packets a second, and keeps the packets of each
	// device in order.
	Readers int
}

// A Server owns a socket and the channels on it. Its methods may be called
// concurrently.
type Server struct {
	conn    PacketConn
	readers int
	log     *slog.Logger
	table   *table
	ended   atomic.Bool // Serve has returned

	outcomes   tally
	sent       atomic.Uint64
	sendErrors atomic.Uint64
	readErrors atomic.Uint64
	moves      atomic.Uint64
}

// Listen opens a UDP socket at addr, such as ":8884", with large buffers. The
// kernel may grant less than is asked; [Server.Serve] logs what it did.
func Listen(addr string) (*net.UDPConn, error) {
	a, err := net.ResolveUDPAddr("udp", addr)
	if err != nil {
		return nil, fmt.Errorf("udpaudio: address %q: %w", addr, err)
	}
	conn, err := net.ListenUDP("udp", a)
	if err != nil {
		return nil, fmt.Errorf("udpaudio: %w", err)
	}
	// Best effort: with smaller buffers bursts lose packets, and nothing else.
	_ = conn.SetReadBuffer(socketBuffer)
	_ = conn.SetWriteBuffer(socketBuffer)
	return conn, nil
}

// New returns a server on conn, which it owns from now on. It reads nothing
// before [Server.Serve].
func New(conn PacketConn, cfg Config, log *slog.Logger) *Server {
	if cfg.MaxChannels <= 0 {
		cfg.MaxChannels = DefaultMaxChannels
	}
	return &Server{
		conn:    conn,
		readers: max(cfg.Readers, 1),
		log:     log,
		table:   newTable(cfg.MaxChannels),
	}
}

// Serve reads the socket until ctx ends, the socket is closed or reading keeps
// failing, and is called once. It returns when the socket is closed and all
// its goroutines are gone: nil, or in the last case the error. Channels still open stay so, and deliver nothing more.
func (s *Server) Serve(ctx context.Context) error {
	s.logSocket()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, s.readers) // room for all, so that none waits
	var wg sync.WaitGroup
	for range s.readers {
		wg.Go(func() {
			failed <- s.read(ctx)
			cancel() // one that ends, ends all
		})
	}
	// Closing the socket is what ends the readers.
	wg.Go(func() {
		<-ctx.Done()
		s.conn.Close()
	})
	wg.Wait()
	s.ended.Store(true)
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

// read handles datagrams until the socket is closed, which is no error, or
// reading has failed maxReadErrors times in a row.
func (s *Server) read(ctx context.Context) error {
	r := reader{server: s}
	failures := 0
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(r.datagram[:])
		switch {
		case err == nil:
			failures = 0
			r.handle(n, from)
			continue
		case errors.Is(err, net.ErrClosed):
			return nil
		}
		s.readErrors.Add(1)
		if failures++; failures == maxReadErrors {
			return fmt.Errorf("udpaudio: reading the socket at %v failed %d times in a row: %w", s.conn.LocalAddr(), failures, err)
		}
		if failures == 1 {
			s.log.Warn("udp read failed, trying again", "addr", s.conn.LocalAddr(), "error", err)
		}
		select {
		case <-time.After(time.Millisecond << (failures - 1)):
		case <-ctx.Done():
		}
	}
}

// A reader is one goroutine's buffers, so that a packet needs no memory of its
// own.
type reader struct {
	server   *Server
	datagram [MaxDatagram + 1]byte // one more, to tell what is too long
	plain    [(MaxDatagram + 15) / 16 * 16]byte
}

// handle takes the datagram in the first n bytes of r.datagram.
func (r *reader) handle(n int, from netip.AddrPort) {
	s, b := r.server, r.datagram[:n]
	h, err := ParseHeader(b)
	if err != nil {
		s.outcomes[refusal(err)].Add(1)
		return
	}
	c := s.table.find(h.SSRC)
	if c == nil {
		s.outcomes[dropUnknown].Add(1)
		return
	}
	if h.Flags&FlagDownlink != 0 {
		// Decrypts to perfect audio: our own.
		c.count(dropReflected, 1)
		return
	}
	c.receive(&packet{header: h, raw: (*[HeaderSize]byte)(b), body: b[HeaderSize:], plain: r.plain[:]}, from)
}

// refusal returns how an error of ParseHeader is counted.
func refusal(err error) outcome {
	switch {
	case errors.Is(err, ErrShort):
		return dropShort
	case errors.Is(err, ErrLong):
		return dropLong
	case errors.Is(err, ErrType):
		return dropType
	}
	return dropLength
}

// Open starts a session: a channel with a random SSRC and a random key, whose
// packets go to r from now on. It fails with [ErrFull], or with [ErrClosed]
// after Serve has returned. Close the channel when the session ends.
func (s *Server) Open(r Receiver) (*Channel, error) {
	if s.ended.Load() {
		return nil, fmt.Errorf("%w: the server has ended", ErrClosed)
	}
	c := &Channel{server: s, receiver: r, opened: time.Now()}
	rand.Read(c.key[:]) // never fails: crypto/rand
	c.cipher = NewCipher(c.key)
	if !s.table.add(c) {
		return nil, fmt.Errorf("%w: %d of %d; raise the limit or add a node", ErrFull, s.table.limit, s.table.limit)
	}
	return c, nil
}

// Stats returns the counters so far.
func (s *Server) Stats() Stats {
	return Stats{
		Channels:   s.table.len(),
		Delivered:  s.outcomes[delivered].Load(),
		Dropped:    s.outcomes.drops(),
		Sent:       s.sent.Load(),
		SendErrors: s.sendErrors.Load(),
		ReadErrors: s.readErrors.Load(),
		Moves:      s.moves.Load(),
	}
}
