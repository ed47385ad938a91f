package device

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"parley/internal/protocol"
	"parley/internal/simnet"
)

const ms = time.Millisecond

var (
	serverIP = netip.MustParseAddr("10.0.0.1")
	deviceIP = netip.MustParseAddr("10.0.0.2")
	mqttAddr = netip.AddrPortFrom(serverIP, 8883)
	udpAddr  = netip.AddrPortFrom(serverIP, 8884)
)

// A server is a scripted server for one device: it does what the test says and
// remembers what the device did.
type server struct {
	t   *testing.T
	net *simnet.Network
	tcp net.Listener
	udp *simnet.PacketConn
	wg  sync.WaitGroup

	onHello func() // instead of the reply

	mu       sync.Mutex
	conn     net.Conn
	topic    string
	packets  []packets.ControlPacket // everything that is no PUBLISH
	messages []received
	audio    []uplink
	key      [16]byte
	nonce    [16]byte
	sessions int
	from     netip.AddrPort
	seq      uint32
}

// received is a message of the device, uplink one of its packets.
type received struct {
	at   time.Time
	text string
}

type uplink struct {
	at      time.Time
	header  header
	payload []byte
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{t: t, net: simnet.New(1)}
	var err error
	if s.tcp, err = s.net.ListenTCP(mqttAddr); err != nil {
		t.Fatal(err)
	}
	if s.udp, err = s.net.ListenUDP(udpAddr); err != nil {
		t.Fatal(err)
	}
	s.wg.Go(s.accept)
	s.wg.Go(s.readAudio)
	t.Cleanup(s.close)
	return s
}

func (s *server) close() {
	s.tcp.Close()
	s.udp.Close()
	s.mu.Lock()
	if s.conn != nil {
		s.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func (s *server) accept() {
	for {
		c, err := s.tcp.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() { s.serve(c) })
	}
}

func (s *server) serve(c net.Conn) {
	defer c.Close()
	for {
		p, err := packets.ReadPacket(c)
		if err != nil {
			return
		}
		s.mu.Lock()
		switch p := p.(type) {
		case *packets.ConnectPacket:
			s.packets = append(s.packets, p)
			s.conn = c
			_ = packets.NewControlPacket(packets.Connack).Write(c)
		case *packets.PublishPacket:
			s.topic = p.TopicName
			s.messages = append(s.messages, received{time.Now(), string(p.Payload)})
			if bytes.Contains(p.Payload, []byte(`"type":"hello"`)) {
				s.mu.Unlock()
				s.answerHello()
				s.mu.Lock()
			}
		case *packets.PingreqPacket:
			s.packets = append(s.packets, p)
			_ = packets.NewControlPacket(packets.Pingresp).Write(c)
		default:
			s.packets = append(s.packets, p)
		}
		s.mu.Unlock()
	}
}

func (s *server) answerHello() {
	if s.onHello != nil {
		s.onHello()
		return
	}
	s.hello()
}

// hello sets up a new session and says so.
func (s *server) hello() {
	s.mu.Lock()
	s.sessions++
	s.key = [16]byte{1, 2, 3, byte(s.sessions)}
	s.nonce = [16]byte{1, 0, 0, 0, 0xaa, 0xbb, 0xcc, byte(s.sessions)}
	s.seq = 0
	s.from = netip.AddrPort{}
	offer := protocol.UDPOffer{Server: serverIP.String(), Port: int(udpAddr.Port()), Key: s.key, Nonce: s.nonce}
	m := protocol.HelloReply(s.session(), offer)
	s.mu.Unlock()
	s.say(string(m))
}

func (s *server) session() string { return fmt.Sprintf("s%d", s.sessions) }

// say publishes a message; %s in it is the session id.
func (s *server) say(m string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn == nil {
		s.t.Error("the device is not connected")
		return
	}
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName = "anything" // a device takes every topic
	p.Payload = []byte(strings.ReplaceAll(m, "%s", s.session()))
	if err := p.Write(s.conn); err != nil {
		s.t.Errorf("publish %s: %v", m, err)
	}
}

func (s *server) start() { s.say(`{"type":"tts","session_id":"%s","state":"start"}`) }
func (s *server) stop()  { s.say(`{"type":"tts","session_id":"%s","state":"stop"}`) }

func (s *server) readAudio() {
	buf := make([]byte, 2048)
	for {
		n, from, err := s.udp.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.from = from
		c := s.codec()
		s.audio = append(s.audio, uplink{time.Now(), readHeader(buf[:n]), c.open(buf[:n])})
		if len(buf[:n]) != headerLen+readHeader(buf[:n]).length || buf[0] != 1 {
			s.t.Errorf("uplink packet with header % x of %d bytes", buf[:headerLen], n)
		}
		s.mu.Unlock()
	}
}

func (s *server) codec() codec {
	c, err := newCodec(hex.EncodeToString(s.key[:]), hex.EncodeToString(s.nonce[:]))
	if err != nil {
		s.t.Error(err)
	}
	return c
}

// frame sends one audio packet with the next sequence.
func (s *server) frame() { s.frames(1) }

func (s *server) frames(n int) {
	for range n {
		s.audioFrame(make([]byte, 60))
	}
}

func (s *server) audioFrame(payload []byte) {
	s.mu.Lock()
	s.seq++
	seq := s.seq
	s.mu.Unlock()
	s.packet(seq, payload)
}

// packet sends a packet as the wire is described: sealed here, not with the
// device's own code.
func (s *server) packet(seq uint32, payload []byte) {
	s.mu.Lock()
	h := s.nonce
	s.mu.Unlock()
	h[1] = 0x80
	binary.BigEndian.PutUint16(h[2:], uint16(len(payload)))
	binary.BigEndian.PutUint32(h[8:], seq*60)
	binary.BigEndian.PutUint32(h[12:], seq)
	s.datagram(s.sealed(h, payload))
}

func (s *server) sealed(h [16]byte, payload []byte) []byte {
	block, err := aes.NewCipher(s.key[:])
	if err != nil {
		s.t.Error(err)
		return nil
	}
	out := append(h[:], payload...)
	cipher.NewCTR(block, h[:]).XORKeyStream(out[headerLen:], payload)
	return out
}

func (s *server) datagram(b []byte) {
	s.mu.Lock()
	to := s.from
	s.mu.Unlock()
	if !to.IsValid() {
		s.t.Error("no address to send audio to: the device has sent none")
		return
	}
	if _, err := s.udp.WriteToUDPAddrPort(b, to); err != nil {
		s.t.Error(err)
	}
}

// said is what the device has published since the start, without hello, in
// short: "listen start auto", "abort", "goodbye", "mcp".
func (s *server) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, m := range s.messages {
		var v struct{ Type, State, Mode, Text, Reason string }
		if err := json.Unmarshal([]byte(m.text), &v); err != nil {
			all = append(all, "invalid")
			continue
		}
		all = append(all, strings.Join(strings.Fields(strings.Join([]string{v.Type, v.State, v.Mode, v.Text, v.Reason}, " ")), " "))
	}
	return all
}

// control are the device's MQTT packets other than PUBLISH.
func (s *server) control() []packets.ControlPacket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]packets.ControlPacket(nil), s.packets...)
}

// last is the last message of the device.
func (s *server) last() received {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.messages) == 0 {
		return received{}
	}
	return s.messages[len(s.messages)-1]
}

func (s *server) uplinks() []uplink {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]uplink(nil), s.audio...)
}

// A diary remembers a device's events.
type diary struct {
	mu     sync.Mutex
	events []Event
}

func (d *diary) note(e Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// all are the events of a kind.
func (d *diary) all(k Kind) []Event {
	d.mu.Lock()
	defer d.mu.Unlock()
	var found []Event
	for _, e := range d.events {
		if e.Kind == k {
			found = append(found, e)
		}
	}
	return found
}

// bench is a device, its server and what happened.
type bench struct {
	*testing.T
	*server
	*Device
	diary diary
	conns []*simnet.UDPConn
	up    simnet.Path
	down  simnet.Path
}

// run runs a test in virtual time with a device that is connected.
func run(t *testing.T, o Options, test func(b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: newServer(t)}
		b.boot(o)
		test(b)
	})
}

func (b *bench) boot(o Options) {
	b.Helper()
	b.Device = b.make(o)
	b.Cleanup(b.Device.Close)
	if err := b.Connect(context.Background()); err != nil {
		b.Fatal(err)
	}
	time.Sleep(100 * ms) // idle is drawn
}

// make is a device on the bench's network.
func (b *bench) make(o Options) *Device {
	b.Helper()
	o.ID = "aa:bb:cc:dd:ee:ff"
	if o.OTA == "" && o.MQTT.Endpoint == "" {
		o.MQTT = Credentials{Endpoint: serverIP.String(), ClientID: "GID@@@aa_bb_cc_dd_ee_ff@@@u", Username: "user", Password: "secret", PublishTopic: "device-server/aa_bb_cc_dd_ee_ff"}
	}
	o.DialMQTT = func(ctx context.Context, addr string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, err
		}
		return b.server.net.DialTCP(ctx, deviceIP, to, simnet.Path{}, simnet.Path{})
	}
	o.DialUDP = func(_ context.Context, addr string) (net.Conn, error) {
		to, err := netip.ParseAddrPort(addr)
		if err != nil {
			return nil, err
		}
		c, err := b.server.net.DialUDP(deviceIP, to, b.up, b.down)
		b.conns = append(b.conns, c)
		return c, err
	}
	if o.OnEvent == nil {
		o.OnEvent = b.diary.note
	}
	d, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	return d
}

// open opens a conversation and lets the first microphone packet reach the
// server, so that audio can come back.
func (b *bench) open() {
	b.Helper()
	if err := b.Device.Open(context.Background()); err != nil {
		b.Fatal(err)
	}
	time.Sleep(60 * ms)
	synctest.Wait()
}

// speak lets the device speak: after it, it has acted on tts start.
func (b *bench) speak() {
	b.Helper()
	b.start()
	time.Sleep(100 * ms)
	b.expect(Speaking)
}

func (b *bench) expect(s State) {
	b.Helper()
	synctest.Wait()
	if got := b.State(); got != s {
		b.Fatalf("state %v, want %v", got, s)
	}
}

// tally fails unless the fields of the report that want sets have its values,
// and all drops it does not set are zero.
func (b *bench) tally(want Report) {
	b.Helper()
	got := b.Report()
	got.Received, got.Messages, got.Sent, got.SendDropped, got.Sounding = 0, 0, 0, 0, 0
	if want.UnderrunTime == 0 {
		got.UnderrunTime = 0
	}
	if got != want {
		b.Fatalf("report\n got %+v\nwant %+v", got, want)
	}
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Fatalf("%s:\n got %q\nwant %q", what, got, want)
	}
}
