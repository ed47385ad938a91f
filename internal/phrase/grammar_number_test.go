package phrase_test

import (
	"fmt"
	"strings"
	"testing"

	"parley/internal/phrase"
)

// TestGrammarOfBounds says everything a grammar has for a number, and asserts that
// the pattern takes all of it and each number within the bounds comes up.
func TestGrammarOfBounds(t *testing.T) {
	for _, test := range []struct {
		low, high int
		last      int // the largest number there are words for
	}{
		{0, 0, 0}, {0, 9, 9}, {1, 12, 12}, {0, 23, 23}, {0, 59, 59}, {1, 64, 64}, {20, 20, 20}, {21, 29, 29}, {5, 35, 35},
		{25, 76, 76}, {0, 100, 100}, {99, 101, 101}, {100, 100, 100}, {1, 120, 120}, {150, 199, 199}, {119, 321, 321},
		{0, 999, 999}, {1000, 1000, 1000}, {998, 9999, 1000},
	} {
		source := fmt.Sprintf("{n:%d-%d}", test.low, test.high)
		p := parse(t, source)
		g, err := phrase.NewGrammar([]*phrase.Pattern{p})
		if err != nil {
			t.Fatal(err)
		}
		_, rule, _ := strings.Cut(g.Rules, "<number_")
		_, rule, _ = strings.Cut(rule, " = ")
		rule, _, _ = strings.Cut(rule, ";")
		if len(rule) > 1000 {
			t.Errorf("%s: a rule of %d bytes is not compact", source, len(rule))
		}
		found := map[int]bool{}
		for _, text := range sentences(t, rule) {
			values, ok := p.Match(text)
			if !ok {
				t.Errorf("%s does not match %q of its grammar", source, text)
			}
			found[values["n"].Number] = true
		}
		for n := test.low; n <= test.last; n++ {
			if !found[n] {
				t.Errorf("%s: %d is not in the grammar %q", source, n, rule)
			}
		}
		if want := test.last - test.low + 1; len(found) != want {
			t.Errorf("%s: %d numbers, want %d", source, len(found), want)
		}
		if got, want := strings.Contains(rule, "percent"), test.high == 100; got != want {
			t.Errorf("%s: percent in the grammar is %t, want %t: %q", source, got, want, rule)
		}
	}
}

// sentences lists all that the right side of a JSGF rule without references
// generates.
func sentences(t *testing.T, rule string) []string {
	t.Helper()
	for _, mark := range []string{"(", ")", "[", "]", "|"} {
		rule = strings.ReplaceAll(rule, mark, " "+mark+" ")
	}
	tokens := strings.Fields(rule)
	var either func() []string
	sequence := func() []string {
		list := []string{""}
		for len(tokens) > 0 && !strings.ContainsAny(tokens[0], "|)]") {
			word := tokens[0]
			tokens = tokens[1:]
			next := []string{word}
			if word == "(" || word == "[" {
				next = either()
				if len(tokens) == 0 {
					t.Fatalf("%q never closes %q", rule, word)
				}
				tokens = tokens[1:]
			}
			if word == "[" {
				next = append(next, "")
			}
			var longer []string
			for _, a := range list {
				for _, b := range next {
					longer = append(longer, a+" "+b)
				}
			}
			list = longer
		}
		return list
	}
	either = func() []string {
		list := sequence()
		for len(tokens) > 0 && tokens[0] == "|" {
			tokens = tokens[1:]
			list = append(list, sequence()...)
		}
		return list
	}
	list := either()
	if len(tokens) > 0 {
		t.Fatalf("%q has more than a rule: %q", rule, tokens)
	}
	return list
}
