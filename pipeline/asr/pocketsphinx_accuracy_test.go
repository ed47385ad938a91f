package asr_test

import (
	"strings"
	"sync"
	"testing"

	"parley/pipeline"
	"parley/pipeline/asr"
)

// commands are said the way the default rules want them. Recognised text is
// equal to the letter.
func commands() []string {
	return []string{
		"set the volume to fifty",
		"set the volume to one hundred percent",
		"turn the volume up",
		"turn it down",
		"make it louder",
		"what is the volume",
		"please set the brightness to seventy five",
		"make it brighter",
		"switch to the dark theme",
		"how is the battery",
		"what do you see",
		"take a photo",
		"what time is it",
		"what is the date today",
		"good morning",
		"thank you",
		"who are you",
		"what can you do",
		"tell me a joke",
		"goodbye",
	}
}

// unrelated is what people say to each other, or to a device that can do more.
func unrelated() []string {
	return []string{
		"tell me a story about a dragon",
		"the train leaves from platform nine",
		"my sister bought a new bicycle yesterday",
		"i would like a cup of coffee with milk",
		"the weather in london is terrible",
		"do you know how to bake bread",
		"he walked along the river for an hour",
		"put the book on the kitchen table",
		"where did you leave my car keys",
		"she plays the piano every evening",
		"we are going to the beach tomorrow",
		"call my mother and tell her i am late",
		"how many people live in china",
		"the cat slept under the warm blanket",
		"send a message to my brother",
		"the movie was longer than i expected",
		"please pass me the salt and pepper",
		"who is the king of spain",
		"play some music by the beatles",
		"set the table for fifty",
	}
}

// voices are the two that every change must hold up with: of each synthesizer
// the one that is understood best.
func voices() []speaker { return []speaker{"flite rms", "espeak-ng en-us"} }

func newPocketsphinx(tb testing.TB) *asr.Pocketsphinx {
	tb.Helper()
	p, err := asr.NewPocketsphinx(asr.PocketsphinxConfig{Patterns: defaultPatterns(tb)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := p.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p
}

func TestPocketsphinxUnderstandsCommands(t *testing.T) {
	p := newPocketsphinx(t)
	eachSaying(t, p, voices(), commands(), 0, func(s speaker, said string, got pipeline.Transcript) {
		if got.Text != said || got.Rejected {
			t.Errorf("%s said %q, understood %+v", s, said, got)
		}
	})
}

func TestPocketsphinxRejectsOtherSpeech(t *testing.T) {
	p := newPocketsphinx(t)
	eachSaying(t, p, voices(), unrelated(), 0, func(s speaker, said string, got pipeline.Transcript) {
		if got.Text != "" || !got.Rejected {
			t.Errorf("%s said %q, understood %+v", s, said, got)
		}
	})
}

// eachSaying has every voice say every text and reports what was understood, one
// report at a time.
func eachSaying(tb testing.TB, r pipeline.Transcriber, voices []speaker, texts []string, noise float64,
	report func(s speaker, said string, got pipeline.Transcript),
) {
	tb.Helper()
	var (
		all sync.WaitGroup
		mu  sync.Mutex
	)
	slots := make(chan struct{}, 2)
	for _, s := range voices {
		for _, said := range texts {
			pcm := s.say(tb, said, noise)
			slots <- struct{}{}
			all.Go(func() {
				defer func() { <-slots }()
				got, err := transcribe(tb, r, pcm)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					tb.Error(err)
					return
				}
				report(s, strings.TrimSpace(said), got)
			})
		}
	}
	all.Wait()
}
