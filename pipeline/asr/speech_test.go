package asr_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"

	"parley/internal/audio"
	"parley/internal/phrase"
	"parley/pipeline"
	"parley/pipeline/llm"
)

// A speaker is a synthetic voice: a flite voice such as "flite slt", or one of
// espeak-ng such as "espeak-ng en-us".
type speaker string

// say returns text as a device sends it and a server hears it: spoken, with
// half a second of silence around it, encoded as 16 kHz Opus in packets of 60 ms
// at 16 kbit/s, and decoded. Noise, white and that many dB below the speech, is
// added before encoding; 0 adds none.
func (s speaker) say(tb testing.TB, text string, noise float64) []int16 {
	tb.Helper()
	engine, voice, _ := strings.Cut(string(s), " ")
	var cmd *exec.Cmd
	switch engine {
	case "flite":
		cmd = exec.CommandContext(tb.Context(), "flite", "-voice", voice, "-t", text, "-o", "/dev/stdout")
	case "espeak-ng":
		cmd = exec.CommandContext(tb.Context(), "espeak-ng", "-v", voice, "--stdout", text)
	default:
		tb.Fatalf("speaker %q is neither of flite nor of espeak-ng", s)
	}
	wav, err := cmd.Output()
	if err != nil {
		tb.Fatalf("%s: %v; tests need the packages flite, espeak-ng, pocketsphinx and pocketsphinx-en-us", s, err)
	}
	pcm, rate, err := audio.ReadWAV(bytes.NewReader(wav), 60*audio.MaxRate)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := audio.NewResampler(rate, pipeline.SampleRate)
	if err != nil {
		tb.Fatal(err)
	}
	const around = pipeline.SampleRate / 2
	speech := make([]int16, around, around+len(pcm)*2)
	speech = r.Flush(r.Append(speech, pcm))
	speech = append(speech, make([]int16, around)...)
	if noise != 0 {
		addNoise(speech, noise)
	}
	return throughOpus(tb, speech)
}

// addNoise adds white noise so many dB below the loudness of pcm, which is that
// of its samples above silence. The noise is the same each time.
func addNoise(pcm []int16, below float64) {
	power, n := 0.0, 0
	for _, s := range pcm {
		if s > 50 || s < -50 {
			power += float64(s) * float64(s)
			n++
		}
	}
	level := math.Sqrt(power/float64(max(1, n))) * math.Pow(10, -below/20)
	random := rand.New(rand.NewPCG(1, 2))
	for i, s := range pcm {
		v := float64(s) + random.NormFloat64()*level
		pcm[i] = int16(max(math.MinInt16, min(math.MaxInt16, v)))
	}
}

func throughOpus(tb testing.TB, pcm []int16) []int16 {
	tb.Helper()
	encoder, err := audio.NewEncoder(audio.MicrophoneEncoding())
	if err != nil {
		tb.Fatal(err)
	}
	decoder, err := audio.NewDecoder(pipeline.SampleRate)
	if err != nil {
		tb.Fatal(err)
	}
	const frame = pipeline.SampleRate * 60 / 1000
	packet := make([]byte, 1500)
	var heard []int16
	for ; len(pcm) >= frame; pcm = pcm[frame:] {
		n, err := encoder.Encode(pcm[:frame], packet)
		if err != nil {
			tb.Fatal(err)
		}
		decoded := make([]int16, frame)
		if n, err = decoder.Decode(packet[:n], decoded); err != nil {
			tb.Fatal(err)
		}
		heard = append(heard, decoded[:n]...)
	}
	return heard
}

// transcribe gives an utterance to a recogniser and returns the last transcript.
func transcribe(tb testing.TB, t pipeline.Transcriber, pcm []int16) (pipeline.Transcript, error) {
	tb.Helper()
	speech := make(chan []int16, 1)
	speech <- pcm
	close(speech)
	var last pipeline.Transcript
	for transcript, err := range t.Transcribe(tb.Context(), speech) {
		if err != nil {
			return last, err
		}
		last = transcript
	}
	if !last.Final {
		tb.Error("the last transcript is not Final")
	}
	return last, nil
}

// defaultPatterns are the phrases of the default rules.
func defaultPatterns(tb testing.TB) []*phrase.Pattern {
	tb.Helper()
	var file struct {
		LLM struct {
			Rules struct{ Rule []llm.Rule }
		}
	}
	if _, err := toml.DecodeFile("../../internal/config/rules.toml", &file); err != nil {
		tb.Fatal(err)
	}
	patterns, err := llm.RulePhrases(file.LLM.Rules.Rule)
	if err != nil {
		tb.Fatal(err)
	}
	return patterns
}
