package session

import (
	"errors"
	"time"

	"parley/internal/protocol"
)

// A Notice is something to tell a user who has not asked.
type Notice struct {
	Status string // the headline where it is shown and not spoken
	Text   string // to be spoken, or shown
	// Lost, if not nil, is called once if Deliver reported that the notice would
	// be spoken, and then it could neither be spoken nor shown: mostly because
	// the device has lost its connection. It must return at once, and may be
	// called before Deliver has returned.
	Lost func()
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

// waiting are the notices that wait for a session of their device. The peer's mu
// guards them.
type waiting struct {
	notices  []Notice    // at most maxNotices
	patience *time.Timer // ends their waiting; nil while none waits
	until    time.Time   // when it does
}

// Deliver tells a device's user something by the best way there is now. What is
// to be spoken and then cannot be, because the session ends, is never opened or
// has no voice or no way for audio, is shown. The error wraps [ErrAbsent], or is
// one of the link's.
func (s *Server) Deliver(id protocol.DeviceID, n Notice) (Way, error) {
	p, err := s.peer(id)
	if err != nil {
		return "", err
	}
	if c := p.session(); c != nil && c.say(n) {
		return WaySpoken, nil
	}
	asked, opened := p.request(n)
	switch {
	case asked:
		return WayRequested, nil
	case opened != nil && opened.say(n): // in this very moment
		return WaySpoken, nil
	}
	return WayShown, p.show(n)
}

// say has a notice spoken, and tells the peer if that does not come to pass.
func (c *session) say(n Notice) bool {
	return c.conversation.Say(n.Text, func() { c.peer.unsaid(c, n) })
}

// show shows a notice as an alert.
func (p *peer) show(n Notice) error {
	return p.link.Send(protocol.Alert(n.Status, n.Text, "neutral"))
}

// request asks the device to open a session to hear n. It does not if this device
// would not understand, or too many notices wait already, or a session is open,
// which it returns.
func (p *peer) request(n Notice) (asked bool, opened *session) {
	f, ok := protocol.ParseFirmware(p.link.Device().Enrolment.Agent)
	able := ok && f.AtLeast(2, 5, 0) && !p.server.cfg.Roles(p.id).Echo // an echo has no voice
	p.mu.Lock()
	defer p.mu.Unlock()
	if !able || !p.mayWaitLocked() || p.link.Send(protocol.SpeakRequest(protocol.NewSessionID(), n.Text)) != nil {
		return false, p.current
	}
	p.waitLocked(n)
	return true, nil
}

func (p *peer) mayWaitLocked() bool {
	return !p.gone && !p.closing && p.current == nil && len(p.waiting.notices) < maxNotices
}

// waitLocked keeps n for the next session. All that wait, wait as long as the last
// one may.
func (p *peer) waitLocked(n Notice) {
	w := &p.waiting
	w.notices = append(w.notices, n)
	w.until = time.Now().Add(requestPatience)
	if w.patience == nil {
		w.patience = time.AfterFunc(requestPatience, p.giveUp)
	} else {
		w.patience.Reset(requestPatience)
	}
}

// giveUp shows the notices of a device that has opened no session for them.
func (p *peer) giveUp() {
	p.mu.Lock()
	early := time.Now().Before(p.waiting.until) // another one came as the time ended
	p.mu.Unlock()
	if early {
		return
	}
	for _, n := range p.takeNotices() {
		p.log.Info("the device opened no session to hear a notice; it is shown")
		p.showOrLose(n)
	}
}

// closes has no notice wait for a session any more, as none will be opened, and
// shows those that do.
func (p *peer) closes() {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	for _, n := range p.takeNotices() {
		p.showOrLose(n)
	}
}

// takeNotices returns the notices that wait for a session, and forgets them.
func (p *peer) takeNotices() []Notice {
	p.mu.Lock()
	defer p.mu.Unlock()
	notices := p.waiting.notices
	if p.waiting.patience != nil {
		p.waiting.patience.Stop()
	}
	p.waiting = waiting{}
	return notices
}

// hearNotices hands a new session the notices it was opened for.
func (p *peer) hearNotices(c *session) {
	for _, n := range p.takeNotices() {
		if c.say(n) {
			c.summoned = true
		} else {
			p.showOrLose(n)
		}
	}
}

// unsaid brings a notice by another way that c was to speak and has not: it is
// spoken in the session that replaces c, else shown.
func (p *peer) unsaid(c *session, n Notice) {
	c.mu.Lock()
	follows := c.follows
	c.mu.Unlock()
	p.mu.Lock()
	next := p.current
	if follows && p.mayWaitLocked() {
		p.waitLocked(n)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	if next == nil || next == c || !next.say(n) {
		p.showOrLose(n)
	}
}

// errGone is why a notice is lost whose device has gone before it was heard.
var errGone = errors.New("the device has disconnected")

func (p *peer) showOrLose(n Notice) {
	if err := p.show(n); err != nil {
		p.lost(n, err)
	}
}

// lost tells whom it concerns that a notice has reached nobody.
func (p *peer) lost(n Notice, why error) {
	p.log.Warn("notice lost", "error", why, "returned", n.Lost != nil)
	if n.Lost != nil {
		n.Lost()
	}
}
