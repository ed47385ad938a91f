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
	case !c.paused.IsZero(), t.finished, !c.path, now.Before(t.startAt), c.horizon.Sub(now) > c.lead()-PacketDuration:
		return nil, t.notes
	}
	return t.out, t.notes
}

// lead is how far ahead of the speaker packets are sent. Where messages are slower
// than audio it is one packet more, so that the stop can be sent in time; the
// smallest queue in the field still holds it.
func (c *Conversation) lead() time.Duration {
	if c.skew.early > c.cfg.StopMargin {
		return c.cfg.Lead + PacketDuration
	}
	return c.cfg.Lead
}

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
	if ahead := c.horizon.Add(PacketDuration - c.lead()); now.Before(ahead) {
		return ahead
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
		c.paused = time.Time{} // no words so far: carry on
	case t.finished:
		c.finish("")
	case !c.path:
		c.log.Warn("no audio path: the device has sent no UDP packet, so there is nowhere to send the reply",
			"likely_cause", "the address or port in hello does not reach this server, or UDP is blocked")
		c.interrupt("no path")
	}
}

// say sends the next piece of speech, or notes that there is no more.
func (c *Conversation) say(s Speech, ok bool, now time.Time) {
	t := c.turn
	if c.horizon.Before(now) {
		c.horizon = now // the first packet, or the speaker ran dry
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
		if t.trace.Packets++; t.trace.Packets == 1 {
			t.trace.FirstPacket = now
		}
		c.horizon = c.horizon.Add(PacketDuration)
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
	c.held.drop(t.startAt) // the tail of what was said before the reply
	t.trace.CancelledBy = cancelledBy
	t.trace.PlayoutEnd = now
	until := now
	if cancelledBy == "" && t.finished && until.Before(c.horizon) {
		until = c.horizon // it will be: the stop was sent ahead of slow messages
	}
	t.trace.Said = heard(t.spans, t.finished, until)
	if t.trace.Said != "" {
		c.remember(Message{Role: RoleAssistant, Text: t.trace.Said, Interrupted: cancelledBy != ""})
	}
	if t.trace.Packets == 0 && cancelledBy == "" && t.trace.Err == nil {
		c.log.Warn("a reply had no words", "turn", t.trace.Turn)
	}
	c.horizon = now // whatever the device still has is no concern of the next turn
	c.onTurn(t.trace)
}
