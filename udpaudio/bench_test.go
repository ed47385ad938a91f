package udpaudio

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"
)

// A sink is a PacketConn that takes what is sent, and a Receiver.
type sink struct{ bytes int }

func (*sink) ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error) {
	return 0, netip.AddrPort{}, net.ErrClosed
}
func (s *sink) WriteToUDPAddrPort(b []byte, _ netip.AddrPort) (int, error) {
	s.bytes += len(b)
	return len(b), nil
}
func (*sink) LocalAddr() net.Addr              { return net.UDPAddrFromAddrPort(serverAddr) }
func (*sink) Close() error                     { return nil }
func (*sink) PathReady()                       {}
func (s *sink) Audio(_, _ uint32, opus []byte) { s.bytes += len(opus) }

// A feeder makes one valid packet after another in place.
type feeder struct {
	reader *reader
	cipher *Cipher
	header Header
	plain  []byte
	addr   netip.AddrPort
}

func newFeeder(tb testing.TB) (*feeder, *Channel) {
	tb.Helper()
	k := new(sink)
	s := New(k, Config{}, slog.New(slog.DiscardHandler))
	c, err := s.Open(k)
	if err != nil {
		tb.Fatal(err)
	}
	key, _ := c.Offer()
	f := &feeder{
		reader: &reader{server: s},
		cipher: NewCipher(key),
		header: Header{SSRC: c.SSRC(), PayloadLen: 100},
		plain:  speech(0, 100),
		addr:   netip.MustParseAddrPort("192.168.1.20:50000"),
	}
	return f, c
}

// next puts the next packet where the socket would.
func (f *feeder) next() int {
	b := f.reader.datagram[:]
	f.header.Sequence++
	f.header.Put(b)
	f.cipher.XOR(b[HeaderSize:], f.plain, (*[HeaderSize]byte)(b))
	return HeaderSize + len(f.plain)
}

// Nothing is allocated for a packet, in either direction, nor for one that is
// refused at any stage.
func TestNoAllocations(t *testing.T) {
	f, c := newFeeder(t)
	f.reader.handle(f.next(), f.addr)
	foreign := netip.MustParseAddrPort("192.168.1.66:50000")
	moved := false
	for name, do := range map[string]func(){
		"up":      func() { f.reader.handle(f.next(), f.addr) },
		"replay":  func() { f.next(); f.header.Sequence--; f.reader.handle(HeaderSize+100, f.addr) },
		"short":   func() { f.reader.handle(3, f.addr) },
		"unknown": func() { n := f.next(); f.reader.datagram[4]++; f.reader.handle(n, f.addr) },
		"nonsense": func() {
			n := f.next()
			f.reader.datagram[HeaderSize] ^= 4
			f.reader.handle(n, f.addr)
		},
		"foreign": func() { f.reader.handle(f.next(), foreign); f.reader.handle(f.next(), f.addr) },
		"down": func() {
			if _, err := c.Send(f.plain); err != nil {
				t.Error(err)
			}
		},
		"stats": func() { moved = moved || c.Stats().Moves != 0 },
	} {
		if got := testing.AllocsPerRun(1000, do); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
	// The runs did what their names say.
	if got := c.Stats(); moved || got.Delivered < 2000 || got.Sent < 1000 || got.Dropped.Replayed < 1000 ||
		got.Dropped.Implausible < 1000 || got.Dropped.Foreign < 1000 {
		t.Errorf("%+v", got)
	}
}

// BenchmarkUp is everything between the socket and the receiver, for a packet
// of 100 bytes, less the making of it, which BenchmarkCipher shows.
func BenchmarkUp(b *testing.B) {
	f, c := newFeeder(b)
	b.ReportAllocs()
	for b.Loop() {
		f.reader.handle(f.next(), f.addr)
	}
	if got := c.Stats().Dropped.Total(); got != 0 {
		b.Fatalf("%d dropped", got)
	}
}

// BenchmarkDown is everything between Send and the socket, for 100 bytes.
func BenchmarkDown(b *testing.B) {
	f, c := newFeeder(b)
	f.reader.handle(f.next(), f.addr)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Send(f.plain); errors.Is(err, ErrExhausted) {
			c.timestamp, c.sequence = 0, 0
		}
	}
}

// BenchmarkUnknown is what a packet of no session costs, the cheapest attack.
func BenchmarkUnknown(b *testing.B) {
	f, _ := newFeeder(b)
	n := f.next()
	f.reader.datagram[4]++
	b.ReportAllocs()
	for b.Loop() {
		f.reader.handle(n, f.addr)
	}
}

// BenchmarkRelay has packets echoed over loopback: decrypted, checked,
// delivered, encrypted and sent. BenchmarkBareSocket does the same system calls
// and nothing else; the ratio is what this package costs.
func BenchmarkRelay(b *testing.B) {
	conn := listen(b)
	s := New(conn, Config{}, slog.New(slog.DiscardHandler))
	e := new(echo)
	c, err := s.Open(e)
	if err != nil {
		b.Fatal(err)
	}
	e.channel = c
	ctx, cancel := context.WithCancel(b.Context())
	served := make(chan error)
	go func() { served <- s.Serve(ctx) }()
	exchange(b, conn, c)
	cancel()
	if err := <-served; err != nil {
		b.Error(err)
	}
}

// BenchmarkBareSocket is the measure of BenchmarkRelay.
func BenchmarkBareSocket(b *testing.B) {
	conn := listen(b)
	c, err := New(new(sink), Config{}, slog.New(slog.DiscardHandler)).Open(new(recorder))
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		buffer := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			conn.WriteToUDPAddrPort(buffer[:n], from)
		}
	}()
	exchange(b, conn, c)
	conn.Close()
	<-done
}

func listen(b *testing.B) *net.UDPConn {
	b.Helper()
	conn, err := Listen("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	return conn
}

// exchange sends b.N valid packets, at most 64 unanswered, and reads the echoes.
func exchange(b *testing.B, conn *net.UDPConn, c *Channel) {
	b.Helper()
	d, err := net.DialUDP("udp", nil, conn.LocalAddr().(*net.UDPAddr))
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	key, nonce := c.Offer()
	cipher, packet, plain := NewCipher(key), make([]byte, 128), speech(0, 100)
	copy(packet, nonce[:])
	binary.BigEndian.PutUint16(packet[2:], 100)
	answer := make([]byte, 2048)
	b.ReportAllocs()
	b.ResetTimer()
	start, cpu := time.Now(), cpuTime(b)
	for sent, got := 0, 0; got < b.N; {
		for ; sent < b.N && sent-got < 64; sent++ {
			binary.BigEndian.PutUint32(packet[12:], uint32(sent+1))
			cipher.XOR(packet[HeaderSize:], plain, (*[HeaderSize]byte)(packet))
			d.Write(packet[:HeaderSize+100])
		}
		d.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := d.Read(answer); err != nil {
			b.Fatalf("%d of %d echoed: %v", got, b.N, err)
		}
		got++
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "packets/s")
	// Both ends, kernel included: what other programs on the machine cannot spoil.
	b.ReportMetric(float64(cpuTime(b)-cpu)/float64(b.N), "cpu-ns/op")
}

// cpuTime returns the processor time this process has used.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
