package udpaudio

import (
	"net/netip"
	"time"
)

const (
	// evidence is how many packets in a row a new address must send to be
	// believed.
	evidence = 3

	// moveInterval is the shortest time between two changes of address, and
	// between an implausible packet from a foreign address and a change. A NAT
	// forgets a mapping in minutes, not in seconds, and a device that has got a
	// new one sends no nonsense before its audio; an attacker who has to guess
	// gets one guess a second instead of as many as the line carries.
	moveInterval = time.Second
)

// A path is where a device's packets come from. It is guarded by Channel.up.
type path struct {
	addr     netip.AddrPort // not valid before the first packet
	moved    time.Time      // the last change; zero if there was none
	distrust time.Time      // the last nonsense from a foreign address; zero if none

	// A candidate is an address whose packets, newer than any from addr and
	// each newer than the one before, are held until there is evidence enough
	// to believe that the device has moved there.
	candidate netip.AddrPort
	held      int
	packets   *[evidence - 1]heldPacket // made when first needed
}

type heldPacket struct {
	header  Header
	payload [MaxDatagram]byte // plaintext, header.PayloadLen bytes
}

// settled reports whether the path may change.
func (p *path) settled(now time.Time) bool {
	return (p.moved.IsZero() || now.Sub(p.moved) >= moveInterval) &&
		(p.distrust.IsZero() || now.Sub(p.distrust) >= moveInterval)
}

// inRow reports whether a packet of the candidate is newer than those held.
func (p *path) inRow(seq uint32) bool {
	return p.held == 0 || seq > p.packets[p.held-1].header.Sequence
}

// hold keeps a copy of a packet of the candidate.
func (p *path) hold(h Header, opus []byte) {
	if p.packets == nil {
		p.packets = new([evidence - 1]heldPacket)
	}
	p.packets[p.held].header = h
	copy(p.packets[p.held].payload[:], opus)
	p.held++
}

// foreign handles a packet with a fresh sequence number that does not come
// from the channel's address. Until the address has changed, it has no effect
// but on the candidate: it neither advances the window nor shapes what is
// expected of the audio. The caller holds up.
func (c *Channel) foreign(p *packet, from netip.AddrPort) {
	now := time.Now()
	if p.header.Sequence <= c.window.last || !c.path.settled(now) {
		c.count(dropForeign, 1)
		return
	}
	opus := c.decrypt(p)
	if !c.shape.fits(opus) {
		c.discardHeld()
		c.path.distrust = now
		c.count(dropImplausible, 1)
		return
	}
	if from != c.path.candidate {
		c.discardHeld()
		c.path.candidate = from
	}
	if len(opus) <= maxSilence || !c.path.inRow(p.header.Sequence) {
		// Silence proves nothing. What is late was not sent in this order.
		c.count(dropForeign, 1)
		return
	}
	if c.path.held < evidence-1 {
		c.path.hold(p.header, opus)
		return
	}
	c.move(from, now)
	for i := range c.path.held {
		q := &c.path.packets[i]
		c.deliver(q.header, q.payload[:q.header.PayloadLen])
	}
	c.path.held = 0
	c.deliver(p.header, opus)
}

// discardHeld forgets the packets of a candidate.
func (c *Channel) discardHeld() {
	c.count(dropForeign, c.path.held)
	c.path.held = 0
}

// move makes addr the channel's address.
func (c *Channel) move(addr netip.AddrPort, now time.Time) {
	c.server.log.Info("udp path moved", "ssrc", c.ssrc, "from", c.path.addr, "to", addr)
	c.path.moved = now
	c.moves.Add(1)
	c.server.moves.Add(1)
	c.adopt(addr)
}

// adopt sends what is sent from now on to addr.
func (c *Channel) adopt(addr netip.AddrPort) {
	c.path.addr = addr
	c.down.Lock()
	defer c.down.Unlock()
	c.to = addr
}
