package pipeline

import (
	"context"
	"fmt"
	"time"
)

// outBound is how many packets a voice may be ahead of the conversation; with
// the prefetch of sentences it is the only queue of a reply.
const outBound = 16

// A turn is one reply in the making. Its goroutines own everything but what is
// marked; they end with its context, and nothing has to be drained: once the
// conversation has let go of the turn, nobody holds its channels.
type turn struct {
	out    chan Speech   // closed when the reply is complete
	ended  chan struct{} // closed a little before out
	notes  chan note     // what happens besides speech; senders wait for Run
	cancel context.CancelFunc

	// Owned by Run.
	trace    Trace
	began    time.Time
	startAt  time.Time // the first packet is held until then
	spaced   time.Time // and the next one until then
	finished bool      // out was closed
	dry      bool      // the loudspeaker has played all there was and waits for the next packet
	filled   bool      // the reply begins with the filler
	prompt   notice    // what is said, if nobody has asked for it
	spans    []span
}

// A note is something that Run must know of a turn besides its speech.
type note struct {
	token    bool
	audio    bool
	filler   bool
	emotion  emotion
	tool     *ToolTrace
	usage    *Usage
	messages []Message // a round of calls with its results
	err      error
}

// complete reports whether everything of the reply is in out, or was taken.
func (t *turn) complete() bool {
	select {
	case <-t.ended:
		return true
	default:
		return false
	}
}

// end closes the turn's output. It is called once, by the goroutine that fills it.
func (t *turn) end() {
	close(t.ended)
	close(t.out)
}

// tell delivers a note to Run, or reports false once the turn is over.
func (t *turn) tell(ctx context.Context, n note) bool {
	select {
	case t.notes <- n:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin makes a turn and tells the device that a reply is certain, so that the
// providers' latency hides the time the device needs to get ready.
func (c *Conversation) begin(ctx context.Context, trace Trace) (*turn, context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	now := time.Now()
	c.turns++
	t := &turn{
		out: make(chan Speech, outBound), ended: make(chan struct{}), notes: make(chan note), cancel: cancel,
		trace: trace, began: now, startAt: now.Add(c.cfg.StartHold + c.skew.early),
	}
	t.trace.Turn = c.turns
	if c.mode != Realtime {
		c.listening = false // the device turns its microphone off
		c.deafen()
	}
	c.turn, c.paused = t, time.Time{}
	return t, ctx
}

// answer begins the reply to what the user said.
func (c *Conversation) answer(ctx context.Context, text string, trace Trace) {
	c.interrupt("new words")
	c.leaving = false
	if trace.Transcribed.IsZero() {
		trace.Transcribed = time.Now()
	}
	trace.Answered = time.Now()
	trace.Heard = text
	c.remember(Message{Role: RoleUser, Text: text})
	t, turnCtx := c.begin(ctx, trace)
	c.dev.Transcript(text)
	c.dev.Start()
	req := &Request{Messages: c.request(), Tools: c.p.Tools.Tools()}
	c.work.Go(func() { c.reply(ctx, turnCtx, t, req) })
}

// sayFixed speaks a text of our own, in the turn it returns: nil if there was
// nothing to speak. Emoji and tags in it become faces.
func (c *Conversation) sayFixed(ctx context.Context, text string, trace Trace) *turn {
	filter := emotionFilter{}
	text, feelings := filter.write(text)
	if text += filter.flush(); text == "" {
		return nil
	}
	t, turnCtx := c.begin(ctx, trace)
	c.dev.Start()
	for _, f := range feelings {
		c.dev.Emotion(f.name, f.emoji)
	}
	c.work.Go(func() {
		defer t.cancel()
		defer t.end()
		words := make(chan string, 1)
		words <- text
		close(words)
		if err := c.speak(turnCtx, t, words); err != nil {
			c.sorry(turnCtx, t, err)
		}
	})
	return t
}

// apologise says that something failed, without any provider.
func (c *Conversation) apologise(ctx context.Context, trace Trace) {
	err := trace.Err
	t, turnCtx := c.begin(ctx, trace)
	c.dev.Start()
	c.work.Go(func() {
		defer t.cancel()
		defer t.end()
		c.sorry(turnCtx, t, err)
	})
}

// reply makes the whole answer: the model's words go to the voice as they come.
func (c *Conversation) reply(ctx, turnCtx context.Context, t *turn, req *Request) {
	defer t.cancel()
	defer t.end()
	thinkCtx, stopThinking := context.WithCancel(turnCtx)
	defer stopThinking()
	words := make(chan string, 8)
	thought := make(chan error, 1)
	c.work.Go(func() {
		defer close(words)
		th := thinking{c: c, t: t, ctx: thinkCtx, words: words, left: c.cfg.MaxReplyRunes}
		thought <- th.run(ctx, req)
	})
	err := c.speak(turnCtx, t, words)
	if err == nil {
		for range words { // a voice may return before the model has ended
		}
		err = <-thought
	}
	// A voice that has failed does not wait for the model: a tool may be at work
	// for long. What comes of that reaches the history all the same.
	if err != nil {
		c.sorry(turnCtx, t, err)
	}
}

// speak moves the voice's speech to the turn's output.
func (c *Conversation) speak(ctx context.Context, t *turn, words <-chan string) error {
	first := true
	for s, err := range c.p.TTS.Speak(ctx, words) {
		if err != nil {
			return fmt.Errorf("voice: %w", err)
		}
		if first && s.Packet != nil {
			first = false
			if !t.tell(ctx, note{audio: true}) {
				return ctx.Err()
			}
		}
		select {
		case t.out <- s:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// sorry ends a failed turn with the prepared apology.
func (c *Conversation) sorry(ctx context.Context, t *turn, err error) {
	if !t.tell(ctx, note{err: err}) {
		return // not a failure: the turn was cut
	}
	if c.cfg.Apology.Text == "" && len(c.cfg.Apology.Packets) == 0 {
		return
	}
	speech := []Speech{{Sentence: c.cfg.Apology.Text}}
	for _, p := range c.cfg.Apology.Packets {
		speech = append(speech, Speech{Packet: p})
	}
	for _, s := range speech {
		select {
		case t.out <- s:
		case <-ctx.Done():
			return
		}
	}
}

// note takes what happened in the current turn.
func (c *Conversation) note(n note) {
	t := c.turn
	now := time.Now()
	switch {
	case n.token && t.trace.FirstToken.IsZero():
		t.trace.FirstToken = now
	case n.audio && t.trace.FirstAudio.IsZero():
		t.trace.FirstAudio = now
	case n.filler:
		t.filled = true
	case n.emotion.name != "":
		c.dev.Emotion(n.emotion.name, n.emotion.emoji)
	case n.tool != nil:
		t.trace.Tools = append(t.trace.Tools, *n.tool)
	case n.usage != nil:
		t.trace.Usage.Prompt += n.usage.Prompt
		t.trace.Usage.Completion += n.usage.Completion
	case n.messages != nil:
		c.remember(n.messages...)
	case n.err != nil:
		t.trace.Err = n.err
		c.log.Warn("turn failed", "turn", t.trace.Turn, "error", n.err)
	}
}
