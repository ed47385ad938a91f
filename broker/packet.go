package broker

import (
	"fmt"
	"io"

	"github.com/mochi-mqtt/server/v2/packets"
)

// First bytes of packets written here (MQTT 5, section 2.1).
const (
	firstConnect    = packets.Connect << 4
	firstConnack    = packets.Connack << 4
	firstPublish    = packets.Publish << 4 // QoS 0, not retained
	firstPuback     = packets.Puback << 4
	firstPubrec     = packets.Pubrec << 4
	firstPubrel     = packets.Pubrel<<4 | 2 // the flags are fixed: section 3.6.1
	firstPubcomp    = packets.Pubcomp << 4
	firstSuback     = packets.Suback << 4
	firstUnsuback   = packets.Unsuback << 4
	firstDisconnect = packets.Disconnect << 4
)

// maxFixedHeader is the size in bytes of the largest fixed header.
const maxFixedHeader = 5

// maxSubscribe is the size in bytes of the largest SUBSCRIBE packet accepted; a
// device has one topic to subscribe to.
const maxSubscribe = 1 << 10

// readRemaining decodes the first byte of a packet and reads the rest of its
// length from r. head holds the packet's first two bytes, and the second one is
// used for more of the length.
func readRemaining(r io.Reader, head *[2]byte) (h packets.FixedHeader, err error) {
	if err := h.Decode(head[0]); err != nil {
		return h, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	h.Remaining = int(head[1] & 0x7F)
	for shift := 7; head[1]&0x80 != 0; shift += 7 {
		if shift > 21 {
			return h, fmt.Errorf("%w: length of more than four bytes", ErrProtocol)
		}
		if _, err := io.ReadFull(r, head[1:]); err != nil {
			return h, err
		}
		h.Remaining |= int(head[1]&0x7F) << shift
	}
	return h, nil
}

// decode decodes a packet whose body is b. Strings and bytes in the result alias
// b. The error wraps ErrProtocol.
//
// It knows only the types a device has reason to send. We send QoS 0, so a
// PUBACK, PUBREC or PUBCOMP answers nothing; and the engine (v2.7.9) lets a
// PUBCOMP raise the receive quota, with which its table of QoS 2 messages grows
// without bound.
func decode(header packets.FixedHeader, version byte, b []byte) (packets.Packet, error) {
	pk := packets.Packet{FixedHeader: header, ProtocolVersion: version}
	var err error
	switch header.Type {
	case packets.Publish:
		err = pk.PublishDecode(b)
	case packets.Pubrel:
		err = pk.PubrelDecode(b)
	case packets.Subscribe:
		if version == 5 && !wellFormedSubscribe(b) {
			err = packets.ErrMalformedPacket
			break
		}
		err = pk.SubscribeDecode(b)
	case packets.Unsubscribe:
		err = pk.UnsubscribeDecode(b)
	case packets.Disconnect:
		err = pk.DisconnectDecode(b)
	case packets.Pingreq:
	default:
		return pk, fmt.Errorf("%w: packet of type %d, which a client has no reason to send", ErrProtocol, header.Type)
	}
	if err != nil {
		return pk, fmt.Errorf("%w: packet of type %d: %w", ErrProtocol, header.Type, err)
	}
	return pk, nil
}

// decodeHome decodes a packet of a home client, which also answers what it was
// sent. A fault in a decoder shall end the connection and not the process.
func decodeHome(header packets.FixedHeader, version byte, b []byte) (pk packets.Packet, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: packet of type %d, on which the decoder failed: %v", ErrProtocol, header.Type, p)
		}
	}()
	pk = packets.Packet{FixedHeader: header, ProtocolVersion: version}
	switch header.Type {
	case packets.Puback:
		err = pk.PubackDecode(b)
	case packets.Pubrec:
		err = pk.PubrecDecode(b)
	case packets.Pubcomp:
		err = pk.PubcompDecode(b)
	default:
		return decode(header, version, b)
	}
	if err != nil {
		return pk, fmt.Errorf("%w: packet of type %d: %w", ErrProtocol, header.Type, err)
	}
	return pk, nil
}

// wellFormedSubscribe reports whether the body of an MQTT 5 SUBSCRIBE ends where
// it should: a packet id, properties, and filters each with an options byte. On
// one that ends after a filter, packets.SubscribeDecode (v2.7.9) indexes past the
// end, and the process would end for a packet of eight bytes.
func wellFormedSubscribe(b []byte) bool {
	if len(b) < 2 {
		return false
	}
	n, b, ok := cutLength(b[2:])
	if !ok || n > len(b) {
		return false
	}
	b = b[n:]
	for len(b) > 0 {
		if len(b) < 2 {
			return false
		}
		filter := int(b[0])<<8 | int(b[1])
		if len(b) < 2+filter+1 {
			return false
		}
		b = b[2+filter+1:]
	}
	return true
}

// cutLength takes a variable byte integer (MQTT 5, section 1.5.5) off the front
// of b.
func cutLength(b []byte) (n int, rest []byte, ok bool) {
	for i := 0; i < len(b) && i < 4; i++ {
		n |= int(b[i]&0x7F) << (7 * i)
		if b[i]&0x80 == 0 {
			return n, b[i+1:], true
		}
	}
	return 0, nil, false
}

// appendLength appends n as a variable byte integer.
func appendLength(b []byte, n int) []byte {
	for n > 0x7F {
		b = append(b, byte(n)|0x80)
		n >>= 7
	}
	return append(b, byte(n))
}

// ackPacket is a PUBACK, PUBREC, PUBREL or PUBCOMP. MQTT 3 knows no codes.
func ackPacket(first byte, id uint16, code byte, v5 bool) []byte {
	if v5 && code != 0 {
		return []byte{first, 3, byte(id >> 8), byte(id), code}
	}
	return []byte{first, 2, byte(id >> 8), byte(id)}
}

// suback is a SUBACK or UNSUBACK, without properties.
func suback(first byte, id uint16, codes []byte, v5 bool) []byte {
	body := []byte{byte(id >> 8), byte(id)}
	if v5 {
		body = append(body, 0)
	}
	body = append(body, codes...)
	return append(appendLength([]byte{first}, len(body)), body...)
}
