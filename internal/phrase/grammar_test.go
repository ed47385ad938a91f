package phrase_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"parley/internal/phrase"
)

func TestGrammar(t *testing.T) {
	g, err := phrase.NewGrammar([]*phrase.Pattern{
		parse(t, "turn (it|the volume) up"),
		parse(t, "[the] volume {n:number}"),
		parse(t, "volume {n:0-100}"), // the same numbers
		parse(t, "wake me at {h:0-23} {m:0-59}"),
		parse(t, "call the year {year:1001-2000}"), // no words for them
		parse(t, "switch to {theme:light|very dark}"),
		parse(t, "what's up"),
		parse(t, "remind me to {what}"), // free text
		parse(t, "音量{n:number}"),
		parse(t, "play 80 songs"),
		parse(t, "turn (it|the volume) up"), // twice
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"<phrase> = [the] volume <number_0_100>\n | switch to (light | very dark)\n | turn (it | the volume) up\n" +
			" | volume <number_0_100>\n | wake me at <number_0_23> <number_0_59>\n | what's up;\n",
		"<command> = [<before>] <phrase> [please];\n",
		";\n<number_0_23> = zero | one | two | three | four | five | six | seven | eight | nine | ten | eleven | twelve" +
			" | thirteen | fourteen | fifteen | sixteen | seventeen | eighteen | nineteen | twenty [(one | two | three)];\n",
	} {
		if !strings.Contains(g.Rules, want) {
			t.Errorf("rules lack %q:\n%s", want, g.Rules)
		}
	}
	for _, word := range []string{"turn", "what's", "ninety", "percent", "very", "please"} {
		if !slices.Contains(g.Words, word) {
			t.Errorf("words lack %q: %q", word, g.Words)
		}
	}
	if n := strings.Count(g.Rules, "<number_0_100> = "); n != 1 {
		t.Errorf("the numbers to one hundred are defined %d times:\n%s", n, g.Rules)
	}
	for _, word := range []string{"remind", "音", "80", "year", "and", "thousand"} {
		if slices.Contains(g.Words, word) {
			t.Errorf("words have %q", word)
		}
	}
	if !slices.IsSorted(g.Words) {
		t.Errorf("words are not sorted: %q", g.Words)
	}
}

func TestGrammarWithoutNumbers(t *testing.T) {
	g, err := phrase.NewGrammar([]*phrase.Pattern{parse(t, "hello")})
	if err != nil || strings.Contains(g.Rules, "<number") || slices.Contains(g.Words, "seventy") {
		t.Errorf("grammar %+v, %v, want one without numbers", g, err)
	}
}

func TestGrammarOfNothing(t *testing.T) {
	_, err := phrase.NewGrammar([]*phrase.Pattern{parse(t, "say {what}"), parse(t, "你好"), parse(t, "{n:1001-1002}")})
	if !errors.Is(err, phrase.ErrNothingSpeakable) {
		t.Errorf("error %v, want ErrNothingSpeakable", err)
	}
}
