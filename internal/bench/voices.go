//go:build linux

package main

import (
	"context"
	"fmt"
	"iter"
	"math"
	"strings"
	"time"

	"parley/internal/audio"
	"parley/pipeline"
	"parley/pipeline/vad"
)

// The providers of measured servers take the time they are told to and
// no processor time, so that what is measured is the server.

// speechLike is a sound that costs a codec what speech does: a gliding pitch
// with three formants, syllables, pauses, and hiss between them. It is loud in
// every 20 ms of its first 60 ms, and the same in every run.
func speechLike(rate int, d time.Duration) []int16 {
	pcm := make([]int16, int(d.Seconds()*float64(rate)))
	phase, noise := 0.0, uint32(1)
	for i := range pcm {
		t := float64(i) / float64(rate)
		pitch := 130 + 40*math.Sin(2*math.Pi*0.7*t)
		phase += 2 * math.Pi * pitch / float64(rate)
		syllable := math.Pow(0.5+0.5*math.Cos(2*math.Pi*3.5*t), 0.7)
		v := 0.0
		for h := 1.0; h*pitch < 4000; h++ {
			f, weight := h*pitch, 0.0
			for n, centre := range [3]float64{500 + 250*math.Sin(2*math.Pi*1.3*t), 1500 + 500*math.Sin(2*math.Pi*0.9*t), 2600} {
				weight += math.Exp(-math.Pow((f-centre)/180, 2)) / float64(n+1)
			}
			v += (weight + 0.02) * math.Sin(h*phase)
		}
		noise = noise*1664525 + 1013904223
		v = v*syllable + (float64(noise>>16)/32768-1)*0.15*(1-syllable)
		pcm[i] = int16(max(-32000, min(32000, 9000*v)))
	}
	return pcm
}

// loud is a sound that is loud all the time: what endpointing takes for speech.
func loud(rate int, d time.Duration) []int16 {
	pcm := make([]int16, int(d.Seconds()*float64(rate)))
	for i := range pcm {
		pcm[i] = int16(12000 * math.Sin(2*math.Pi*300*float64(i)/float64(rate)))
	}
	return pcm
}

// encode turns PCM into packets of n samples.
func encode(c audio.EncoderConfig, pcm []int16, n int) ([][]byte, error) {
	enc, err := audio.NewEncoder(c)
	if err != nil {
		return nil, err
	}
	var packets [][]byte
	for ; len(pcm) >= n; pcm = pcm[n:] {
		out := make([]byte, audio.MaxPayload)
		size, err := enc.Encode(pcm[:n], out)
		if err != nil {
			return nil, err
		}
		packets = append(packets, out[:size])
	}
	return packets, nil
}

// A detector costs what the real one does and says what a measurement can rely
// on: that what is loud is speech.
type detector struct{ *vad.Detector }

// Speech implements pipeline.Detector.
func (d detector) Speech(frame []int16) bool {
	d.Detector.Speech(frame)
	for _, s := range frame {
		if s > 3000 || s < -3000 {
			return true
		}
	}
	return false
}

func newDetector() (pipeline.Detector, error) {
	d, err := vad.New()
	if err != nil {
		return nil, err
	}
	return detector{d}, nil
}

// A recogniser hears, in everything, how long it took itself.
type recogniser struct{ delay time.Duration }

// confession is what a provider says of the time that has passed in it, and in
// those before it. A timer of Go's fires up to a millisecond late in a process
// that is otherwise idle. Providers on a network do not wait for timers, so this
// is no fault of the server's and must not be counted as one.
const confession = "it took %d nanoseconds."

// confessed reads a confession.
func confessed(text string) (time.Duration, error) {
	var n time.Duration
	_, err := fmt.Sscanf(text, confession, &n)
	return n, err
}

// Transcribe implements pipeline.Transcriber.
func (r recogniser) Transcribe(ctx context.Context, in <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) {
		for {
			select {
			case _, ok := <-in:
				if ok {
					continue
				}
				start := time.Now()
				if err := rest(ctx, r.delay); err != nil {
					yield(pipeline.Transcript{}, err)
					return
				}
				yield(pipeline.Transcript{Text: fmt.Sprintf(confession, time.Since(start)), Final: true}, nil)
				return
			case <-ctx.Done():
				yield(pipeline.Transcript{}, ctx.Err())
				return
			}
		}
	}
}

// A talker says a number of sentences. To a confession it replies with one.
type talker struct {
	delay time.Duration
	text  string
}

func newTalker(delay time.Duration, sentences int) talker {
	var b strings.Builder
	for i := range sentences {
		fmt.Fprintf(&b, "This is number %d, okay. ", i+1)
	}
	return talker{delay, b.String()}
}

// Chat implements pipeline.Model.
func (m talker) Chat(ctx context.Context, req *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return func(yield func(pipeline.Delta, error) bool) {
		start := time.Now()
		if err := rest(ctx, m.delay); err != nil {
			yield(pipeline.Delta{}, err)
			return
		}
		text := m.text
		if before, err := confessed(req.Messages[len(req.Messages)-1].Text); err == nil {
			text = fmt.Sprintf(confession, before+time.Since(start))
		}
		yield(pipeline.Delta{Text: text}, nil)
	}
}

// A synthesizer gives the same sentence for every text: as Opus packets of
// 20 ms, as services do, or as PCM in pieces of 100 ms.
type synthesizer struct {
	delay time.Duration
	opus  [][]byte
	pcm   []int16 // at audio.SpeakerRate
}

func newSynthesizer(delay, sentence time.Duration, pcm bool) (*synthesizer, error) {
	s := &synthesizer{delay: delay, pcm: speechLike(audio.SpeakerRate, sentence)}
	if pcm {
		return s, nil
	}
	var err error
	s.opus, err = encode(audio.SpeakerEncoding(), s.pcm, audio.SpeakerRate/50)
	return s, err
}

// Synthesize implements pipeline.Synthesizer.
func (s *synthesizer) Synthesize(ctx context.Context, _ string) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		if err := rest(ctx, s.delay); err != nil {
			yield(pipeline.Audio{}, err)
			return
		}
		if s.opus != nil {
			for _, p := range s.opus {
				if !yield(pipeline.Audio{Opus: p}, nil) {
					return
				}
			}
			return
		}
		const piece = audio.SpeakerRate / 10
		for pcm := s.pcm; len(pcm) > 0; pcm = pcm[min(piece, len(pcm)):] {
			if !yield(pipeline.Audio{PCM: pcm[:min(piece, len(pcm))], Rate: audio.SpeakerRate}, nil) {
				return
			}
		}
	}
}

// rest waits for d, or fails when ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
