package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"parley/broker"
	"parley/internal/protocol"
	"parley/mcp"
)

// Errors of what is asked of one device.
var (
	// ErrAbsent means that the device is not connected.
	ErrAbsent = errors.New("the device is not connected")
	// ErrNoSession means that the device has no session open.
	ErrNoSession = errors.New("no session is open")
)

// Info is what is known of a connected device.
type Info struct {
	Device      broker.Device
	Role        string // of the open session, else that of the next
	ConnectedAt time.Time
	// Phase is what the session's engine is doing: idle, listening, thinking or
	// speaking. It, SessionID and SessionStart are zero without a session.
	Phase        string
	SessionID    string
	SessionStart time.Time
	Tools        int // that the device has told of
}

// Devices lists the connected devices, sorted by id.
func (s *Server) Devices() []Info {
	s.mu.Lock()
	peers := make([]*peer, 0, len(s.peers))
	for _, p := range s.peers {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	slices.SortFunc(peers, func(a, b *peer) int { return cmp.Compare(a.id, b.id) })
	all := make([]Info, 0, len(peers))
	for _, p := range peers {
		all = append(all, p.info())
	}
	return all
}

// Device returns what is known of one device, or [ErrAbsent].
func (s *Server) Device(id protocol.DeviceID) (Info, error) {
	p, err := s.peer(id)
	if err != nil {
		return Info{}, err
	}
	return p.info(), nil
}

func (p *peer) info() Info {
	i := Info{Device: p.link.Device(), ConnectedAt: p.connected, Tools: p.tools.Count()}
	if c := p.session(); c != nil {
		i.Role, i.SessionID, i.SessionStart = c.role, c.id, c.opened
		i.Phase = c.conversation.Phase().String()
		return i
	}
	i.Role = p.server.cfg.Roles(p.id).Name
	return i
}

// peer returns a connected device, or [ErrAbsent].
func (s *Server) peer(id protocol.DeviceID) (*peer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.peers[id]
	if !ok {
		return nil, fmt.Errorf("%s: %w", id, ErrAbsent)
	}
	return p, nil
}

// Tools lists a device's own tools, those for people only included. ready says
// whether the device has told them.
func (s *Server) Tools(id protocol.DeviceID) (tools []mcp.Tool, ready bool, err error) {
	p, err := s.peer(id)
	if err != nil {
		return nil, false, err
	}
	select {
	case <-p.tools.Ready():
		ready = true
	default:
	}
	return p.tools.Tools(), ready, nil
}

// Call runs one of a device's own tools, also one that is for people only.
func (s *Server) Call(ctx context.Context, id protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error) {
	p, err := s.peer(id)
	if err != nil {
		return mcp.Result{}, err
	}
	return p.tools.Call(ctx, tool, args)
}

// Alert shows a message on a device, with a face and a short sound.
func (s *Server) Alert(id protocol.DeviceID, status, message, emotion string) error {
	return s.tell(id, protocol.Alert(status, message, emotion))
}

// Reboot restarts a device, a second later.
func (s *Server) Reboot(id protocol.DeviceID) error { return s.tell(id, protocol.Reboot()) }

func (s *Server) tell(id protocol.DeviceID, message []byte) error {
	p, err := s.peer(id)
	if err != nil {
		return err
	}
	return p.link.Send(message)
}

// End ends a device's session at once; reason is for the log.
func (s *Server) End(id protocol.DeviceID, reason string) error {
	c, err := s.open(id)
	if err != nil {
		return err
	}
	c.close(reason)
	return nil
}

// HangUp ends a device's session when what is being said has been heard.
func (s *Server) HangUp(id protocol.DeviceID) error {
	c, err := s.open(id)
	if err != nil {
		return err
	}
	c.conversation.HangUp()
	return nil
}

// open returns a device's open session.
func (s *Server) open(id protocol.DeviceID) (*session, error) {
	p, err := s.peer(id)
	if err != nil {
		return nil, err
	}
	c := p.session()
	if c == nil {
		return nil, fmt.Errorf("%s: %w", id, ErrNoSession)
	}
	return c, nil
}
