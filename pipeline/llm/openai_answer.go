package llm

import (
	"encoding/json"
	"errors"
	"fmt"

	"parley/pipeline"
)

var (
	// ErrNothingSaid reports a completion without text or calls because its token
	// limit was reached, as by a model that thinks long, or because the
	// service's content filter withheld it.
	ErrNothingSaid = errors.New("the model's answer is empty")
	// ErrCutShort reports a stream that ended before the completion did.
	ErrCutShort = errors.New("the stream ended before the answer did")
)

// An answer follows the events of one streamed completion and collects what of
// them can be passed on.
type answer struct {
	think  thinkFilter
	calls  callAssembler
	ready  []pipeline.Delta
	finish string // finish_reason, once known
	spoke  bool   // text or a call has been passed on
	usage  *pipeline.Usage
	done   bool // the stream said that it has ended
}

func newAnswer(history []pipeline.Message) *answer {
	return &answer{calls: newCallAssembler(history)}
}

// A chunk is one event of a stream. Message stands in for Delta where a service
// answers a streaming request with a whole completion. Members that hold what
// the model thinks (reasoning_content, reasoning) are not read.
type chunk struct {
	Choices []struct {
		Index   int        `json:"index"`
		Delta   chunkDelta `json:"delta"`
		Message chunkDelta `json:"message"`
		Finish  string     `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Error json.RawMessage `json:"error"`
}

type chunkDelta struct {
	Content string         `json:"content"`
	Refusal string         `json:"refusal"`
	Calls   []callFragment `json:"tool_calls"`
}

// An errorObject is what a service sends when it fails after the stream has
// begun and an HTTP status can no longer say so.
type errorObject struct{ raw json.RawMessage }

func (e *errorObject) Error() string { return "the stream holds an error: " + string(e.raw) }

// add takes in the data of one event.
func (a *answer) add(data []byte) error {
	if string(data) == "[DONE]" {
		a.done = true
		return nil
	}
	var c chunk
	if err := json.Unmarshal(data, &c); err != nil {
		return fmt.Errorf("an event of the stream is not the JSON expected: %w", err)
	}
	if len(c.Error) > 0 && string(c.Error) != "null" {
		return &errorObject{c.Error}
	}
	if c.Usage != nil {
		// Kept to the end: vLLM can count in every chunk, and then the last counts.
		a.usage = &pipeline.Usage{Prompt: c.Usage.Prompt, Completion: c.Usage.Completion}
	}
	for _, choice := range c.Choices {
		if choice.Index != 0 {
			continue
		}
		for _, d := range []chunkDelta{choice.Delta, choice.Message} {
			a.say(a.think.add(d.Content))
			a.say(d.Refusal)
			for _, f := range d.Calls {
				if err := a.calls.add(f); err != nil {
					return err
				}
			}
		}
		if choice.Finish != "" {
			a.finish = choice.Finish
			a.flush()
		}
	}
	return nil
}

// end takes in that no more events come.
func (a *answer) end() error {
	if a.finish == "" && !a.done {
		return ErrCutShort
	}
	a.flush()
	if a.usage != nil {
		a.ready = append(a.ready, pipeline.Delta{Usage: a.usage})
	}
	switch {
	case a.spoke:
	case a.finish == "length":
		return fmt.Errorf("%w: all its tokens went into thinking; raise max_tokens or turn thinking off in extra", ErrNothingSaid)
	case a.finish == "content_filter":
		return fmt.Errorf("%w: the service's content filter withheld it", ErrNothingSaid)
	}
	return nil
}

// take returns what can be passed on, once.
func (a *answer) take() []pipeline.Delta {
	ready := a.ready
	a.ready = a.ready[len(a.ready):]
	return ready
}

// flush passes on what was held back until the completion's end. A service may
// announce the end more than once.
func (a *answer) flush() {
	a.say(a.think.end())
	for _, call := range a.calls.take() {
		a.ready = append(a.ready, pipeline.Delta{Call: &call})
		a.spoke = true
	}
}

// say passes text on.
func (a *answer) say(text string) {
	if text != "" {
		a.ready = append(a.ready, pipeline.Delta{Text: text})
		a.spoke = true
	}
}
