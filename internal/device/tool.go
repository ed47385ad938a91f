package device

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Tool is one MCP tool of a device.
type Tool struct {
	Name, Description string
	Properties        []Property
	UserOnly          bool // listed only withUserTools, callable by everyone
	// Duration is how long the body keeps the main task; ctx ends with the
	// device.
	Duration time.Duration
	// Call is the body, run after Duration, never two at once on firmware that
	// runs tools on its main task. A string is returned as it is, a bool and an
	// int in decimal, anything else as JSON. An error becomes a JSON-RPC error
	// whose message is not escaped.
	Call func(ctx context.Context, args Args) (any, error)
}

// A Type is the JSON type of a property.
type Type string

// The types firmware knows.
const (
	Boolean Type = "boolean"
	Integer Type = "integer"
	String  Type = "string"
)

// A Property is one argument of a tool.
type Property struct {
	Name     string
	Type     Type
	Default  any  // nil: required
	Min, Max *int // of an Integer, both or neither
}

// Args are the checked arguments of a call: a bool, an int or a string for each
// property.
type Args map[string]any

// Int is an Integer argument.
func (a Args) Int(name string) int { v, _ := a[name].(int); return v }

// Text is a String argument.
func (a Args) Text(name string) string { v, _ := a[name].(string); return v }

// Bool is a Boolean argument.
func (a Args) Bool(name string) bool { v, _ := a[name].(bool); return v }

// check reads arguments as the firmware does: by JSON type, without coercion; a
// wrong type where there is a default is the default. The errors are in its words,
// for they go to the server: capital letters and all.
func (t Tool) check(given message) (Args, error) {
	args := Args{}
	for _, p := range t.Properties {
		v, ok := p.read(given)
		switch {
		case ok:
		case p.Default == nil:
			return nil, fmt.Errorf("Missing valid argument: %s", p.Name) //nolint:staticcheck // the firmware's words
		default:
			v = p.Default
		}
		if i, isInt := v.(int); isInt && ok {
			if p.Min != nil && i < *p.Min {
				return nil, fmt.Errorf("Value is below minimum allowed: %d", *p.Min) //nolint:staticcheck // the firmware's words
			}
			if p.Max != nil && i > *p.Max {
				return nil, fmt.Errorf("Value exceeds maximum allowed: %d", *p.Max) //nolint:staticcheck // the firmware's words
			}
		}
		args[p.Name] = v
	}
	return args, nil
}

// read is the property's value in given, where it has the property's type.
func (p Property) read(given message) (any, bool) {
	switch p.Type {
	case Boolean:
		var b *bool
		if json.Unmarshal(given[p.Name], &b) == nil && b != nil {
			return *b, true
		}
	case Integer:
		if f, ok := given.number(p.Name); ok {
			return saturated(f), true
		}
	case String:
		if s, ok := given.text(p.Name); ok {
			return s, true
		}
	}
	return nil, false
}

// saturated is cJSON's valueint: truncated, and kept within 32 bits.
func saturated(f float64) int {
	const most = 1<<31 - 1
	return int(min(max(f, -most-1), most))
}

// schema is the tool as tools/list shows it.
func (t Tool) schema() (string, error) {
	var properties, required []string
	for _, p := range t.Properties {
		s, err := p.schema()
		if err != nil {
			return "", err
		}
		properties = append(properties, quote(p.Name)+":"+s)
		if p.Default == nil {
			required = append(required, quote(p.Name))
		}
	}
	s := `{"name":` + quote(t.Name) + `,"description":` + quote(t.Description) +
		`,"inputSchema":{"type":"object","properties":{` + strings.Join(properties, ",") + `}`
	if len(required) > 0 {
		s += `,"required":[` + strings.Join(required, ",") + `]`
	}
	s += `}`
	if t.UserOnly {
		s += `,"annotations":{"audience":["user"]}`
	}
	return s + `}`, nil
}

func (p Property) schema() (string, error) {
	s := `{"type":` + quote(string(p.Type))
	switch p.Default.(type) {
	case nil:
	case bool, int, string:
		b, err := json.Marshal(p.Default)
		if err != nil {
			return "", fmt.Errorf("%s: default: %w", p.Name, err)
		}
		s += `,"default":` + string(b)
	default:
		return "", fmt.Errorf("%s: default is a %T; use a bool, int or string", p.Name, p.Default)
	}
	if p.Min != nil {
		s += `,"minimum":` + strconv.Itoa(*p.Min)
	}
	if p.Max != nil {
		s += `,"maximum":` + strconv.Itoa(*p.Max)
	}
	return s + `}`, nil
}

// quote is s as a JSON string.
func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return `""` // strings always marshal
	}
	return string(b)
}
