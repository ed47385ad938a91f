package udpaudio

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/simnet"
)

func TestSend(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		if _, err := w.channel.Send(speech(1, 100)); !errors.Is(err, ErrNoPath) {
			t.Errorf("before the first packet: %v", err)
		}
		w.send(d, 1)
		for _, n := range []int{0, MinPayload - 1, MaxPayload + 1, 70000} {
			if _, err := w.channel.Send(make([]byte, n)); !errors.Is(err, ErrSize) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
		sequence := uint32(0)
		for _, n := range []int{MinPayload, 15, 16, 17, 100, MaxPayload - 1, MaxPayload} {
			opus := speech(uint32(n), n)
			kept := bytes.Clone(opus)
			timestamp, err := w.channel.Send(opus)
			if err != nil {
				t.Fatal(err)
			}
			sequence++
			h, got := openDown(t, w.key, w.read(d))
			want := Header{FlagDownlink, uint16(n), w.channel.SSRC(), timestamp, sequence}
			if h != want || !bytes.Equal(got, opus) || !bytes.Equal(opus, kept) {
				t.Errorf("%d bytes: header %+v, want %+v; payload right: %v", n, h, want, bytes.Equal(got, opus))
			}
		}
		w.channel.Close()
		if _, err := w.channel.Send(speech(1, 100)); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		w.send(d, 2)
		w.wantHeard("after Close", 1)
		if got := w.channel.Stats(); got.Sent != 7 || got.Delivered != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// The timestamp is a media clock that follows the session's when idle.
func TestTimestamps(t *testing.T) {
	inWorld(t, func(w *world) {
		w.send(w.dial(20), 1)
		for _, c := range []struct {
			after time.Duration
			want  uint32
		}{
			{0, 60}, // never 0
			{0, 120},
			{60 * time.Millisecond, 180},        // at 60 ms: the media clock is ahead
			{time.Second, 1060},                 // at 1,060 ms: caught up
			{59 * time.Millisecond, 1120},       // at 1,119 ms
			{time.Hour, 3601119},                // at 3,601,119 ms
			{500 * time.Microsecond, 3601179},   // never less than a frame
			{1500 * time.Microsecond, 3601239},  //
			{118 * time.Millisecond, 3601299},   // at 3,601,239 ms
			{60900 * time.Microsecond, 3601359}, //
		} {
			time.Sleep(c.after)
			if got, err := w.channel.Send(speech(0, 100)); err != nil || got != c.want {
				t.Errorf("after %v: %d, %v; want %d", c.after, got, err, c.want)
			}
		}
	})
}

// A session ends before anything in its counter blocks could come again.
func TestExhaustion(t *testing.T) {
	for _, c := range []struct {
		name  string
		set   func(c *Channel)
		after time.Duration
		sends int // that succeed
	}{
		{"sequence", func(c *Channel) { c.sequence = lastSequence - 2 }, 0, 2},
		{"timestamp", func(c *Channel) { c.timestamp = math.MaxUint32 - 179 }, 0, 2},
		{"time", func(*Channel) {}, time.Duration(1<<32) * time.Millisecond, 0},
		{"the last moment", func(*Channel) {}, time.Duration(1<<32-61) * time.Millisecond, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.send(w.dial(20), 1)
				c.set(w.channel)
				time.Sleep(c.after)
				for i := range c.sends + 3 {
					_, err := w.channel.Send(speech(0, MaxPayload))
					if i < c.sends && err != nil || i >= c.sends && !errors.Is(err, ErrExhausted) {
						t.Errorf("packet %d: %v", i, err)
					}
				}
				if int64(w.channel.sequence)+MaxPayload/16+1 > math.MaxUint32 {
					t.Errorf("sequence %d: the counter of a packet would leave its field", w.channel.sequence)
				}
			})
		})
	}
}

func TestTimestampOfReply(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		w.send(d, 1)
		sent, err := w.channel.Send(speech(1, 100))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := openDown(t, w.key, w.read(d))
		w.sendRaw(d, sealUp(w.key, w.nonce, 2, h.Timestamp, speech(2, 50)))
		if got := w.heard.calls[1]; got.timestamp != sent {
			t.Errorf("echo carries %d, sent was %d", got.timestamp, sent)
		}
	})
}

// Over a bad network every packet that arrives is delivered once, in whatever
// order, with the right content.
func TestOverABadNetwork(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		bad := simnet.Path{Delay: 40 * time.Millisecond, Jitter: 150 * time.Millisecond, Loss: 0.1, Duplicate: 0.2}
		d.SetPaths(bad, bad)
		const count = 3000
		for seq := uint32(1); seq <= count; seq++ {
			d.Write(w.seal(seq))
			time.Sleep(60 * time.Millisecond)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		seen := map[uint32]bool{}
		for _, c := range w.heard.calls {
			if seen[c.sequence] || c.opus != string(speech(c.sequence, 90)) {
				t.Fatalf("packet %d twice or damaged", c.sequence)
			}
			seen[c.sequence] = true
		}
		lost := w.network.Stats().Lost
		got := w.channel.Stats()
		if uint64(len(seen)) < count-lost || got.Dropped.Replayed == 0 || got.Lost > lost || got.Moves != 0 {
			t.Errorf("%d of %d delivered, the network lost %d: %+v", len(seen), count, lost, got)
		}
		// Loss and duplication happened to one copy of each, so this is exact
		// but for packets lost at the very end, which nobody knows of.
		if uint64(len(seen))+got.Lost < count-10 {
			t.Errorf("%d delivered and %d lost of %d", len(seen), got.Lost, count)
		}
	})
}

// After Close returns, no call of the receiver is running, and none comes.
func TestCloseWaitsForTheReceiver(t *testing.T) {
	s := New(&brokenConn{}, Config{}, slog.New(slog.DiscardHandler))
	for range 100 {
		var running atomic.Bool
		entered := make(chan bool)
		c, err := s.Open(receiverFunc(func() {
			running.Store(true)
			close(entered) // panics if there is a second call
			for range 1000 {
				runtime.Gosched()
			}
			running.Store(false)
		}))
		if err != nil {
			t.Fatal(err)
		}
		key, nonce := c.Offer()
		feed := func(seq uint32) {
			r := &reader{server: s}
			r.handle(copy(r.datagram[:], sealUp(key, nonce, seq, 0, speech(seq, 60))), serverAddr)
		}
		var wg sync.WaitGroup
		wg.Go(func() { feed(1) })
		<-entered
		c.Close()
		if running.Load() {
			t.Fatal("Close returned with the receiver running")
		}
		feed(2)
		wg.Wait()
	}
	if got := s.Stats(); got.Delivered != 100 || got.Dropped.UnknownSSRC != 100 {
		t.Errorf("%+v", got)
	}
}

// A packet that found its channel just before Close, and comes just after.
func TestPacketOfAClosingChannel(t *testing.T) {
	f, c := newFeeder(t)
	n := f.next()
	b := f.reader.datagram[:n]
	c.Close()
	c.receive(&packet{f.header, (*[HeaderSize]byte)(b), b[HeaderSize:], f.reader.plain[:]}, f.addr)
	if got := c.Stats(); got.Delivered != 0 || got.Dropped.Closed != 1 || got.Dropped.Total() != 1 {
		t.Errorf("%+v", got)
	}
}

// A receiverFunc is called for each packet.
type receiverFunc func()

func (receiverFunc) PathReady()                    {}
func (f receiverFunc) Audio(_, _ uint32, _ []byte) { f() }

// An echo sends back what comes, which a receiver may.
type echo struct {
	channel *Channel
	errors  atomic.Uint64
}

func (e *echo) PathReady() { e.channel.Stats() }
func (e *echo) Audio(_, _ uint32, opus []byte) {
	if _, err := e.channel.Send(opus); err != nil {
		e.errors.Add(1)
	}
}

// Sessions come, talk and go concurrently on a real socket.
func TestManySessionsOnLoopback(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", ":0"} { // the second sees IPv4 addresses mapped to IPv6
		t.Run(addr, func(t *testing.T) { manySessions(t, addr) })
	}
}

func manySessions(t *testing.T, addr string) {
	conn, err := Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	to := &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: conn.LocalAddr().(*net.UDPAddr).Port}
	s := New(conn, Config{Readers: 2}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()

	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			for range 5 {
				talk(t, s, to)
			}
		})
	}
	wg.Wait()
	cancel()
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
	stats := s.Stats()
	if stats.Channels != 0 || stats.SendErrors != 0 || stats.Delivered != 100*20 || stats.Sent < 100*20 {
		t.Errorf("%+v", stats)
	}
}

// talk opens a session and has twenty packets echoed, while another goroutine
// sends and a third asks for numbers; then two close it at once.
func talk(t *testing.T, s *Server, addr *net.UDPAddr) {
	e := new(echo)
	ready := make(chan bool)
	c, err := s.Open(e.waitFor(ready))
	if err != nil {
		t.Error(err)
		return
	}
	e.channel = c
	close(ready)
	key, nonce := c.Offer()
	d, err := net.DialUDP("udp", nil, addr)
	if err != nil {
		t.Error(err)
		return
	}
	defer d.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 20 {
			c.Stats()
			c.Offer()
			s.Stats()
		}
	})
	b := make([]byte, 2048)
	for seq := uint32(1); seq <= 20; seq++ {
		want := speech(seq, 100)
		d.Write(sealUp(key, nonce, seq, 0, want))
		d.SetReadDeadline(time.Now().Add(10 * time.Second)) // only to fail rather than hang
		n, err := d.Read(b)
		if err != nil {
			t.Error(err)
			return
		}
		if h, got := openDown(t, key, b[:n]); h.Sequence != seq || !bytes.Equal(got, want) {
			t.Errorf("echo %d is %d", seq, h.Sequence)
		}
	}
	wg.Go(c.Close)
	wg.Go(c.Close)
	wg.Go(func() { c.Send(speech(0, 50)) })
	wg.Wait()
	if _, err := c.Send(speech(0, 50)); !errors.Is(err, ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

// waitFor returns the echo as a receiver whose calls wait until the channel is
// known to it.
func (e *echo) waitFor(ready chan bool) Receiver { return waiting{e, ready} }

type waiting struct {
	*echo
	ready chan bool
}

func (w waiting) PathReady() { <-w.ready; w.echo.PathReady() }

// An error of the socket is returned, counted, and costs a sequence number.
func TestSendError(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		w.send(d, 1)
		good := w.server.conn
		w.server.conn = failingConn{good}
		if _, err := w.channel.Send(speech(1, 100)); !errors.Is(err, os.ErrPermission) {
			t.Errorf("got %v", err)
		}
		w.server.conn = good
		if _, err := w.channel.Send(speech(1, 100)); err != nil {
			t.Error(err)
		}
		if h, _ := openDown(t, w.key, w.read(d)); h.Sequence != 2 || h.Timestamp != 120 {
			t.Errorf("after an error the header is %+v: its keystream was used", h)
		}
		if got := w.channel.Stats(); got.Sent != 1 || got.SendErrors != 1 || w.server.Stats().SendErrors != 1 {
			t.Errorf("%+v", got)
		}
	})
}

type failingConn struct{ PacketConn }

func (failingConn) WriteToUDPAddrPort([]byte, netip.AddrPort) (int, error) {
	return 0, os.ErrPermission
}
