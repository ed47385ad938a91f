package broker

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"golang.org/x/time/rate"
)

// maxHomeAnswers is the number of our answers to a home client that may wait to
// be written, each of a few bytes but for a SUBACK. Only a client that keeps
// sending and does not read comes near.
const maxHomeAnswers = 8192

// A homeClient is one connection of a home client. It is used by the connection's
// reader goroutine only, but for what never changes.
type homeClient struct {
	hub       *hub
	conn      *conn
	session   *homeSession // set by hub.attach
	rules     rules
	user, id  string
	v5        bool
	version   byte
	maxPacket int // bytes the client accepts, all of a packet
	quota     int // messages it takes unacknowledged
	keepalive time.Duration
	packets   *rate.Limiter
	began     time.Time
	expires   bool    // MQTT 5: asked for a session that outlives the connection
	denied    bool    // something was refused, and logged
	full      bool    // something was not retained, and logged
	head      [2]byte // of the packet being read
}

// admit lets a home client in, or says why not.
func (h *hub) admit(nc *conn, u *User, pk *packets.Packet) (*homeClient, *refusal) {
	in, r, refused := judgeHome(pk, u, &h.limits)
	if refused != nil {
		return nil, refused
	}
	c := &homeClient{
		hub: h, conn: nc, rules: r, user: u.Name, id: in.key.clientID,
		v5: in.v5, version: pk.ProtocolVersion,
		maxPacket: math.MaxInt, quota: h.limits.MaxInflight,
		keepalive: (&connect{packet: *pk}).keepalive(),
		packets:   rate.NewLimiter(h.limits.MessageRate, h.limits.MessageBurst),
		began:     time.Now(),
		expires:   pk.Properties.SessionExpiryInterval > 0,
	}
	if in.v5 {
		if m := pk.Properties.MaximumPacketSize; m > 0 {
			c.maxPacket = int(m)
		}
		if m := pk.Properties.ReceiveMaximum; m > 0 {
			c.quota = min(c.quota, int(m))
		}
	}
	if refused := h.attach(c, in); refused != nil {
		return nil, refused
	}
	return c, nil
}

// run serves the connection until it ends.
func (c *homeClient) run() {
	h := c.hub
	h.stats.connected.Add(1)
	h.log.Info("home client connected", "user", c.user, "client_id", c.id,
		"remote", addrPort(c.conn.raw.RemoteAddr()), "tls", c.conn.tls, "mqtt", c.version)
	err := c.read()
	reason := c.conn.end(err)
	if errors.Is(err, packets.CodeDisconnectWillMessage) {
		h.detach(c, err) // it left in good order, and wants its will said
	} else {
		h.detach(c, reason)
	}
	h.stats.connected.Add(-1)
	h.stats.ended(reason)
	attrs := []any{"user", c.user, "client_id", c.id, "connected_s", int(time.Since(c.began).Seconds())}
	if reason != nil {
		attrs = append(attrs, "reason", reason)
	}
	h.log.Info("home client disconnected", attrs...)
}

// read reads packets until the connection ends. It returns nil after DISCONNECT.
// It is at rest here nearly always, so it keeps little on the stack.
func (c *homeClient) read() error {
	for {
		c.conn.expect(c.keepalive)
		if _, err := io.ReadFull(c.conn.net, c.head[:]); err != nil {
			return err
		}
		h, err := readRemaining(c.conn.net, &c.head)
		if err != nil {
			return err
		}
		if h.Remaining > c.hub.limits.MaxPacket {
			return fmt.Errorf("%w: packet of %d bytes from the client, at most %d allowed", ErrTooLarge, h.Remaining, c.hub.limits.MaxPacket)
		}
		if left, err := c.packet(h); err != nil || left {
			return err
		}
	}
}

// packet reads the rest of a packet and handles it. It reports whether the client
// has left.
func (c *homeClient) packet(h packets.FixedHeader) (left bool, err error) {
	body := make([]byte, h.Remaining)
	if _, err := io.ReadFull(c.conn.net, body); err != nil {
		return false, err
	}
	if h.Type == packets.Disconnect {
		return true, c.disconnect(body)
	}
	pk, err := decodeHome(h, c.version, body)
	if err != nil {
		return false, err
	}
	return false, c.process(&pk)
}

// process does what a packet asks for.
func (c *homeClient) process(pk *packets.Packet) error {
	switch pk.FixedHeader.Type {
	case packets.Puback, packets.Pubrec, packets.Pubcomp:
		return c.acknowledged(pk)
	}
	if n := len(pk.Filters); n > c.hub.limits.MaxSubscriptions {
		return fmt.Errorf("%w: packet with %d filters from the client, at most %d allowed", ErrTooLarge, n, c.hub.limits.MaxSubscriptions)
	}
	c.pace(max(1, len(pk.Filters)))
	switch pk.FixedHeader.Type {
	case packets.Publish:
		return c.publish(pk)
	case packets.Pubrel:
		code := packets.ErrPacketIdentifierNotFound.Code
		if c.session.release(pk.PacketID) {
			code = 0
		}
		return c.answer(firstPubcomp, pk.PacketID, code)
	case packets.Subscribe:
		if code := pk.SubscribeValidate(); code != packets.CodeSuccess {
			return fmt.Errorf("%w: SUBSCRIBE: %w", ErrProtocol, code)
		}
		denied, err := c.hub.subscribe(c, pk)
		if denied != "" {
			c.deny("subscription", denied)
		}
		return err
	case packets.Unsubscribe:
		if code := pk.UnsubscribeValidate(); code != packets.CodeSuccess {
			return fmt.Errorf("%w: UNSUBSCRIBE: %w", ErrProtocol, code)
		}
		return c.hub.unsubscribeAll(c, pk)
	}
	return c.conn.enqueue([]byte{packets.Pingresp << 4, 0})
}

// pace counts a packet that costs as much as n, and holds a client back that sends
// too fast: while this goroutine sleeps nothing is read, and TCP tells the client.
// It wakes often enough to notice the connection's end.
func (c *homeClient) pace(n int) {
	var d time.Duration
	for range n {
		d = c.packets.Reserve().Delay()
	}
	if d <= 0 {
		return
	}
	c.hub.stats.throttled.Add(1)
	const nap = 100 * time.Millisecond
	for ; d > 0 && !c.conn.ending(); d -= nap {
		time.Sleep(min(d, nap))
	}
}

// publish routes a message and acknowledges it. What the client may not publish
// is acknowledged and dropped, with a code that says so in MQTT 5.
func (c *homeClient) publish(pk *packets.Packet) error {
	const noAliases = 0 // none were offered in CONNACK
	if code := pk.PublishValidate(noAliases); code != packets.CodeSuccess {
		return fmt.Errorf("%w: PUBLISH: %w", ErrProtocol, code)
	}
	var code byte
	switch {
	case !validTopic(pk.TopicName):
		code = packets.ErrTopicNameInvalid.Code
	case !c.rules.mayPublish(pk.TopicName):
		code = packets.ErrNotAuthorized.Code
	}
	if code != 0 {
		c.hub.stats.denied.Add(1)
		c.deny("publication", pk.TopicName)
	} else if isNew, err := c.receive(pk); err != nil {
		return err
	} else if isNew {
		if err := c.route(pk); err != nil {
			return err
		}
	}
	switch pk.FixedHeader.Qos {
	case 1:
		return c.answer(firstPuback, pk.PacketID, code)
	case 2:
		return c.answer(firstPubrec, pk.PacketID, code)
	}
	return nil
}

// receive reports whether a message is to be routed; one of QoS 2 is once.
func (c *homeClient) receive(pk *packets.Packet) (isNew bool, err error) {
	if pk.FixedHeader.Qos < 2 {
		return true, nil
	}
	isNew, ok := c.session.receive(pk.PacketID)
	if !ok {
		return false, fmt.Errorf("%w: %w: over %d messages without PUBREL", ErrFlood, packets.ErrReceiveMaximum, c.hub.limits.MaxInflight)
	}
	return isNew, nil
}

func (c *homeClient) route(pk *packets.Packet) error {
	c.hub.stats.received.Add(1)
	err := c.hub.publish(c, newMessage(pk, c.session, time.Now()))
	if !errors.Is(err, ErrRetainedFull) {
		return err
	}
	if !c.full {
		c.full = true
		c.hub.log.Warn("message not retained", "user", c.user, "client_id", c.id, "topic", strings.Clone(pk.TopicName), "error", err)
	}
	return nil
}

// acknowledged handles the answers to what the client was sent.
func (c *homeClient) acknowledged(pk *packets.Packet) error {
	kind := pk.FixedHeader.Type
	known, over, more := c.session.acked(kind, pk.PacketID, pk.ReasonCode >= packets.ErrUnspecifiedError.Code)
	if !known {
		c.pace(1) // an answer to nothing is not free
	}
	if kind == packets.Pubrec && !over {
		code := byte(0)
		if !known {
			code = packets.ErrPacketIdentifierNotFound.Code
		}
		if err := c.answer(firstPubrel, pk.PacketID, code); err != nil {
			return err
		}
	}
	if more {
		c.conn.wake()
	}
	return nil
}

// disconnect handles a DISCONNECT packet. It returns nil if the client leaves in
// good order.
func (c *homeClient) disconnect(body []byte) error {
	pk := packets.Packet{FixedHeader: packets.FixedHeader{Type: packets.Disconnect, Remaining: len(body)}, ProtocolVersion: c.version}
	if err := pk.DisconnectDecode(body); err != nil {
		return fmt.Errorf("%w: DISCONNECT: %w", ErrProtocol, err)
	}
	if !c.v5 {
		return nil
	}
	if p := pk.Properties; p.SessionExpiryIntervalFlag {
		if p.SessionExpiryInterval > 0 && !c.expires {
			return fmt.Errorf("%w: DISCONNECT: %w", ErrProtocol, packets.ErrProtocolViolationZeroNonZeroExpiry)
		}
		c.hub.setExpiry(c, time.Duration(p.SessionExpiryInterval)*time.Second)
	}
	// The decoder (v2.7.9) leaves the reason out if nothing follows it.
	if len(body) > 0 && body[0] == packets.CodeDisconnectWillMessage.Code {
		return packets.CodeDisconnectWillMessage
	}
	return nil
}

// answer queues an acknowledgement.
func (c *homeClient) answer(first byte, id uint16, code byte) error {
	return c.conn.enqueue(ackPacket(first, id, code, c.v5))
}

// deny logs the first thing that was refused. It does not disconnect: the client
// would only come back.
func (c *homeClient) deny(what, topic string) {
	if c.denied {
		return
	}
	c.denied = true
	c.hub.log.Warn(what+" refused: not allowed to this user", "user", c.user, "client_id", c.id, "topic", strings.Clone(topic))
}
