package udpaudio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/simnet"
)

// Each kind of bad datagram is counted as what it is, delivered to nobody and
// answered by nothing.
func TestBadDatagrams(t *testing.T) {
	patch := func(b []byte, at int, v byte) []byte { b[at] = v; return b }
	for _, c := range []struct {
		name  string
		make  func(w *world) []byte
		count func(Drops) uint64
	}{
		{"empty", func(w *world) []byte { return nil }, func(d Drops) uint64 { return d.Short }},
		{"short", func(w *world) []byte { return w.seal(9)[:15] }, func(d Drops) uint64 { return d.Short }},
		{"long", func(w *world) []byte { return make([]byte, 1501) }, func(d Drops) uint64 { return d.Long }},
		{"much too long", func(w *world) []byte { return make([]byte, 60000) }, func(d Drops) uint64 { return d.Long }},
		{"type", func(w *world) []byte { return patch(w.seal(9), 0, 2) }, func(d Drops) uint64 { return d.Type }},
		{"truncated", func(w *world) []byte { return w.seal(9)[:40] }, func(d Drops) uint64 { return d.Length }},
		{"extended", func(w *world) []byte { return append(w.seal(9), 0) }, func(d Drops) uint64 { return d.Length }},
		{"another SSRC", func(w *world) []byte { return patch(w.seal(9), 7, w.nonce[7]+1) }, func(d Drops) uint64 { return d.UnknownSSRC }},
		{"same slot, another SSRC", func(w *world) []byte { return patch(w.seal(9), 4, w.nonce[4]+1) }, func(d Drops) uint64 { return d.UnknownSSRC }},
		{"replayed", func(w *world) []byte { return w.seal(3) }, func(d Drops) uint64 { return d.Replayed }},
		{"sequence 0", func(w *world) []byte { return w.seal(0) }, func(d Drops) uint64 { return d.Replayed }},
		{"too far", func(w *world) []byte { return w.seal(3 + windowAhead) }, func(d Drops) uint64 { return d.Ahead }},
		{"the last sequence there is", func(w *world) []byte { return w.seal(1<<32 - 1) }, func(d Drops) uint64 { return d.Ahead }},
		{"stereo", func(w *world) []byte {
			return sealUp(w.key, w.nonce, 9, 0, append([]byte{3<<3 | 4}, make([]byte, 50)...))
		}, func(d Drops) uint64 { return d.Implausible }},
		{"not Opus", func(w *world) []byte {
			return sealUp(w.key, w.nonce, 9, 0, append([]byte{3<<3 | 3, 0}, make([]byte, 50)...))
		}, func(d Drops) uint64 { return d.Implausible }},
		{"TOC bit flipped", func(w *world) []byte { b := w.seal(9); b[16] ^= 4; return b }, func(d Drops) uint64 { return d.Implausible }},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				d, stranger := w.dial(20), w.dial(66)
				for seq := range uint32(3) {
					w.send(d, seq+1)
				}
				w.sendRaw(d, c.make(w))
				if got := w.server.Stats().Dropped; c.count(got) != 1 || got.Total() != 1 {
					t.Errorf("counted as %+v", got)
				}
				w.sendRaw(stranger, c.make(w))
				if got := w.server.Stats().Dropped.Total(); got != 2 {
					t.Errorf("%d dropped, want 2", got)
				}
				w.wantHeard("after two bad ones", 1, 2, 3)
				if b := w.read(stranger); b != nil {
					t.Errorf("answered with %d bytes", len(b))
				}
				w.send(d, 4)
				w.wantHeard("and the next good one", 1, 2, 3, 4)
			})
		})
	}
}

// The server's own packets decrypt to perfect audio. Sent back, they are not
// taken for the device's, from wherever they come.
func TestReflection(t *testing.T) {
	inWorld(t, func(w *world) {
		d, attacker := w.dial(20), w.dial(66)
		w.send(d, 1)
		for range 10 {
			if _, err := w.channel.Send(speech(1, 100)); err != nil {
				t.Fatal(err)
			}
			b := w.read(d)
			w.sendRaw(attacker, b)
			w.sendRaw(d, b)
		}
		w.wantHeard("after reflections", 1)
		if got := w.server.Stats().Dropped.Reflected; got != 20 {
			t.Errorf("%d reflections counted, want 20", got)
		}
		w.wantPath("after reflections", d, attacker)
	})
}

// A whole captured session, sent again by the device's address, by another, and
// shuffled by a third, delivers nothing.
func TestReplays(t *testing.T) {
	inWorld(t, func(w *world) {
		d := w.dial(20)
		var captured [][]byte
		for seq := uint32(1); seq <= 2000; seq += 1 + seq%3 {
			captured = append(captured, w.seal(seq))
			w.sendRaw(d, captured[len(captured)-1])
		}
		delivered := w.server.Stats().Delivered
		if delivered != uint64(len(captured)) {
			t.Fatalf("%d of %d delivered", delivered, len(captured))
		}
		shuffled := w.dial(67)
		for _, from := range []*simnet.UDPConn{d, w.dial(66), shuffled} {
			if from == shuffled {
				rand.New(rand.NewPCG(1, 1)).Shuffle(len(captured), func(i, j int) {
					captured[i], captured[j] = captured[j], captured[i]
				})
			}
			for _, b := range captured {
				w.sendRaw(from, b)
			}
		}
		stats := w.server.Stats()
		if stats.Delivered != delivered || stats.Moves != 0 {
			t.Errorf("%d replays delivered, %d moves", stats.Delivered-delivered, stats.Moves)
		}
		if got := stats.Dropped.Replayed + stats.Dropped.Old; got != uint64(3*len(captured)) {
			t.Errorf("%d replays counted of %d", got, 3*len(captured))
		}
		w.wantPath("after replays", d, shuffled)
	})
}

// One who cannot see the traffic knows neither SSRC nor sequence.
func TestBlindForgeries(t *testing.T) {
	inWorld(t, func(w *world) {
		d, attacker := w.dial(20), w.dial(66)
		w.send(d, 1)
		r := rand.New(rand.NewPCG(9, 9))
		b := make([]byte, HeaderSize+64)
		for i := range 50000 {
			for j := range b {
				b[j] = byte(r.Uint32())
			}
			Header{PayloadLen: 64, SSRC: r.Uint32(), Sequence: 2 + r.Uint32N(1000)}.Put(b)
			attacker.Write(b)
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		w.wantHeard("after forgeries", 1)
		w.wantPath("after forgeries", d, attacker)
	})
}

func TestServeEndsWithContextOrSocket(t *testing.T) {
	for _, how := range []string{"context", "socket"} {
		for _, readers := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s-%d", how, readers), func(t *testing.T) {
				conn, err := Listen("127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				s := New(conn, Config{Readers: readers}, slog.New(slog.DiscardHandler))
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				served := make(chan error)
				go func() { served <- s.Serve(ctx) }()
				c, err := s.Open(new(recorder))
				if err != nil {
					t.Fatal(err)
				}
				if how == "context" {
					cancel(errors.New("a cause of its own"))
				} else {
					conn.Close()
				}
				if err := <-served; err != nil {
					t.Errorf("Serve: %v", err)
				}
				if _, err := s.Open(new(recorder)); !errors.Is(err, ErrClosed) {
					t.Errorf("Open after Serve: %v", err)
				}
				c.Close()
			})
		}
	}
}

// A brokenConn fails to read as often as told, and then is closed.
type brokenConn struct {
	PacketConn
	failures int
	reads    int
}

func (c *brokenConn) ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error) {
	if c.reads++; c.reads > c.failures {
		return 0, netip.AddrPort{}, net.ErrClosed
	}
	return 0, netip.AddrPort{}, io.ErrUnexpectedEOF
}
func (*brokenConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(serverAddr) }
func (*brokenConn) Close() error        { return nil }

func TestServeSurvivesReadErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		s := New(&brokenConn{failures: maxReadErrors - 1}, Config{}, slog.New(slog.NewTextHandler(&log, nil)))
		start := time.Now()
		if err := s.Serve(t.Context()); err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(start); took != 511*time.Millisecond {
			t.Errorf("nine waits took %v", took)
		}
		if got := s.Stats().ReadErrors; got != maxReadErrors-1 {
			t.Errorf("%d read errors counted", got)
		}
		if n := strings.Count(log.String(), "udp read failed"); n != 1 {
			t.Errorf("%d lines about it, want 1:\n%s", n, log.String())
		}

		s = New(&brokenConn{failures: maxReadErrors}, Config{}, slog.New(slog.DiscardHandler))
		if err := s.Serve(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("Serve with a broken socket: %v", err)
		}
	})
}

func TestListenRefusesNonsense(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:x", "127.0.0.1", "127.0.0.1:70000"} {
		if _, err := Listen(addr); err == nil || !strings.Contains(err.Error(), addr) {
			t.Errorf("Listen(%q): %v", addr, err)
		}
	}
}

func TestServeLogsTheSocket(t *testing.T) {
	conn, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	conn2, err := Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := New(conn2, Config{}, slog.New(slog.NewTextHandler(&log, nil))).Serve(ctx); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "udp audio listening") || !strings.Contains(log.String(), conn2.LocalAddr().String()) {
		t.Errorf("log: %s", log.String())
	}
}

func TestOpen(t *testing.T) {
	const limit = 1000
	s := New(&brokenConn{}, Config{MaxChannels: limit}, slog.New(slog.DiscardHandler))
	ssrcs, keys := map[uint32]bool{}, map[[16]byte]bool{}
	var open []*Channel
	for range limit {
		c, err := s.Open(new(recorder))
		if err != nil {
			t.Fatal(err)
		}
		key, nonce := c.Offer()
		h, err := ParseHeader(nonce[:])
		if err != nil || h != (Header{SSRC: c.SSRC()}) {
			t.Fatalf("nonce %x is %+v, %v; want the SSRC %#x and zeros", nonce, h, err, c.SSRC())
		}
		ssrcs[c.SSRC()], keys[key] = true, true
		open = append(open, c)
	}
	if len(ssrcs) != limit || len(keys) != limit || ssrcs[0] {
		t.Errorf("%d SSRCs and %d keys of %d differ", len(ssrcs), len(keys), limit)
	}
	if _, err := s.Open(new(recorder)); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
	for _, c := range open {
		if s.table.find(c.SSRC()) != c {
			t.Fatal("an open channel is not found")
		}
		c.Close()
		c.Close()
		if s.table.find(c.SSRC()) != nil {
			t.Fatal("a closed channel is found")
		}
		if key, _ := c.Offer(); key != ([16]byte{}) {
			t.Fatal("the key is still there")
		}
	}
	if got := s.Stats().Channels; got != 0 {
		t.Errorf("%d channels open after all were closed twice", got)
	}
	if _, err := s.Open(new(recorder)); err != nil {
		t.Errorf("after all were closed: %v", err)
	}
}
