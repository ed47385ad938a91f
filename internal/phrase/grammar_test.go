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
		"<phrase> = [the] volume <number>\n | switch to (light | very dark)\n | turn (it | the volume) up\n | what's up;\n",
		"<command> = [<before>] <phrase> [please];\n",
		"<number> = (zero | <unit> | <teen> | <tens> [<unit>] | (a | one) hundred) [percent];\n",
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
	for _, word := range []string{"remind", "音", "80"} {
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
	if err != nil || strings.Contains(g.Rules, "<number>") || slices.Contains(g.Words, "seventy") {
		t.Errorf("grammar %+v, %v, want one without numbers", g, err)
	}
}

func TestGrammarOfNothing(t *testing.T) {
	_, err := phrase.NewGrammar([]*phrase.Pattern{parse(t, "say {what}"), parse(t, "你好")})
	if !errors.Is(err, phrase.ErrNothingSpeakable) {
		t.Errorf("error %v, want ErrNothingSpeakable", err)
	}
}
