package broker

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"

	"parley/internal/protocol"
)

// BenchmarkSend is the way of one message of 120 bytes from Send to a device
// that reads over loopback TCP.
func BenchmarkSend(b *testing.B) {
	r := newRecorder()
	br := start(b, Config{Listen: "127.0.0.1:0"}, r)
	c := dialTCP(b, br)
	defer c.Close()
	if _, err := c.Write(hello{clientID: clientID(macA)}.packet()); err != nil {
		b.Fatal(err)
	}
	l := r.next(b, "connect").link
	payload := make([]byte, 120)
	got := make([]byte, len(frame(0x30, append(appendString(nil, protocol.DownlinkTopic(macA)), payload...))))
	if _, err := io.ReadFull(c, got[:4]); err != nil { // CONNACK
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Send(payload); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, got); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceive is the way of one message of 120 bytes from a device over
// loopback TCP to its Receiver. The engine's own decoding allocates.
func BenchmarkReceive(b *testing.B) {
	got := make(counter, 1024)
	br := start(b, Config{Listen: "127.0.0.1:0", Limits: Limits{MessageRate: -1}}, got)
	c := dialTCP(b, br)
	join(b, c, hello{clientID: clientID(macA)})
	m := publish(protocol.SharedUplinkTopic, string(make([]byte, 120)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(m); err != nil {
			b.Fatal(err)
		}
		<-got
	}
}

type counter chan struct{}

func (c counter) Connect(*Link) Receiver { return c }
func (c counter) Receive([]byte)         { c <- struct{}{} }
func (c counter) Disconnected(error)     {}

// BenchmarkIdle measures what a connected, idle device costs in this process, in
// heap and stacks together; the kernel's buffers come on top. The test's own end
// of the connection, about 500 bytes, is included. It measures
// once, before any memory is there to be used again.
func BenchmarkIdle(b *testing.B) {
	const devices = 4000
	br := start(b, Config{Listen: "127.0.0.1:0", Limits: Limits{ConnectRate: -1}}, quiet{})
	inUse := func() uint64 {
		for range 5 { // each one halves the stacks that have become too large
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	conns := make([]net.Conn, devices)
	before := inUse()
	for i := range conns {
		conns[i] = dialTCP(b, br)
		id := fmt.Sprintf("GID_test@@@a0_85_e3_00_%02x_%02x@@@01234567-89ab-cdef-0123-456789abcdef", i>>8, i&0xFF)
		if _, err := conns[i].Write(hello{clientID: id, keepalive: 240}.packet()); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conns[i], make([]byte, 4)); err != nil {
			b.Fatal(err)
		}
	}
	each := float64(inUse()-before) / devices
	for _, c := range conns {
		c.Close()
	}
	for b.Loop() { // there is nothing to repeat
	}
	b.ReportMetric(each, "B/device")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkConnect is a device's whole visit: TCP, signed CONNECT, CONNACK,
// DISCONNECT.
func BenchmarkConnect(b *testing.B) {
	br := start(b, Config{Listen: "127.0.0.1:0", Key: testKey, Limits: Limits{ConnectRate: -1}}, quiet{})
	h := signed(clientID(macA)).packet()
	ack := make([]byte, 4)
	b.ReportAllocs()
	for b.Loop() {
		c := dialTCP(b, br)
		if _, err := c.Write(h); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, ack); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Write([]byte{firstDisconnect, 0}); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
