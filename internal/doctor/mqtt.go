package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"
)

const (
	// tlsPort is the port on which devices use TLS; on no other they do.
	tlsPort = "8883"
	// stepTimeout bounds every step of a visit, as a device's library does.
	stepTimeout = 10 * time.Second
	// maxMessage is the longest MQTT packet that is read, in bytes.
	maxMessage = 64 << 10
)

// A refusedError is a CONNACK with a code other than 0.
type refusedError byte

func (e refusedError) Error() string {
	return fmt.Sprintf("the broker refuses with code %d, %s", byte(e), packets.ConnackReturnCodes[byte(e)])
}

// errMQTT means that whatever answers does not speak MQTT.
var errMQTT = errors.New("the answer is not MQTT")

// A link is an MQTT 3.1.1 connection with a clean session. It does not subscribe:
// devices do not. Keepalive is off, because a visit is short. One goroutine uses
// it.
type link struct {
	conn  net.Conn
	in    *bufio.Reader
	topic string
}

// connect opens a link as b says.
func connect(ctx context.Context, b *boot) (*link, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	addr, secure := b.address()
	var dial interface {
		DialContext(ctx context.Context, network, addr string) (net.Conn, error)
	} = &net.Dialer{}
	if secure {
		dial = &tls.Dialer{}
	}
	conn, err := dial.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	l := &link{conn: conn, in: bufio.NewReader(conn), topic: b.MQTT.PublishTopic}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := l.handshake(b); err != nil {
		conn.Close()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("%w: none came in %v", errMQTT, stepTimeout)
		}
		return nil, err
	}
	return l, nil
}

func (l *link) handshake(b *boot) error {
	p := packets.NewControlPacket(packets.Connect).(*packets.ConnectPacket)
	p.ProtocolName, p.ProtocolVersion, p.CleanSession = "MQTT", 4, true
	p.ClientIdentifier = b.MQTT.ClientID
	p.UsernameFlag, p.Username = b.MQTT.Username != "", b.MQTT.Username
	p.PasswordFlag, p.Password = b.MQTT.Password != "", []byte(b.MQTT.Password)
	if err := p.Write(l.conn); err != nil {
		return err
	}
	answer, err := l.read(time.Now().Add(stepTimeout))
	if err != nil {
		return err
	}
	ack, ok := answer.(*packets.ConnackPacket)
	switch {
	case !ok:
		return errMQTT
	case ack.ReturnCode != packets.Accepted:
		return refusedError(ack.ReturnCode)
	}
	return nil
}

// read reads one packet of bounded length.
func (l *link) read(until time.Time) (packets.ControlPacket, error) {
	if err := l.conn.SetReadDeadline(until); err != nil {
		return nil, err
	}
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
			return nil, errMQTT
		}
	}
	if length > maxMessage {
		return nil, fmt.Errorf("%w: a packet of %d bytes", errMQTT, length)
	}
	p, err := packets.ReadPacket(l.in)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMQTT, err)
	}
	return p, nil
}

// publish sends a message with QoS 0.
func (l *link) publish(message string) error {
	p := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
	p.TopicName, p.Payload = l.topic, []byte(message)
	if err := l.conn.SetWriteDeadline(time.Now().Add(stepTimeout)); err != nil {
		return err
	}
	return p.Write(l.conn)
}

// next returns the payload of the next message, whatever its topic.
func (l *link) next(until time.Time) ([]byte, error) {
	for {
		p, err := l.read(until)
		if err != nil {
			return nil, err
		}
		if m, ok := p.(*packets.PublishPacket); ok {
			return m.Payload, nil
		}
	}
}
