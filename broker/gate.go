package broker

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"

	"parley/internal/protocol"
)

// A refusal says why a connection was not let in, and how to say so in a
// CONNACK: MQTT 3.1.1, section 3.2.2.3, and MQTT 5, section 3.2.2.2. Where v5 is
// 0 the connection is closed without one.
type refusal struct {
	why    Refusal
	v3, v5 byte
	err    error
}

func (r *refusal) Error() string { return string(r.why) + ": " + r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

// A connect is a CONNECT packet and what it proves.
type connect struct {
	packet    packets.Packet
	id        protocol.ClientID
	enrolment protocol.Enrolment
	signed    bool
}

// readConnect reads the first packet of a connection, byte by byte up to its
// length, so that nothing but a CONNECT of at most limit bytes is ever held.
func readConnect(c net.Conn, isTLS bool, limit int) (packets.Packet, *refusal) {
	var head [2]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return packets.Packet{}, readRefusal(err)
	}
	if head[0] != firstConnect {
		return packets.Packet{}, malformed(notConnect(head[0], isTLS))
	}
	size := int(head[1])
	if size&0x80 != 0 {
		var more [1]byte
		if _, err := io.ReadFull(c, more[:]); err != nil {
			return packets.Packet{}, readRefusal(err)
		}
		// A third length byte means over 16,383 bytes, beyond any limit.
		if size = size&0x7F | int(more[0])<<7; more[0]&0x80 != 0 {
			size = maxConnectLimit + 1
		}
	}
	if size > limit {
		return packets.Packet{}, &refusal{why: RefusedTooLarge, err: fmt.Errorf("CONNECT packet above %d bytes", limit)}
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c, body); err != nil {
		return packets.Packet{}, readRefusal(err)
	}
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Connect, Remaining: size}}
	err := pk.ConnectDecode(body)
	// The id outlives the packet, whose bytes it is a part of.
	pk.Connect.ClientIdentifier = strings.Clone(pk.Connect.ClientIdentifier)
	known := pk.ProtocolVersion >= 3 && pk.ProtocolVersion <= 5
	if len(pk.Connect.ProtocolName) > 0 && !known {
		return pk, &refusal{why: RefusedVersion, v3: 1, v5: 0x84,
			err: fmt.Errorf("MQTT protocol level %d; use 3.1, 3.1.1 or 5", pk.ProtocolVersion)}
	}
	if err != nil {
		return pk, malformed(fmt.Errorf("CONNECT: %w", err))
	}
	if code := pk.ConnectValidate(); code != packets.CodeSuccess {
		return pk, malformed(fmt.Errorf("CONNECT: %w", code))
	}
	return pk, nil
}

func malformed(err error) *refusal { return &refusal{why: RefusedMalformed, err: err} }

// notConnect explains a first byte that starts no CONNECT packet.
func notConnect(b byte, isTLS bool) error {
	const tlsHandshake = 0x16 // RFC 8446, section 5.1
	if b == tlsHandshake && !isTLS {
		return errors.New("a TLS handshake on the plain listener; send TLS clients to the TLS port")
	}
	return fmt.Errorf("first byte is 0x%02x, which starts no CONNECT packet", b)
}

// readRefusal explains a connection that ended or fell silent before CONNECT.
func readRefusal(err error) *refusal {
	var record tls.RecordHeaderError
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return &refusal{why: RefusedTimeout, err: errors.New("no complete CONNECT in time")}
	case errors.As(err, &record):
		return malformed(errors.New("no TLS handshake on the TLS listener; send plain clients to the plain port"))
	}
	return malformed(fmt.Errorf("connection ended before CONNECT: %w", err))
}

// judge decides whether a CONNECT packet from remote may enter.
func judge(pk packets.Packet, key []byte, remote netip.AddrPort) (*connect, *refusal) {
	id, err := protocol.ParseClientID(pk.Connect.ClientIdentifier)
	if err != nil {
		return nil, &refusal{why: RefusedClientID, v3: 2, v5: 0x85, err: err}
	}
	if pk.Properties.AuthenticationMethod != "" {
		return nil, &refusal{why: RefusedCredentials, v3: 4, v5: 0x8C,
			err: fmt.Errorf("MQTT 5 authentication method %.32q; none is supported", pk.Properties.AuthenticationMethod)}
	}
	c := &connect{packet: pk, id: id}
	username, password := string(pk.Connect.Username), string(pk.Connect.Password)
	c.enrolment, err = protocol.ParseUsername(username)
	if len(key) == 0 {
		// Open enrolment: the user name is a courtesy, and may be another server's.
		if !isLocal(remote.Addr()) {
			return nil, &refusal{why: RefusedPublic, v3: 5, v5: 0x87,
				err: errors.New("open enrolment is for private addresses only; set a signature key")}
		}
		return c, nil
	}
	switch {
	case password == "":
		return nil, &refusal{why: RefusedCredentials, v3: 5, v5: 0x87,
			err: errors.New("no password; let the device fetch its configuration from this server, which signs it")}
	case err != nil:
		return nil, &refusal{why: RefusedCredentials, v3: 4, v5: 0x86, err: err}
	case !protocol.VerifyPassword(key, pk.Connect.ClientIdentifier, username, password):
		return nil, &refusal{why: RefusedCredentials, v3: 4, v5: 0x86,
			err: errors.New("password does not sign client id and user name; is the key the one the device was enrolled with?")}
	}
	c.signed = true
	return c, nil
}

// isLocal reports whether a is an address no stranger on the Internet has.
func isLocal(a netip.Addr) bool {
	a = a.Unmap()
	carrierNAT := netip.PrefixFrom(netip.AddrFrom4([4]byte{100, 64, 0, 0}), 10) // RFC 6598
	return a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || carrierNAT.Contains(a.WithZone(""))
}

// forEngine is the CONNECT packet as the engine shall see it: a clean session,
// no will, no credentials, and of the properties only those that shape what is
// sent. A client of MQTT 5 that asked for a longer session is told 0 s in CONNACK.
func (c *connect) forEngine() packets.Packet {
	in := &c.packet
	return packets.Packet{
		ProtocolVersion: in.ProtocolVersion,
		Connect: packets.ConnectParams{
			ClientIdentifier: in.Connect.ClientIdentifier,
			Clean:            true,
			Keepalive:        in.Connect.Keepalive,
		},
		Properties: packets.Properties{
			SessionExpiryInterval:     in.Properties.SessionExpiryInterval,
			SessionExpiryIntervalFlag: in.Properties.SessionExpiryIntervalFlag,
			MaximumPacketSize:         in.Properties.MaximumPacketSize,
			RequestProblemInfo:        in.Properties.RequestProblemInfo,
			RequestProblemInfoFlag:    in.Properties.RequestProblemInfoFlag,
		},
	}
}

// keepalive is how long the device may be silent: one and a half times what it
// promised (MQTT 3.1.1, section 3.1.2.10), and for ever if it promised nothing;
// TCP's own keepalive finds a dead peer then. The engine's own arithmetic is not
// used: it overflows 16 bits, and 50,000 s would become 9,464.
func (c *connect) keepalive() time.Duration {
	return time.Duration(c.packet.Connect.Keepalive) * time.Second * 3 / 2
}

// connack is the packet that refuses a client of the given protocol version.
func (r *refusal) connack(version byte) []byte {
	if version == 5 {
		return []byte{firstConnack, 3, 0, r.v5, 0}
	}
	return []byte{firstConnack, 2, 0, r.v3}
}
