package pipeline

import (
	"context"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// earBound is how many pieces of audio may wait for a recogniser: 64 are 3.8 s.
// Beyond that the recogniser is stuck and its time limit will end it; pieces
// are dropped and counted.
const earBound = 64

// An ear is one run of the recogniser, over one utterance.
type ear struct {
	audio  chan []int16
	cancel context.CancelFunc
	text   string // the latest hypothesis
	final  bool   // text is final
	ended  bool   // the run is over
	reject bool   // the recogniser understood nothing
	failed error  // the run is over because of this
	forced bool   // the utterance was ended by its length; the user may be speaking on
	paused bool   // a reply was paused for it
	closed bool   // the utterance has ended
	trace  Trace  // set when closed
}

// A hypothesis is what a recogniser run says, or, ended, that it has returned.
type hypothesis struct {
	ear   *ear
	t     Transcript
	ended bool
	err   error
}

// openEar starts a recogniser run on what has been heard of the utterance so
// far. Its goroutine belongs to the conversation and ends with the run.
func (c *Conversation) openEar(ctx context.Context, begun []int16) {
	ctx, cancel := context.WithCancel(ctx)
	e := &ear{audio: make(chan []int16, earBound), cancel: cancel}
	c.ear = e
	if len(begun) > 0 {
		e.audio <- begun
	}
	report := func(h hypothesis) bool {
		select {
		case c.words <- h:
			return true
		case <-ctx.Done():
			return false
		}
	}
	c.work.Go(func() {
		defer cancel()
		var failed error
		for t, err := range c.p.ASR.Transcribe(ctx, e.audio) {
			if err != nil {
				failed = err
				break
			}
			if !report(hypothesis{ear: e, t: t}) {
				return
			}
		}
		report(hypothesis{ear: e, ended: true, err: failed})
	})
}

// feedEar gives the recogniser a copy of pcm.
func (c *Conversation) feedEar(pcm []int16) {
	if c.ear.failed != nil {
		return
	}
	select {
	case c.ear.audio <- append([]int16(nil), pcm...):
	default:
		c.deaf++
	}
}

// closeEar ends the utterance: the recogniser is told that there is no more.
// speechEnd is when the last of it was said.
func (c *Conversation) closeEar(ctx context.Context, speechEnd, now time.Time) {
	e := c.ear
	e.trace = newTrace(c.mode, speechEnd, now)
	e.closed = true
	close(e.audio)
	c.asked, c.ear = append(c.asked, e), nil
	if e.failed != nil {
		c.unrecognised(ctx, e)
	}
}

// hear takes one packet of the device.
func (c *Conversation) hear(ctx context.Context, p *packet) {
	at := p.at // take returns the packet to its pool
	if c.listening {
		c.skew.packet(at)
	}
	c.up.take(p, func(pcm []int16) { c.sound(ctx, pcm, at) })
}

// sound takes decoded audio.
func (c *Conversation) sound(ctx context.Context, pcm []int16, now time.Time) {
	if !c.listening {
		c.held.add(pcm, now)
		return
	}
	c.attend(ctx, pcm, now)
}

// attend listens to audio while listening.
func (c *Conversation) attend(ctx context.Context, pcm []int16, now time.Time) {
	if c.mode == Manual {
		if c.ear == nil { // the recogniser ended by itself; the user has not
			c.openEar(ctx, nil)
		}
		c.feedEar(pcm)
		return
	}
	switch began := c.ends.feed(pcm); {
	case began:
		c.answerAt = time.Time{}
		c.openEar(ctx, c.ends.begun())
	case c.ear != nil:
		c.feedEar(pcm)
	}
	if c.ear == nil {
		return
	}
	delay := c.cfg.Endpointing.delay(c.ear.text)
	switch quiet := c.ends.quiet; {
	case quiet >= delay:
		c.endUtterance(ctx, now)
	case c.ends.length >= c.cfg.Endpointing.Max:
		c.ear.forced = true
		c.endUtterance(ctx, now)
	default:
		// Should the device send nothing during silence, the clock decides.
		c.endpoint = now.Add(delay - quiet + silentDevice)
	}
	if e := c.ear; c.turn != nil && e != nil && !e.paused && e.failed == nil && c.ends.length-c.ends.quiet >= c.cfg.BargeIn {
		e.paused = true // once: noise that goes on must not hold the reply for ever
		c.paused = now
	}
}

// silentDevice is how long after the expected packet the clock takes over from
// the audio: more than jitter, less than patience.
const silentDevice = 240 * time.Millisecond

// endUtterance is called when the user has finished, as far as one can tell.
func (c *Conversation) endUtterance(ctx context.Context, now time.Time) {
	c.endpoint = time.Time{}
	if c.ear != nil {
		c.closeEar(ctx, now.Add(-c.ends.quiet), now)
	}
	c.ends.ended()
}

// hypothesis takes what a recogniser says.
func (c *Conversation) hypothesis(ctx context.Context, h hypothesis) {
	e := h.ear
	if e != c.ear && !slices.Contains(c.asked, e) {
		return // its utterance was given up
	}
	now := time.Now()
	switch {
	case h.err != nil && !e.final: // an error after the final words loses nothing
		c.log.Warn("recogniser failed", "error", h.err)
		e.failed, e.ended = h.err, true
		if e.closed {
			c.unrecognised(ctx, e)
		}
	case h.ended:
		c.recognised(ctx, e, now)
	default:
		if h.t.Text != "" || h.t.Final {
			e.text = h.t.Text
		}
		e.final, e.reject = h.t.Final, h.t.Rejected
		if c.turn != nil && hasWords(e.text) {
			c.interrupt("barge-in") // words, not noise
		}
		if h.t.EndOfTurn && e == c.ear && c.mode != Manual {
			c.endUtterance(ctx, now)
		}
	}
}

// unrecognised is called when an utterance is over whose recogniser has failed.
func (c *Conversation) unrecognised(ctx context.Context, e *ear) {
	if c.turn != nil {
		// It may have been a cough: as far as anybody knows, no word was said.
		c.asked = slices.DeleteFunc(c.asked, func(a *ear) bool { return a == e })
		c.carryOn(time.Now())
		return
	}
	trace := e.trace
	trace.Err = e.failed
	c.deafen()
	c.apologise(ctx, trace)
}

// recognised is called when a recogniser run has ended well.
func (c *Conversation) recognised(ctx context.Context, e *ear, now time.Time) {
	e.ended = true
	if e == c.ear { // it has ended the utterance by itself
		c.closeEar(ctx, now, now)
		c.endpoint = time.Time{}
		c.ends.ended()
	}
	e.trace.Transcribed = now
	c.settle(ctx, now)
}

// settle answers what was said, when it is known that nothing belongs to it any
// more. Utterances are answered in the order they were said, and together when
// one began before the other was answered.
func (c *Conversation) settle(ctx context.Context, now time.Time) {
	c.answerAt = time.Time{}
	if len(c.asked) == 0 || slices.ContainsFunc(c.asked, func(e *ear) bool { return !e.ended }) {
		return
	}
	last := c.asked[len(c.asked)-1]
	if c.ear != nil && !last.forced || c.mode == Manual && c.listening {
		return // the user is speaking on
	}
	text, rejected := c.joinAsked()
	switch {
	case hasWords(text):
		c.lastSound = now
		c.answerAt = now
		if c.listening && !last.forced && completeness(text) == unfinished {
			c.answerAt = last.trace.SpeechEnd.Add(c.cfg.Endpointing.MaxDelay)
		}
		if !now.Before(c.answerAt) {
			c.answerPending(ctx)
		}
	case rejected && c.turn == nil:
		c.asked = nil
		c.sayFixed(ctx, c.cfg.NotUnderstood, last.trace)
	default: // a cough, or noise: carry on
		c.asked = nil
		c.carryOn(now)
	}
}

func (c *Conversation) joinAsked() (text string, rejected bool) {
	for _, a := range c.asked {
		rejected = rejected || a.reject
		text = joinWords(text, a.text)
	}
	return text, rejected
}

// answerPending answers everything that was asked.
func (c *Conversation) answerPending(ctx context.Context) {
	c.answerAt = time.Time{}
	text, _ := c.joinAsked()
	trace := c.asked[len(c.asked)-1].trace
	c.asked = nil
	c.answer(ctx, text, trace)
}

func hasWords(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}

// joinWords puts a space between words, but not between Chinese or Japanese
// characters.
func joinWords(a, b string) string {
	a, b = strings.TrimSpace(a), strings.TrimSpace(b)
	if a == "" || b == "" {
		return a + b
	}
	l, _ := utf8.DecodeLastRuneInString(a)
	f, _ := utf8.DecodeRuneInString(b)
	if isCJK(l) || isCJK(f) {
		return a + b
	}
	return a + " " + b
}

// isCJK reports whether r is written without spaces between words.
func isCJK(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana) || r >= 0x3000 && r <= 0x303f || r >= 0xff00 && r <= 0xffef
}
