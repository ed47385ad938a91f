package session

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"parley/broker"
	"parley/internal/protocol"
	"parley/internal/record"
	"parley/mcp"
	"parley/pipeline"
	"parley/udpaudio"
)

// A Link carries messages to one connected device. *broker.Link is one.
type Link interface {
	Device() broker.Device
	Send(payload []byte) error // never blocks
	Close(reason string)
}

// A Role is how a device converses: with which policy, providers and tools.
type Role struct {
	Name        string
	Policy      pipeline.Config
	ASR         pipeline.Transcriber
	LLM         pipeline.Model
	TTS         pipeline.Voice
	NewDetector func() (pipeline.Detector, error)
	Allow, Deny []string // globs over the names of tools
	// Echo makes the role a test of the line: the device hears itself, and the
	// providers are not used.
	Echo bool
	// Recorder records the role's sessions; nil records none.
	Recorder *record.Recorder
}

// Config is what a [Server] needs to know.
type Config struct {
	// Roles returns the role of a device. It is called at every hello, from
	// any goroutine, and must return at once.
	Roles func(protocol.DeviceID) *Role
	// UDPHost is the host name or IPv4 address that devices send audio to.
	// Empty means the address each device itself used to reach us.
	UDPHost string
	// UDPPort is the port devices send audio to.
	UDPPort int
	// HelloRate and HelloBurst limit a device's hellos a second.
	HelloRate  float64
	HelloBurst int
	// Memory is how long what was said is kept for a device's next session.
	Memory time.Duration
	// AudioWithin is how long after a device began to listen its first packet
	// may take before it is reported that none comes.
	AudioWithin time.Duration
	// MCP is the policy towards the tools of devices.
	MCP mcp.Config
	// Sources, if not nil, returns what a device may use beside its own tools, in
	// the order of [mcp.Set]. It is called at every hello.
	Sources func(protocol.DeviceID, *Role) []mcp.Member
	// OnTurn, if not nil, receives every finished turn, on the goroutine of
	// the conversation.
	OnTurn func(protocol.DeviceID, pipeline.Trace)
	// OnEvent, if not nil, receives what happens to devices: of one device one
	// after the other, in the order in which it happened. It is called from many
	// goroutines, some of which hold up a device, and must return at once.
	OnEvent func(Event)
}

// DefaultConfig returns the limits of docs/architecture.md. Roles and UDPPort
// must be set.
func DefaultConfig() Config {
	return Config{
		HelloRate:   1,
		HelloBurst:  3,
		Memory:      10 * time.Minute,
		AudioWithin: 3 * time.Second,
	}
}

// A Server holds the sessions of all connected devices. Its methods are safe for
// concurrent use.
type Server struct {
	cfg   Config
	audio *udpaudio.Server
	log   *slog.Logger

	mu       sync.Mutex
	peers    map[protocol.DeviceID]*peer
	draining bool
	begun    uint64         // sessions so far
	work     sync.WaitGroup // one for every session's goroutine

	memories memories

	stats counters
}

type counters struct {
	sessions, opened, hellosRefused, badMessages, unknownMessages, noAudio, signalsDropped, turns, cancelled, failed atomic.Uint64
}

// Stats are a server's figures. All but Devices and Sessions only grow.
type Stats struct {
	Devices, Sessions uint64 // now
	Opened            uint64 // sessions
	HellosRefused     uint64 // too many of one device, or draining
	BadMessages       uint64 // not JSON, or wrong types
	UnknownMessages   uint64 // of a type nobody knows
	NoAudio           uint64 // sessions whose device was to be heard and was not
	SignalsDropped    uint64 // by a conversation that had fallen behind
	Turns             uint64
	TurnsCancelled    uint64
	TurnsFailed       uint64
}

// New returns a server whose sessions send and receive by audio.
func New(cfg Config, audio *udpaudio.Server, log *slog.Logger) *Server {
	return &Server{
		cfg: cfg, audio: audio, log: log, peers: map[protocol.DeviceID]*peer{},
		memories: memories{keep: cfg.Memory, of: map[protocol.DeviceID]memory{}},
	}
}

// Stats returns the server's figures.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	devices := uint64(len(s.peers))
	s.mu.Unlock()
	c := &s.stats
	return Stats{
		Devices: devices, Sessions: c.sessions.Load(), Opened: c.opened.Load(),
		HellosRefused: c.hellosRefused.Load(), BadMessages: c.badMessages.Load(),
		UnknownMessages: c.unknownMessages.Load(), NoAudio: c.noAudio.Load(),
		SignalsDropped: c.signalsDropped.Load(),
		Turns:          c.turns.Load(), TurnsCancelled: c.cancelled.Load(), TurnsFailed: c.failed.Load(),
	}
}

// Connect implements [broker.Handler].
func (s *Server) Connect(l *broker.Link) broker.Receiver { return s.Attach(l) }

// Attach takes a connected device. The receiver's methods must be called one at
// a time, Disconnected last.
func (s *Server) Attach(l Link) broker.Receiver {
	p := newPeer(s, l)
	s.mu.Lock()
	p.closing = s.draining
	s.peers[p.id] = p
	s.mu.Unlock()
	p.emit(EventConnected, "", "")
	p.tools.Start() // asks who the device is, so it must be known by then
	return p
}

// Drain ends all sessions: no hello is answered any more, a device that is
// speaking may finish, and each gets its goodbye. When ctx ends the rest get
// theirs at once. Drain returns when every session's goroutine has ended.
func (s *Server) Drain(ctx context.Context) {
	s.mu.Lock()
	s.draining = true
	var live []*session
	peers := slices.Collect(maps.Values(s.peers))
	for _, p := range peers {
		if c := p.session(); c != nil {
			live = append(live, c)
		}
	}
	s.mu.Unlock()
	for _, p := range peers {
		p.closes()
	}
	for _, c := range live {
		c.endWhenSilent()
	}
	ended := make(chan struct{})
	go func() { // ends with the last session
		defer close(ended)
		s.work.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		for _, c := range live {
			c.close(endShutdown)
		}
		<-ended
	}
}

// Host is the host name or address of ours that a connected device knows, or
// [ErrAbsent].
func (s *Server) Host(id protocol.DeviceID) (string, error) {
	p, err := s.peer(id)
	if err != nil {
		return "", err
	}
	return s.udpHost(p.link.Device()), nil
}

// udpHost is where a device shall send its audio: what the operator says, else
// the host it asked for its configuration, which survives containers and port
// mapping, else the address of its MQTT connection.
func (s *Server) udpHost(d broker.Device) string {
	if s.cfg.UDPHost != "" {
		return s.cfg.UDPHost
	}
	if validHost(d.Enrolment.Host) {
		return d.Enrolment.Host
	}
	return d.Local.Addr().Unmap().String()
}

// validHost reports whether h can stand in a hello: a host name or an IPv4
// address. It comes back from the device and may be anything.
func validHost(h string) bool {
	if h == "" || len(h) > 253 {
		return false
	}
	if a, err := netip.ParseAddr(h); err == nil {
		return a.Is4()
	}
	for _, c := range h {
		ok := c == '-' || c == '.' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !ok {
			return false
		}
	}
	return true
}
