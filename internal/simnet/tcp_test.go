package simnet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"
)

func listenTCP(t *testing.T, n *Network) net.Listener {
	t.Helper()
	l, err := n.ListenTCP(serverAddr)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// pair returns both ends of a new connection, the dialing one first.
func pair(t *testing.T, n *Network, up, down Path) (*TCPConn, net.Conn) {
	t.Helper()
	l := listenTCP(t, n)
	defer l.Close()
	d, err := n.DialTCP(t.Context(), deviceAddr, serverAddr, up, down)
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return d, a
}

// The conformance tests of golang.org/x/net for anything that is a net.Conn.
func TestTCPConnConforms(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		d, a := pair(t, New(1), Path{}, Path{})
		return d, a, func() { d.Close(); a.Close() }, nil
	})
}

func TestTCPTakesTheTimeOfItsPaths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		d, a := pair(t, New(1), Path{Delay: 30 * ms}, Path{Delay: 50 * ms})
		if got := time.Since(start); got != 80*ms {
			t.Errorf("dialing took %v, a round trip is 80ms", got)
		}
		if d.LocalAddr().String() != a.RemoteAddr().String() || d.RemoteAddr().String() != serverAddr.String() ||
			a.LocalAddr().String() != serverAddr.String() {
			t.Errorf("%v→%v, %v→%v", d.LocalAddr(), d.RemoteAddr(), a.LocalAddr(), a.RemoteAddr())
		}
		if _, ok := a.RemoteAddr().(*net.TCPAddr); !ok {
			t.Errorf("address is a %T", a.RemoteAddr())
		}
		b := make([]byte, 16)
		for _, c := range []struct {
			from, to net.Conn
			want     time.Duration
		}{{d, a, 30 * ms}, {a, d, 50 * ms}} {
			start = time.Now()
			c.from.Write([]byte("hello"))
			k, err := c.to.Read(b)
			if err != nil || string(b[:k]) != "hello" || time.Since(start) != c.want {
				t.Errorf("%q, %v after %v, want %v", b[:k], err, time.Since(start), c.want)
			}
		}
		a.(*TCPConn).SetPaths(Path{Delay: 1 * ms}, Path{Delay: 2 * ms})
		start = time.Now()
		d.Write([]byte("up"))
		a.Read(b)
		if got := time.Since(start); got != 1*ms {
			t.Errorf("up took %v after SetPaths at the accepting end", got)
		}
	})
}

func TestTCPKeepsOrderAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := Path{Delay: 10 * ms, Jitter: 100 * ms, Loss: 0.1, Duplicate: 0.5, Reorder: 0.5, ReorderBy: time.Second}
		d, a := pair(t, New(3), bad, bad)
		want := make([]byte, 300<<10)
		for i := range want {
			want[i] = byte(i * 7 >> 3)
		}
		go func() {
			for rest := want; len(rest) > 0; {
				k := min(len(rest), 1+len(rest)%5000)
				d.Write(rest[:k])
				rest = rest[k:]
			}
			d.Close()
		}()
		got, err := io.ReadAll(a)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
		}
	})
}

func TestTCPLossCostsRetransmissions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := pair(t, New(1), Path{Delay: 10 * ms}, Path{})
		d.SetPaths(Path{Delay: 10 * ms, Loss: 0.5}, Path{})
		late := 0
		for range 200 {
			start := time.Now()
			d.Write([]byte{1})
			a.Read(make([]byte, 1))
			extra := time.Since(start) - 10*ms
			if extra%Retransmission != 0 {
				t.Fatalf("took %v", extra+10*ms)
			}
			late += int(extra / Retransmission)
		}
		if late < 140 || late > 270 {
			t.Errorf("%d retransmissions for 200 segments at 50 %% loss", late)
		}
	})
}

func TestTCPBlackHole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := pair(t, New(1), Path{}, Path{})
		d.SetPaths(Path{Loss: 1}, Path{Loss: 1})
		d.Write([]byte("late"))
		time.Sleep(10*time.Second + 50*ms)
		d.SetPaths(Path{}, Path{Loss: 1})
		start := time.Now()
		b := make([]byte, 16)
		if k, err := a.Read(b); err != nil || string(b[:k]) != "late" || time.Since(start) != 150*ms {
			t.Errorf("%q, %v, %v after the path was open again", b[:k], err, time.Since(start))
		}
		start = time.Now()
		a.Write([]byte("never"))
		_, err := a.Read(b)
		if !errors.Is(err, syscall.ETIMEDOUT) || time.Since(start) != 924*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if _, err := d.Write(b); !errors.Is(err, syscall.ETIMEDOUT) {
			t.Errorf("the other end: %v", err)
		}
	})
}

func TestTCPWindowHoldsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := pair(t, New(1), Path{Delay: ms}, Path{})
		d.SetWriteDeadline(time.Now().Add(time.Second))
		k, err := d.Write(make([]byte, Window+100))
		if k != Window || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("wrote %d, %v with nobody reading", k, err)
		}
		d.SetWriteDeadline(time.Time{})
		done := make(chan error)
		go func() { _, err := d.Write(make([]byte, 100)); done <- err }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("written with a full window: %v", err)
		default:
		}
		a.Read(make([]byte, 100))
		if err := <-done; err != nil {
			t.Error(err)
		}
		got := 0
		for b := make([]byte, 5000); got < Window; {
			k, err := a.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			got += k
		}
		if got != Window {
			t.Errorf("read %d bytes more", got)
		}
	})
}

func TestTCPConcurrentWritesAreWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, a := pair(t, New(1), Path{Delay: ms, Jitter: ms}, Path{})
		const writers, size = 5, 40000
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() { d.Write(bytes.Repeat([]byte{byte(i)}, size)) })
		}
		go func() { wg.Wait(); d.Close() }()
		got, err := io.ReadAll(a)
		if err != nil || len(got) != writers*size {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		for i := range writers {
			part := got[i*size : (i+1)*size]
			if !bytes.Equal(part, bytes.Repeat(part[:1], size)) {
				t.Fatal("writes are interleaved")
			}
		}
	})
}

func TestTCPClose(t *testing.T) {
	t.Run("ends the stream after its data", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a := pair(t, New(1), Path{Delay: 10 * ms, Jitter: 50 * ms}, Path{})
			d.Write([]byte("last words"))
			d.Close()
			if got, err := io.ReadAll(a); err != nil || string(got) != "last words" {
				t.Errorf("%q, %v", got, err)
			}
			a.Write([]byte("too late"))
			time.Sleep(time.Second)
			if _, err := a.Write([]byte("again")); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("writing to a closed end: %v", err)
			}
		})
	})
	t.Run("with unread data resets", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			d, a := pair(t, New(1), Path{}, Path{Delay: 5 * ms})
			done := make(chan error)
			go func() { _, err := d.Write(make([]byte, 2*Window)); done <- err }()
			synctest.Wait()
			a.Close()
			if err := <-done; !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("writer waiting for room: %v", err)
			}
			if _, err := d.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("reader: %v", err)
			}
		})
	})
}

func TestTCPDialFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		start := time.Now()
		_, err := n.DialTCP(t.Context(), deviceAddr, serverAddr, Path{Delay: 10 * ms}, Path{Delay: 10 * ms})
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Since(start) != 20*ms {
			t.Errorf("nobody listening: %v after %v", err, time.Since(start))
		}
		l := listenTCP(t, n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = n.DialTCP(ctx, deviceAddr, serverAddr, Path{Loss: 1}, Path{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("into a black hole: %v", err)
		}
		for range Backlog {
			if _, err := n.DialTCP(t.Context(), deviceAddr, serverAddr, Path{}, Path{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := n.DialTCP(t.Context(), deviceAddr, serverAddr, Path{}, Path{}); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("with a full backlog: %v", err)
		}
		done := make(chan error)
		go func() {
			for {
				if _, err := l.Accept(); err != nil {
					done <- err
					return
				}
			}
		}()
		synctest.Wait()
		l.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept after Close: %v", err)
		}
	})
}

func TestListenerCloseResetsTheUnaccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		l := listenTCP(t, n)
		d, err := n.DialTCP(t.Context(), deviceAddr, serverAddr, Path{}, Path{})
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		if _, err := d.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v", err)
		}
		listenTCP(t, n) // the address is free again
	})
}

// A network also works in real time, and is the same on every run.
func TestRealTime(t *testing.T) {
	d, a := pair(t, New(1), Path{Delay: ms, Jitter: ms}, Path{})
	go func() {
		for i := range 100 {
			fmt.Fprintln(d, i)
		}
		d.Close()
	}()
	got, err := io.ReadAll(a)
	if err != nil || len(got) != 10*2+90*3 {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func BenchmarkUDP(b *testing.B) {
	n := New(1)
	s, err := n.ListenUDP(serverAddr)
	if err != nil {
		b.Fatal(err)
	}
	d, err := n.DialUDP(deviceAddr, serverAddr, Path{}, Path{})
	if err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 116)
	b.ReportAllocs()
	for b.Loop() {
		d.Write(data)
		s.ReadFromUDPAddrPort(data)
	}
}

func TestTCPHandshakeIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		defer listenTCP(t, n).Close()
		start := time.Now()
		_, err := n.DialTCP(t.Context(), deviceAddr, serverAddr, Path{}, Path{Loss: 1})
		if !errors.Is(err, syscall.ETIMEDOUT) || time.Since(start) != 924*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

func TestListenTCPAddresses(t *testing.T) {
	n := New(1)
	first := listenTCP(t, n)
	if _, err := n.ListenTCP(serverAddr); !errors.Is(err, ErrAddrInUse) {
		t.Errorf("second listener: %v", err)
	}
	chosen, err := n.ListenTCP(netip.AddrPortFrom(serverAddr.Addr(), 0))
	if err != nil || chosen.Addr().(*net.TCPAddr).Port < firstPort {
		t.Errorf("port 0: %v, %v", chosen, err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := first.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
}
