package asr_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"parley/internal/phrase"
	"parley/pipeline"
)

// The measurements of docs/offline-recognition.md are these benchmarks.

// manyVoices are all English voices of flite that differ, and of espeak-ng a
// choice.
func manyVoices() []speaker {
	return []speaker{
		"flite slt", "flite rms", "flite awb", "flite kal16",
		"espeak-ng en-us", "espeak-ng en-gb", "espeak-ng en-gb-scotland", "espeak-ng en-029",
		"espeak-ng en-us+f3", "espeak-ng en-gb+m3",
	}
}

// moreCommands are further ways to say what the default rules understand.
func moreCommands() []string {
	return []string{
		"mute", "be quiet", "volume twenty", "set the volume to zero", "turn the volume to ten percent",
		"volume down", "could you turn it up please", "full volume", "how loud is it",
		"set the brightness to forty", "brightness ninety nine", "make it darker", "light mode",
		"set the screen to light", "battery status", "how is the network", "how are you", "describe this",
		"what day is it", "hello", "thanks a lot", "what is your name", "help", "another joke",
		"well done", "are you there", "good night", "bye", "stop", "what is your status",
	}
}

// timeCommands are what the default rules understand of timers and alarms: two
// numbers side by side, and long phrases that differ in a word.
func timeCommands() []string {
	return []string{
		"set a timer for ten minutes", "set a timer for one hour", "set a timer for forty five seconds",
		"start a timer for half an hour", "set a timer for two minutes and thirty seconds", "set a five minute timer",
		"set a timer for one hundred and twenty minutes", "wake me at seven thirty", "wake me up tomorrow at six fifteen",
		"set an alarm for seven o'clock", "set an alarm for nine twenty in the evening", "wake me every day at six forty five",
		"wake me on weekdays at eight", "set an alarm for ten oh five", "what timers are set", "do i have any alarms",
		"how much time is left", "cancel the timer", "cancel timer number two", "cancel all alarms",
	}
}

// moreUnrelated is further speech that no rule is about.
func moreUnrelated() []string {
	return []string{
		"the president gave a long speech", "the dog barked at the mailman", "i forgot to water the plants again",
		"yes", "no", "i do not know", "the light of the moon was bright", "add milk to the shopping list",
		"remind me to buy eggs", "translate cat into french", "what is the capital of france", "who wrote hamlet",
		"the battle lasted three days", "we should leave before it gets dark", "he has been working here for years",
		"it rained all day long", "could you help me with my homework", "how do i get to the station",
		"nobody knows where the money went", "the children are playing outside", "what would you like for dinner",
		"i will see what i can do about that", "that was a very good idea", "let us talk about something else",
		"the meeting was moved to thursday", "my phone number is five five five one two", "i am tired",
		"maybe later", "dinner is ready", "shut the door",
	}
}

// nearMisses begin or sound like a command and are none.
func nearMisses() []string {
	return []string{
		"turn the page of the newspaper", "what time does the store open", "the volume of the box is fifty liters",
		"make it possible to drive home", "take a seat in the waiting room", "what do you think about politics",
		"set an example for your children", "open the window please", "what can we do about the noise",
		"good morning vietnam is a movie", "stop at the next gas station", "how is the weather in battery park",
		"turn left at the corner", "what is the meaning of life", "who are your parents",
		"how is your grandmother", "take a photo album from the shelf", "tell me a secret",
		"switch the lights off in the garage", "set the clock back by an hour",
	}
}

// BenchmarkPocketsphinxAccuracy reports how many commands of many voices are
// understood as said (right_%), taken for a command that does something else
// (wrong_%) and rejected (rejected_%), and how much other speech is taken for a
// command (accepted_%). Run it with -v for each case. One iteration takes about
// ten minutes of a core, so use -benchtime 1x.
func BenchmarkPocketsphinxAccuracy(b *testing.B) {
	for _, noise := range []struct {
		name  string
		below float64
	}{{"quiet", 0}, {"noise20dB", 20}} {
		b.Run(noise.name+"/commands", func(b *testing.B) {
			benchmarkCommands(b, slices.Concat(commands(), moreCommands()), noise.below)
		})
		b.Run(noise.name+"/times", func(b *testing.B) { benchmarkCommands(b, timeCommands(), noise.below) })
		b.Run(noise.name+"/unrelated", func(b *testing.B) {
			benchmarkOther(b, slices.Concat(unrelated(), moreUnrelated()), noise.below)
		})
		b.Run(noise.name+"/nearMisses", func(b *testing.B) { benchmarkOther(b, nearMisses(), noise.below) })
	}
}

func benchmarkCommands(b *testing.B, texts []string, noise float64) {
	p := newPocketsphinx(b)
	patterns := defaultPatterns(b)
	for _, said := range texts {
		if meaning(patterns, said) == "" {
			b.Fatalf("no rule is about %q", said)
		}
	}
	var right, wrong, rejected int
	for b.Loop() {
		right, wrong, rejected = 0, 0, 0
		eachSaying(b, p, manyVoices(), texts, noise, func(s speaker, said string, got pipeline.Transcript) {
			switch {
			case got.Rejected:
				rejected++
				b.Logf("%s said %q: rejected", s, said)
			case meaning(patterns, said) == meaning(patterns, got.Text):
				right++
			default:
				wrong++
				b.Logf("%s said %q: understood %q", s, said, got.Text)
			}
		})
	}
	percent := 100 / float64(right+wrong+rejected)
	b.ReportMetric(float64(right)*percent, "right_%")
	b.ReportMetric(float64(wrong)*percent, "wrong_%")
	b.ReportMetric(float64(rejected)*percent, "rejected_%")
}

func benchmarkOther(b *testing.B, texts []string, noise float64) {
	p := newPocketsphinx(b)
	var accepted, all int
	for b.Loop() {
		accepted, all = 0, 0
		eachSaying(b, p, manyVoices(), texts, noise, func(s speaker, said string, got pipeline.Transcript) {
			all++
			if got.Text != "" {
				accepted++
				b.Logf("%s said %q: understood %q", s, said, got.Text)
			}
		})
	}
	b.ReportMetric(100*float64(accepted)/float64(all), "accepted_%")
}

// meaning is the pattern that text matches, with what its captures took.
func meaning(patterns []*phrase.Pattern, text string) string {
	for _, p := range patterns {
		captures, ok := p.Match(text)
		if !ok {
			continue
		}
		taken := map[string]string{}
		for name, c := range captures {
			taken[name] = c.Text
			if c.Kind == phrase.Number {
				taken[name] = strconv.Itoa(c.Number)
			}
		}
		return fmt.Sprint(p, taken)
	}
	return ""
}

// BenchmarkPocketsphinxLatency reports how long the commands of the test take
// from the end of the audio to the transcript, one at a time.
func BenchmarkPocketsphinxLatency(b *testing.B) {
	p := newPocketsphinx(b)
	var spoken [][]int16
	for _, s := range voices() {
		for _, said := range commands() {
			spoken = append(spoken, s.say(b, said, 0))
		}
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if _, err := transcribe(b, p, spoken[len(took)%len(spoken)]); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "p50_ms")
	b.ReportMetric(float64(took[len(took)*99/100].Milliseconds()), "p99_ms")
}
