package broker

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"testing"
)

// BenchmarkHomeIdle measures what a connected, idle home client with one
// subscription costs in this process, as BenchmarkIdle does for a device.
func BenchmarkHomeIdle(b *testing.B) {
	const clients = 1000
	br := start(b, Config{Listen: "127.0.0.1:0", Users: homeUsers(), Limits: Limits{ConnectRate: -1}}, quiet{})
	inUse := func() uint64 {
		for range 5 { // each one halves the stacks that have become too large
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	conns := make([]net.Conn, clients)
	before := inUse()
	for i := range conns {
		conns[i] = dialTCP(b, br)
		h := asUser("admin", fmt.Sprint("lamp", i))
		if _, err := conns[i].Write(append(h.packet(), frame(0x82, append(appendString([]byte{0, 1}, fmt.Sprintf("cmnd/lamp%d/#", i)), 1))...)); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(conns[i], make([]byte, 9)); err != nil {
			b.Fatal(err)
		}
	}
	each := float64(inUse()-before) / clients
	for _, c := range conns {
		c.Close()
	}
	for b.Loop() { // there is nothing to repeat
	}
	b.ReportMetric(each, "B/client")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkHomeRoute is the way of one message of 120 bytes from the bus to one
// of 1,000 topics in use, over loopback TCP to a client that reads.
func BenchmarkHomeRoute(b *testing.B) {
	br := start(b, Config{Listen: "127.0.0.1:0", Users: homeUsers(), Limits: Limits{ConnectRate: -1}}, quiet{})
	p := joinHome(b, dialTCP(b, br), asUser("admin", "p"))
	p.mustSubscribe("zigbee2mqtt/lamp/+", 0)
	for i := range 999 {
		if _, err := br.Home().Subscribe(fmt.Sprintf("zigbee2mqtt/lamp%d/state", i), func(Message) {}); err != nil {
			b.Fatal(err)
		}
	}
	payload := make([]byte, 120)
	b.ReportAllocs()
	for b.Loop() {
		if err := br.Home().Publish("zigbee2mqtt/lamp/state", payload, false); err != nil {
			b.Fatal(err)
		}
		<-p.in
	}
}

// BenchmarkHomeFanOut is one message to 1,000 subscriptions of our own.
func BenchmarkHomeFanOut(b *testing.B) {
	br := start(b, Config{Listener: newPipeListener(), Users: homeUsers()}, quiet{})
	heard := 0
	for range 1000 {
		if _, err := br.Home().Subscribe("a/+/c", func(Message) { heard++ }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := br.Home().Publish("a/b/c", nil, false); err != nil {
			b.Fatal(err)
		}
	}
}
