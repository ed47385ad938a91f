package broker

import (
	"fmt"
	"net/netip"

	"parley/internal/protocol"
)

// A Device is who is at the other end of a [Link], as proven when it connected.
type Device struct {
	ID        protocol.DeviceID
	ClientID  string             // as the device sent it
	Enrolment protocol.Enrolment // zero if the user name held none
	Signed    bool               // the credentials carry a valid signature
	TLS       bool
	// Local is the address of ours the device reached, Remote its own as we see
	// it. Either is the zero AddrPort where the listener knows no IP addresses.
	Local, Remote netip.AddrPort
}

// A Link is one MQTT connection of one device. Its methods are safe for
// concurrent use and never block.
type Link struct {
	device Device
	conn   *conn
	broker *Embedded
	v5     bool
	// max is the largest packet in bytes the device accepts.
	max int
	// topic begins the body of every PUBLISH to the device: its downlink topic
	// with its length and, in MQTT 5, an empty list of properties.
	topic []byte
	// uplink is the topic that belongs to this device alone.
	uplink string
	// session is the reading half, used by the reader goroutine only.
	session *session
	// overtaken is closed when a newer connection comes while this one waits for
	// the seat; nil when it does not wait. Guarded by Embedded.mu.
	overtaken chan struct{}
}

// A Handler learns of connections.
type Handler interface {
	// Connect is called once a connection, after its CONNACK was sent, on the
	// connection's reader goroutine. Of one device there is one connection at a
	// time: the previous one's Disconnected has returned when Connect is called.
	// A nil Receiver disconnects the device.
	Connect(*Link) Receiver
}

// A Receiver takes what one device sends. Its methods are called one at a time
// on the connection's reader goroutine; while one of them blocks, nothing more
// is read from that device, its new connections wait, and [Embedded.Serve]
// cannot return.
type Receiver interface {
	// Receive is called for every message the device publishes. The payload is
	// valid only during the call.
	Receive(payload []byte)
	// Disconnected is called once, after the last Receive. The reason is nil if
	// the device said DISCONNECT, else it wraps one of this package's errors.
	Disconnected(reason error)
}

// Device says who is connected.
func (l *Link) Device() Device { return l.device }

// Send queues a message for the device, on its downlink topic with QoS 0, which
// is the only one firmware asks for. The payload is copied. The error wraps
// [ErrGone], [ErrTooLarge] or [ErrSlow]; the last one ends the connection.
func (l *Link) Send(payload []byte) error {
	size := len(l.topic) + len(payload)
	if size > l.max {
		return fmt.Errorf("broker: %w: %d bytes to %s, at most %d allowed", ErrTooLarge, size, l.device.ID, l.max)
	}
	var head [5]byte
	if err := l.conn.enqueue(appendLength(append(head[:0], firstPublish), size), l.topic, payload); err != nil {
		return fmt.Errorf("broker: send to %s: %w", l.device.ID, err)
	}
	l.broker.stats.sent.Add(1)
	return nil
}

// Close disconnects the device after what is queued has been written, or has
// failed to be within half a second. The reason goes to the log and, wrapped
// with [ErrClosed], to [Receiver.Disconnected]. Close does not wait for either.
func (l *Link) Close(reason string) {
	l.conn.shut(fmt.Errorf("%w: %s", ErrClosed, reason))
}

// newLink describes an accepted connection whose CONNECT packet is c.
func newLink(b *Embedded, nc *conn, c *connect) *Link {
	l := &Link{
		device: Device{
			ID:        c.id.Device,
			ClientID:  c.packet.Connect.ClientIdentifier,
			Enrolment: c.enrolment,
			Signed:    c.signed,
			TLS:       nc.tls,
			Local:     addrPort(nc.raw.LocalAddr()),
			Remote:    addrPort(nc.raw.RemoteAddr()),
		},
		conn:   nc,
		broker: b,
		v5:     c.packet.ProtocolVersion == 5,
		max:    b.limits.MaxPacket,
		uplink: protocol.UplinkTopic(c.id.Device),
	}
	down := protocol.DownlinkTopic(c.id.Device)
	l.topic = append([]byte{byte(len(down) >> 8), byte(len(down))}, down...)
	if l.v5 {
		l.topic = append(l.topic, 0)
		// The limit a client states counts the fixed header too (MQTT 5, 3.1.2.11.4).
		if m := c.packet.Properties.MaximumPacketSize; m > 0 {
			l.max = min(l.max, max(int(m)-maxFixedHeader, 0))
		}
	}
	return l
}

// mayPublish reports whether the device may send to a topic: the one shared by
// all devices of the Node gateway's scheme, and its own.
func (l *Link) mayPublish(topic string) bool {
	return topic == protocol.SharedUplinkTopic || topic == l.uplink
}

// maySubscribe reports whether a filter is the device's own downlink topic. The
// leading slash is how another server spells it, and "null" is what the Node
// gateway hands out as subscribe_topic because old firmware needs the field.
func (l *Link) maySubscribe(filter string) bool {
	if filter == "null" {
		return true
	}
	down := protocol.DownlinkTopic(l.device.ID)
	return filter == down || filter == "/"+down
}
