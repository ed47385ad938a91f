package pipeline

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Endpointing is the policy that finds where an utterance begins and ends.
type Endpointing struct {
	Start    time.Duration // speech that begins an utterance; shorter sounds are coughs and clicks
	PreRoll  time.Duration // audio before the begin that belongs to the utterance
	MinDelay time.Duration // silence that ends an utterance
	MaxDelay time.Duration // silence that ends one which plainly is not complete
	Max      time.Duration // an utterance longer than this is ended
}

// DefaultEndpointing returns values between impatience and sluggishness: people
// pause 0.2 s inside sentences and 0.5 s between them, and up to some seconds
// when they search for a word.
func DefaultEndpointing() Endpointing {
	return Endpointing{
		Start:    120 * time.Millisecond,
		PreRoll:  500 * time.Millisecond,
		MinDelay: 500 * time.Millisecond,
		MaxDelay: 3 * time.Second,
		Max:      30 * time.Second,
	}
}

// detectorSamples is DetectorFrame in samples.
const detectorSamples = int(SampleRate * DetectorFrame / time.Second)

// An endpointer follows speech in audio time, not in arrival time, so that
// bursts and jitter do not move its decisions.
type endpointer struct {
	cfg      Endpointing
	detector Detector

	frame  [detectorSamples]int16
	filled int
	pre    []int16 // the last PreRoll of audio, while silent

	speaking bool
	rising   time.Duration // speech towards Start, while silent
	quiet    time.Duration // silence so far, while speaking
	length   time.Duration // of the utterance
	burst    time.Duration // speech in a row, while quiet
}

// feed judges pcm and reports whether an utterance has begun in it; the pre-roll
// is part of it.
func (e *endpointer) feed(pcm []int16) (began bool) {
	if !e.speaking {
		e.pre = append(e.pre, pcm...)
		if keep := int(SampleRate * e.cfg.PreRoll / time.Second); len(e.pre) > keep+len(pcm) {
			e.pre = append(e.pre[:0], e.pre[len(e.pre)-keep-len(pcm):]...)
		}
	}
	for len(pcm) > 0 {
		n := copy(e.frame[e.filled:], pcm)
		pcm, e.filled = pcm[n:], e.filled+n
		if e.filled < len(e.frame) {
			break
		}
		e.filled = 0
		began = e.judge(e.detector.Speech(e.frame[:])) || began
	}
	return began
}

func (e *endpointer) judge(speech bool) (begins bool) {
	if !e.speaking {
		if speech {
			e.rising += DetectorFrame
		} else {
			e.rising = max(0, e.rising-2*DetectorFrame)
		}
		if e.rising < e.cfg.Start {
			return false
		}
		e.speaking, e.rising, e.quiet, e.length, e.burst = true, 0, 0, e.cfg.Start, 0
		return true
	}
	e.length += DetectorFrame
	if speech {
		e.burst += DetectorFrame
	} else {
		e.burst = 0
	}
	// One frame of noise in a pause is not speech resumed.
	if e.burst >= 2*DetectorFrame {
		e.quiet = 0
	} else {
		e.quiet += DetectorFrame
	}
	return false
}

// begun returns the audio the utterance begins with, pre-roll included.
func (e *endpointer) begun() []int16 {
	pcm := append([]int16(nil), e.pre...)
	e.pre = e.pre[:0]
	return pcm
}

// ended forgets the utterance and waits for the next.
func (e *endpointer) ended() {
	e.speaking, e.rising, e.quiet, e.length, e.burst = false, 0, 0, 0, 0
	e.pre = e.pre[:0]
}

func (e *endpointer) reset() {
	e.ended()
	e.filled = 0
}

// delay is how much silence ends an utterance whose words so far are text. An
// empty text, all that a batch recogniser has, gets MinDelay.
func (e Endpointing) delay(text string) time.Duration {
	switch completeness(text) {
	case unfinished:
		return e.MaxDelay
	case doubtful:
		return min(e.MinDelay*8/5, e.MaxDelay)
	}
	return e.MinDelay
}

type completion uint8

const (
	complete   completion = iota
	doubtful              // could go on, such as a number
	unfinished            // plainly goes on
)

// completeness judges by the last word. A sentence does not end in a
// conjunction, an article or a filler; it may end in a number, but numbers are
// often said in pieces.
func completeness(text string) completion {
	text = strings.TrimSpace(text)
	last, _ := utf8.DecodeLastRuneInString(text)
	switch {
	case text == "" || strings.ContainsRune(".?!。？！", last):
		return complete
	case strings.ContainsRune(",，、:：;；-…", last):
		return unfinished
	case unicode.IsDigit(last):
		return doubtful
	}
	for _, w := range danglingCJK {
		if strings.HasSuffix(text, w) {
			return unfinished
		}
	}
	words := strings.Fields(strings.ToLower(text))
	if dangling[words[len(words)-1]] {
		return unfinished
	}
	return complete
}

var (
	dangling = map[string]bool{
		"and": true, "or": true, "but": true, "because": true, "if": true, "the": true, "a": true, "an": true,
		"my": true, "your": true, "of": true, "than": true, "to": true,
		"um": true, "uh": true, "uhm": true, "er": true, "erm": true, "hmm": true,
	}
	danglingCJK = []string{"和", "或者", "但是", "因为", "所以", "如果", "然后", "还有", "就是", "那个", "这个", "嗯", "呃", "把", "跟"}
)
