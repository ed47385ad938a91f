package vad

import (
	"bytes"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"parley/internal/audio"
	"parley/pipeline"
)

// dtxBytes is the length of the longest packet that stands for silence.
const dtxBytes = 3

// A scene is what a device in some surroundings sends, and what is known of it.
type scene struct {
	pcm     []int16 // as decoded by the server
	packets [][]byte
	speech  []bool // per frame: the talker is audible in the clean recording
	quiet   []bool // per frame: far from any speech
}

// recording reads an Ogg Opus file as 16 kHz PCM.
func recording(tb testing.TB, name string) []float64 {
	tb.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := audio.NewOggReader(bytes.NewReader(b))
	if err != nil {
		tb.Fatal(err)
	}
	dec, err := audio.NewDecoder(pipeline.SampleRate)
	if err != nil {
		tb.Fatal(err)
	}
	var pcm []float64
	buf := make([]int16, pipeline.SampleRate*120/1000)
	for {
		packet, err := r.Next()
		if err == io.EOF {
			return pcm
		}
		if err != nil {
			tb.Fatal(err)
		}
		n, err := dec.Decode(packet, buf)
		if err != nil {
			tb.Fatal(err)
		}
		for _, s := range buf[:n] {
			pcm = append(pcm, float64(s))
		}
	}
}

// levels is the root mean square of each frame.
func levels(pcm []float64) []float64 {
	l := make([]float64, len(pcm)/frameSamples)
	for i := range l {
		l[i] = rms(pcm[i*frameSamples : (i+1)*frameSamples])
	}
	return l
}

func rms(pcm []float64) float64 {
	sum := 0.0
	for _, s := range pcm {
		sum += s * s
	}
	return math.Sqrt(sum / float64(len(pcm)))
}

// label finds the speech in a clean recording: frames within 35 dB of the
// loudest. Frames within 60 ms before and 300 ms after it are nobody's: a
// detector may well call them speech.
func label(clean []float64) (speech, quiet []bool) {
	l := levels(clean)
	loudest := 0.0
	for _, x := range l {
		loudest = max(loudest, x)
	}
	speech, quiet = make([]bool, len(l)), make([]bool, len(l))
	for i := range quiet {
		quiet[i] = true
	}
	for i, x := range l {
		if x < loudest*math.Pow(10, -35.0/20) {
			continue
		}
		speech[i] = true
		for j := max(0, i-3); j <= min(len(l)-1, i+15); j++ {
			quiet[j] = false
		}
	}
	return speech, quiet
}

// noises makes n samples of each kind of noise, at any level.
func noises(tb testing.TB) map[string]func(n int) []float64 {
	babble := recording(tb, "testdata/babble.opus")
	return map[string]func(n int) []float64{
		"white": func(n int) []float64 {
			rng := rand.New(rand.NewPCG(1, 1))
			out := make([]float64, n)
			for i := range out {
				out[i] = rng.NormFloat64()
			}
			return out
		},
		"pink": func(n int) []float64 { // P. Kellet's filter
			rng := rand.New(rand.NewPCG(2, 2))
			out := make([]float64, n)
			var a, b, c float64
			for i := range out {
				w := rng.NormFloat64()
				a = 0.99765*a + w*0.0990460
				b = 0.96300*b + w*0.2965164
				c = 0.57000*c + w*1.0526913
				out[i] = a + b + c + w*0.1848
			}
			return out
		},
		"hum": func(n int) []float64 { // mains, its overtones and a little hiss
			rng := rand.New(rand.NewPCG(3, 3))
			out := make([]float64, n)
			for i := range out {
				t := 2 * math.Pi * 50 * float64(i) / pipeline.SampleRate
				out[i] = math.Sin(t) + math.Sin(2*t)/2 + math.Sin(3*t)/3 + math.Sin(5*t)/4 + math.Sin(10*t)/10 + 0.02*rng.NormFloat64()
			}
			return out
		},
		"babble": func(n int) []float64 {
			out := make([]float64, n)
			for i := range out {
				out[i] = babble[(i+4000)%len(babble)] // which does not begin with speech.opus
			}
			return out
		},
	}
}

// newScene mixes 5 s of noise alone, the recording in it and 10 s of noise
// alone, with snr dB between the talker while audible and the noise, scales
// the talker to level dB of full scale, and sends it the way devices do: 60 ms
// Opus at 16 kbit/s with DTX. No noise is +Inf dB.
func newScene(tb testing.TB, clean []float64, noise func(n int) []float64, snr, level float64) *scene {
	tb.Helper()
	const before, after = 5 * pipeline.SampleRate, 10 * pipeline.SampleRate
	mix := append(append(make([]float64, before), clean...), make([]float64, after)...)
	s := &scene{}
	s.speech, s.quiet = label(mix)
	var audible []float64
	for i, yes := range s.speech {
		if yes {
			audible = append(audible, mix[i*frameSamples:(i+1)*frameSamples]...)
		}
	}
	talker := rms(audible)
	gain := 32768 * math.Pow(10, level/20) / talker
	var added []float64
	if noise != nil {
		added = noise(len(mix))
		gainNoise := talker * math.Pow(10, -snr/20) / rms(added)
		for i := range added {
			added[i] *= gainNoise
		}
	}
	pcm := make([]int16, len(mix))
	for i, x := range mix {
		if added != nil {
			x += added[i]
		}
		pcm[i] = int16(max(-32768, min(32767, math.Round(x*gain))))
	}
	s.send(tb, pcm)
	return s
}

// send encodes and decodes the scene.
func (s *scene) send(tb testing.TB, pcm []int16) {
	tb.Helper()
	enc, err := audio.NewEncoder(audio.MicrophoneEncoding())
	if err != nil {
		tb.Fatal(err)
	}
	dec, err := audio.NewDecoder(pipeline.SampleRate)
	if err != nil {
		tb.Fatal(err)
	}
	const packet = 3 * frameSamples
	const delay = 104 // samples, of the codec at 16 kHz
	out := make([]byte, 1000)
	buf := make([]int16, packet)
	for at := 0; at+packet <= len(pcm); at += packet {
		n, err := enc.Encode(pcm[at:at+packet], out)
		if err != nil {
			tb.Fatal(err)
		}
		s.packets = append(s.packets, bytes.Clone(out[:n]))
		if n <= dtxBytes { // DTX: the server makes silence of it without decoding
			clear(buf)
		} else if _, err := dec.Decode(out[:n], buf); err != nil {
			tb.Fatal(err)
		}
		s.pcm = append(s.pcm, buf...)
	}
	s.pcm = s.pcm[delay:]
}

// frames is how many frames can be judged.
func (s *scene) frames() int { return len(s.pcm) / frameSamples }

func (s *scene) frame(i int) []int16 { return s.pcm[i*frameSamples : (i+1)*frameSamples] }

// utterances finds stretches of speech, as first and last frame, with at least
// 0.8 s between them.
func (s *scene) utterances() [][2]int {
	var us [][2]int
	for i, yes := range s.speech {
		if !yes {
			continue
		}
		if k := len(us) - 1; k >= 0 && i-us[k][1] < 40 {
			us[k][1] = i
		} else {
			us = append(us, [2]int{i, i})
		}
	}
	return us
}
