package phrase

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// ErrNothingSpeakable is what [NewGrammar] returns when none of its patterns can
// be in a grammar.
var ErrNothingSpeakable = errors.New("none of the patterns can be in a grammar: each has free text such as {name}, digits, or a script without spaces")

// What numbers a grammar holds at most. Every word more in a grammar costs
// accuracy. From text, numbers match up to one thousand in words and without
// limit in digits.
const (
	// MaxSpokenNumber is the largest {name:number}: devices have percentages to
	// set.
	MaxSpokenNumber = 100
	// MaxSpokenBound is the largest number within bounds, as in {name:0-2000}.
	MaxSpokenBound = 1000
)

// A Grammar is a JSpeech Grammar Format (W3C Note, June 2000) of what patterns
// match, for a recogniser of speech.
type Grammar struct {
	// Rules are JSGF rule definitions; <command> is the one to start from. The
	// header and a public rule are the caller's.
	Rules string
	// Words are all words of the rules, sorted.
	Words []string
}

// Speakable reports whether p can be in a grammar. Free text cannot, and neither
// can numbers in digits or languages written without spaces, which are not the
// words of a pronouncing dictionary, nor bounds beyond [MaxSpokenBound].
func (p *Pattern) Speakable() bool {
	speakable := true
	walk(p.root, func(n node) {
		switch n := n.(type) {
		case word:
			for _, r := range n.text {
				if standsAlone(r) || unicode.IsDigit(r) {
					speakable = false
				}
			}
		case capture:
			if _, ok := n.bounds.spoken(); n.kind == Text || n.kind == Number && !ok {
				speakable = false
			}
		}
	})
	return speakable
}

// NewGrammar makes the grammar of the speakable ones among patterns. It holds
// fewer words of courtesy than [Pattern.Match] passes over, for accuracy. The
// error is [ErrNothingSpeakable].
func NewGrammar(patterns []*Pattern) (Grammar, error) {
	var bodies []string
	words := map[string]bool{}
	numbers := map[bounds]bool{}
	for _, p := range patterns {
		if !p.Speakable() {
			continue
		}
		bodies = append(bodies, jsgf(p.root))
		walk(p.root, func(n node) {
			switch n := n.(type) {
			case word:
				words[n.text] = true
			case capture:
				if n.kind == Number {
					part, _ := n.bounds.spoken()
					numbers[part] = true
				}
			}
		})
	}
	if len(bodies) == 0 {
		return Grammar{}, ErrNothingSpeakable
	}
	slices.Sort(bodies)
	bodies = slices.Compact(bodies)

	var b strings.Builder
	fmt.Fprintf(&b, "<command> = [<before>] <phrase> [please];\n")
	fmt.Fprintf(&b, "<before> = please | can you | could you;\n")
	fmt.Fprintf(&b, "<phrase> = %s;\n", strings.Join(bodies, "\n | "))
	addWords(words, "please", "can", "could", "you")
	for _, part := range slices.SortedFunc(maps.Keys(numbers), bounds.compare) {
		rule := part.rule()
		fmt.Fprintf(&b, "%s = %s;\n", part.ruleName(), rule)
		addWords(words, wordsOf(rule)...)
	}
	return Grammar{Rules: b.String(), Words: slices.Sorted(maps.Keys(words))}, nil
}

func addWords(set map[string]bool, words ...string) {
	for _, w := range words {
		set[w] = true
	}
}

// jsgf writes n as the right side of a rule.
func jsgf(n node) string {
	switch n := n.(type) {
	case word:
		return n.text
	case sequence:
		return joined(len(n), " ", func(i int) string { return jsgf(n[i]) })
	case choice:
		return "(" + joined(len(n), " | ", func(i int) string { return jsgf(n[i]) }) + ")"
	case optional:
		return "[" + jsgf(n.body) + "]"
	case capture:
		if n.kind == Number {
			part, _ := n.bounds.spoken()
			return part.ruleName()
		}
		return "(" + joined(len(n.options), " | ", func(i int) string { return jsgf(n.options[i].body) }) + ")"
	}
	return ""
}

func joined(n int, separator string, one func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = one(i)
	}
	return strings.Join(parts, separator)
}
