package pipeline

import "time"

// Pacing, holding and pausing are one idea: which channels the loop may take
// from. What is not taken is back-pressure on the voice.

// downlink returns the current turn's channels: its speech, or nil while none
// may be sent, and its notes.
func (c *Conversation) downlink(now time.Time) (<-chan Speech, <-chan note) {
	t := c.turn
	switch {
	case t == nil:
		return nil, nil
	case !t.finished && len(t.out) == 0 && t.complete():
		t.finished = true // known before the next packet would be due: the stop can be timed
		return nil, t.notes
	case !c.paused.IsZero(), t.finished, !c.path, now.Before(t.startAt), now.Before(t.spaced), c.horizon.Sub(now) > c.lead()-PacketDuration:
		return nil, t.notes
	}
	return t.out, t.notes
}

// lead is how far ahead of the speaker packets are sent. Where messages are slower
// than audio it is one packet more, so that the stop can be sent in time. Where
// the device's own packets come irregularly, those to it do, too, mostly: it is a
// packet more for every one that the jitter, at its worst, takes beyond what the
// lead bridges. LeadMost, what the device's queue is known to hold, bounds both.
func (c *Conversation) lead() time.Duration {
	lead := c.cfg.Lead
	if c.skew.early > c.cfg.StopMargin {
		lead += PacketDuration
	}
	if short := jitterPeak*c.up.jitter - (c.cfg.Lead - PacketDuration); short > 0 {
		lead += (short + PacketDuration - 1) / PacketDuration * PacketDuration
	}
	return min(lead, max(c.cfg.Lead, c.cfg.LeadMost))
}

// jitterPeak is how much later than usual a late packet is, in terms of the mean
// that is measured. It is 3 where all delays up to the worst are equally likely.
const jitterPeak = 3

// turnWake is when downlink or turnTick could decide anew.
func (c *Conversation) turnWake(t *turn, now time.Time) time.Time {
	switch {
	case !c.paused.IsZero():
		return c.paused.Add(c.cfg.FalseAlarm)
	case t.finished && t.trace.Packets == 0:
		return t.began // now
	case t.finished:
		return c.horizon.Add(c.cfg.StopMargin + c.skew.late - c.skew.early)
	case !c.path:
		return t.began.Add(c.cfg.NoPath)
	case now.Before(t.startAt):
		return t.startAt
	}
	next := c.horizon.Add(PacketDuration - c.lead())
	if next.Before(t.spaced) {
		next = t.spaced
	}
	if now.Before(next) {
		return next
	}
	return time.Time{}
}

// turnTick does what is due in the turn.
func (c *Conversation) turnTick(t *turn, now time.Time) {
	at := c.turnWake(t, now)
	if at.IsZero() || now.Before(at) {
		return
	}
	switch {
	case !c.paused.IsZero():
		c.carryOn(now) // no words so far
	case t.finished:
		c.finish("")
	case !c.path:
		c.log.Warn("no audio path: the device has sent no UDP packet, so there is nowhere to send the reply",
			"likely_cause", "the address or port in hello does not reach this server, or UDP is blocked")
		c.interrupt("no path")
	}
}

// carryOn ends a pause. What the device has played meanwhile it lacks by our
// doing, and not by the voice's.
func (c *Conversation) carryOn(now time.Time) {
	if !c.paused.IsZero() {
		c.paused, c.horizon = time.Time{}, later(c.horizon, now)
	}
}

// say sends the next piece of speech, or notes that there is no more.
func (c *Conversation) say(s Speech, ok bool, now time.Time) {
	t := c.turn
	if c.horizon.Before(now) {
		c.horizon = now // the first packet, or the speaker ran dry
		t.dry = t.trace.Packets > 0
	}
	switch {
	case !ok:
		t.finished = true
	case s.Packet == nil && s.Sentence == "":
	case s.Packet == nil:
		t.spans = append(t.spans, span{text: s.Sentence, from: c.horizon, to: c.horizon})
		c.dev.Sentence(s.Sentence)
	default:
		if err := c.dev.Play(s.Packet); err != nil {
			c.log.Debug("packet not sent", "error", err)
		}
		if c.cfg.Repeat > 0 && c.up.lossy() {
			c.repeatAt = now.Add(c.cfg.Repeat)
		}
		if t.dry {
			t.dry = false
			t.trace.Line.Dry++
		}
		if t.trace.Packets++; t.trace.Packets == 1 {
			t.trace.FirstPacket = now
		}
		c.horizon, t.spaced = c.horizon.Add(PacketDuration), now.Add(c.cfg.Spacing)
		t.trace.Line.Lead = max(t.trace.Line.Lead, c.horizon.Sub(now))
		if n := len(t.spans); n > 0 {
			t.spans[n-1].to = c.horizon
		}
	}
}

// interrupt ends the current turn, if any, in constant time: nothing is drained
// and nobody is waited for. Not one packet is sent after it.
func (c *Conversation) interrupt(by string) {
	if c.turn == nil {
		return
	}
	c.finish(by)
}

// finish closes the turn, heard to its end or cut.
func (c *Conversation) finish(cancelledBy string) {
	t, now := c.turn, time.Now()
	t.cancel()
	if t.finished && !now.Before(c.horizon) {
		cancelledBy = "" // everything has been heard
	}
	c.turn, c.paused, c.repeatAt = nil, time.Time{}, time.Time{}
	c.lastSound = now
	c.dev.Stop()
	if c.mode == Auto {
		c.resumes = now.Add(resumeTime)
	}
	c.held.drop(t.startAt) // the tail of what was said before the reply
	t.trace.CancelledBy = cancelledBy
	t.trace.PlayoutEnd = now
	until := now
	if cancelledBy == "" && t.finished && until.Before(c.horizon) {
		until = c.horizon // it will be: the stop was sent ahead of slow messages
	}
	t.trace.Said = heard(t.spans, t.finished, until)
	said := t.trace.Said
	if t.filled {
		said = withoutFiller(said, c.cfg.Filler)
	}
	if said != "" {
		c.remember(Message{Role: RoleAssistant, Text: said, Interrupted: cancelledBy != ""})
	}
	if t.trace.Packets == 0 && cancelledBy == "" && t.trace.Err == nil {
		c.log.Warn("a reply had no words", "turn", t.trace.Turn)
	}
	c.horizon = now // whatever the device still has is no concern of the next turn
	line := c.line()
	change := line.since(c.lineBefore)
	change.Lead, change.Dry, c.lineBefore = t.trace.Line.Lead, t.trace.Line.Dry, line
	t.trace.Line = change
	c.onTurn(t.trace)
	c.leaving = c.leaving && !stays(cancelledBy)
	if t.trace.Prompted {
		c.prompted(t)
	}
}

// line is how the device's audio has come so far.
func (c *Conversation) line() Line {
	return Line{
		Received: c.up.taken, Lost: c.up.lost, Late: c.up.late, Reordered: c.up.reordered,
		Jitter: c.up.jitter,
	}
}
