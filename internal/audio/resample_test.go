package audio_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"parley/internal/audio"
)

// ratePairs are the conversions that happen: a synthesizer's rates to a
// speaker's, a speaker's to a microphone's in tests, and WAV files'.
var ratePairs = [][2]int{
	{8000, 24000}, {11025, 24000}, {16000, 24000}, {22050, 24000}, {32000, 24000},
	{44100, 24000}, {48000, 24000}, {24000, 16000}, {8000, 16000}, {48000, 16000},
	{24000, 24000},
}

func resample(tb testing.TB, in, out int, pcm []int16) []int16 {
	tb.Helper()
	r, err := audio.NewResampler(in, out)
	if err != nil {
		tb.Fatal(err)
	}
	return r.Flush(r.Append(nil, pcm))
}

// A tone in the pass band comes out as the same tone, in phase, with everything
// else at least 70 dB below it. Rounding to 16 bits alone is 92 dB below.
func TestResamplerKeepsTones(t *testing.T) {
	for _, pair := range ratePairs {
		lower := float64(min(pair[0], pair[1]))
		for _, hz := range []float64{100, 1000, 0.4 * lower} {
			got := resample(t, pair[0], pair[1], tone(pair[0], pair[0], hz))
			want := tone(pair[1], len(got), hz)
			const edge = 200 // where the tone begins and ends it is not a tone
			var signal, noise float64
			for i := edge; i < len(got)-edge; i++ {
				d := float64(got[i]) - float64(want[i])
				signal += float64(want[i]) * float64(want[i])
				noise += d * d
			}
			if snr := 10 * math.Log10(signal/noise); snr < 70 {
				t.Errorf("%d to %d Hz: %.0f Hz comes out with %.1f dB SNR", pair[0], pair[1], hz, snr)
			}
		}
	}
}

// A tone above the Nyquist frequency of the output is gone rather than folded.
func TestResamplerDoesNotAlias(t *testing.T) {
	for _, pair := range ratePairs {
		if pair[0] <= pair[1] {
			continue
		}
		nyquist := float64(pair[1]) / 2
		for hz := nyquist * 1.01; hz < float64(pair[0])/2; hz += nyquist / 7 {
			got := resample(t, pair[0], pair[1], tone(pair[0], pair[0], hz))
			level := 0.0
			for _, s := range got[200 : len(got)-200] {
				level += float64(s) * float64(s)
			}
			level = 10 * math.Log10(level/float64(len(got)-400)/(16384*16384/2)+1e-12)
			if level > -60 {
				t.Errorf("%d to %d Hz: %.0f Hz is only %.1f dB down", pair[0], pair[1], hz, -level)
			}
		}
	}
}

// The pieces a stream comes in make no difference, and its length is exact.
func TestResamplerStreams(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, pair := range ratePairs {
		r, err := audio.NewResampler(pair[0], pair[1])
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, 2, 159, 160, 161, 22050} { // one resampler, stream after stream
			pcm := make([]int16, n)
			for i := range pcm {
				pcm[i] = int16(rng.IntN(1<<16) - 1<<15)
			}
			whole := resample(t, pair[0], pair[1], pcm)
			if want := (n*pair[1] + pair[0] - 1) / pair[0]; len(whole) != want {
				t.Fatalf("%d to %d Hz: %d samples make %d, want %d", pair[0], pair[1], n, len(whole), want)
			}
			var pieces []int16
			for rest := pcm; len(rest) > 0; {
				k := min(len(rest), rng.IntN(500))
				pieces = r.Append(pieces, rest[:k])
				rest = rest[k:]
			}
			same(t, whole, r.Flush(pieces))
		}
	}
}

// Full-scale square waves overshoot in any steep filter; they must clip, not
// wrap around.
func TestResamplerClips(t *testing.T) {
	pcm := make([]int16, 22050)
	for i := range pcm {
		pcm[i] = math.MaxInt16
		if i/50%2 == 1 {
			pcm[i] = math.MinInt16
		}
	}
	out := resample(t, 22050, 24000, pcm)
	clipped := 0
	for i, s := range out[100 : len(out)-100] {
		at := (float64(i+100) * 22050 / 24000)
		edge := math.Abs(math.Remainder(at, 50)) < 3
		if s == math.MaxInt16 || s == math.MinInt16 {
			clipped++
		}
		if high := int(at)/50%2 == 0; !edge && high != (s > 0) {
			t.Fatalf("sample %d is %d in a half-wave that is high: %t", i+100, s, high)
		}
	}
	if clipped == 0 {
		t.Error("nothing clipped: the test tests nothing")
	}
}

func TestResamplerRefuses(t *testing.T) {
	for _, pair := range [][2]int{{0, 24000}, {-8000, 24000}, {24000, 0}, {400000, 24000}, {24000, 1}, {23999, 24000}} {
		if _, err := audio.NewResampler(pair[0], pair[1]); err == nil {
			t.Errorf("%d to %d Hz accepted", pair[0], pair[1])
		}
	}
}

func TestResamplerDoesNotAllocate(t *testing.T) {
	r, err := audio.NewResampler(22050, 24000)
	if err != nil {
		t.Fatal(err)
	}
	pcm := tone(22050, 1323, 440)
	out := make([]int16, 0, 2000)
	r.Append(out, pcm)
	if n := testing.AllocsPerRun(100, func() { r.Append(out, pcm) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkResample is 60 ms of PCM.
func BenchmarkResample(b *testing.B) {
	for _, pair := range ratePairs[:len(ratePairs)-1] {
		b.Run(fmt.Sprintf("%d-%d", pair[0], pair[1]), func(b *testing.B) {
			r, err := audio.NewResampler(pair[0], pair[1])
			if err != nil {
				b.Fatal(err)
			}
			pcm := tone(pair[0], pair[0]*60/1000, 440)
			out := make([]int16, 0, 4000)
			b.ReportAllocs()
			for b.Loop() {
				r.Append(out, pcm)
			}
		})
	}
}
