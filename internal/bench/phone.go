//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"parley/internal/protocol"
)

// patience bounds every wait for the server. An answer that takes longer is a
// failure of the measurement and not a figure.
const patience = 10 * time.Second

var errLate = errors.New("no answer within 10 s")

// A phone is the least a device can be: an MQTT connection, a place in the
// fleet's UDP socket, and no sound. Its methods are called by one goroutine.
type phone struct {
	id      protocol.DeviceID
	conn    net.Conn
	in      *bufio.Reader
	sink    *sink
	closed  chan struct{} // the reader has ended
	hellos  chan greeting
	stops   chan time.Duration // when a tts stop came
	texts   chan string        // of the newest sentence
	writing sync.Mutex         // the reader answers MCP
	sent    atomic.Uint64      // audio packets

	session string
	to      netip.AddrPort
	caller  *caller
	track   *track
}

// A greeting is what a phone reads of the server's messages, mostly the hello.
type greeting struct {
	Type    string `json:"type"`
	State   string `json:"state"`
	Text    string `json:"text"`
	Session string `json:"session_id"`
	UDP     struct {
		Server string `json:"server"`
		Port   uint16 `json:"port"`
		Key    string `json:"key"`
		Nonce  string `json:"nonce"`
	} `json:"udp"`
	Payload struct {
		Method string          `json:"method"`
		ID     json.RawMessage `json:"id"`
	} `json:"payload"`
}

// dialPhone connects one device over MQTT and has it read.
func dialPhone(ctx context.Context, addr string, n int, s *sink) (*phone, error) {
	p, err := dialRaw(ctx, addr, n)
	if err != nil {
		return nil, err
	}
	p.sink = s
	go p.read()
	return p, nil
}

// dialRaw connects one device with signed credentials, and reads no message.
func dialRaw(ctx context.Context, addr string, n int) (*phone, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	p := &phone{
		id:   protocol.DeviceID(fmt.Sprintf("02:00:00:%02x:%02x:%02x", n>>16&0xff, n>>8&0xff, n&0xff)),
		conn: conn, in: bufio.NewReaderSize(conn, 512), closed: make(chan struct{}),
		hellos: make(chan greeting, 1), stops: make(chan time.Duration, 1), texts: make(chan string, 1),
	}
	// Without it 30,000 closed connections would keep all ports for a minute.
	if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := p.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("connect %s: %w", p.id, err), conn.Close())
	}
	return p, nil
}

func (p *phone) connect() error {
	c := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	c.ProtocolName, c.ProtocolVersion, c.CleanSession, c.Keepalive = "MQTT", 4, true, 240
	c.ClientIdentifier = protocol.ClientID{Group: "GID_bench", Device: p.id, UUID: "01234567-89ab-cdef-0123-456789abcdef"}.String()
	c.UsernameFlag, c.Username = true, protocol.Enrolment{Host: "127.0.0.1", Agent: "bench/1.0.0"}.Username()
	c.PasswordFlag, c.Password = true, []byte(protocol.Password([]byte(houseKey), c.ClientIdentifier, c.Username))
	if err := c.Write(p.conn); err != nil {
		return err
	}
	if err := p.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	answer, err := packets.ReadPacket(p.in)
	if err != nil {
		return err
	}
	if ack, ok := answer.(*packets.ConnackPacket); !ok || ack.ReturnCode != packets.Accepted {
		return fmt.Errorf("refused: %v", answer)
	}
	return p.conn.SetReadDeadline(time.Time{})
}

// read is the phone's goroutine. It ends with the connection.
func (p *phone) read() {
	defer close(p.closed)
	for {
		packet, err := packets.ReadPacket(p.in)
		if err != nil {
			return
		}
		m, ok := packet.(*packets.PublishPacket)
		if !ok {
			continue
		}
		var g greeting
		if json.Unmarshal(m.Payload, &g) != nil {
			continue
		}
		switch {
		case g.Type == "hello":
			latest(p.hellos, g)
		case g.Type == "tts" && g.State == "stop":
			latest(p.stops, wall())
		case g.Type == "tts" && g.State == "sentence_start":
			latest(p.texts, g.Text)
		case g.Type == "mcp":
			p.answerMCP(g.Payload.Method, string(g.Payload.ID))
		}
	}
}

// latest puts v into c, which has room for one, in place of what is there.
func latest[T any](c chan T, v T) {
	for {
		select {
		case c <- v:
			return
		default:
		}
		select {
		case <-c:
		default:
		}
	}
}

// answerMCP says that the device has no tools.
func (p *phone) answerMCP(method, id string) {
	result := `{"tools":[]}`
	switch method {
	case "initialize":
		result = `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1.0.0"}}`
	case "tools/list":
	default:
		return
	}
	// A failed answer shows as a closed connection.
	_ = p.publish(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}}`)
}

func (p *phone) publish(message string) error {
	m := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	m.TopicName, m.Payload = protocol.SharedUplinkTopic, []byte(message)
	p.writing.Lock()
	defer p.writing.Unlock()
	return m.Write(p.conn)
}

// hello opens a session.
func (p *phone) hello() error {
	if err := p.publish(`{"type":"hello","version":3,"transport":"udp","features":{"mcp":true},` +
		`"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`); err != nil {
		return err
	}
	g, err := await(p.hellos, p.closed)
	if err != nil {
		return fmt.Errorf("hello of %s: %w", p.id, err)
	}
	var o offer
	_, errKey := hex.Decode(o.Key[:], []byte(g.UDP.Key))
	_, errNonce := hex.Decode(o.Nonce[:], []byte(g.UDP.Nonce))
	host, errHost := netip.ParseAddr(g.UDP.Server)
	if err := errors.Join(errKey, errNonce, errHost); err != nil {
		return fmt.Errorf("hello of %s: %w", p.id, err)
	}
	p.session, p.to, p.caller = g.Session, netip.AddrPortFrom(host, g.UDP.Port), newCaller(o)
	return nil
}

// open says hello, and has the phone's packets from now on.
func (p *phone) open() error {
	if err := p.hello(); err != nil {
		return err
	}
	n := p.caller.datagram
	p.track = p.sink.track(uint32(n[4])<<24 | uint32(n[5])<<16 | uint32(n[6])<<8 | uint32(n[7]))
	return nil
}

// silence is what a microphone sends while it is quiet: a packet without sound.
var silence = []byte{silk60}

// say sends one Opus packet.
func (p *phone) say(opus []byte) error {
	p.sent.Add(1)
	return p.sink.send(p.caller.seal(opus), p.to)
}

// listen says that the phone listens.
func (p *phone) listen() error {
	return p.publish(`{"type":"listen","state":"start","mode":"auto","session_id":"` + p.session + `"}`)
}

// ask has the server reply to typed text. The packet of silence tells it where
// the phone is; sent long before the listen start, it would look like a network
// on which messages are late.
func (p *phone) ask() error {
	if err := p.listen(); err != nil {
		return err
	}
	if err := p.say(silence); err != nil {
		return err
	}
	return p.publish(`{"type":"listen","state":"detect","text":"tell me something","session_id":"` + p.session + `"}`)
}

// abort interrupts the reply.
func (p *phone) abort() error {
	return p.publish(strings.ReplaceAll(`{"type":"abort","session_id":"ID"}`, "ID", p.session))
}

// close breaks the connection and waits for the reader.
func (p *phone) close() {
	p.conn.Close()
	<-p.closed
}

// await takes from c, within patience and before the connection ends.
func await[T any](c <-chan T, closed <-chan struct{}) (T, error) {
	t := time.NewTimer(patience)
	defer t.Stop()
	var none T
	select {
	case v := <-c:
		return v, nil
	case <-closed:
		return none, errors.New("the server closed the connection")
	case <-t.C:
		return none, errLate
	}
}
