package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"testing"
	"time"

	"parley/internal/protocol"
)

// BenchmarkReceive is one downlink packet from the socket into the queue of a
// device that does not decode.
func BenchmarkReceive(b *testing.B) {
	refuse := func(context.Context, string) (net.Conn, error) { return nil, errors.New("no network") }
	d, err := New(Options{ID: "aa:bb:cc:dd:ee:ff", MQTT: Credentials{Endpoint: "h"}, Tools: []Tool{}, DialMQTT: refuse, DialUDP: refuse})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	conn, other := net.Pipe()
	defer conn.Close()
	defer other.Close()
	c, err := newCodec("000102030405060708090a0b0c0d0e0f", "01000000000000000000000000000000")
	if err != nil {
		b.Fatal(err)
	}
	d.mu.Lock()
	d.state = Speaking
	d.session.conn, d.session.codec, d.session.frame, d.session.window = conn, c, 60, newWindow()
	d.mu.Unlock()
	packet := c.seal(make([]byte, 100), new(uint32), 0)
	seq := uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		seq++
		packet[12], packet[13], packet[14], packet[15] = byte(seq>>24), byte(seq>>16), byte(seq>>8), byte(seq)
		d.receiveAudio(conn, packet)
	}
}

// BenchmarkSend seals and sends one uplink packet.
func BenchmarkSend(b *testing.B) {
	c, err := newCodec("000102030405060708090a0b0c0d0e0f", "01000000000000000000000000000000")
	if err != nil {
		b.Fatal(err)
	}
	payload, ts := make([]byte, 100), uint32(0)
	b.ReportAllocs()
	for b.Loop() {
		c.seal(payload, &ts, 1)
	}
}

// BenchmarkMicrophone encodes one 60 ms frame, as a device that speaks PCM does.
func BenchmarkMicrophone(b *testing.B) {
	enc := newMicEncoder(true, 60*time.Millisecond)
	pcm := tone(60*time.Millisecond, 16000)
	b.ReportAllocs()
	for b.Loop() {
		enc.encode(pcm)
	}
}

// BenchmarkIdle is the memory of one device that is switched on.
func BenchmarkIdle(b *testing.B) {
	refuse := func(context.Context, string) (net.Conn, error) { return nil, errors.New("no network") }
	const n = 1000
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		devices := make([]*Device, n)
		for i := range devices {
			d, err := New(Options{ID: idOf(i), MQTT: Credentials{Endpoint: "h"}, Tools: []Tool{}, DialMQTT: refuse, DialUDP: refuse})
			if err != nil {
				b.Fatal(err)
			}
			devices[i] = d
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc+after.StackInuse-before.HeapAlloc-before.StackInuse)/n, "bytes/device")
		for _, d := range devices {
			d.Close()
		}
	}
}

func idOf(i int) (id protocol.DeviceID) {
	return protocol.DeviceID(fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff))
}
