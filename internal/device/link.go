package device

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

// networkTimeout bounds connecting, the wait for CONNACK, and each write, as the
// firmware's MQTT library does.
const networkTimeout = 10 * time.Second

// maxMessage is the longest MQTT packet a device reads, in bytes. Real devices
// have less memory; a server that sends more is at fault.
const maxMessage = 64 << 10

var (
	errRefused  = errors.New("the broker refused the connection")
	errOversize = errors.New("MQTT packet too long")
)

// A link is one MQTT 3.1.1 connection with a clean session and no will. It uses
// the packets of the Paho library and not its client: the firmware's is as small
// as this, fails a publish at once when the connection is gone, and never
// subscribes. publish may be called concurrently.
type link struct {
	conn      net.Conn
	in        *bufio.Reader
	keepalive time.Duration
	topic     string

	mu sync.Mutex // held while a packet is written
}

// dialMQTT opens the real network, with TLS on port 8883 only.
func dialMQTT(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: networkTimeout}
	if _, port, err := net.SplitHostPort(addr); err == nil && port == "8883" {
		return (&tls.Dialer{NetDialer: &d}).DialContext(ctx, "tcp", addr)
	}
	return d.DialContext(ctx, "tcp", addr)
}

func dialUDP(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "udp", addr)
}

// openLink connects and waits for CONNACK.
func openLink(ctx context.Context, dial func(context.Context, string) (net.Conn, error), addr string, c Credentials, t traits) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, networkTimeout)
	defer cancel()
	conn, err := dial(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("device: connect to %s: %w", addr, err)
	}
	keepalive := c.Keepalive
	if keepalive <= 0 {
		keepalive = t.keepalive
	}
	l := &link{
		conn: conn, in: bufio.NewReader(conn), topic: c.PublishTopic,
		keepalive: time.Duration(min(keepalive, 0xffff)) * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if err := l.handshake(c, t); err != nil {
		conn.Close()
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("device: connect to %s: %w", addr, err)
	}
	return l, nil
}

func (l *link) handshake(c Credentials, t traits) error {
	p := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	p.ProtocolName, p.ProtocolVersion, p.CleanSession = "MQTT", 4, true
	p.ClientIdentifier = c.ClientID
	p.Keepalive = uint16(l.keepalive / time.Second)
	if c.Username != "" {
		p.UsernameFlag, p.Username = true, c.Username
	}
	if c.Password != "" {
		p.PasswordFlag, p.Password = true, []byte(c.Password)
	}
	if err := l.write(p); err != nil {
		return fmt.Errorf("CONNECT: %w", err)
	}
	answer, err := l.read()
	if err != nil {
		return fmt.Errorf("CONNACK: %w", err)
	}
	ack, ok := answer.(*packets.ConnackPacket)
	if !ok {
		return fmt.Errorf("CONNACK: got a packet of type %T", answer)
	}
	if ack.ReturnCode != packets.Accepted {
		return fmt.Errorf("%w with code %d, %s", errRefused, ack.ReturnCode, packets.ConnackReturnCodes[ack.ReturnCode])
	}
	if t.py && c.SubscribeTopic != "" && c.SubscribeTopic != "null" {
		s := packets.NewControlPacket(packets.Subscribe).(*packets.SubscribePacket)
		s.MessageID, s.Topics, s.Qoss = 1, []string{c.SubscribeTopic}, []byte{1}
		return l.write(s)
	}
	return nil
}

func (l *link) write(p packets.ControlPacket) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(networkTimeout)); err != nil {
		return err
	}
	return p.Write(l.conn)
}

// read reads one packet of bounded length.
func (l *link) read() (packets.ControlPacket, error) {
	length := 0
	for i := 1; ; i++ {
		b, err := l.in.Peek(i + 1)
		if err != nil {
			return nil, err
		}
		length |= int(b[i]&0x7f) << (7 * (i - 1))
		if b[i]&0x80 == 0 {
			break
		}
		if i == 4 {
			return nil, errOversize
		}
	}
	if length > maxMessage {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", errOversize, length, maxMessage)
	}
	return packets.ReadPacket(l.in)
}

// publish sends payload with QoS 0.
func (l *link) publish(payload []byte) error {
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName, p.Payload = l.topic, payload
	return l.write(p)
}

// receive gives each message to handle until the connection ends, and returns
// why it did. Whatever the topic, it is for this device.
func (l *link) receive(handle func(payload []byte)) error {
	for {
		p, err := l.read()
		if err != nil {
			return err
		}
		m, ok := p.(*packets.PublishPacket)
		if !ok {
			continue // PINGRESP, SUBACK
		}
		if m.Qos == 1 {
			ack := packets.NewControlPacket(packets.Puback).(*packets.PubackPacket)
			ack.MessageID = m.MessageID
			if err := l.write(ack); err != nil {
				return err
			}
		}
		handle(m.Payload)
	}
}

// ping keeps the connection alive until ctx ends: a PINGREQ every half keepalive,
// as ESP-IDF's client sends them.
func (l *link) ping(ctx context.Context) {
	t := time.NewTicker(l.keepalive / 2)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if l.write(packets.NewControlPacket(packets.Pingreq)) != nil {
				return // the reader notices, too
			}
		}
	}
}
