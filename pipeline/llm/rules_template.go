package llm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"parley/internal/phrase"
	"parley/pipeline"
)

// names are the first parts that placeholders may have. The value says whether
// it is a capture of a number.
type names map[string]bool

// has reports whether a placeholder may begin with name.
func (n names) has(name string) bool {
	_, ok := n[name]
	return ok
}

// String lists the placeholders, for errors.
func (n names) String() string {
	list := append(slices.Sorted(maps.Keys(n)), "now.time")
	return "{" + strings.Join(list, "}, {") + "}"
}

// with returns n and names that are no captures.
func (n names) with(more ...string) names {
	all := maps.Clone(n)
	for _, name := range more {
		all[name] = false
	}
	return all
}

// present holds what {now.…} may name.
type present map[string]string

// A scene is what placeholders are filled from.
type scene struct {
	captures  map[string]phrase.Value
	now       present
	result    string
	arguments json.RawMessage
}

// recall takes what was called since the user spoke, and returns how many calls
// there were and whether one failed.
func (s *scene) recall(messages []pipeline.Message) (done int, failed bool) {
	for _, m := range messages {
		switch {
		case m.Role == pipeline.RoleAssistant && len(m.Calls) > 0:
			s.arguments = m.Calls[len(m.Calls)-1].Args
		case m.Role == pipeline.RoleTool:
			done++
			s.result = m.Text
			failed = failed || m.Failed
		}
	}
	return done, failed
}

// A template is a text with placeholders.
type template []fragment

// A fragment is a piece of text or one placeholder.
type fragment struct {
	text     string
	path     []string // of a placeholder: "result", "audio_speaker", "volume"
	sign     int      // +1 or -1 if something is added to or taken from it
	amount   int      // what, unless operand names a capture
	operand  string
	computed bool
}

// parseTemplate reads the placeholders of text, all of which must be known.
func parseTemplate(text string, known names) (template, error) {
	t := template{}
	for text != "" {
		before, rest, found := strings.Cut(text, "{")
		if before != "" {
			t = append(t, fragment{text: before})
		}
		if !found {
			break
		}
		inner, after, closed := strings.Cut(rest, "}")
		if !closed {
			return nil, fmt.Errorf("%q is never closed", "{"+rest)
		}
		f, err := parsePlaceholder(inner, known)
		if err != nil {
			return nil, err
		}
		t = append(t, f)
		text = after
	}
	return t, nil
}

func parsePlaceholder(inner string, known names) (fragment, error) {
	var f fragment
	words := strings.Fields(inner)
	if len(words) != 1 && len(words) != 3 {
		return f, fmt.Errorf("{%s} is no placeholder; write {name}, {result.member} or {name + 10}", inner)
	}
	f.path = strings.Split(words[0], ".")
	switch first := f.path[0]; {
	case first == "now":
		if len(f.path) != 2 || !slices.Contains([]string{"time", "date", "weekday"}, f.path[1]) {
			return f, fmt.Errorf("{%s} is not known; there are {now.time}, {now.date} and {now.weekday}", inner)
		}
	case !known.has(first):
		return f, fmt.Errorf("{%s} is not known here; there are %s", inner, known)
	case len(f.path) > 1 && first != "result" && first != "arguments":
		return f, fmt.Errorf("{%s}: a capture has no members", inner)
	}
	if len(words) == 1 {
		return f, nil
	}
	f.computed = true
	switch words[1] {
	case "+":
		f.sign = 1
	case "-":
		f.sign = -1
	default:
		return f, fmt.Errorf("{%s}: %q is not + or -", inner, words[1])
	}
	amount, err := strconv.ParseInt(words[2], 10, 32)
	if err != nil && !known[words[2]] {
		return f, fmt.Errorf("{%s}: %q is neither a whole number nor a number capture", inner, words[2])
	}
	if err == nil {
		f.amount = int(amount)
	} else {
		f.operand = words[2]
	}
	return f, nil
}

// errAbsent is the error of a capture that took nothing.
var errAbsent = errors.New("the capture took nothing")

// fill returns the text with its placeholders filled. A capture that took
// nothing is empty; a result without the member asked for is an error.
func (t template) fill(s *scene) (string, error) {
	var b strings.Builder
	for _, f := range t {
		if f.path == nil {
			b.WriteString(f.text)
			continue
		}
		v, err := f.value(s)
		if errors.Is(err, errAbsent) {
			continue
		}
		if err != nil {
			return "", err
		}
		b.WriteString(plainText(v))
	}
	return b.String(), nil
}

// value is what a placeholder stands for: a string, an int, or what JSON holds.
func (f fragment) value(s *scene) (any, error) {
	v, err := lookUp(f.path, s)
	if err != nil || !f.computed {
		return v, err
	}
	base, err := wholeNumber(v)
	if err != nil {
		return nil, fmt.Errorf("{%s}: %w", strings.Join(f.path, "."), err)
	}
	amount := f.amount
	if f.operand != "" {
		c, ok := s.captures[f.operand]
		if !ok {
			return nil, errAbsent
		}
		amount = c.Number
	}
	return base + f.sign*amount, nil
}

func lookUp(path []string, s *scene) (any, error) {
	switch path[0] {
	case "now":
		return s.now[path[1]], nil
	case "arguments":
		return member(string(s.arguments), path)
	case "result":
		if len(path) == 1 {
			return s.result, nil
		}
		return member(s.result, path)
	}
	c, ok := s.captures[path[0]]
	switch {
	case !ok:
		return nil, errAbsent
	case c.Kind == phrase.Number:
		return c.Number, nil
	}
	return c.Text, nil
}

// member walks path[1:] into a JSON text.
func member(text string, path []string) (any, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber() // so that 50 is said as it is written
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, fmt.Errorf("{%s}: the %s is not JSON: %w", strings.Join(path, "."), path[0], err)
	}
	for _, name := range path[1:] {
		switch at := v.(type) {
		case map[string]any:
			v = at[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(at) {
				return nil, fmt.Errorf("{%s}: there is no element %s", strings.Join(path, "."), name)
			}
			v = at[i]
		default:
			v = nil
		}
		if v == nil {
			return nil, fmt.Errorf("{%s}: there is no member %s", strings.Join(path, "."), name)
		}
	}
	return v, nil
}

func wholeNumber(v any) (int, error) {
	switch v := v.(type) {
	case int:
		return v, nil
	case json.Number:
		f, err := v.Float64()
		if err == nil && math.Abs(f) < math.MaxInt32 {
			return int(math.Round(f)), nil
		}
	}
	return 0, fmt.Errorf("%v is not a number to calculate with", v)
}

// plainText is v as it is said.
func plainText(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case int:
		return strconv.Itoa(v)
	case json.Number:
		return v.String()
	}
	text, err := encodeJSON(v)
	if err != nil {
		return ""
	}
	return string(text)
}

// fillValue fills the templates of arguments. ranges bounds computed ones.
func fillValue(v any, s *scene, ranges map[string]limits) (any, error) {
	switch v := v.(type) {
	case template:
		if len(v) == 1 && v[0].path != nil {
			return v[0].value(s)
		}
		return v.fill(s)
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			filled, err := fillValue(inner, s, nil)
			if errors.Is(err, errAbsent) {
				continue
			}
			if err != nil {
				return nil, err
			}
			if n, ok := filled.(int); ok && isComputed(inner) {
				filled = ranges[name].clamp(n)
			}
			out[name] = filled
		}
		return out, nil
	case []any:
		out := make([]any, 0, len(v))
		for _, inner := range v {
			filled, err := fillValue(inner, s, nil)
			if errors.Is(err, errAbsent) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, filled)
		}
		return out, nil
	}
	return v, nil
}

func isComputed(v any) bool {
	t, ok := v.(template)
	return ok && len(t) == 1 && t[0].computed
}

// limits are the minimum and maximum of an argument, where its schema has them.
type limits struct {
	Minimum *float64 `json:"minimum"`
	Maximum *float64 `json:"maximum"`
}

func (l limits) clamp(n int) int {
	if l.Minimum != nil && float64(n) < *l.Minimum {
		n = int(math.Ceil(*l.Minimum))
	}
	if l.Maximum != nil && float64(n) > *l.Maximum {
		n = int(math.Floor(*l.Maximum))
	}
	return n
}

// rangesOf reads the limits of a tool's arguments; a schema that cannot be read
// has none.
func rangesOf(schema json.RawMessage) map[string]limits {
	var s struct {
		Properties map[string]limits `json:"properties"`
	}
	if json.Unmarshal(schema, &s) != nil {
		return nil
	}
	return s.Properties
}
