package pipeline

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/audio"
)

// split runs a text through the splitter in the pieces given.
func split(pieces ...string) []string {
	var s splitter
	var out []string
	for _, p := range pieces {
		out = append(out, s.write(p)...)
	}
	out = append(out, s.rest())
	var said []string
	for _, o := range out {
		if o = speakable(o); o != "" {
			said = append(said, o)
		}
	}
	return said
}

func TestSentences(t *testing.T) {
	for _, c := range []struct {
		text string
		want []string
	}{
		{"Hello. How are you? Fine!", []string{"Hello.", "How are you?", "Fine!"}},
		{"It is 3.14 or so. Mr. Smith knows.", []string{"It is 3.14 or so.", "Mr. Smith knows."}},
		{"In the U.S. it is 5 a.m. now. Bye.", []string{"In the U.S. it is 5 a.m. now.", "Bye."}},
		{"今天天气很好。出去走走吧！好吗？", []string{"今天天气很好。", "出去走走吧！", "好吗？"}},
		{"1. Eggs\n2. Milk", []string{"1. Eggs", "2. Milk"}},
		{"**Bold** and `code`. - item", []string{"Bold and code.", "item"}},
		{"She said \"No.\" Then left.", []string{"She said \"No.\"", "Then left."}},
		{"... !!! 。", nil},
		{"", nil},
		{"When the sun goes down tonight, we eat, we drink. And sleep, too.",
			[]string{"When the sun goes down tonight,", "we eat, we drink.", "And sleep, too."}},
		{"Well, I do.", []string{"Well, I do."}},
	} {
		if got := split(c.text); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q is split into %q, want %q", c.text, got, c.want)
		}
	}
}

func TestAnEndlessSentenceIsCutBetweenWords(t *testing.T) {
	text := strings.TrimSpace(strings.Repeat("word ", 200))
	got := split(text)
	if strings.Join(got, " ") != text {
		t.Error("cutting changed the text")
	}
	for _, s := range got {
		if len(s) > sentenceRunes {
			t.Errorf("a sentence of %d characters", len(s))
		}
	}
}

// FuzzSplitter checks that the pieces a text arrives in do not matter, and that
// no letter is lost.
func FuzzSplitter(f *testing.F) {
	f.Add("Hello. How are you? 3.14, Mr. Smith.", uint64(1))
	f.Add("今天天气很好。\"出去\"走走吧！", uint64(2))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		text = strings.ToValidUTF8(text, "")
		r := rand.New(rand.NewPCG(seed, 0))
		var pieces []string
		runes := []rune(text)
		for rest := runes; len(rest) > 0; {
			n := 1 + r.IntN(len(rest))
			pieces, rest = append(pieces, string(rest[:n])), rest[n:]
		}
		whole, parts := split(text), split(pieces...)
		if !reflect.DeepEqual(whole, parts) {
			t.Errorf("%q whole, %q in pieces", whole, parts)
		}
		letters := func(s string) string {
			return strings.Map(func(r rune) rune {
				if hasWords(string(r)) {
					return r
				}
				return -1
			}, s)
		}
		if got, want := letters(strings.Join(whole, "")), letters(text); got != want {
			t.Errorf("letters %q became %q", want, got)
		}
	})
}

func TestEmotions(t *testing.T) {
	for _, c := range []struct{ text, said, faces string }{
		{"😊 Hello there.", "Hello there.", "happy😊"},
		{"Hello 😂 there 👍🏽.", "Hello there .", "funny😂"},
		{"[sad] Oh no.", "Oh no.", "sad😔"},
		{"<Happy>Yes.", "Yes.", "happy🙂"},
		{"See [1] and [x", "See [1] and [x", ""},
		{"a[unknown]b", "a[unknown]b", ""},
	} {
		for _, pieces := range [][]string{{c.text}, strings.Split(c.text, "")} {
			var f emotionFilter
			var said, faces string
			for _, p := range pieces {
				s, e := f.write(p)
				said += s
				for _, one := range e {
					faces += one.name + one.emoji
				}
			}
			said += f.flush()
			if said != c.said || faces != c.faces {
				t.Errorf("%q in %d pieces: said %q with %q, want %q with %q", c.text, len(pieces), said, faces, c.said, c.faces)
			}
		}
	}
}

func TestEveryEmotionIsOneFirmwareKnows(t *testing.T) {
	for e, name := range emotions {
		if _, ok := canonical[name]; !ok {
			t.Errorf("%c means %q, which no firmware knows", e, name)
		}
	}
	if len(canonical) != 21 {
		t.Errorf("%d emotions, firmware has 21", len(canonical))
	}
	for name := range canonical {
		if len(name)+2 > maxTag {
			t.Errorf("tag [%s] is longer than maxTag", name)
		}
	}
}

func TestTheNextSentenceIsMadeWhileOneIsSpoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tts := &fakeTTS{ttfb: 150 * ms}
		v := BySentence(tts, audio.NewEncoderPool(1))
		text := make(chan string, 1)
		text <- "One. Two. Three. Four. "
		close(text)
		began := time.Now()
		var got []string
		for s, err := range v.Speak(t.Context(), text) {
			if err != nil {
				t.Fatal(err)
			}
			if s.Sentence != "" {
				got = append(got, s.Sentence)
				time.Sleep(time.Second) // it is being spoken
			}
		}
		if strings.Join(got, " ") != "One. Two. Three. Four." {
			t.Errorf("spoke %q", got)
		}
		// One and two at once; each further one when its predecessor begins.
		for i, want := range []time.Duration{0, 0, 1150 * ms, 2150 * ms} {
			if at := tts.at[i].Sub(began); at != want {
				t.Errorf("sentence %d was begun after %v, want %v", i+1, at, want)
			}
		}
	})
}

func TestSpeakEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		v := BySentence(&fakeTTS{ttfb: time.Hour}, audio.NewEncoderPool(1))
		text := make(chan string) // never closed
		go func() {
			text <- "One. Two. "
			time.Sleep(time.Second)
			cancel()
		}()
		var last error
		for _, err := range v.Speak(ctx, text) {
			last = err
		}
		if !errors.Is(last, context.Canceled) {
			t.Errorf("ended with %v", last)
		}
	})
}
