package session

import (
	"time"

	"parley/internal/protocol"
)

// A Notice is something to tell a user who has not asked.
type Notice struct {
	Status string // the headline where it is shown and not spoken
	Text   string // to be spoken, or shown
}

// A Way is how a notice reached a device.
type Way string

// The ways, in the order in which they are tried.
const (
	WaySpoken    Way = "spoken"    // it is spoken in the open session
	WayRequested Way = "requested" // the device was asked to open a session for it
	WayShown     Way = "shown"     // it is shown as an alert, with its sound
)

// Bounds of notices that wait for the session their device was asked to open.
const (
	maxNotices = 8
	// requestPatience is how long a device may take to open it: it has to greet,
	// on a radio that was asleep.
	requestPatience = 8 * time.Second
)

// Deliver tells a device's user something by the best way there is now. What is
// to be spoken and then cannot be, because the session ends or is never opened,
// is shown. The error wraps [ErrAbsent], or is one of the link's.
func (s *Server) Deliver(id protocol.DeviceID, n Notice) (Way, error) {
	p, err := s.peer(id)
	if err != nil {
		return "", err
	}
	if c := p.session(); c != nil && c.conversation.Say(n.Text) {
		return WaySpoken, nil
	}
	if p.request(n) {
		return WayRequested, nil
	}
	return WayShown, p.show(n)
}

// show shows a notice as an alert.
func (p *peer) show(n Notice) error {
	return p.link.Send(protocol.Alert(n.Status, n.Text, "neutral"))
}

// request asks the device to open a session to hear n. It reports false if this
// device would not understand, or too many notices wait already.
func (p *peer) request(n Notice) bool {
	if f, ok := protocol.ParseFirmware(p.link.Device().Enrolment.Agent); !ok || !f.AtLeast(2, 5, 0) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone || p.current != nil || len(p.notices) >= maxNotices {
		return false
	}
	if p.link.Send(protocol.SpeakRequest(protocol.NewSessionID(), n.Text)) != nil {
		return false
	}
	p.notices = append(p.notices, n)
	if p.patience == nil {
		p.patience = time.AfterFunc(requestPatience, p.giveUp)
	}
	return true
}

// giveUp shows the notices of a device that has opened no session for them.
func (p *peer) giveUp() {
	for _, n := range p.takeNotices() {
		p.log.Info("the device did not answer a speak_request; the notice is shown")
		if err := p.show(n); err != nil {
			p.log.Warn("notice lost", "error", err)
		}
	}
}

// takeNotices returns the notices that wait for a session, and forgets them.
func (p *peer) takeNotices() []Notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := p.notices
	p.notices = nil
	if p.patience != nil {
		p.patience.Stop()
		p.patience = nil
	}
	return waiting
}

// hearNotices hands a new session the notices it was opened for.
func (p *peer) hearNotices(c *session) {
	for _, n := range p.takeNotices() {
		if !c.conversation.Say(n.Text) {
			if err := p.show(n); err != nil {
				p.log.Warn("notice lost", "error", err)
			}
		}
	}
}

// unsaid shows what a session had still to say when it ended.
func (p *peer) unsaid(texts []string) {
	for _, text := range texts {
		if err := p.show(Notice{Text: text}); err != nil {
			p.log.Warn("notice lost", "error", err)
		}
	}
}
