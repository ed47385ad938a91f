package broker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"golang.org/x/time/rate"

	"parley/internal/protocol"
)

// A session is the reading half of a [Link]. All of it belongs to the
// connection's reader goroutine, which is at rest in readHeader nearly always:
// what it keeps on its stack there, every idle device pays for.
type session struct {
	link      *Link
	client    *mqtt.Client
	receiver  Receiver
	packets   *rate.Limiter
	keepalive time.Duration // longest silence, 0 for ever
	began     time.Time
	denied    bool    // something was refused, and logged
	head      [2]byte // of the packet being read
}

// newSession makes the engine's client for a link. The client has no goroutine
// and never reads: it is handed packets.
func newSession(l *Link, c *connect) *session {
	s := &session{
		link:      l,
		client:    l.broker.engine.NewClient(engineConn{l.conn.raw, l}, "", l.device.ClientID, false),
		packets:   rate.NewLimiter(l.broker.limits.MessageRate, l.broker.limits.MessageBurst),
		keepalive: c.keepalive(),
		began:     time.Now(),
	}
	s.client.ParseConnect("", c.forEngine())
	return s
}

// run serves the session until the connection ends and the receiver knows why.
func (s *session) run() {
	err := s.open()
	if err == nil {
		err = s.read()
	}
	reason := s.link.conn.end(err)
	s.link.broker.stats.ended(reason)
	s.client.Stop(reason)
	s.client.ClearInflights()
	s.link.broker.engine.UnsubscribeClient(s.client)
	if s.receiver == nil {
		return // it ended before its CONNACK
	}
	attrs := []any{"device", s.link.device.ID, "remote", s.link.device.Remote, "connected_s", int(time.Since(s.began).Seconds())}
	if reason != nil {
		attrs = append(attrs, "reason", reason)
	}
	s.link.broker.log.Info("device disconnected", attrs...)
	s.receiver.Disconnected(reason)
}

// open sends the CONNACK and tells the handler.
func (s *session) open() error {
	b, d := s.link.broker, s.link.device
	none := &packets.Properties{ // MQTT 5: what there is not
		MaximumPacketSize:        uint32(b.limits.MaxPacket),
		RetainAvailableFlag:      true,
		WildcardSubAvailableFlag: true,
		SharedSubAvailableFlag:   true,
		SubIDAvailableFlag:       true,
	}
	if err := b.engine.SendConnack(s.client, packets.CodeSuccess, false, none); err != nil {
		return err
	}
	if s.link.v5 {
		s.link.conn.letIn()
	}
	b.log.Info("device connected", "device", d.ID, "client_id", d.ClientID, "remote", d.Remote,
		"local", d.Local, "tls", d.TLS, "signed", d.Signed, "agent", d.Enrolment.Agent)
	s.receiver = b.handler.Connect(s.link)
	if s.receiver == nil {
		s.receiver = ignore{}
		s.link.Close("not wanted")
	}
	return nil
}

// read reads packets until the connection ends. It returns nil after DISCONNECT.
func (s *session) read() error {
	for !s.client.Closed() {
		s.link.conn.expect(s.keepalive)
		header, err := s.readHeader()
		if err == nil {
			err = s.readBody(header)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readHeader waits for a packet and judges its fixed header, before there is
// room for the rest.
func (s *session) readHeader() (h packets.FixedHeader, err error) {
	if _, err := io.ReadFull(s.link.conn.net, s.head[:]); err != nil {
		return h, err
	}
	if !s.packets.Allow() {
		return h, fmt.Errorf("%w: over %v packets a second", ErrFlood, s.packets.Limit())
	}
	if h, err = readRemaining(s.link.conn.net, &s.head); err != nil {
		return h, err
	}
	limit := s.link.broker.limits.MaxPacket
	if h.Type == packets.Subscribe {
		limit = min(limit, maxSubscribe)
	}
	if h.Remaining > limit {
		return h, fmt.Errorf("%w: packet of %d bytes from the device, at most %d allowed", ErrTooLarge, h.Remaining, limit)
	}
	return h, nil
}

// readBody reads the rest of a packet and has the engine process it. The buffer
// of a PUBLISH with QoS 0 is used again, since nobody keeps any of it; filters of
// a SUBSCRIBE are kept.
func (s *session) readBody(h packets.FixedHeader) error {
	if h.Type != packets.Publish || h.Qos != 0 {
		return s.process(h, make([]byte, h.Remaining))
	}
	pool := &s.link.broker.buffers
	buf := pool.Get().(*buffer)
	if cap(buf.bytes) < h.Remaining {
		buf.bytes = make([]byte, h.Remaining)
	}
	err := s.process(h, buf.bytes[:h.Remaining])
	buf.release(pool)
	return err
}

// process reads a packet's body into b and has the engine process it: validate,
// acknowledge, answer, and through its hooks deliver.
func (s *session) process(h packets.FixedHeader, b []byte) error {
	if _, err := io.ReadFull(s.link.conn.net, b); err != nil {
		return err
	}
	pk, err := decode(h, s.client.Properties.ProtocolVersion, b)
	if err != nil {
		return err
	}
	if err := s.link.broker.engine.InjectPacket(s.client, pk); err != nil {
		return err
	}
	if h.Type == packets.Publish && !s.link.mayPublish(pk.TopicName) {
		s.deny("publication", pk.TopicName)
	}
	return nil
}

// receive hands a publication to the receiver.
func (s *session) receive(payload []byte) {
	s.link.broker.stats.received.Add(1)
	s.receiver.Receive(payload)
}

// deny counts a publication or subscription to a foreign topic and logs the first
// one. It does not disconnect: a device that was given a wrong topic would only
// come back.
func (s *session) deny(what, topic string) {
	s.link.broker.stats.denied.Add(1)
	if s.denied {
		return
	}
	s.denied = true
	s.link.broker.log.Warn(what+" refused: not this device's topic", "device", s.link.device.ID,
		"topic", strings.Clone(topic), "uplink", s.link.uplink, "downlink", protocol.DownlinkTopic(s.link.device.ID))
}

// ignore is the Receiver of a device the handler did not want.
type ignore struct{}

func (ignore) Receive([]byte)     {}
func (ignore) Disconnected(error) {}

// endReason says why a connection ended for which nobody gave a cause: err is
// what reading or the engine returned. It is nil after a DISCONNECT.
func endReason(err error) error {
	var code packets.Code
	isCode := errors.As(err, &code)
	switch {
	case err == nil, code == packets.CodeDisconnectWillMessage:
		return nil
	case errors.Is(err, ErrProtocol), errors.Is(err, ErrFlood), errors.Is(err, ErrTooLarge):
		return err
	case isCode:
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSilent
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: closed by the device", ErrLost)
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

// disconnectCode is the reason code of MQTT 5 (section 3.14.2.1) for the
// connection's end.
func disconnectCode(reason error) byte {
	var code packets.Code
	if errors.As(reason, &code) {
		return code.Code
	}
	for _, c := range []struct {
		err  error
		code packets.Code
	}{
		{ErrTakenOver, packets.ErrSessionTakenOver},
		{ErrShutdown, packets.ErrServerShuttingDown},
		{ErrClosed, packets.ErrAdministrativeAction},
		{ErrFlood, packets.ErrMessageRateTooHigh},
		{ErrSilent, packets.ErrKeepAliveTimeout},
		{ErrTooLarge, packets.ErrPacketTooLarge},
		{ErrProtocol, packets.ErrProtocolViolation},
	} {
		if errors.Is(reason, c.err) {
			return c.code.Code
		}
	}
	return packets.ErrUnspecifiedError.Code
}
