package llm

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"

	"parley/pipeline"
)

const (
	// MalformedArgs is the one member of the arguments of a call whose own were
	// not a JSON object: {"malformed_arguments": "…"}, holding at most 200 bytes
	// of what the model wrote. No tool declares it, so a tool or toolbox that
	// checks its arguments refuses the call, and the model reads that it wrote
	// something unusable and can try again.
	MalformedArgs = "malformed_arguments"

	maxMalformed = 200

	// maxCalls bounds the calls of one completion, maxCallArgs the arguments of
	// one in bytes. Both are far above what a conversation by voice uses.
	maxCalls    = 64
	maxCallArgs = 64 << 10
)

// A callFragment is a piece of a call as streamed. Arguments is a JSON string,
// whose pieces are to be joined, or from some servers the object itself.
type callFragment struct {
	Index    *int   `json:"index"`
	ID       string `json:"id"`
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// A callAssembler puts calls together from fragments.
//
// OpenAI gives each call an index and sends its id and name with the first
// fragment only. Others differ: Gemini numbers every call 0, Ollama sends each
// call whole, some servers leave out index or id or repeat id and name with
// each fragment. A fragment therefore begins a new call when it carries another
// id, or another name, than the call it would continue, or carries a name and
// arguments when that call's are complete.
type callAssembler struct {
	open []*openCall
	used map[string]bool // ids taken in this conversation
}

type openCall struct {
	index    *int
	id, name string
	args     []byte
}

func newCallAssembler(history []pipeline.Message) callAssembler {
	used := make(map[string]bool)
	for _, m := range history {
		for _, c := range m.Calls {
			used[c.ID] = true
		}
	}
	return callAssembler{used: used}
}

// add takes in one fragment.
func (a *callAssembler) add(f callFragment) error {
	args := fragmentArgs(f.Function.Arguments)
	call := a.find(f)
	if call == nil || call.endsBefore(f, args) {
		if f.Function.Name == "" && f.ID == "" && len(args) == 0 {
			return nil // an empty fragment, which some servers send first or last
		}
		if len(a.open) == maxCalls {
			return fmt.Errorf("the model asks for more than %d calls at once", maxCalls)
		}
		call = &openCall{index: f.Index, id: f.ID, name: f.Function.Name}
		a.open = append(a.open, call)
	}
	if call.id == "" {
		call.id = f.ID
	}
	if call.name == "" {
		call.name = f.Function.Name
	}
	if call.args = append(call.args, args...); len(call.args) > maxCallArgs {
		return fmt.Errorf("the arguments of a call to %q are longer than %d bytes", call.name, maxCallArgs)
	}
	return nil
}

// find returns the call that f continues if it continues one: the latest of its
// index, or else of its id, or else the latest of all.
func (a *callAssembler) find(f callFragment) *openCall {
	for i := len(a.open) - 1; i >= 0; i-- {
		call := a.open[i]
		switch {
		case f.Index != nil && call.index != nil:
			if *f.Index == *call.index {
				return call
			}
		case f.ID != "":
			if f.ID == call.id {
				return call
			}
		default:
			return call
		}
	}
	return nil
}

// endsBefore reports whether f does not continue c but begins another call.
func (c *openCall) endsBefore(f callFragment, args []byte) bool {
	name := f.Function.Name
	switch {
	case f.ID != "" && c.id != "" && f.ID != c.id:
		return true
	case name == "" || c.name == "":
		return false
	case name != c.name:
		return true
	}
	return len(args) > 0 && json.Valid(c.args)
}

// take returns the calls assembled so far, once. One without a name, which
// nobody could run, is left out.
func (a *callAssembler) take() []pipeline.Call {
	var calls []pipeline.Call
	for _, c := range a.open {
		if c.name != "" {
			calls = append(calls, pipeline.Call{ID: a.uniqueID(c.id), Name: c.name, Args: callArgs(c.args)})
		}
	}
	a.open = nil
	return calls
}

// uniqueID returns id, or a new one if it is empty or taken: results are matched
// to calls by it. Nine letters and digits are what Mistral insists on.
func (a *callAssembler) uniqueID(id string) string {
	for id == "" || a.used[id] {
		id = rand.Text()[:9]
	}
	a.used[id] = true
	return id
}

// fragmentArgs returns the text of a fragment's arguments.
func fragmentArgs(raw json.RawMessage) []byte {
	var text string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil
	case json.Unmarshal(raw, &text) == nil:
		return []byte(text)
	}
	return raw
}

// callArgs makes a JSON object of what the model wrote. Nothing and null are no
// arguments; an object inside a JSON string, as some models write it, is
// unpacked; for anything else see [MalformedArgs].
func callArgs(written []byte) json.RawMessage {
	args := bytes.TrimSpace(written)
	var inner string
	if json.Unmarshal(args, &inner) == nil {
		args = bytes.TrimSpace([]byte(inner))
	}
	if len(args) == 0 || string(args) == "null" {
		return json.RawMessage("{}")
	}
	if args[0] == '{' && json.Valid(args) {
		return args
	}
	// A map of strings always encodes.
	object, _ := json.Marshal(map[string]string{MalformedArgs: string(written[:min(len(written), maxMalformed)])})
	return object
}
