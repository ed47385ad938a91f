package home

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds of configured tools.
const (
	maxToolName   = 64
	maxTextArg    = 1 << 10 // bytes of a text argument
	maxTopicArg   = 128     // bytes of one that goes into a topic
	maxReplyText  = 8 << 10 // bytes of a reply that a model reads
	minReplyWait  = 100 * time.Millisecond
	maxReplyWait  = 60 * time.Second
	maxToolArgs   = 16
	maxCustomTmpl = 8 << 10 // bytes of a payload's template
)

// A Custom is a tool that publishes one message: an entry of [[mqtt.tool]].
//
// Topic, Payload and ReplyTopic may hold arguments in braces, as in
// "cmnd/{room}/POWER". In a payload that is JSON an argument between quotes is
// escaped, and one outside of them becomes a JSON value of its type, null where
// it is absent. In a topic an argument is one level or part of one: it may not
// be empty or hold a slash, a wildcard or a control character.
type Custom struct {
	Name        string // letters, digits, _ and -; it may not begin with home_
	Description string // for the model: what it does, and when to use it
	Arguments   map[string]Arg
	Topic       string
	Payload     string
	Retain      bool
	// ReplyTopic is where an answer comes; the next message there that is not
	// a retained one is the result. Calls with one reply topic run one at a
	// time.
	ReplyTopic string
	// ReplyWait is how long to wait for it; 0 is [DefaultReplyWait], and the
	// bounds are 100 ms and 60 s.
	ReplyWait time.Duration
	// ReplyTemplate makes the result of the reply, in the subset of Jinja that
	// discovery uses: value is the payload, value_json its JSON. Empty is the
	// payload as it is.
	ReplyTemplate string
}

// An Arg is one argument of a [Custom].
type Arg struct {
	Type        string // string, integer, number or boolean; empty is string
	Description string
	Enum        []string // the only values of a string
	Min, Max    *float64 // of an integer or a number
	Required    bool
}

// A custom is a Custom that was found to be right.
type custom struct {
	Custom
	schema                     json.RawMessage
	topic, payload, replyTopic pieces
	reply                      *template
}

// compileCustom checks a tool. The error names the key and what to do.
func compileCustom(c Custom) (*custom, error) {
	if c.Name == "" || len(c.Name) > maxToolName || strings.ContainsFunc(c.Name, func(r rune) bool { return r > 0x7f || !isNameByte(byte(r)) && r != '-' }) {
		return nil, fmt.Errorf("name is %.70q; use 1 to %d letters, digits, _ and -", c.Name, maxToolName)
	}
	if strings.TrimSpace(c.Description) == "" {
		return nil, errors.New("description is empty; say what the tool does, or no model will use it")
	}
	if len(c.Arguments) > maxToolArgs {
		return nil, fmt.Errorf("it has %d arguments; at most %d are allowed", len(c.Arguments), maxToolArgs)
	}
	out := &custom{Custom: c}
	var err error
	if out.schema, err = argumentSchema(c.Arguments); err != nil {
		return nil, err
	}
	if len(c.Payload) > maxCustomTmpl {
		return nil, fmt.Errorf("payload has %d bytes; at most %d are allowed", len(c.Payload), maxCustomTmpl)
	}
	if out.topic, err = cutPieces(c.Topic, c.Arguments, false); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if out.payload, err = cutPieces(c.Payload, c.Arguments, true); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if out.replyTopic, err = cutPieces(c.ReplyTopic, c.Arguments, false); err != nil {
		return nil, fmt.Errorf("reply_topic: %w", err)
	}
	// An example of every argument shows whether topics and payload can be right.
	example := map[string]any{}
	for name, a := range c.Arguments {
		example[name] = a.example()
	}
	if err := checkTopic(out.topic.topic(example)); err != nil {
		return nil, fmt.Errorf("topic: %w", err)
	}
	if c.ReplyTopic != "" {
		if err := checkTopic(out.replyTopic.topic(example)); err != nil {
			return nil, fmt.Errorf("reply_topic: %w", err)
		}
	} else if c.ReplyWait != 0 || c.ReplyTemplate != "" {
		return nil, errors.New("reply_wait and reply_template need a reply_topic; add one or leave them out")
	}
	if out.payload.json && !json.Valid([]byte(out.payload.text(example))) {
		return nil, errors.New("payload begins like JSON and is none; check its quotes and braces")
	}
	if out.ReplyWait == 0 {
		out.ReplyWait = DefaultReplyWait
	}
	if out.ReplyWait < minReplyWait || out.ReplyWait > maxReplyWait {
		return nil, fmt.Errorf("reply_wait is %v; it must be between %v and %v", c.ReplyWait, minReplyWait, maxReplyWait)
	}
	if c.ReplyTemplate != "" {
		if out.reply, err = parseTemplate(c.ReplyTemplate); err != nil {
			return nil, fmt.Errorf("reply_template: %w", err)
		}
	}
	return out, nil
}

// argumentSchema checks arguments and makes their schema.
func argumentSchema(args map[string]Arg) (json.RawMessage, error) {
	properties := map[string]property{}
	var required []string
	for _, name := range slices.Sorted(maps.Keys(args)) {
		a := args[name]
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f || !isNameByte(byte(r)) }) {
			return nil, fmt.Errorf("argument %q: use letters, digits and _", name)
		}
		switch a.kind() {
		case "integer", "number":
			if len(a.Enum) > 0 {
				return nil, fmt.Errorf("argument %q: enum is for strings; use min and max", name)
			}
			if a.Min != nil && a.Max != nil && *a.Min > *a.Max {
				return nil, fmt.Errorf("argument %q: min is above max", name)
			}
		case "string", "boolean":
			if a.Min != nil || a.Max != nil || a.kind() == "boolean" && len(a.Enum) > 0 {
				return nil, fmt.Errorf("argument %q: min and max are for numbers, and enum is for strings", name)
			}
		default:
			return nil, fmt.Errorf("argument %q: type is %q; use string, integer, number or boolean", name, a.Type)
		}
		properties[name] = property{Type: a.kind(), Description: a.Description, Enum: a.Enum, Minimum: a.Min, Maximum: a.Max}
		if a.Required {
			required = append(required, name)
		}
	}
	return schema(properties, required...), nil
}

func (a Arg) kind() string {
	if a.Type == "" {
		return "string"
	}
	return a.Type
}

// example is a value the argument may have.
func (a Arg) example() any {
	switch a.kind() {
	case "integer", "number":
		if a.Min != nil {
			return *a.Min
		}
		return 1.0
	case "boolean":
		return true
	}
	if len(a.Enum) > 0 {
		return a.Enum[0]
	}
	return "x"
}

// accept checks one value that a model gave, or a rule.
func (a Arg) accept(v any) (any, error) {
	switch a.kind() {
	case "boolean":
		b, err := toBool(v)
		if err != nil {
			return nil, errors.New("must be true or false")
		}
		return b, nil
	case "integer", "number":
		f, err := toFloat(v)
		switch {
		case err != nil || math.Abs(f) > 1e15:
			return nil, errors.New("must be a number")
		case a.kind() == "integer" && f != math.Trunc(f):
			return nil, errors.New("must be a whole number")
		case a.Min != nil && f < *a.Min:
			return nil, fmt.Errorf("must be at least %s", plainNumber(*a.Min))
		case a.Max != nil && f > *a.Max:
			return nil, fmt.Errorf("must be at most %s", plainNumber(*a.Max))
		}
		return f, nil
	}
	text := textOf(v)
	if len(text) > maxTextArg || !cleanText(text) {
		return nil, fmt.Errorf("must be one line of at most %d bytes", maxTextArg)
	}
	if len(a.Enum) > 0 {
		i := slices.IndexFunc(a.Enum, func(e string) bool { return e == text || keyOf(e) == keyOf(text) })
		if i < 0 {
			return nil, fmt.Errorf("must be one of %s", strings.Join(a.Enum, ", "))
		}
		return a.Enum[i], nil
	}
	return text, nil
}
