package pipeline

import (
	"context"
	"slices"
	"time"
)

// A Phase is what an engine is doing.
type Phase uint8

// The phases of a conversation.
const (
	Idle      Phase = iota // nothing: the device does not listen, and nothing is said
	Listening              // the device's microphone is on
	Thinking               // the user has spoken and has heard nothing yet
	Speaking               // something is being played
)

// String is the phase's name.
func (p Phase) String() string { return [...]string{"idle", "listening", "thinking", "speaking"}[p] }

// doing is the conversation's phase.
func (c *Conversation) doing() Phase {
	switch {
	case c.turn != nil && c.turn.trace.Packets > 0:
		return Speaking
	case c.turn != nil || len(c.asked) > 0:
		return Thinking
	case c.listening:
		return Listening
	}
	return Idle
}

// MaxSay bounds a text to [Conversation.Say], in bytes: some five minutes.
const MaxSay = 4096

// Say has a text spoken that the user has not asked for: a timer's, an
// operator's. It is spoken when nobody is speaking: at once, or after the reply
// that is being made or heard, or after that to what the user is saying. The
// history has it as said by the assistant. What the user aborts is only what is
// being spoken; other texts follow after a moment.
//
// Say may be called from any goroutine and never blocks. It reports false, and
// the text is not spoken, if eight wait already, if the session has ended, or if
// it has no words or more than [MaxSay] bytes.
//
// unsaid, if not nil, is called once if a text that was accepted is not spoken
// after all: because the session ends before it, or within it; because the voice
// fails; or because there is nowhere to send it. It is called on the goroutine of
// Run, before Run returns, and must return at once.
func (c *Conversation) Say(text string, unsaid func()) bool {
	if unsaid == nil {
		unsaid = func() {}
	}
	c.saying.Lock()
	defer c.saying.Unlock()
	if c.mute || !hasWords(text) || len(text) > MaxSay {
		c.refused.Add(1)
		return false
	}
	select {
	case c.says <- notice{text, unsaid}:
		return true
	default:
		c.refused.Add(1)
		return false
	}
}

const (
	// floorTime is how long the user has the word who has just aborted, pressed a
	// button in a reply or said a wake word: a device that was sent to speaking
	// again would not hear what comes.
	floorTime = 2 * time.Second
	// resumeTime is how long after a reply in auto mode the device's listen start
	// is waited for, which would cut what is said before it comes. Since 2.4.0
	// firmware sends it when it has played everything.
	resumeTime = 3 * time.Second
)

// yieldFloor leaves the word to the user for a moment.
func (c *Conversation) yieldFloor(now time.Time) { c.floor = now.Add(floorTime) }

// mayPrompt returns the texts to say unasked, or nil while none may be said: not
// before the device can hear it, nor while anybody is speaking, nor while the
// user has the word. Where nothing is heard of a device that listens, texts are
// taken all the same after a while, to be given back.
func (c *Conversation) mayPrompt(now time.Time) <-chan notice {
	switch {
	case !c.listened, !c.path && now.Before(c.pathBy), now.Before(c.floor), now.Before(c.resumes),
		c.turn != nil, c.ear != nil, len(c.asked) > 0:
		return nil
	}
	return c.says
}

// prompt speaks a text that nobody has asked for.
func (c *Conversation) prompt(ctx context.Context, n notice) {
	if !c.path {
		c.log.Warn("nothing said: the device has sent no UDP packet, so there is nowhere to send it")
		n.unsaid()
		return
	}
	if t := c.sayFixed(ctx, n.text, Trace{Mode: c.mode, Prompted: true, SpeechEnd: time.Now()}); t != nil {
		t.prompt = n
	} // else it was nothing but a face
}

// prompted is called when a turn is over that nobody has asked for. What was cut
// before anything of it was heard is said again, unless the session ends: it may
// have begun in the very moment in which the user pressed a button.
func (c *Conversation) prompted(t *turn) {
	switch {
	case t.trace.Err != nil, t.trace.CancelledBy == endOfSession:
		t.prompt.unsaid()
	case t.trace.CancelledBy != "" && t.trace.Said == "":
		select {
		case c.says <- t.prompt:
		default:
			t.prompt.unsaid()
		}
	}
}

// leave ends the session if that was asked for, nothing is left to say and the
// user is saying nothing.
func (c *Conversation) leave() {
	if c.leaving && c.turn == nil && len(c.says) == 0 && c.ear == nil && len(c.asked) == 0 {
		c.leaving = false // once, should the session not end
		c.dev.End(EndAsked)
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endOfSession is why a reply is cut that is left when Run returns.
const endOfSession = "session end"

// stays reports whether who cut a reply wants to go on talking.
func stays(cancelledBy string) bool {
	return slices.Contains([]string{"listen start", "typed text", "new words", "barge-in"}, cancelledBy)
}
