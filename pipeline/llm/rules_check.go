package llm

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"parley/internal/phrase"
)

// compileRule checks a rule. Its errors name the member that is wrong.
func compileRule(r Rule, failed string) (*rule, error) {
	if len(r.Match) == 0 {
		return nil, errors.New("match is empty; give at least one phrase the user may say")
	}
	out := &rule{}
	known := names{}
	for _, source := range r.Match {
		p, err := phrase.Parse(source)
		if err != nil {
			return nil, fmt.Errorf("match: %w", err)
		}
		out.patterns = append(out.patterns, p)
		for _, c := range p.Captures() {
			if reserved(c.Name) {
				return nil, fmt.Errorf("match: %q: a capture cannot be called %s; the name has a meaning of its own", source, c.Name)
			}
			known[c.Name] = c.Kind == phrase.Number
		}
	}
	if err := out.compileSteps(r, known); err != nil {
		return nil, err
	}
	if err := out.compileTexts(r, failed, known); err != nil {
		return nil, err
	}
	return out, nil
}

// reserved reports whether placeholders called name are no captures.
func reserved(name string) bool {
	return name == "result" || name == "arguments" || name == "now"
}

// compileSteps checks the calls of a rule.
func (out *rule) compileSteps(r Rule, known names) error {
	steps := r.Then
	switch {
	case r.Call != "":
		steps = append([]Step{{r.Call, r.Arguments}}, steps...)
	case len(r.Arguments) > 0:
		return errors.New("arguments are given without call; name the tool they are for")
	case len(steps) > 0:
		return errors.New("then is given without call; make its first element the call")
	}
	for i, s := range steps {
		if s.Call == "" {
			return fmt.Errorf("call %d: call is empty; name a tool, such as %q", i+1, "self.audio_speaker.set_volume")
		}
		allowed := known
		if i > 0 {
			allowed = known.with("result", "arguments")
		}
		arguments, err := compileValue(s.Arguments, allowed)
		if err != nil {
			return fmt.Errorf("arguments of %s: %w", s.Call, err)
		}
		object, _ := arguments.(map[string]any)
		out.steps = append(out.steps, step{s.Call, object})
	}
	return nil
}

// compileTexts checks what a rule says and shows.
func (out *rule) compileTexts(r Rule, failed string, known names) error {
	answers := r.Answers
	if r.Answer != "" {
		answers = append([]string{r.Answer}, answers...)
	}
	if len(answers) == 0 {
		if len(out.steps) == 0 {
			return errors.New("there is neither call nor answer; give at least one")
		}
		answers = []string{DefaultDone}
	}
	withResult := known
	if len(out.steps) > 0 {
		withResult = known.with("result", "arguments")
	}
	for _, text := range answers {
		t, err := parseTemplate(text, withResult)
		if err != nil {
			return fmt.Errorf("answer: %w", err)
		}
		out.answers = append(out.answers, t)
	}
	if r.Failed != "" {
		failed = r.Failed
	}
	var err error
	if out.failed, err = parseTemplate(failed, known); err != nil {
		return fmt.Errorf("failed: %w", err)
	}
	if r.Emotion != "" {
		emoji, ok := faces()[r.Emotion]
		if !ok {
			return fmt.Errorf("emotion %q is not known; devices know %s", r.Emotion,
				strings.Join(slices.Sorted(maps.Keys(faces())), ", "))
		}
		out.face = emoji + " "
	}
	return nil
}

// compileValue replaces the strings of arguments by templates.
func compileValue(v any, known names) (any, error) {
	switch v := v.(type) {
	case string:
		return parseTemplate(v, known)
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, member := range v {
			t, err := compileValue(member, known)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			out[name] = t
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i, member := range v {
			t, err := compileValue(member, known)
			if err != nil {
				return nil, err
			}
			out[i] = t
		}
		return out, nil
	}
	return v, nil
}

// faces are the emotions that firmware knows, with the emoji a model expresses
// each by.
func faces() map[string]string {
	return map[string]string{
		"neutral": "😶", "happy": "🙂", "laughing": "😆", "funny": "😂", "sad": "😔", "angry": "😠",
		"crying": "😭", "loving": "😍", "embarrassed": "😳", "surprised": "😲", "shocked": "😱",
		"thinking": "🤔", "winking": "😉", "cool": "😎", "relaxed": "😌", "delicious": "🤤",
		"kissy": "😘", "confident": "😏", "sleepy": "😴", "silly": "😜", "confused": "🙄",
	}
}
