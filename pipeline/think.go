package pipeline

import (
	"context"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

// A thinking is the work of a reply's model: its rounds, with the tools it calls
// between them. It belongs to one goroutine, which ends with ctx.
type thinking struct {
	c      *Conversation
	t      *turn
	ctx    context.Context // the turn's
	words  chan<- string   // to the voice
	filter emotionFilter
	left   int       // characters that may still be said
	spoken bool      // the user has got to hear something
	tools  time.Time // when the first tool was called
}

// run asks the model, and the tools it wants, until it has answered. The words go
// out without emoji and tags, which become emotions. ctx is the conversation's:
// tools may outlive the turn.
func (th *thinking) run(ctx context.Context, req *Request) error {
	for round := 0; ; round++ {
		if round == th.c.cfg.ToolRounds {
			// The model has had its rounds: it must answer with what it knows.
			req.Tools = nil
		}
		said, calls, err := th.ask(req)
		if err != nil {
			return err
		}
		if len(calls) == 0 || th.left < 0 || round >= th.c.cfg.ToolRounds {
			th.write(th.filter.flush())
			return th.ctx.Err()
		}
		if !th.write(th.filter.flush() + pauseMark) {
			return th.ctx.Err()
		}
		results := th.callTools(ctx, calls)
		req.Messages = append(req.Messages, Message{Role: RoleAssistant, Text: said, Calls: calls})
		req.Messages = append(req.Messages, results...)
		forgetPictures(req.Messages)
	}
}

// pauseMark makes the voice speak what it has: the model's next words come
// after the tools.
const pauseMark = "\n"

// ask has the model speak once, to the voice, and returns what it said and the
// tools it wants.
func (th *thinking) ask(req *Request) (said string, calls []Call, err error) {
	for d, err := range th.c.p.LLM.Chat(th.ctx, req) {
		if err != nil {
			return said, nil, fmt.Errorf("model: %w", err)
		}
		if (d.Text != "" || d.Call != nil) && !th.tell(note{token: true}) {
			return said, nil, th.ctx.Err()
		}
		if d.Usage != nil && !th.tell(note{usage: d.Usage}) {
			return said, nil, th.ctx.Err()
		}
		if d.Call != nil {
			calls = append(calls, *d.Call)
		}
		said += d.Text
		text, feelings := th.filter.write(d.Text)
		for _, f := range feelings {
			th.tell(note{emotion: f})
		}
		if !th.write(text) {
			return said, nil, th.ctx.Err()
		}
		if th.left -= utf8.RuneCountInString(d.Text); th.left < 0 {
			break
		}
	}
	return said, calls, nil
}

func (th *thinking) tell(n note) bool { return th.t.tell(th.ctx, n) }

// write gives text to the voice, or reports false once the turn is over.
func (th *thinking) write(text string) bool {
	if text == "" {
		return true
	}
	th.spoken = th.spoken || hasWords(text)
	select {
	case th.words <- text:
		return true
	case <-th.ctx.Done():
		return false
	}
}

// maxSideBySide bounds the calls of one conversation that run at once. Sources are
// shared: a model that asks for dozens must not take all of a server's room and
// have other people's calls refused.
const maxSideBySide = 8

// callTools runs one round of calls side by side, maxSideBySide at a time, and
// returns exactly one result for each. The calls belong to the conversation, not
// to the turn: one that has an effect in the world is not cut in the middle
// because the user spoke, and what came of it reaches the history even then.
func (th *thinking) callTools(ctx context.Context, calls []Call) []Message {
	c := th.c
	results := make([]Message, len(calls))
	var running sync.WaitGroup
	callCtx, cancel := context.WithTimeout(ctx, c.cfg.ToolTimeout)
	defer cancel()
	slots := make(chan struct{}, maxSideBySide) // holds one element for each call under way; further ones wait
	for i, call := range calls {
		running.Go(func() {
			from := time.Now()
			var r ToolResult
			var err error
			select {
			case slots <- struct{}{}:
				if err = callCtx.Err(); err == nil {
					r, err = c.p.Tools.Call(callCtx, call)
				}
				<-slots
			case <-callCtx.Done():
				err = callCtx.Err()
			}
			if err != nil {
				r = ToolResult{Text: err.Error()}
			}
			results[i] = Message{Role: RoleTool, CallID: call.ID, Text: r.Text, Images: r.Images, Failed: err != nil}
			th.tell(note{tool: &ToolTrace{
				Name: call.Name, Args: string(call.Args), Result: r.Text, Images: len(r.Images),
				Took: time.Since(from), Failed: err != nil,
			}})
		})
	}
	stop := th.fill()
	running.Wait()
	stop()
	round := append([]Message{{Role: RoleAssistant, Calls: calls}}, results...)
	if !th.tell(note{messages: round}) {
		select {
		case c.late <- round:
		case <-ctx.Done():
		}
	}
	return results
}

// fill says the filler if tools take long, all rounds together, and the user has
// heard nothing. The goroutine it starts ends when stop is called, which waits for
// it.
func (th *thinking) fill() (stop func()) {
	filler := th.c.cfg.Filler
	if th.spoken || !hasWords(filler) {
		return func() {}
	}
	if th.tools.IsZero() {
		th.tools = time.Now()
	}
	left := th.c.cfg.FillAfter - time.Since(th.tools)
	answered := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		patience := time.NewTimer(left) // fires at once if none is left
		defer patience.Stop()
		select {
		case <-patience.C:
			if th.tell(note{filler: true}) {
				th.write(filler + pauseMark)
			}
		case <-answered:
		case <-th.ctx.Done():
		}
	})
	return func() {
		close(answered)
		waiting.Wait()
	}
}
