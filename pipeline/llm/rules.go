package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"parley/internal/phrase"
	"parley/pipeline"
)

// What a rules model says where nothing else is configured.
const (
	DefaultUnknown  = "Sorry, I did not understand that."
	DefaultGreeting = "Hello! What can I do for you?"
	DefaultCannotDo = "This device cannot do that."
	DefaultFailed   = "Sorry, that did not work."
	DefaultDone     = "Done."
)

// Layouts of {now.time} and {now.date} where nothing else is configured, as
// [time.Time.Format] takes them.
const (
	DefaultTimeLayout = "3:04 PM"
	DefaultDateLayout = "Monday, January 2"
)

// A RulesConfig describes a model that answers from rules, without any service.
type RulesConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "llm.rules".
	Table string
	// Rules are tried in order; the first with a pattern that matches answers.
	Rules []Rule
	// Unknown are answers to what no rule matches, given in turn. Empty is
	// [DefaultUnknown].
	Unknown []string
	// Greeting answers a request without words of a user. Empty is
	// [DefaultGreeting].
	Greeting string
	// CannotDo answers a rule whose tool the device lacks. Empty is
	// [DefaultCannotDo].
	CannotDo string
	// Failed is said where a rule has no Failed of its own. Empty is
	// [DefaultFailed].
	Failed string
	// TimeLayout and DateLayout say how {now.time} and {now.date} are written,
	// as [time.Time.Format] takes them.
	TimeLayout, DateLayout string
	// Location is the time zone of {now.time} and {now.date}; nil is the
	// server's.
	Location *time.Location
}

// A Rule says what to do and to answer when the user says one of its phrases.
//
// Texts and arguments may hold placeholders in braces: {volume} is what the
// pattern's capture of that name took, {result} the text of the last tool
// result, {result.audio_speaker.volume} a member of it where it is JSON,
// {arguments.volume} an argument of the last call, {now.time}, {now.date} and
// {now.weekday} the present. {result.audio_speaker.volume + 10} and - add and
// subtract a number or a number capture; computed like that, an argument is kept
// within the minimum and maximum of the tool's schema.
//
// An argument that is nothing but one placeholder has its type: a number capture
// becomes a JSON number. It is left out where the capture took nothing.
type Rule struct {
	// Match are the phrases, in the language of package phrase.
	Match []string
	// Call is the tool to call, with Arguments. A tool answers to its name and to
	// the name with every character outside [A-Za-z0-9_-] replaced by _.
	Call      string
	Arguments map[string]any
	// Then are further calls, each after the result of the one before it.
	Then []Step
	// Answer is said in the end. Empty is [DefaultDone] for a rule that calls,
	// and an error for one that does not.
	Answer string
	// Answers are more of them; the rule's answers are given in turn.
	Answers []string
	// Failed is said when a call failed or its result lacks what a placeholder
	// names. It may hold captures and {now.…}.
	Failed string
	// Emotion is the face to show with the answer, such as "happy".
	Emotion string
}

// A Step is one tool call of a rule.
type Step struct {
	Call      string
	Arguments map[string]any
}

// NewRules returns a [pipeline.Model] that answers from rules, or an error that
// names the rule that is wrong. It needs no network, calls one tool at a time,
// and takes no time worth measuring.
//
// It keeps no conversation: of the history it looks at the user's last message
// and the calls and results after it. It does not look at pictures, and refuses
// a request that needs them seen.
func NewRules(cfg RulesConfig) (pipeline.Model, error) {
	setDefault(&cfg.Table, "llm.rules")
	setDefault(&cfg.Greeting, DefaultGreeting)
	setDefault(&cfg.CannotDo, DefaultCannotDo)
	setDefault(&cfg.Failed, DefaultFailed)
	setDefault(&cfg.TimeLayout, DefaultTimeLayout)
	setDefault(&cfg.DateLayout, DefaultDateLayout)
	if len(cfg.Unknown) == 0 {
		cfg.Unknown = []string{DefaultUnknown}
	}
	if cfg.Location == nil {
		cfg.Location = time.Local
	}
	m := &rulesModel{cfg: cfg}
	if len(cfg.Rules) == 0 {
		return nil, fmt.Errorf("[%s]: there are no rules; add at least one [[%s.rule]]", cfg.Table, cfg.Table)
	}
	for i, r := range cfg.Rules {
		compiled, err := compileRule(r, cfg.Failed)
		if err != nil {
			return nil, fmt.Errorf("[%s]: rule %d: %w", cfg.Table, i+1, err)
		}
		m.rules = append(m.rules, compiled)
	}
	return m, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

// RulePhrases parses all phrases of rules, for the grammar of an offline
// recogniser.
func RulePhrases(rules []Rule) ([]*phrase.Pattern, error) {
	var list []*phrase.Pattern
	for i, r := range rules {
		for _, source := range r.Match {
			p, err := phrase.Parse(source)
			if err != nil {
				return nil, fmt.Errorf("rule %d: %w", i+1, err)
			}
			list = append(list, p)
		}
	}
	return list, nil
}

// A rulesModel is immutable but for the turns of answers.
type rulesModel struct {
	cfg     RulesConfig
	rules   []*rule
	unknown atomic.Uint32 // how many answers of cfg.Unknown were given
}

// Chat implements [pipeline.Model]. All of it happens in the caller's goroutine.
func (m *rulesModel) Chat(ctx context.Context, req *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return func(yield func(pipeline.Delta, error) bool) {
		if ctx.Err() != nil {
			yield(pipeline.Delta{}, context.Cause(ctx))
			return
		}
		if req.Sight {
			yield(pipeline.Delta{}, fmt.Errorf("[%s]: %w", m.cfg.Table, pipeline.ErrNoSight))
			return
		}
		yield(m.answer(req), nil)
	}
}

// answer decides the one thing to do next.
func (m *rulesModel) answer(req *pipeline.Request) pipeline.Delta {
	text, after, ok := lastWords(req.Messages)
	if !ok {
		return pipeline.Delta{Text: m.cfg.Greeting}
	}
	r, captures := m.find(text, after, req.Tools)
	if r == nil {
		n := m.unknown.Add(1) - 1
		return pipeline.Delta{Text: m.cfg.Unknown[int(n)%len(m.cfg.Unknown)]}
	}
	s := &scene{captures: captures, now: m.now()}
	done, failed := s.recall(after)
	switch {
	case failed:
		return r.fail(s)
	case done < len(r.steps):
		return m.step(r, r.steps[done], s, req)
	}
	text, err := r.nextAnswer().fill(s)
	if err != nil {
		return r.fail(s)
	}
	return r.say(text)
}

// step makes the call, or says why it cannot be made.
func (m *rulesModel) step(r *rule, st step, s *scene, req *pipeline.Request) pipeline.Delta {
	tool, ok := findTool(req.Tools, st.call)
	if !ok {
		return r.say(m.cfg.CannotDo)
	}
	args, err := st.fill(s, tool)
	if err != nil {
		return r.fail(s)
	}
	id := fmt.Sprintf("rule_%d", len(req.Messages))
	return pipeline.Delta{Call: &pipeline.Call{ID: id, Name: tool.Name, Args: args}}
}

// find returns the first rule for text that can act: its first tool is there, or
// was called before. If none can, it is the first whose words are known, to say
// that this cannot be done. Words that could be anything mean nothing without the
// tool: "what is the capital of France" is no question to a house that has no
// sensors.
func (m *rulesModel) find(text string, after []pipeline.Message, tools []pipeline.Tool) (*rule, map[string]phrase.Value) {
	called := firstCall(after)
	var known *rule
	var taken map[string]phrase.Value
	for _, r := range m.rules {
		for _, p := range r.patterns {
			captures, ok := p.Match(text)
			if !ok {
				continue
			}
			if r.canAct(called, tools) {
				return r, captures
			}
			if known == nil && !takesAnything(p) {
				known, taken = r, captures
			}
		}
	}
	return known, taken
}

// takesAnything reports whether a pattern has a place for any words.
func takesAnything(p *phrase.Pattern) bool {
	return slices.ContainsFunc(p.Captures(), func(c phrase.Capture) bool { return c.Kind == phrase.Text })
}

// firstCall is the name of the tool that was called first since the user spoke,
// or "".
func firstCall(after []pipeline.Message) string {
	for _, m := range after {
		if len(m.Calls) > 0 {
			return m.Calls[0].Name
		}
	}
	return ""
}

func (m *rulesModel) now() present {
	now := time.Now().In(m.cfg.Location)
	return present{
		"time":    now.Format(m.cfg.TimeLayout),
		"date":    now.Format(m.cfg.DateLayout),
		"weekday": now.Weekday().String(),
	}
}

// lastWords returns the user's last message and what came after it.
func lastWords(messages []pipeline.Message) (string, []pipeline.Message, bool) {
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == pipeline.RoleUser {
			return messages[i].Text, messages[i+1:], true
		}
	}
	return "", nil, false
}

// findTool finds the tool that a rule means by name.
func findTool(tools []pipeline.Tool, name string) (pipeline.Tool, bool) {
	for _, t := range tools {
		if t.Name == name || plainName(t.Name) == plainName(name) {
			return t, true
		}
	}
	return pipeline.Tool{}, false
}

// plainName is name as services for models want it.
func plainName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, name)
}

// A rule is a Rule that was checked.
type rule struct {
	patterns []*phrase.Pattern
	steps    []step
	answers  []template
	failed   template
	face     string        // an emoji with a space, or nothing
	given    atomic.Uint32 // how many answers were given
}

type step struct {
	call      string
	arguments map[string]any // with templates for strings
}

// canAct reports whether the rule has what it needs to begin, or is the one that
// has called.
func (r *rule) canAct(called string, tools []pipeline.Tool) bool {
	switch {
	case len(r.steps) == 0:
		return called == ""
	case called != "":
		return plainName(called) == plainName(r.steps[0].call)
	}
	_, ok := findTool(tools, r.steps[0].call)
	return ok
}

func (r *rule) nextAnswer() template {
	n := r.given.Add(1) - 1
	return r.answers[int(n)%len(r.answers)]
}

func (r *rule) say(text string) pipeline.Delta { return pipeline.Delta{Text: r.face + text} }

func (r *rule) fail(s *scene) pipeline.Delta {
	text, err := r.failed.fill(s)
	if err != nil {
		text = DefaultFailed
	}
	return pipeline.Delta{Text: text}
}

// fill returns the arguments of the call as a JSON object.
func (st step) fill(s *scene, tool pipeline.Tool) (json.RawMessage, error) {
	args, err := fillValue(st.arguments, s, rangesOf(tool.Schema))
	if err != nil {
		return nil, err
	}
	return encodeJSON(args)
}

// encodeJSON encodes v without escaping <, > and &, which devices need not know.
func encodeJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}
