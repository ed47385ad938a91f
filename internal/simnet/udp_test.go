package simnet

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var (
	serverAddr = netip.MustParseAddrPort("10.0.0.1:8884")
	deviceAddr = netip.MustParseAddr("192.168.1.20")
	otherAddr  = netip.MustParseAddr("192.168.1.21")
)

const ms = time.Millisecond

func listenUDP(t *testing.T, n *Network, addr netip.AddrPort) *PacketConn {
	t.Helper()
	c, err := n.ListenUDP(addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dialUDP(t *testing.T, n *Network, local netip.Addr, up, down Path) *UDPConn {
	t.Helper()
	c, err := n.DialUDP(local, serverAddr, up, down)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// An arrival is a numbered datagram and when it came.
type arrival struct {
	number uint32
	at     time.Duration
	from   netip.AddrPort
}

func sendNumber(t *testing.T, c net.Conn, number uint32) {
	t.Helper()
	if _, err := c.Write(binary.BigEndian.AppendUint32(nil, number)); err != nil {
		t.Fatal(err)
	}
}

// arrivals reads until nothing has come for a minute.
func arrivals(t *testing.T, c *PacketConn, start time.Time) []arrival {
	t.Helper()
	var got []arrival
	b := make([]byte, 16)
	for {
		c.SetReadDeadline(time.Now().Add(time.Minute))
		n, from, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return got
		}
		if err != nil || n != 4 {
			t.Fatalf("read %d bytes, %v", n, err)
		}
		got = append(got, arrival{binary.BigEndian.Uint32(b), time.Since(start), from})
	}
}

// flood sends count datagrams, one each 20 ms, and returns what arrives.
func flood(t *testing.T, seed uint64, count int, up Path) ([]arrival, Stats) {
	t.Helper()
	var got []arrival
	var stats Stats
	synctest.Test(t, func(t *testing.T) {
		n := New(seed)
		s := listenUDP(t, n, serverAddr)
		d := dialUDP(t, n, deviceAddr, up, Path{})
		start := time.Now()
		go func() {
			for i := range count {
				sendNumber(t, d, uint32(i))
				time.Sleep(20 * ms)
			}
		}()
		got, stats = arrivals(t, s, start), n.Stats()
	})
	return got, stats
}

func TestUDPBothWays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		s := listenUDP(t, n, serverAddr)
		d := dialUDP(t, n, deviceAddr, Path{Delay: 30 * ms}, Path{Delay: 50 * ms})
		start := time.Now()
		if _, err := d.Write([]byte("up")); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		k, from, err := s.ReadFromUDPAddrPort(b)
		if err != nil || string(b[:k]) != "up" || time.Since(start) != 30*ms {
			t.Fatalf("got %q, %v after %v", b[:k], err, time.Since(start))
		}
		if from != d.LocalAddr().(*net.UDPAddr).AddrPort() {
			t.Errorf("from %v, sent by %v", from, d.LocalAddr())
		}
		if _, err := s.WriteToUDPAddrPort([]byte("down"), from); err != nil {
			t.Fatal(err)
		}
		k, err = d.Read(b)
		if err != nil || string(b[:k]) != "down" || time.Since(start) != 80*ms {
			t.Fatalf("got %q, %v after %v", b[:k], err, time.Since(start))
		}
		d.SetPaths(Path{Delay: 5 * ms}, Path{})
		start = time.Now()
		d.Write([]byte("now"))
		if _, _, err = s.ReadFromUDPAddrPort(b[:2]); err != nil || time.Since(start) != 5*ms || string(b[:2]) != "no" {
			t.Errorf("after SetPaths %q, %v after %v", b[:2], err, time.Since(start))
		}
	})
}

func TestUDPImpairments(t *testing.T) {
	const count = 4000
	t.Run("none", func(t *testing.T) {
		got, _ := flood(t, 1, 100, Path{Delay: 7 * ms})
		if len(got) != 100 {
			t.Fatalf("%d of 100 arrived", len(got))
		}
		for i, a := range got {
			if a.number != uint32(i) || a.at != time.Duration(i)*20*ms+7*ms {
				t.Fatalf("datagram %d arrived as %d at %v", a.number, i, a.at)
			}
		}
	})
	t.Run("loss", func(t *testing.T) {
		got, stats := flood(t, 1, count, Path{Loss: 0.1})
		if lost := count - len(got); lost < 320 || lost > 480 || stats.Lost != uint64(lost) {
			t.Errorf("lost %d of %d at 10 %%, counted %d", lost, count, stats.Lost)
		}
	})
	t.Run("duplicate", func(t *testing.T) {
		got, stats := flood(t, 1, count, Path{Duplicate: 0.1})
		if extra := len(got) - count; extra < 320 || extra > 480 || stats.Duplicated != uint64(extra) {
			t.Errorf("%d more than sent, counted %d", extra, stats.Duplicated)
		}
	})
	t.Run("reorder", func(t *testing.T) {
		got, stats := flood(t, 1, count, Path{Delay: 10 * ms, Reorder: 0.1, ReorderBy: 50 * ms})
		late := 0
		for _, a := range got {
			switch a.at - time.Duration(a.number)*20*ms {
			case 10 * ms:
			case 60 * ms:
				late++
			default:
				t.Fatalf("datagram %d took %v", a.number, a.at-time.Duration(a.number)*20*ms)
			}
		}
		if len(got) != count || late < 320 || late > 480 || stats.HeldBack != uint64(late) {
			t.Errorf("%d arrived, %d late, counted %d", len(got), late, stats.HeldBack)
		}
		if slices.IsSortedFunc(got, func(a, b arrival) int { return int(a.number) - int(b.number) }) {
			t.Error("in order")
		}
	})
	t.Run("jitter", func(t *testing.T) {
		got, _ := flood(t, 1, count, Path{Delay: 10 * ms, Jitter: 30 * ms})
		shortest, longest := time.Hour, time.Duration(0)
		for _, a := range got {
			took := a.at - time.Duration(a.number)*20*ms
			shortest, longest = min(shortest, took), max(longest, took)
		}
		if len(got) != count || shortest < 10*ms || shortest > 11*ms || longest >= 40*ms || longest < 39*ms {
			t.Errorf("%d arrived, after %v to %v", len(got), shortest, longest)
		}
	})
}

// The same seed gives the same fate, another seed another, and what happens to
// one device does not depend on what others do.
func TestUDPDeterministic(t *testing.T) {
	path := Path{Delay: 10 * ms, Jitter: 40 * ms, Loss: 0.2, Duplicate: 0.2, Reorder: 0.2, ReorderBy: 70 * ms}
	first, _ := flood(t, 7, 500, path)
	if again, _ := flood(t, 7, 500, path); !slices.Equal(first, again) {
		t.Error("the same seed gave something else")
	}
	if other, _ := flood(t, 8, 500, path); slices.Equal(first, other) {
		t.Error("another seed gave the same")
	}
	var crowded []arrival
	synctest.Test(t, func(t *testing.T) {
		n := New(7)
		s := listenUDP(t, n, serverAddr)
		other := dialUDP(t, n, otherAddr, path, path)
		d := dialUDP(t, n, deviceAddr, path, Path{})
		start := time.Now()
		go func() {
			for i := range 500 {
				sendNumber(t, other, 1<<31)
				sendNumber(t, d, uint32(i))
				time.Sleep(20 * ms)
			}
		}()
		crowded = slices.DeleteFunc(arrivals(t, s, start), func(a arrival) bool { return a.number == 1<<31 })
	})
	if !slices.Equal(first, crowded) {
		t.Error("the traffic of another device changed the fate of this one's")
	}
}

func TestRebind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		s := listenUDP(t, n, serverAddr)
		d := dialUDP(t, n, deviceAddr, Path{}, Path{Delay: 20 * ms})
		b := make([]byte, 16)
		sendNumber(t, d, 1)
		_, before, _ := s.ReadFromUDPAddrPort(b)
		s.WriteToUDPAddrPort([]byte("on its way"), before)
		d.Rebind()
		s.WriteToUDPAddrPort([]byte("to the old port"), before)
		sendNumber(t, d, 2)
		_, after, _ := s.ReadFromUDPAddrPort(b)
		if after == before || after.Addr() != before.Addr() {
			t.Errorf("port %v before, %v after", before, after)
		}
		if got := d.LocalAddr().(*net.UDPAddr).AddrPort(); got != after {
			t.Errorf("LocalAddr %v, packets come from %v", got, after)
		}
		s.WriteToUDPAddrPort([]byte("new"), after)
		k, err := d.Read(b)
		if err != nil || string(b[:k]) != "new" {
			t.Errorf("got %q, %v", b[:k], err)
		}
		if got := n.Stats().Unreachable; got != 2 {
			t.Errorf("%d unreachable, want the 2 to the old port", got)
		}
		d.Close()
		d.Rebind()
		if n.udp[after] != nil || len(n.udp) != 1 {
			t.Error("a closed socket was bound again")
		}
	})
}

func TestUDPConnectedTakesOnlyFromRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		s := listenUDP(t, n, serverAddr)
		stranger := listenUDP(t, n, netip.MustParseAddrPort("10.0.0.66:0"))
		d := dialUDP(t, n, deviceAddr, Path{}, Path{})
		to := d.LocalAddr().(*net.UDPAddr).AddrPort()
		stranger.WriteToUDPAddrPort([]byte("stranger"), to)
		s.WriteToUDPAddrPort([]byte("server"), to)
		b := make([]byte, 16)
		if k, _ := d.Read(b); string(b[:k]) != "server" {
			t.Errorf("got %q", b[:k])
		}
		d.SetReadDeadline(time.Now().Add(time.Second))
		if k, err := d.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("got %q, %v", b[:k], err)
		}
	})
}

func TestUDPQueueIsBounded(t *testing.T) {
	n := New(1)
	s := listenUDP(t, n, serverAddr)
	d := dialUDP(t, n, deviceAddr, Path{}, Path{})
	for i := range QueueLength + 10 {
		sendNumber(t, d, uint32(i))
	}
	if got := n.Stats(); got.Overflowed != 10 || got.Delivered != QueueLength || got.Sent != QueueLength+10 {
		t.Errorf("%+v", got)
	}
	b := make([]byte, 16)
	for i := range QueueLength {
		if _, _, err := s.ReadFromUDPAddrPort(b); err != nil || binary.BigEndian.Uint32(b) != uint32(i) {
			t.Fatalf("datagram %d is %d, %v", i, binary.BigEndian.Uint32(b), err)
		}
	}
}

func TestUDPDeadlineAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(1)
		s := listenUDP(t, n, serverAddr)
		d := dialUDP(t, n, deviceAddr, Path{}, Path{})
		b := make([]byte, 16)

		start := time.Now()
		s.SetReadDeadline(start.Add(time.Second))
		_, _, err := s.ReadFromUDPAddrPort(b)
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		s.SetReadDeadline(time.Time{})
		done := make(chan error)
		go func() { _, _, err := s.ReadFromUDPAddrPort(b); done <- err }()
		go func() { _, err := d.Read(make([]byte, 1)); done <- err }()
		synctest.Wait()
		s.Close()
		d.Close()
		for range 2 {
			if err := <-done; !errors.Is(err, net.ErrClosed) {
				t.Errorf("read under way at Close: %v", err)
			}
		}
		if _, err := d.Write(b); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write after Close: %v", err)
		}
		if err := s.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second Close: %v", err)
		}
		listenUDP(t, n, serverAddr) // the address is free again
	})
}

func TestAddressesAtFault(t *testing.T) {
	n := New(1)
	listenUDP(t, n, serverAddr)
	if _, err := n.ListenUDP(serverAddr); !errors.Is(err, ErrAddrInUse) {
		t.Errorf("second listener: %v", err)
	}
	for _, bad := range []netip.AddrPort{{}, netip.MustParseAddrPort("0.0.0.0:1"), netip.MustParseAddrPort("[ff02::1]:1")} {
		if _, err := n.ListenUDP(bad); !errors.Is(err, ErrAddress) {
			t.Errorf("ListenUDP(%v): %v", bad, err)
		}
		if _, err := n.ListenTCP(bad); !errors.Is(err, ErrAddress) {
			t.Errorf("ListenTCP(%v): %v", bad, err)
		}
		if _, err := n.DialUDP(deviceAddr, bad, Path{}, Path{}); !errors.Is(err, ErrAddress) {
			t.Errorf("DialUDP(%v): %v", bad, err)
		}
		if _, err := n.DialTCP(t.Context(), bad.Addr(), serverAddr, Path{}, Path{}); !errors.Is(err, ErrAddress) {
			t.Errorf("DialTCP from %v: %v", bad.Addr(), err)
		}
	}
	for range 1<<16 - firstPort {
		dialUDP(t, n, deviceAddr, Path{}, Path{})
	}
	if _, err := n.DialUDP(deviceAddr, serverAddr, Path{}, Path{}); !errors.Is(err, ErrNoPort) {
		t.Errorf("with every port taken: %v", err)
	}
}

// Servers reach each other too, free of impairments, and nobody is told when
// there is nobody.
func TestUDPBetweenServers(t *testing.T) {
	n := New(1)
	s := listenUDP(t, n, serverAddr)
	other := listenUDP(t, n, netip.MustParseAddrPort("10.0.0.2:0"))
	if _, err := s.WriteToUDPAddrPort([]byte("hello"), other.LocalAddr().(*net.UDPAddr).AddrPort()); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 16)
	if k, from, err := other.ReadFromUDPAddrPort(b); err != nil || string(b[:k]) != "hello" || from != serverAddr {
		t.Errorf("%q from %v, %v", b[:k], from, err)
	}
	if _, err := s.WriteToUDPAddrPort(b, netip.MustParseAddrPort("10.0.0.3:1")); err != nil {
		t.Error(err)
	}
	if _, err := s.WriteToUDPAddrPort(make([]byte, maxDatagram+1), serverAddr); err == nil {
		t.Error("a datagram larger than UDP's was sent")
	}
	if got := n.Stats(); got.Unreachable != 1 || got.Sent != 2 {
		t.Errorf("%+v", got)
	}
}

// A UDPConn is a whole net.Conn.
func TestUDPConnAddressesAndDeadlines(t *testing.T) {
	n := New(1)
	d := dialUDP(t, n, deviceAddr, Path{}, Path{})
	if got := d.RemoteAddr().String(); got != serverAddr.String() {
		t.Errorf("RemoteAddr %v", got)
	}
	past := time.Now().Add(-time.Second)
	if err := errors.Join(d.SetWriteDeadline(past), d.SetDeadline(past)); err != nil {
		t.Error(err)
	}
	if _, err := d.Write([]byte("x")); err != nil {
		t.Errorf("a write, which never waits, failed: %v", err)
	}
	if _, err := d.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v", err)
	}
	d.Close()
	if err := d.SetReadDeadline(past); !errors.Is(err, net.ErrClosed) {
		t.Errorf("deadline after Close: %v", err)
	}
}
