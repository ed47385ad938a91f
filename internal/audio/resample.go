package audio

import (
	"fmt"
	"math"
)

const (
	// filterTaps is how many samples of the lower of the two rates one output
	// sample is made of, times two for its two sides.
	filterTaps = 64
	// filterPass is where the pass band ends, as a part of the lower rate's
	// Nyquist frequency. The stop band begins at the Nyquist frequency itself.
	filterPass = 0.85
	// filterBeta shapes the Kaiser window for a stop band 80 dB down:
	// 0.1102 × (80 − 8.7).
	filterBeta = 7.857
	// maxPhases bounds the memory of a filter. Every pair of the rates in use
	// is within it; 24 kHz from 11,025 Hz takes 320.
	maxPhases = 1024
	// MaxRate is the highest sample rate taken, in Hz.
	MaxRate = 192000
	// MinRate is the lowest.
	MinRate = 4000
)

// A filter is the polyphase form of a windowed-sinc low-pass for one pair of
// rates. It is immutable and shared.
type filter struct {
	up, down int         // the rates' ratio in lowest terms: out/in = up/down
	half     int         // taps on either side of the output sample
	phases   [][]float32 // up filters of 2×half taps, for the fractions of an input sample
}

// newFilter computes the filter from rate in to rate out.
func newFilter(in, out int) (*filter, error) {
	if in < MinRate || in > MaxRate || out < MinRate || out > MaxRate {
		return nil, fmt.Errorf("resample from %d to %d Hz: rates lie between %d and %d Hz", in, out, MinRate, MaxRate)
	}
	g := gcd(in, out)
	f := &filter{up: out / g, down: in / g}
	if f.up > maxPhases {
		return nil, fmt.Errorf("resample from %d to %d Hz: the ratio %d/%d is too odd, at most %d phases", in, out, f.up, f.down, maxPhases)
	}
	if in == out {
		return f, nil
	}
	scale := math.Min(1, float64(out)/float64(in)) // of the lower rate to the input's
	f.half = int(math.Ceil(filterTaps / 2 / scale))
	cutoff := scale * (1 + filterPass) / 2 // the middle of the transition band
	f.phases = make([][]float32, f.up)
	for p := range f.phases {
		f.phases[p] = firPhase(float64(p)/float64(f.up), cutoff, f.half)
	}
	return f, nil
}

// firPhase computes the taps for an output sample that lies frac of an input
// sample after the one at index half−1.
func firPhase(frac, cutoff float64, half int) []float32 {
	taps := make([]float64, 2*half)
	sum := 0.0
	for i := range taps {
		x := float64(i-half+1) - frac
		taps[i] = cutoff * sinc(cutoff*x) * kaiser(x/float64(half))
		sum += taps[i]
	}
	out := make([]float32, len(taps))
	for i, t := range taps {
		out[i] = float32(t / sum) // every phase passes DC alike
	}
	return out
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	return math.Sin(math.Pi*x) / (math.Pi * x)
}

// kaiser is the Kaiser window over x from −1 to 1.
func kaiser(x float64) float64 {
	if x <= -1 || x >= 1 {
		return 0
	}
	return bessel0(filterBeta*math.Sqrt(1-x*x)) / bessel0(filterBeta)
}

// bessel0 is the modified Bessel function of the first kind and order zero.
func bessel0(x float64) float64 {
	sum, term := 1.0, 1.0
	for k := 1.0; term > sum*1e-12; k++ {
		term *= (x / 2 / k) * (x / 2 / k)
		sum += term
	}
	return sum
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// A Resampler converts a stream of PCM from one rate to another, in pieces of
// any length. The pass band ends at 0.85 of the lower rate's Nyquist frequency;
// what would alias is about 80 dB down. The output is aligned with the input:
// n samples in, and Flush, give ⌈n × out / in⌉ samples. It is not safe for
// concurrent use.
type Resampler struct {
	f    *filter
	hist []float32 // input from the first sample still needed
	pos  int       // of the next output sample's window in hist
	frac int       // of the next output sample after its position, in 1/up
	in   int64     // samples taken since the start of the stream
	out  int64     // samples given
}

// NewResampler returns a resampler from rate in to rate out, in Hz, or an error
// if a rate is not within [MinRate] and [MaxRate] or the ratio of the two is
// not one of small numbers.
func NewResampler(in, out int) (*Resampler, error) {
	f, err := newFilter(in, out)
	if err != nil {
		return nil, err
	}
	return newResampler(f), nil
}

func newResampler(f *filter) *Resampler {
	r := &Resampler{f: f}
	r.restart()
	return r
}

// restart makes the past silent.
func (r *Resampler) restart() {
	r.hist = r.hist[:0]
	for range r.f.half - 1 {
		r.hist = append(r.hist, 0)
	}
	r.pos, r.frac, r.in, r.out = 0, 0, 0, 0
}

// Append converts pcm and appends what can be given so far to dst. It lags the
// input by half the filter, 32 samples of the lower rate. It does not allocate
// if dst has room, once it has seen its largest piece.
func (r *Resampler) Append(dst, pcm []int16) []int16 {
	if r.f.phases == nil {
		return append(dst, pcm...)
	}
	r.in += int64(len(pcm))
	for _, s := range pcm {
		r.hist = append(r.hist, float32(s))
	}
	return r.produce(dst, math.MaxInt64)
}

// Flush appends the rest of the stream to dst and makes the resampler ready for
// another.
func (r *Resampler) Flush(dst []int16) []int16 {
	if r.f.phases == nil {
		return dst
	}
	for range r.f.half {
		r.hist = append(r.hist, 0)
	}
	up, down := int64(r.f.up), int64(r.f.down)
	dst = r.produce(dst, (r.in*up+down-1)/down)
	r.restart()
	return dst
}

// produce appends every output sample whose window is complete, up to end
// samples since the start of the stream.
func (r *Resampler) produce(dst []int16, end int64) []int16 {
	f := r.f
	width := 2 * f.half
	for r.pos+width <= len(r.hist) && r.out < end {
		dst = append(dst, clip(dot(f.phases[r.frac], r.hist[r.pos:r.pos+width])))
		r.out++
		r.frac += f.down
		r.pos += r.frac / f.up
		r.frac %= f.up
	}
	if used := min(r.pos, len(r.hist)); used > 0 {
		r.hist = r.hist[:copy(r.hist, r.hist[used:])]
		r.pos -= used
	}
	return dst
}

// dot is the scalar product of two slices of one length, a multiple of two.
func dot(a, b []float32) float32 {
	b = b[:len(a)]
	var s0, s1, s2, s3 float32
	i := 0
	for ; i+4 <= len(a); i += 4 {
		x, y := a[i:i+4:i+4], b[i:i+4:i+4]
		s0 += x[0] * y[0]
		s1 += x[1] * y[1]
		s2 += x[2] * y[2]
		s3 += x[3] * y[3]
	}
	for ; i < len(a); i++ {
		s0 += a[i] * b[i]
	}
	return (s0 + s1) + (s2 + s3)
}

// clip rounds to the nearest sample value.
func clip(x float32) int16 {
	switch {
	case x >= math.MaxInt16:
		return math.MaxInt16
	case x <= math.MinInt16:
		return math.MinInt16
	case x < 0:
		return int16(x - 0.5)
	}
	return int16(x + 0.5)
}
