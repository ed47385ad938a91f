package session

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"parley/internal/protocol"
	"parley/mcp"
	"parley/pipeline"
)

// A peer is one connected device. Its messages arrive on one goroutine, the
// connection's; what else reaches it is guarded by mu.
type peer struct {
	server    *Server
	link      Link
	id        protocol.DeviceID
	tools     *mcp.Device
	log       *slog.Logger
	hellos    *rate.Limiter
	connected time.Time

	events events

	mu      sync.Mutex
	current *session
	latest  *session // the last begun, open or not
	waiting waiting
	gone    bool
	closing bool // no session is opened any more
}

func newPeer(s *Server, l Link) *peer {
	p := &peer{
		server: s, link: l, id: l.Device().ID,
		log:       s.log.With("device", string(l.Device().ID)),
		hellos:    rate.NewLimiter(rate.Limit(s.cfg.HelloRate), s.cfg.HelloBurst),
		connected: time.Now(),
	}
	p.tools = mcp.NewDevice(p.id, func(payload json.RawMessage) error {
		return l.Send(protocol.MCP("", payload))
	}, s.cfg.MCP, s.log)
	p.tools.Subscribe(p.notified) // until the tools are closed
	return p
}

// session is the peer's open session, or nil.
func (p *peer) session() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// Receive takes one message of the device. It never blocks, and nothing in a
// message ends the connection: firmware does send broken JSON.
func (p *peer) Receive(payload []byte) {
	m, err := protocol.ParseUplink(payload)
	if err != nil {
		p.server.stats.badMessages.Add(1)
		p.log.Warn("message ignored", "error", err, "bytes", len(payload))
		p.tools.Salvage(payload)
		return
	}
	switch m.Type {
	case protocol.TypeHello:
		p.hello(m)
	case protocol.TypeMCP:
		p.tools.Receive(m.Payload)
	case protocol.TypeListen, protocol.TypeAbort, protocol.TypeGoodbye, protocol.TypeSpeakReady:
		c := p.session()
		if c == nil {
			p.log.Debug("message without a session", "type", m.Type)
			return
		}
		c.control(m)
	default:
		p.server.stats.unknownMessages.Add(1)
		p.log.Debug("message of unknown type", "type", m.Type)
	}
}

// Disconnected ends what the device had open. The broker has logged why.
func (p *peer) Disconnected(error) {
	p.mu.Lock()
	p.gone = true
	c := p.current
	p.mu.Unlock()
	if c != nil {
		c.close(endDisconnected)
	}
	for _, n := range p.takeNotices() {
		p.lost(n, errGone)
	}
	p.tools.Close()
	p.server.mu.Lock()
	if p.server.peers[p.id] == p {
		delete(p.server.peers, p.id)
	}
	p.server.mu.Unlock()
	p.emit(EventDisconnected, "", "")
}

// hello opens a session and answers at once: the device waits, with its whole
// main task, and no provider is contacted before.
func (p *peer) hello(m protocol.Uplink) {
	p.server.mu.Lock()
	draining := p.server.draining
	p.server.mu.Unlock()
	if draining || !p.hellos.Allow() {
		p.server.stats.hellosRefused.Add(1)
		p.log.Warn("hello refused", "draining", draining, "limit_per_second", p.server.cfg.HelloRate)
		return
	}
	if m.Transport != "" && m.Transport != "udp" {
		p.log.Debug("hello asks for another transport over MQTT; offering udp", "transport", m.Transport)
	}
	if old := p.session(); old != nil {
		old.close(endReplaced)
	}
	p.tools.Start() // a sign of life, should it have been silent
	c, err := p.open(m)
	if errors.Is(err, errRefused) {
		p.server.stats.hellosRefused.Add(1)
		return
	}
	if err != nil {
		p.log.Error("session not opened", "error", err)
		return
	}
	key, nonce := c.channel.Offer()
	offer := protocol.UDPOffer{
		Server: p.server.udpHost(p.link.Device()), Port: p.server.cfg.UDPPort, Key: key, Nonce: nonce,
	}
	p.log.Info("session opened", "session_id", c.id, "role", c.role, "udp_server", offer.Server, "udp_port", offer.Port,
		"frame_ms", m.AudioParams.FrameDuration, "mcp", m.Features.MCP, "aec", m.Features.AEC)
	if err := p.link.Send(protocol.HelloReply(c.id, offer)); err != nil {
		p.log.Warn("hello not answered", "error", err)
		c.close(endDisconnected)
		return
	}
	p.publish()
	p.hearNotices(c)
}

// open makes a session and starts its goroutine, which belongs to the server and
// ends when the session is closed.
func (p *peer) open(m protocol.Uplink) (*session, error) {
	role := p.server.cfg.Roles(p.id)
	c := &session{id: protocol.NewSessionID(), peer: p, role: role.Name, opened: time.Now()}
	c.log = p.log.With("session_id", c.id)
	detector, err := role.NewDetector()
	if err != nil {
		return nil, err
	}
	if c.conversation, err = p.newEngine(c, role, detector, role.Echo || m.Features.Echo); err != nil {
		detector.Close()
		return nil, err
	}
	if c.channel, err = p.server.audio.Open(c); err != nil {
		detector.Close()
		return nil, err
	}
	if role.Recorder != nil {
		if c.tap, err = role.Recorder.Open(p.id, c.id); err != nil {
			c.log.Warn("session not recorded", "error", err)
		}
	}
	if err := p.begin(c); err != nil {
		c.tap.Close()
		c.channel.Close()
		detector.Close()
		return nil, err
	}
	return c, nil
}

// repeatAfter is when a packet is repeated on a path that loses some: halfway to
// the next one, because a device drops what comes after that. Only firmware
// since 2.4.0 drops a packet it has; older versions play it twice.
const repeatAfter = pipeline.PacketDuration / 2

// leadMost is the most that is sent ahead to firmware since 1.6.6, which queues 40
// packets, on a network that needs it. All of it is heard after an abort, so it
// stays far below what the queue holds.
const leadMost = 6 * pipeline.PacketDuration

// newEngine makes what the device will talk to.
func (p *peer) newEngine(c *session, role *Role, detector pipeline.Detector, echo bool) (engine, error) {
	if echo {
		return pipeline.NewEcho(role.Policy, detector, c, c.log)
	}
	tools, err := p.newToolbox(c.id, role)
	if err != nil {
		return nil, err
	}
	providers := pipeline.Providers{ASR: role.ASR, LLM: role.LLM, TTS: role.TTS, Tools: tools}
	policy := role.Policy
	f, known := protocol.ParseFirmware(p.link.Device().Enrolment.Agent)
	if known && f.AtLeast(2, 4, 0) {
		policy.Repeat = repeatAfter
	}
	if known && f.AtLeast(1, 6, 6) {
		policy.LeadMost = max(policy.LeadMost, leadMost)
	}
	return pipeline.New(policy, providers, detector, c, c.turn, c.log)
}

// errRefused means that no session may begin: the server drains, or the device
// is gone.
var errRefused = errors.New("no new sessions")

// begin makes c the peer's session and starts its goroutine. All of it happens
// in one step, so that a shutdown either finds the session or prevents it.
func (p *peer) begin(c *session) error {
	s := p.server
	s.mu.Lock()
	defer s.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.draining || p.gone {
		return errRefused
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.cancel, c.done = cancel, make(chan struct{})
	s.begun++
	c.number = s.begun
	var before <-chan struct{}
	if p.latest != nil {
		before = p.latest.done
	}
	p.current, p.latest = c, c
	p.note(EventOpened, c.id, "") // before anybody can close it
	s.stats.sessions.Add(1)
	s.stats.opened.Add(1)
	s.work.Go(func() { c.run(ctx, before) })
	return nil
}

// closed is called by a session that has ended.
func (p *peer) closed(c *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == c {
		p.current = nil
	}
}
