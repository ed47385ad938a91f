package broker

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"parley/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	macA = protocol.DeviceID("a0:85:e3:00:00:01")
	macB = protocol.DeviceID("a0:85:e3:00:00:02")
)

func clientID(id protocol.DeviceID) string { return "GID_test@@@" + id.Underscored() + "@@@uuid" }

// An event is one call of a Handler or Receiver.
type event struct {
	what    string // connect, receive, disconnected
	link    *Link
	payload string
	reason  error
}

// A recorder is a Handler that writes down what happens. The channel holds more
// than any test causes, so it never blocks the broker. Nothing here has a time
// limit: what never happens ends the test by synctest's deadlock detection, or
// go test's own timeout.
type recorder struct {
	events chan event
	refuse bool
}

func newRecorder() *recorder { return &recorder{events: make(chan event, 4096)} }

func (r *recorder) Connect(l *Link) Receiver {
	r.events <- event{what: "connect", link: l}
	if r.refuse {
		return nil
	}
	return recorded{r, l}
}

type recorded struct {
	*recorder
	link *Link
}

func (r recorded) Receive(p []byte) {
	r.events <- event{what: "receive", link: r.link, payload: string(p)}
}

func (r recorded) Disconnected(reason error) {
	r.events <- event{what: "disconnected", link: r.link, reason: reason}
}

// next is the next event, which must be what.
func (r *recorder) next(t testing.TB, what string) event {
	t.Helper()
	e := <-r.events
	if e.what != what {
		t.Fatalf("event %q (payload %q, reason %v), want %q", e.what, e.payload, e.reason, what)
	}
	return e
}

// start serves a broker until the test ends, and checks that it then stops.
func start(t testing.TB, cfg Config, h Handler) *Embedded {
	t.Helper()
	return startLogging(t, cfg, h, slog.New(slog.DiscardHandler))
}

func startLogging(t testing.TB, cfg Config, h Handler, log *slog.Logger) *Embedded {
	t.Helper()
	b, err := New(cfg, h, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return b
}

// A pipeListener hands out in-memory connections, for tests in virtual time.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return tcpAddr("192.168.1.10:1883") }

// dial connects from the given address.
func (l *pipeListener) dial(t testing.TB, from string) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	select {
	case l.conns <- addressed{server, tcpAddr(from)}:
	case <-l.closed:
		t.Fatal("listener is closed")
	}
	return client
}

type addressed struct {
	net.Conn
	remote net.Addr
}

func (a addressed) LocalAddr() net.Addr  { return tcpAddr("192.168.1.10:1883") }
func (a addressed) RemoteAddr() net.Addr { return a.remote }

func tcpAddr(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }

// A packet is an MQTT control packet as it came.
type packet struct {
	first byte
	body  []byte
}

// A peer is the device's end of a connection, speaking bytes.
type peer struct {
	t    testing.TB
	conn net.Conn
	in   chan packet // closed when the connection ends
}

// newPeer reads from c until it ends. The test closes c, at the latest at its end.
func newPeer(t testing.TB, c net.Conn) *peer {
	p := &peer{t: t, conn: c, in: make(chan packet, 4096)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.in)
		r := bufio.NewReader(c)
		for {
			first, err := r.ReadByte()
			if err != nil {
				return
			}
			n, err := binary.ReadUvarint(r) // the same coding as MQTT's
			if err != nil {
				return
			}
			body := make([]byte, n)
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			p.in <- packet{first, body}
		}
	}()
	t.Cleanup(func() { c.Close(); <-done })
	return p
}

func (p *peer) write(b ...byte) {
	p.t.Helper()
	if _, err := p.conn.Write(b); err != nil {
		p.t.Fatalf("write: %v", err)
	}
}

// next is the next packet; its first byte must be want.
func (p *peer) next(want byte) packet {
	p.t.Helper()
	got, ok := <-p.in
	if !ok {
		p.t.Fatalf("connection ended, want packet 0x%02x", want)
	}
	if got.first != want {
		p.t.Fatalf("packet 0x%02x %x, want 0x%02x", got.first, got.body, want)
	}
	return got
}

// ended checks that the connection ends without another packet.
func (p *peer) ended() {
	p.t.Helper()
	if got, ok := <-p.in; ok {
		p.t.Fatalf("packet 0x%02x %x, want the connection's end", got.first, got.body)
	}
}

// ping makes sure that everything before it was processed.
func (p *peer) ping() {
	p.t.Helper()
	p.write(0xC0, 0)
	p.next(0xD0)
}

// A hello is the content of a CONNECT packet.
type hello struct {
	version            byte // 4 if 0
	clientID           string
	username, password string
	keepalive          uint16 // s
	props              []byte // MQTT 5
	unclean            bool
	will               bool      // one for another device's downlink
	last               *lastWord // a will of the test's own
}

// A lastWord is a will.
type lastWord struct {
	topic, payload string
	qos            byte
	retain         bool
	props          []byte // MQTT 5
}

func (h hello) packet() []byte {
	if h.version == 0 {
		h.version = 4
	}
	name, flags := "MQTT", byte(0)
	if h.version == 3 {
		name = "MQIsdp"
	}
	if !h.unclean {
		flags |= 2
	}
	var rest []byte
	if h.version == 5 {
		rest = appendLength(rest, len(h.props))
		rest = append(rest, h.props...)
	}
	rest = appendString(rest, h.clientID)
	if h.will {
		h.last = &lastWord{topic: protocol.DownlinkTopic(macB), payload: "will", retain: true}
	}
	if w := h.last; w != nil {
		flags |= 1<<2 | w.qos<<3
		if w.retain {
			flags |= 1 << 5
		}
		if h.version == 5 {
			rest = append(appendLength(rest, len(w.props)), w.props...)
		}
		rest = appendString(appendString(rest, w.topic), w.payload)
	}
	if h.username != "" {
		flags |= 1 << 7
		rest = appendString(rest, h.username)
	}
	if h.password != "" {
		flags |= 1 << 6
		rest = appendString(rest, h.password)
	}
	body := append(appendString(nil, name), h.version, flags, byte(h.keepalive>>8), byte(h.keepalive))
	return frame(0x10, append(body, rest...))
}

func frame(first byte, body []byte) []byte {
	return append(appendLength([]byte{first}, len(body)), body...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

func publish(topic, payload string) []byte {
	return frame(0x30, append(appendString(nil, topic), payload...))
}

// join sends h and expects to be let in.
func join(t testing.TB, c net.Conn, h hello) *peer {
	t.Helper()
	p := newPeer(t, c)
	p.write(h.packet()...)
	if ack := p.next(0x20); ack.body[1] != 0 {
		t.Fatalf("CONNACK code %d, want 0", ack.body[1])
	}
	return p
}

// refused sends h and expects a CONNACK with the code, then the end.
func refused(t testing.TB, c net.Conn, h hello, code byte) {
	t.Helper()
	p := newPeer(t, c)
	p.write(h.packet()...)
	if ack := p.next(0x20); ack.body[1] != code {
		t.Errorf("CONNACK code %#x, want %#x", ack.body[1], code)
	}
	p.ended()
}

func dialTCP(t testing.TB, b *Embedded) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantReason(t testing.TB, got, want error) {
	t.Helper()
	if want == nil && got != nil || !errors.Is(got, want) {
		t.Errorf("reason %v, want %v", got, want)
	}
}

// A logBuffer collects log lines. It is safe for concurrent use.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}
