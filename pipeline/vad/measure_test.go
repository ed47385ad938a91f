package vad

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"parley/pipeline"
)

var measure = flag.Bool("measure", false, "print the tables of docs/vad.md")

// What a conversation makes of frames: speech begins after 120 ms of it, and
// ends after 250 ms without; the turn ends half a second later.
const (
	startFrames = 6
	stopFrames  = 13
	turnFrames  = stopFrames + 25
)

// A score is how a detector did in one scene, or several.
type score struct {
	scenes  int
	miss    float64         // sum over scenes of the part of the speech frames missed
	alarm   float64         // sum over scenes of the part of the quiet frames taken for speech
	starts  int             // times it heard speech begin where there is none
	quiet   time.Duration   // in which that could happen
	said    int             // utterances
	lost    int             // of them, those it did not hear begin
	cut     int             // those whose turn it would have ended before they did
	endless int             // those whose end it did not hear within 1.5 s
	onset   []time.Duration // from the beginning of each utterance to the first frame heard of it
}

func (s *score) add(t score) {
	s.scenes += t.scenes
	s.miss += t.miss
	s.alarm += t.alarm
	s.starts += t.starts
	s.quiet += t.quiet
	s.said += t.said
	s.lost += t.lost
	s.cut += t.cut
	s.endless += t.endless
	s.onset = append(s.onset, t.onset...)
}

// missed and alarmed are means over scenes, startsPerMinute is over all.
func (s *score) missed() float64          { return s.miss / float64(s.scenes) }
func (s *score) alarmed() float64         { return s.alarm / float64(s.scenes) }
func (s *score) startsPerMinute() float64 { return float64(s.starts) / s.quiet.Minutes() }

// onsetQuantile is the onset delay that the given part of utterances is within.
func (s *score) onsetQuantile(q float64) time.Duration {
	if len(s.onset) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(s.onset))[int(q*float64(len(s.onset)-1)+0.5)]
}

// evaluate runs a detector over a scene from its start, as a conversation does.
func evaluate(s *scene, judge func(i int) bool) score {
	heard := make([]bool, min(s.frames(), len(s.speech)))
	for i := range heard {
		heard[i] = judge(i)
	}
	sc := score{scenes: 1}
	speech, quiet, run := 0, 0, 0
	for i, yes := range heard {
		switch {
		case s.speech[i]:
			speech++
			if !yes {
				sc.miss++
			}
		case s.quiet[i]:
			quiet++
			if yes {
				sc.alarm++
			}
		}
		if run++; !yes || !s.quiet[i] {
			run = 0
		}
		if run == startFrames {
			sc.starts++
		}
	}
	sc.miss /= float64(speech)
	sc.alarm /= float64(quiet)
	sc.quiet = time.Duration(quiet) * pipeline.DetectorFrame
	for _, u := range s.utterances() {
		sc.utterance(heard, u[0], u[1])
	}
	return sc
}

// utterance adds the one from frame from to frame to.
func (s *score) utterance(heard []bool, from, to int) {
	s.said++
	loud, still, began, noticed := 0, 0, false, -1
	for i := from; i <= to; i++ {
		loud, still = loud+1, still+1
		if heard[i] {
			still = 0
			if noticed < 0 {
				noticed = i
			}
		} else {
			loud = 0
		}
		began = began || loud == startFrames
		if began && still == turnFrames {
			s.cut++
			began = false // one turn ends once
		}
	}
	if noticed < 0 || !beginsWithin(heard[from:to+1]) {
		s.lost++
		return
	}
	s.onset = append(s.onset, time.Duration(noticed-from)*pipeline.DetectorFrame)
	still = 0
	for i := to + 1; i < min(to+76, len(heard)); i++ {
		if still++; heard[i] {
			still = 0
		}
		if still == stopFrames {
			return
		}
	}
	s.endless++
}

// beginsWithin reports whether startFrames in a row are heard.
func beginsWithin(heard []bool) bool {
	run := 0
	for _, yes := range heard {
		if run++; !yes {
			run = 0
		}
		if run == startFrames {
			return true
		}
	}
	return false
}

// A candidate is a detector under test. It judges frame i of a scene.
type candidate struct {
	name string
	make func(tb testing.TB, s *scene) func(i int) bool
}

// candidates are what was compared; chosen is the name of New's.
func candidates() (cs []candidate, chosen string) {
	for m := range 4 {
		cs = append(cs, candidate{fmt.Sprintf("WebRTC, mode %d", m), webRTCAlone(m, false)})
	}
	for m := range 4 {
		cs = append(cs, candidate{fmt.Sprintf("WebRTC, mode %d, deaf to DTX", m), webRTCAlone(m, true)})
	}
	for _, c := range []struct {
		mode  int
		above float64
	}{{1, 5}, {2, 3}, {2, 4}, {2, 5}, {2, 6}, {2, 7}, {3, 5}} {
		name := fmt.Sprintf("the same, mode %d, and a gate of %.0f dB", c.mode, c.above)
		if c.mode == mode && c.above == gateAbove {
			chosen = name
		}
		cs = append(cs, candidate{name, func(tb testing.TB, s *scene) func(int) bool {
			d, err := newDetector(c.mode, c.above)
			if err != nil {
				tb.Fatal(err)
			}
			tb.Cleanup(d.Close)
			return func(i int) bool { return d.Speech(s.frame(i)) }
		}})
	}
	cs = append(cs,
		candidate{"adaptive energy, deaf to DTX", func(_ testing.TB, s *scene) func(int) bool {
			g := newGate(8)
			return func(i int) bool { return !silent(s.frame(i)) && g.open(s.frame(i)) }
		}},
		candidate{"size of the Opus packet", opusActivity})
	return cs, chosen
}

func webRTCAlone(mode int, deaf bool) func(testing.TB, *scene) func(int) bool {
	return func(tb testing.TB, s *scene) func(int) bool {
		w, err := newWebRTC(mode)
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(w.close)
		return func(i int) bool {
			return !(deaf && silent(s.frame(i))) && w.speech(s.frame(i))
		}
	}
}

// opusActivity takes the size of a variable-rate packet for a measure of what
// is in it: speech is half as large again as the smallest of the last 3 s.
func opusActivity(_ testing.TB, s *scene) func(int) bool {
	return func(i int) bool {
		at := min(i/3, len(s.packets)-1)
		size := len(s.packets[at])
		smallest := size
		for _, p := range s.packets[max(0, at-50):at] {
			if len(p) > dtxBytes {
				smallest = min(smallest, len(p))
			}
		}
		return size > dtxBytes && size > smallest*3/2
	}
}

// A condition is the surroundings of a scene.
type condition struct {
	noise string
	snr   float64 // dB
	level float64 // of the talker, dB of full scale
}

func (c condition) String() string {
	if c.noise == "none" {
		return fmt.Sprintf("no noise, talker at %.0f dB", c.level)
	}
	return fmt.Sprintf("%s, %.0f dB, talker at %.0f dB", c.noise, c.snr, c.level)
}

// conditions are the surroundings measured. The talker is at an arm's length,
// −26 dB of full scale, or across the room, −46 dB.
func conditions() []condition {
	cs := []condition{{"none", math.Inf(1), -26}, {"none", math.Inf(1), -46}}
	for _, noise := range []string{"white", "pink", "hum", "babble"} {
		for _, snr := range []float64{20, 10, 5, 0} {
			cs = append(cs, condition{noise, snr, -26})
		}
	}
	return append(cs, condition{"pink", 20, -46}, condition{"pink", 10, -46})
}

// TestMeasure prints the tables of docs/vad.md:
//
//	go test -run TestMeasure ./pipeline/vad -measure -v
func TestMeasure(t *testing.T) {
	if !*measure {
		t.Skip("pass -measure to print the tables of docs/vad.md")
	}
	clean, kinds := recording(t, "testdata/speech.opus"), noises(t)
	scenes := make(map[condition]*scene)
	for _, k := range conditions() {
		scenes[k] = newScene(t, clean, kinds[k.noise], k.snr, k.level)
	}
	all, chosen := candidates()
	const row = "| %s | %.0f %% | %.0f %% | %.1f | %d | %d | %d | %d / %d |\n"
	line := func(name string, s score) string {
		return fmt.Sprintf(row, name, 100*s.missed(), 100*s.alarmed(), s.startsPerMinute(), s.lost, s.cut, s.endless,
			s.onsetQuantile(0.5).Milliseconds(), s.onsetQuantile(0.9).Milliseconds())
	}
	var even, babble, single string
	for _, c := range all {
		var e, b score
		for _, k := range conditions() {
			sc := evaluate(scenes[k], c.make(t, scenes[k]))
			if k.noise == "babble" {
				b.add(sc)
			} else {
				e.add(sc)
			}
			if c.name == chosen {
				single += line(k.String(), sc)
			}
		}
		even += line(c.name, e)
		babble += line(c.name, b)
	}
	fmt.Printf("even noise\n%s\nbabble\n%s\n%s\n%s", even, babble, chosen, single)
}
