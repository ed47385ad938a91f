package pipeline

import (
	"context"
	"iter"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"parley/internal/audio"
)

// Bounds of a reply on its way through [BySentence].
const (
	// sentenceBound is how many sentences may wait to be spoken. A model is
	// read to its end at its own speed: its connection must not idle while
	// the device speaks.
	sentenceBound = 256
	// packetBound is how much of one sentence is kept ready, 15 s; a longer one
	// waits in its synthesizer.
	packetBound = 256
	// sentenceRunes cuts a sentence that has no end.
	sentenceRunes = 240
)

// BySentence adapts an engine that speaks whole sentences to a [Voice]. While
// one sentence is taken, the next is being made, so that there is no gap
// between them. PCM is encoded with encoders of the pool, which bounds the CPU
// that speech may take from pacing.
func BySentence(s Synthesizer, encoders *audio.EncoderPool) Voice {
	return &sentenceVoice{s, encoders}
}

type sentenceVoice struct {
	synth    Synthesizer
	encoders *audio.EncoderPool
}

// A sentenceAudio is one sentence and its packets in the making.
type sentenceAudio struct {
	text    string
	packets chan []byte // closed at the end
	err     error       // set before packets is closed
}

// Speak implements [Voice]. Its goroutines end before it returns.
func (v *sentenceVoice) Speak(ctx context.Context, text <-chan string) iter.Seq2[Speech, error] {
	return func(yield func(Speech, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		sentences := make(chan string, sentenceBound)
		work.Go(func() { splitSentences(ctx, text, sentences) })
		// Unbuffered: one sentence is taken from while one is prepared.
		inOrder := make(chan *sentenceAudio)
		work.Go(func() {
			defer close(inOrder)
			for s := range sentences {
				a := &sentenceAudio{text: s, packets: make(chan []byte, packetBound)}
				work.Go(func() { v.make(ctx, a) })
				select {
				case inOrder <- a:
				case <-ctx.Done():
					return
				}
			}
		})
		for a := range inOrder {
			if !yieldSentence(a, yield) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(Speech{}, err)
		}
	}
}

func yieldSentence(a *sentenceAudio, yield func(Speech, error) bool) bool {
	announced := false
	for p := range a.packets {
		if !announced {
			announced = true
			if !yield(Speech{Sentence: a.text}, nil) {
				return false
			}
		}
		if !yield(Speech{Packet: p}, nil) {
			return false
		}
	}
	if a.err != nil {
		yield(Speech{}, a.err)
		return false
	}
	return true
}

// make synthesizes one sentence.
func (v *sentenceVoice) make(ctx context.Context, a *sentenceAudio) {
	defer close(a.packets)
	packets := audio.NewPacketizer(v.encoders)
	emit := func(p []byte) bool {
		select {
		case a.packets <- p:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for sound, err := range v.synth.Synthesize(ctx, a.text) {
		switch {
		case err != nil:
		case sound.Opus != nil:
			err = packets.Opus(ctx, sound.Opus, emit)
		default:
			err = packets.PCM(ctx, sound.PCM, sound.Rate, emit)
		}
		if err != nil {
			a.fail(ctx, err)
			return
		}
	}
	if err := packets.Flush(ctx, emit); err != nil {
		a.fail(ctx, err)
	}
}

// fail notes why there is no more, which is ctx's end if that came first.
func (a *sentenceAudio) fail(ctx context.Context, err error) {
	if ended := ctx.Err(); ended != nil {
		err = ended
	}
	a.err = err
}

// splitSentences reads text until it is closed and writes its sentences.
func splitSentences(ctx context.Context, text <-chan string, sentences chan<- string) {
	defer close(sentences)
	var s splitter
	send := func(all []string) bool {
		for _, one := range all {
			if one = speakable(one); one == "" {
				continue
			}
			select {
			case sentences <- one:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	for {
		select {
		case t, ok := <-text:
			if !ok {
				send([]string{s.rest()})
				return
			}
			if !send(s.write(t)) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// A splitter cuts a stream of text into sentences as early as it safely can.
type splitter struct {
	buf  []rune
	past bool // the first piece is out
}

// First pieces are cut at a comma already, when they are long enough to sound
// natural: the voice starts sooner.
const (
	firstRunes    = 24
	firstCJKRunes = 6
)

func (s *splitter) write(text string) []string {
	var out []string
	for _, r := range text {
		if unicode.IsSpace(r) && r != '\n' && s.endsSentence() {
			out = append(out, s.rest())
			continue
		}
		s.buf = append(s.buf, r)
		switch {
		case r == '\n', strings.ContainsRune("。！？；…", r), s.endsFirst(r):
			out = append(out, s.rest())
		case len(s.buf) >= sentenceRunes:
			out = append(out, s.cut())
		}
	}
	return out
}

// rest returns and empties what is there.
func (s *splitter) rest() string {
	t := string(s.buf)
	s.buf, s.past = s.buf[:0], true
	return t
}

// cut breaks an endless sentence at its last space.
func (s *splitter) cut() string {
	at := len(s.buf)
	for i := at - 1; i > at/2; i-- {
		if s.buf[i] == ' ' || isCJK(s.buf[i]) {
			at = i
			break
		}
	}
	t := string(s.buf[:at])
	s.buf, s.past = append(s.buf[:0], s.buf[at:]...), true
	return t
}

// endsFirst reports whether the first piece may end with the comma r.
func (s *splitter) endsFirst(r rune) bool {
	if s.past {
		return false
	}
	if strings.ContainsRune("，、：", r) {
		return len(s.buf) > firstCJKRunes
	}
	return false
}

// endsSentence reports whether the text so far, with white space after it, is a
// sentence. A period also ends abbreviations and list numbers.
func (s *splitter) endsSentence() bool {
	b := s.buf
	for len(b) > 0 && strings.ContainsRune(`"')]”’»`, b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return false
	}
	switch b[len(b)-1] {
	case '!', '?':
		return true
	case ',', ';', ':':
		return !s.past && len(b) >= firstRunes
	case '.':
	default:
		return false
	}
	b = b[:len(b)-1]
	start := len(b)
	for start > 0 && !unicode.IsSpace(b[start-1]) {
		start--
	}
	word := strings.ToLower(string(b[start:]))
	if abbreviations[word] || utf8.RuneCountInString(word) == 1 && unicode.IsLetter(b[start]) && word != "i" {
		return false
	}
	listNumber := start == 0 && strings.Trim(word, "0123456789") == ""
	return !listNumber && !(strings.Contains(word, ".") && len(word) <= 5) // e.g., U.S., a.m.
}

var abbreviations = map[string]bool{
	"mr": true, "mrs": true, "ms": true, "dr": true, "prof": true, "st": true, "no": true,
	"vs": true, "etc": true, "approx": true, "jr": true, "sr": true, "fig": true,
}

// speakable takes out what is written and not said: markdown and bullets. It
// returns "" for a sentence without a letter or digit.
func speakable(s string) string {
	s = strings.Map(func(r rune) rune {
		if strings.ContainsRune("*`#~|", r) || r == utf8.RuneError {
			return -1
		}
		if unicode.IsSpace(r) {
			return ' '
		}
		return r
	}, s)
	s = strings.TrimSpace(s)
	for _, bullet := range []string{"- ", "• ", "> "} {
		s = strings.TrimPrefix(s, bullet)
	}
	s = strings.TrimLeft(s, `)]”’»。，！？；、… `)
	if !hasWords(s) {
		return ""
	}
	return s
}
