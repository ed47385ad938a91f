package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
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
	finished bool      // out was closed
	spans    []span
}

// A note is something that Run must know of a turn besides its speech.
type note struct {
	token    bool
	audio    bool
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

// sayFixed speaks a text of our own.
func (c *Conversation) sayFixed(ctx context.Context, text string, trace Trace) {
	if text == "" {
		return
	}
	t, turnCtx := c.begin(ctx, trace)
	c.dev.Start()
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
		thought <- c.think(ctx, thinkCtx, t, req, words)
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

// think runs the model, and the tools it asks for, until it has answered. The
// words go out without emoji and tags, which become emotions.
func (c *Conversation) think(ctx, turnCtx context.Context, t *turn, req *Request, words chan<- string) error {
	filter := emotionFilter{}
	write := func(s string) bool {
		if s == "" {
			return true
		}
		select {
		case words <- s:
			return true
		case <-turnCtx.Done():
			return false
		}
	}
	left := c.cfg.MaxReplyRunes
	for round := 0; ; round++ {
		if round == c.cfg.ToolRounds {
			// The model has had its rounds: it must answer with what it knows.
			req.Tools = nil
		}
		var calls []Call
		var said string
		for d, err := range c.p.LLM.Chat(turnCtx, req) {
			if err != nil {
				return fmt.Errorf("model: %w", err)
			}
			if (d.Text != "" || d.Call != nil) && !t.tell(turnCtx, note{token: true}) {
				return turnCtx.Err()
			}
			if d.Usage != nil && !t.tell(turnCtx, note{usage: d.Usage}) {
				return turnCtx.Err()
			}
			if d.Call != nil {
				calls = append(calls, *d.Call)
			}
			said += d.Text
			text, feelings := filter.write(d.Text)
			for _, f := range feelings {
				t.tell(turnCtx, note{emotion: f})
			}
			if !write(text) {
				return turnCtx.Err()
			}
			if left -= utf8.RuneCountInString(d.Text); left < 0 {
				break
			}
		}
		if len(calls) == 0 || left < 0 || round >= c.cfg.ToolRounds {
			write(filter.flush())
			return turnCtx.Err()
		}
		if !write(filter.flush() + pauseMark) {
			return turnCtx.Err()
		}
		results := c.callTools(ctx, turnCtx, t, calls)
		req.Messages = append(req.Messages, Message{Role: RoleAssistant, Text: said, Calls: calls})
		req.Messages = append(req.Messages, results...)
	}
}

// pauseMark makes the voice speak what it has: the model's next words come
// after the tools.
const pauseMark = "\n"

// callTools runs one round of calls side by side and returns exactly one result
// for each. The calls belong to the conversation, not to the turn: one that has
// an effect in the world is not cut in the middle because the user spoke, and
// what came of it reaches the history even then.
func (c *Conversation) callTools(ctx, turnCtx context.Context, t *turn, calls []Call) []Message {
	results := make([]Message, len(calls))
	var running sync.WaitGroup
	for i, call := range calls {
		running.Go(func() {
			callCtx, cancel := context.WithTimeout(ctx, c.cfg.ToolTimeout)
			defer cancel()
			from := time.Now()
			text, err := c.p.Tools.Call(callCtx, call)
			if err != nil {
				text = err.Error()
			}
			results[i] = Message{Role: RoleTool, CallID: call.ID, Text: text, Failed: err != nil}
			t.tell(turnCtx, note{tool: &ToolTrace{
				Name: call.Name, Args: string(call.Args), Result: text, Took: time.Since(from), Failed: err != nil,
			}})
		})
	}
	running.Wait()
	round := append([]Message{{Role: RoleAssistant, Calls: calls}}, results...)
	if !t.tell(turnCtx, note{messages: round}) {
		select {
		case c.late <- round:
		case <-ctx.Done():
		}
	}
	return results
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
