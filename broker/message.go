package broker

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// A message is on its way to home clients. All who wait for it share it, so it
// does not change.
type message struct {
	topic   string
	payload []byte
	qos     byte
	retain  bool
	props   *packets.Properties // those of MQTT 5 that are passed on; nil for none
	expires time.Time           // zero for never
	from    *homeSession        // nil if it is our own
	size    int                 // bytes, what it counts for
}

// newMessage makes a message of a PUBLISH packet. It keeps the packet's bytes.
func newMessage(pk *packets.Packet, from *homeSession, now time.Time) *message {
	m := &message{
		topic: pk.TopicName, payload: pk.Payload, qos: pk.FixedHeader.Qos, retain: pk.FixedHeader.Retain,
		from: from, size: pk.FixedHeader.Remaining,
	}
	m.setProperties(&pk.Properties, now)
	return m
}

// setProperties keeps what a receiver is to be told (MQTT 5, section 3.3.2.3).
func (m *message) setProperties(p *packets.Properties, now time.Time) {
	if p.MessageExpiryInterval > 0 {
		m.expires = now.Add(time.Duration(p.MessageExpiryInterval) * time.Second)
	}
	if !p.PayloadFormatFlag && p.ContentType == "" && p.ResponseTopic == "" &&
		len(p.CorrelationData)+len(p.User) == 0 {
		return
	}
	m.props = &packets.Properties{
		PayloadFormat: p.PayloadFormat, PayloadFormatFlag: p.PayloadFormatFlag, ContentType: p.ContentType,
		ResponseTopic: p.ResponseTopic, CorrelationData: p.CorrelationData, User: p.User,
	}
}

// expired reports whether nobody shall hear the message any more.
func (m *message) expired(now time.Time) bool { return !m.expires.IsZero() && !now.Before(m.expires) }

// A delivery is a message to one home client.
type delivery struct {
	msg      *message
	ids      []uint32 // of the subscriptions that match, MQTT 5
	packetID uint16   // 0 until sent, and with QoS 0
	qos      byte
	retain   bool // the flag in the packet
	replay   bool // retained, and sent because of a new subscription
	dup      bool // sent before
	released bool // QoS 2: its PUBREC came
}

// appendPublish appends the delivery's PUBLISH packet (MQTT 5, section 3.3).
func (d *delivery) appendPublish(b []byte, v5 bool, now time.Time) []byte {
	first := firstPublish | d.qos<<1
	if d.retain {
		first |= 1
	}
	if d.dup {
		first |= 1 << 3
	}
	size := 2 + len(d.msg.topic) + len(d.msg.payload)
	if d.qos > 0 {
		size += 2
	}
	var props []byte
	if v5 {
		props = d.properties(now)
		size += len(props)
	}
	b = appendLength(append(b, first), size)
	b = binary.BigEndian.AppendUint16(b, uint16(len(d.msg.topic)))
	b = append(b, d.msg.topic...)
	if d.qos > 0 {
		b = binary.BigEndian.AppendUint16(b, d.packetID)
	}
	return append(append(b, props...), d.msg.payload...)
}

// properties are those of MQTT 5, with their length in front.
func (d *delivery) properties(now time.Time) []byte {
	if d.msg.props == nil && d.msg.expires.IsZero() && len(d.ids) == 0 {
		return []byte{0}
	}
	var p packets.Properties
	if d.msg.props != nil {
		p = *d.msg.props
	}
	if !d.msg.expires.IsZero() {
		p.MessageExpiryInterval = uint32(max(d.msg.expires.Sub(now)/time.Second, 1))
	}
	for _, id := range d.ids {
		p.SubscriptionIdentifier = append(p.SubscriptionIdentifier, int(id))
	}
	var b bytes.Buffer
	p.Encode(packets.Publish, packets.Mods{AllowResponseInfo: true}, &b, 0)
	return b.Bytes()
}
