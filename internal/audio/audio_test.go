package audio_test

import (
	"bytes"
	"context"
	"math"
	"os"
	"testing"

	"parley/internal/audio"
)

// speech returns about 3 s of a synthetic voice at 22,050 Hz: "The quick brown
// fox…", made with
//
//	espeak-ng -v en-us -w - "The quick brown fox jumps over the lazy dog" |
//	sox - -r 22050 -b 16 testdata/fox.wav
func speech(tb testing.TB) (pcm []int16, rate int) {
	tb.Helper()
	b, err := os.ReadFile("testdata/fox.wav")
	if err != nil {
		tb.Fatal(err)
	}
	pcm, rate, err = audio.ReadWAV(bytes.NewReader(b), 1<<20)
	if err != nil {
		tb.Fatal(err)
	}
	return pcm, rate
}

// speechAt is speech at another rate.
func speechAt(tb testing.TB, rate int) []int16 {
	tb.Helper()
	pcm, from := speech(tb)
	r, err := audio.NewResampler(from, rate)
	if err != nil {
		tb.Fatal(err)
	}
	return r.Flush(r.Append(nil, pcm))
}

// tone is a sine of the given frequency and half the full amplitude.
func tone(rate, samples int, hz float64) []int16 {
	pcm := make([]int16, samples)
	for i := range pcm {
		pcm[i] = int16(math.Round(16384 * math.Sin(2*math.Pi*hz*float64(i)/float64(rate))))
	}
	return pcm
}

// encode makes packets of n samples each; what is left over is dropped.
func encode(tb testing.TB, c audio.EncoderConfig, pcm []int16, n int) [][]byte {
	tb.Helper()
	enc, err := audio.NewEncoder(c)
	if err != nil {
		tb.Fatal(err)
	}
	var packets [][]byte
	for ; len(pcm) >= n; pcm = pcm[n:] {
		out := make([]byte, audio.MaxPayload)
		size, err := enc.Encode(pcm[:n], out)
		if err != nil {
			tb.Fatal(err)
		}
		packets = append(packets, out[:size])
	}
	return packets
}

// decode makes PCM of packets.
func decode(tb testing.TB, rate int, packets [][]byte) []int16 {
	tb.Helper()
	dec, err := audio.NewDecoder(rate)
	if err != nil {
		tb.Fatal(err)
	}
	var pcm []int16
	buf := make([]int16, rate*120/1000)
	for _, p := range packets {
		n, err := dec.Decode(p, buf)
		if err != nil {
			tb.Fatal(err)
		}
		pcm = append(pcm, buf[:n]...)
	}
	return pcm
}

// packetize runs one stream through a Packetizer.
func packetize(tb testing.TB, feed func(p *audio.Packetizer, emit func([]byte) bool) error) [][]byte {
	tb.Helper()
	p := audio.NewPacketizer(audio.NewEncoderPool(1))
	var packets [][]byte
	emit := func(packet []byte) bool {
		packets = append(packets, packet)
		return true
	}
	if err := feed(p, emit); err != nil {
		tb.Fatal(err)
	}
	if err := p.Flush(context.Background(), emit); err != nil {
		tb.Fatal(err)
	}
	return packets
}

// likeness is the normalised correlation of a with b, 1 for the same signal,
// and the delay of b, 0 to maxDelay samples, at which it is found. The delay is
// that of a fifth of a second in the middle.
func likeness(a, b []int16, maxDelay int) (best float64, delay int) {
	from := len(a) / 2
	to := min(from+4800, len(a))
	for d := 0; d <= maxDelay; d++ {
		if c := correlation(a[from:to], b[min(from+d, len(b)):]); c > best {
			best, delay = c, d
		}
	}
	return correlation(a, b[delay:]), delay
}

func correlation(a, b []int16) float64 {
	var ab, aa, bb float64
	for i := range min(len(a), len(b)) {
		x, y := float64(a[i]), float64(b[i])
		ab += x * y
		aa += x * x
		bb += y * y
	}
	return ab / math.Sqrt(aa*bb+1)
}
