package udpaudio

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/hraban/opus"
)

func TestOpusDuration(t *testing.T) {
	toc := func(config, stereo, code byte) byte { return config<<3 | stereo<<2 | code }
	pad := func(n int, head ...byte) []byte { return append(head, make([]byte, n)...) }
	for _, c := range []struct {
		name string
		in   []byte
		want int // 2.5 ms
	}{
		{"empty", nil, 0},
		{"one frame of 60 ms", pad(50, toc(3, 0, 0)), 24},
		{"its TOC alone", pad(0, toc(3, 0, 0)), 24},
		{"stereo", pad(50, toc(3, 1, 0)), 0},
		{"SILK 10 ms", pad(50, toc(8, 0, 0)), 4},
		{"hybrid 10 ms", pad(50, toc(12, 0, 0)), 4},
		{"hybrid 20 ms", pad(50, toc(15, 0, 0)), 8},
		{"CELT 2.5 ms", pad(50, toc(28, 0, 0)), 1},
		{"CELT 20 ms", pad(50, toc(31, 0, 0)), 8},
		{"longest frame", pad(1275, toc(3, 0, 0)), 24},
		{"frame too long", pad(1276, toc(3, 0, 0)), 0},
		{"two equal frames", pad(50, toc(1, 0, 1)), 16},
		{"two frames of an odd sum", pad(51, toc(1, 0, 1)), 0},
		{"two frames, 10 and 39 bytes", pad(49, toc(1, 0, 2), 10), 16},
		{"two frames, the first all of it", pad(10, toc(1, 0, 2), 10), 16},
		{"two frames, the first too long", pad(9, toc(1, 0, 2), 10), 0},
		{"two frames, no length", pad(0, toc(1, 0, 2)), 0},
		{"two frames, half a length", pad(0, toc(1, 0, 2), 252), 0},
		{"two frames, the first of 256 bytes", pad(256, toc(1, 0, 2), 252, 1), 16},
		{"three frames of 20 ms", pad(60, toc(31, 0, 3), 3), 24},
		{"three frames, not divisible", pad(61, toc(31, 0, 3), 3), 0},
		{"no frames", pad(60, toc(31, 0, 3), 0), 0},
		{"no count", pad(0, toc(31, 0, 3)), 0},
		{"six frames: 120 ms", pad(60, toc(31, 0, 3), 6), 48},
		{"seven frames: 140 ms", pad(70, toc(31, 0, 3), 7), 0},
		{"48 frames of 2.5 ms", pad(48, toc(28, 0, 3), 48), 48},
		{"49 frames of 2.5 ms", pad(49, toc(28, 0, 3), 49), 0},
		{"three of their own lengths", pad(40, toc(31, 0, 3), 0x83, 10, 20), 24},
		{"lengths beyond the end", pad(29, toc(31, 0, 3), 0x83, 10, 20), 0},
		{"padding", pad(65, toc(31, 0, 3), 0x43, 5), 24},
		{"padding of 255+1: 254 and 1 bytes", pad(60+255, toc(31, 0, 3), 0x43, 255, 1), 24},
		{"padding beyond the end", pad(60, toc(31, 0, 3), 0x43, 61), 0},
		{"padding without a length", pad(0, toc(31, 0, 3), 0x43), 0},
	} {
		if got := opusDuration(c.in); got != c.want {
			t.Errorf("%s: got %d × 2.5 ms, want %d", c.name, got, c.want)
		}
	}
}

// What libopus makes of speech, music, noise and silence, with and without DTX,
// at the frame durations devices use, is never refused: this is the promise
// that matters most.
func TestShapeTakesAllOfLibopus(t *testing.T) {
	for _, frame := range []int{20, 40, 60} {
		for _, bitrate := range []int{6000, 16000, 24000, 64000} {
			for _, application := range []opus.Application{opus.AppAudio, opus.AppVoIP, opus.AppRestrictedLowdelay} {
				name := fmt.Sprintf("%dms-%dbps-%d", frame, bitrate, application)
				var s shape
				silent := 0
				for i, p := range encode(t, application, frame, bitrate, 6000/frame) {
					if !s.fits(p) || !s.learn(p) {
						t.Errorf("%s: packet %d refused: %x", name, i, p)
					}
					if len(p) <= maxSilence {
						silent++
					} else if got := opusDuration(p); got*5 != frame*2 {
						t.Errorf("%s: packet %d lasts %d × 2.5 ms", name, i, got)
					}
				}
				if silent == 0 && application == opus.AppVoIP {
					t.Errorf("%s: no silence among the packets: the test tests little", name)
				}
			}
		}
	}
}

// encode returns packets of noise, tones and silence in turn, with DTX.
func encode(t *testing.T, application opus.Application, frame, bitrate, count int) [][]byte {
	t.Helper()
	e, err := opus.NewEncoder(16000, 1, application)
	if err != nil {
		t.Fatal(err)
	}
	e.SetDTX(true)
	e.SetComplexity(0)
	e.SetBitrate(bitrate)
	r := rand.New(rand.NewPCG(5, 6))
	pcm := make([]int16, 16*frame)
	var packets [][]byte
	for i := range count {
		part := i * 5 / count
		for j := range pcm {
			switch part {
			case 0, 3:
				pcm[j] = int16(12000 * math.Sin(float64(i*len(pcm)+j)/16*float64(1+i%7)))
			case 1:
				pcm[j] = int16(r.IntN(20000) - 10000)
			default:
				pcm[j] = 0
			}
		}
		b := make([]byte, MaxPayload)
		n, err := e.Encode(pcm, b)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, b[:n])
	}
	return packets
}

func TestShape(t *testing.T) {
	packet := func(duration int) []byte {
		switch duration {
		case 60:
			return bytes.Repeat([]byte{3 << 3}, 30)
		case 20:
			return bytes.Repeat([]byte{1 << 3}, 30)
		}
		return bytes.Repeat([]byte{2 << 3}, 30) // 40
	}
	var s shape
	for i := range establishedBy {
		if !s.fits(packet(20)) || !s.learn(packet(60)) {
			t.Fatalf("packet %d refused before anything is established", i)
		}
	}
	if s.fits(packet(20)) || s.learn(packet(20)) {
		t.Error("another duration accepted")
	}
	for _, silence := range [][]byte{nil, {0}, {0xff, 0xff, 0xff}} {
		if !s.fits(silence) || !s.learn(silence) {
			t.Errorf("silence %x refused", silence)
		}
	}
	for range 100 { // never enough in a row
		for range establishedBy - 2 {
			if s.learn(packet(20)) {
				t.Fatal("another duration accepted after the old came between")
			}
		}
		if !s.learn(packet(60)) {
			t.Fatal("the established duration refused")
		}
	}
	for range establishedBy - 1 {
		if s.learn(packet(20)) {
			t.Fatal("another duration accepted too early")
		}
	}
	if !s.learn(packet(20)) || !s.fits(packet(20)) || s.fits(packet(60)) {
		t.Error("a device that has changed its duration is not believed")
	}
	for range establishedBy { // rivals of each other establish nothing
		if s.learn(packet(40)) || s.learn(packet(60)) {
			t.Fatal("mixed durations accepted")
		}
	}
}

// The chance of random bytes, as the package documentation states it.
func TestRandomBytesSeldomFit(t *testing.T) {
	r := rand.NewChaCha8([32]byte{1})
	const tries = 1 << 20
	count := map[int]int{}
	var b [101]byte // an even rest after the TOC byte passes most often
	for range tries {
		r.Read(b[:])
		count[opusDuration(b[:])]++
	}
	for duration, oneIn := range map[int]float64{24: 85, 8: 12} {
		if got := tries / float64(count[duration]); math.Abs(got/oneIn-1) > 0.05 {
			t.Errorf("%d × 2.5 ms: one in %.1f, documented are %v", duration, got, oneIn)
		}
	}
}

// libopus is the judge of what is Opus.
func FuzzOpusDuration(f *testing.F) {
	f.Add([]byte{3 << 3, 1, 2, 3, 4})
	f.Add([]byte{31<<3 | 3, 0xc3, 2, 1, 1, 7, 8, 9, 0, 0})
	f.Add([]byte{1<<3 | 2, 252, 1})
	d, err := opus.NewDecoder(8000, 1)
	if err != nil {
		f.Fatal(err)
	}
	pcm := make([]int16, 960) // 120 ms
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 || len(p) > MaxDatagram || p[0]&4 != 0 {
			if len(p) > 0 && p[0]&4 != 0 && opusDuration(p) != 0 {
				t.Error("stereo accepted")
			}
			return
		}
		samples, err := d.Decode(p, pcm[:len(pcm):len(pcm)])
		if err != nil {
			samples = 0
		}
		if got := opusDuration(p) * 20; got != samples {
			t.Errorf("%x: %d samples, libopus decodes %d (%v)", p, got, samples, err)
		}
	})
}
