package phrase

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// ErrNothingSpeakable is what [NewGrammar] returns when none of its patterns can
// be in a grammar.
var ErrNothingSpeakable = errors.New("none of the patterns can be in a grammar: each has free text such as {name}, digits, or a script without spaces")

// MaxSpokenNumber is the largest {name:number} of a grammar. Every word more in
// a grammar costs accuracy, and devices have percentages to set. From text,
// numbers match up to one thousand in words and without limit in digits.
const MaxSpokenNumber = 100

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
// words of a pronouncing dictionary.
func (p *Pattern) Speakable() bool {
	for _, c := range p.captures {
		if c.Kind == Text {
			return false
		}
	}
	speakable := true
	walk(p.root, func(w word) {
		for _, r := range w.text {
			if standsAlone(r) || unicode.IsDigit(r) {
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
	numbers := false
	for _, p := range patterns {
		if !p.Speakable() {
			continue
		}
		bodies = append(bodies, jsgf(p.root))
		walk(p.root, func(w word) { words[w.text] = true })
		for _, c := range p.captures {
			numbers = numbers || c.Kind == Number
		}
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
	if numbers {
		writeNumbers(&b)
		addWords(words, "zero", "a", "hundred", "percent")
		addWords(words, unitWords()...)
		addWords(words, teenWords()...)
		addWords(words, tensWords()...)
	}
	g := Grammar{Rules: b.String()}
	for w := range words {
		g.Words = append(g.Words, w)
	}
	slices.Sort(g.Words)
	return g, nil
}

func addWords(set map[string]bool, words ...string) {
	for _, w := range words {
		set[w] = true
	}
}

// writeNumbers writes <number>: zero to one hundred, with or without "percent".
func writeNumbers(b *strings.Builder) {
	or := func(words []string) string { return strings.Join(words, " | ") }
	fmt.Fprintf(b, "<unit> = %s;\n", or(unitWords()))
	fmt.Fprintf(b, "<teen> = %s;\n", or(teenWords()))
	fmt.Fprintf(b, "<tens> = %s;\n", or(tensWords()))
	fmt.Fprintf(b, "<number> = (zero | <unit> | <teen> | <tens> [<unit>] | (a | one) hundred) [percent];\n")
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
			return "<number>"
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
