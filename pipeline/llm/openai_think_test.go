package llm

import (
	"strings"
	"testing"
)

// filter passes pieces through a new filter.
func filter(pieces ...string) string {
	var f thinkFilter
	var said strings.Builder
	for _, p := range pieces {
		said.WriteString(f.add(p))
	}
	said.WriteString(f.end())
	return said.String()
}

func TestThinkFilter(t *testing.T) {
	for in, want := range map[string]string{
		"":                                    "",
		"Hi.":                                 "Hi.",
		"<think>hm</think>Hi.":                "Hi.",
		"<think>\n\n</think>\n\nHi.":          "Hi.",
		"a <think>x</think> b <think>y":       "a b ",
		"<think>never ends":                   "",
		"late close</think>\nHi.":             "late closeHi.",
		"1 < 2 <b>bold</b> <thin <think":      "1 < 2 <b>bold</b> <thin <think",
		"<<think>x</think>Hi":                 "<Hi",
		"<think>a<think>b</think>c</think> d": "cd",
		"<think>你好</think>你好":                 "你好",
	} {
		if got := filter(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestThinkFilterHoldsBackAsLittleAsItCan(t *testing.T) {
	var f thinkFilter
	if got := f.add("Hello <"); got != "Hello " {
		t.Errorf("said %q", got)
	}
	if got := f.add("3"); got != "<3" {
		t.Errorf("said %q", got)
	}
}

// FuzzThinkFilter checks that it does not matter how the text is cut.
func FuzzThinkFilter(f *testing.F) {
	f.Add("<think>x</think> y <think", uint8(3))
	f.Add("a</think>\n\n<think></think>b", uint8(1))
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		want := filter(text)
		var pieces []string
		for n := int(size%16) + 1; text != ""; {
			n = min(n, len(text))
			pieces = append(pieces, text[:n])
			text = text[n:]
		}
		if got := filter(pieces...); got != want {
			t.Errorf("%q gives %q, in one piece %q", pieces, got, want)
		}
		if strings.Contains(want, thinkOpen) || strings.Contains(want, thinkClose) {
			// A tag can only appear where removing another brought its halves together.
			t.Logf("%q holds a tag", want)
		}
	})
}
