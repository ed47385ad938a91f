package asr

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A segment is a word or a phone of a recogniser's result, in frames of 10 ms.
type segment struct {
	word       string
	start, end int // end is the frame after the last
	score      int // how well the sound fits, 0 at best; of all its frames together
}

var errSegments = errors.New("the result is not in the form of -hypseg")

// parseSegments reads one line as pocketsphinx_batch -hypseg writes it:
//
//	id S 0 T total A acoustic L language {start acoustic language word}… frames
//
// Words that take no time, (NULL), are left out.
func parseSegments(line string) ([]segment, error) {
	fields := strings.Fields(line)
	const head = 9
	if len(fields) <= head || (len(fields)-head)%4 != 1 || fields[1] != "S" || fields[3] != "T" {
		return nil, fmt.Errorf("%w: %.80q", errSegments, line)
	}
	fields = fields[head:]
	last, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil || last < 0 || last > maxFrames {
		return nil, fmt.Errorf("%w: it ends with %.20q", errSegments, fields[len(fields)-1])
	}
	var list []segment
	for f := range slices.Chunk(fields[:len(fields)-1], 4) {
		start, startErr := strconv.Atoi(f[0])
		score, scoreErr := strconv.Atoi(f[1])
		switch {
		case startErr != nil || scoreErr != nil:
			return nil, fmt.Errorf("%w: %.80q", errSegments, f)
		case f[3] == "(NULL)":
			continue
		case start < 0 || start > last || len(list) > 0 && start < list[len(list)-1].start:
			return nil, fmt.Errorf("%w: %q starts at frame %d of %d", errSegments, f[3], start, last)
		}
		list = append(list, segment{word: f[3], start: start, score: score})
	}
	for i := range list {
		list[i].end = last
		if i+1 < len(list) {
			list[i].end = list[i+1].start
		}
	}
	return list, nil
}

// maxFrames bounds what a result may say about its length: twice [MaxCommand].
const maxFrames = 2400

// silent reports whether a segment is silence or noise, such as <sil>.
func (s segment) silent() bool {
	return strings.HasPrefix(s.word, "<") || strings.HasPrefix(s.word, "[") || strings.HasPrefix(s.word, "+")
}

// A verdict is what an utterance was found to be.
type verdict struct {
	text     string
	rejected bool
	evidence evidence
}

// Evidence is how much worse the grammar fits the sound than the loop of phones,
// per frame and in the units of the decoder: above 0 the grammar fits better. It
// is what [judge] decides by, measured over all speech and over the worst window
// of three lengths. One foreign word amid familiar ones shows in a window; a
// sound that is merely slurred shows in all.
type evidence struct {
	mean, worst25, worst40, worst60 float64
}

// The least evidence of a command. docs/offline-recognition.md has the
// measurements they were chosen by and how to repeat them.
const (
	leastMean    = -30
	leastWorst25 = -38
	leastWorst40 = -29
	leastWorst60 = -21
	// leastSpeech is the shortest speech, in frames: 80 ms. Less is a click.
	leastSpeech = 8
)

func (e evidence) convincing() bool {
	return e.mean >= leastMean && e.worst25 >= leastWorst25 && e.worst40 >= leastWorst40 && e.worst60 >= leastWorst60
}

// judge compares the result of the grammar with that of the loop of phones.
func judge(command, loop []segment) verdict {
	if speech(loop) < leastSpeech {
		return verdict{}
	}
	text := words(command)
	if text == "" {
		return verdict{rejected: true}
	}
	v := verdict{text: text, evidence: compare(command, loop)}
	if !v.evidence.convincing() {
		v.text, v.rejected = "", true
	}
	return v
}

// speech is how many frames are not silence.
func speech(list []segment) int {
	n := 0
	for _, s := range list {
		if !s.silent() {
			n += s.end - s.start
		}
	}
	return n
}

// words is the text of a result. Other pronunciations are marked as in "to(2)".
func words(list []segment) string {
	var text []string
	for _, s := range list {
		if !s.silent() {
			word, _, _ := strings.Cut(s.word, "(")
			text = append(text, word)
		}
	}
	return strings.Join(text, " ")
}

func compare(command, loop []segment) evidence {
	a, b := cumulative(command), cumulative(loop)
	n := min(len(a), len(b)) - 1
	difference := make([]float64, n+1)
	for i := range difference {
		difference[i] = a[i] - b[i]
	}
	return evidence{
		mean:    difference[n] / float64(max(1, speech(command))),
		worst25: worst(difference, 25),
		worst40: worst(difference, 40),
		worst60: worst(difference, 60),
	}
}

// cumulative spreads the scores of segments evenly over their frames; element i
// is the score of all frames before frame i.
func cumulative(list []segment) []float64 {
	sum := []float64{0}
	for _, s := range list {
		n := s.end - s.start
		for range n {
			sum = append(sum, sum[len(sum)-1]+float64(s.score)/float64(n))
		}
	}
	return sum
}

// worst is the lowest mean over any window of that many frames, given sums. Of
// a shorter utterance it is the sum, divided as if the rest fitted perfectly.
func worst(sums []float64, window int) float64 {
	n := len(sums) - 1
	if n <= window {
		return sums[n] / float64(window)
	}
	least := sums[window] - sums[0]
	for i := window + 1; i <= n; i++ {
		least = min(least, sums[i]-sums[i-window])
	}
	return least / float64(window)
}
