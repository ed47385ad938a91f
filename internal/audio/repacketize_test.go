package audio_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"parley/internal/audio"
)

// What libopus makes of a merged packet is, bit for bit, what it makes of the
// parts: in all three modes, for every length that merges, and in every
// framing.
func TestMergedPacketsDecodeLikeTheirParts(t *testing.T) {
	encodings := []struct {
		name string
		mode audio.Mode
		audio.EncoderConfig
	}{
		{"SILK", audio.SILK, audio.EncoderConfig{Rate: 16000, Bitrate: 16000}},
		{"Hybrid", audio.Hybrid, audio.EncoderConfig{Rate: 24000, Bitrate: 40000, Complexity: 8}},
		{"CELT", audio.CELT, audio.EncoderConfig{Rate: 48000, Bitrate: 96000}},
		{"DTX", audio.SILK, audio.EncoderConfig{Rate: 16000, Bitrate: 16000, DTX: true}},
	}
	for _, e := range encodings {
		for _, split := range []struct{ parts, ms int }{{6, 10}, {3, 20}, {3, 40}, {1, 60}, {2, 60}} {
			t.Run(fmt.Sprintf("%s, %d of %d ms", e.name, split.parts, split.ms), func(t *testing.T) {
				pcm := append(speechAt(t, e.Rate), make([]int16, e.Rate)...) // and a second of silence
				packets := encode(t, e.EncoderConfig, pcm, e.Rate*split.ms/1000)
				merged := mergeAll(t, packets, split.parts, time.Duration(split.parts*split.ms)*time.Millisecond, e.mode)
				same(t, decode(t, 24000, packets), decode(t, 24000, merged))
			})
		}
	}
}

// mergeAll merges every n packets into one, which lasts d, except where the
// encoder changed its configuration within the n. It fails unless it merged
// some of the given mode.
func mergeAll(t *testing.T, packets [][]byte, n int, d time.Duration, mode audio.Mode) [][]byte {
	t.Helper()
	var result [][]byte
	var r audio.Repacketizer
	merged := 0
	for ; len(packets) >= n; packets = packets[n:] {
		r.Reset()
		mismatch := false
		for _, p := range packets[:n] {
			err := r.Push(p)
			mismatch = mismatch || errors.Is(err, audio.ErrMismatch)
			if err != nil && !mismatch {
				t.Fatal(err)
			}
		}
		if mismatch {
			result = append(result, packets[:n]...)
			continue
		}
		packet := r.AppendPacket(nil)
		info, err := audio.Inspect(packet)
		if err != nil || info.Duration() != d || r.Pending() != d {
			t.Fatalf("merged %d packets into %v, %v", n, info.Duration(), err)
		}
		if info.Mode == mode {
			merged++
		}
		result = append(result, packet)
	}
	if merged < 10 {
		t.Fatalf("only %d packets merged in mode %v", merged, mode)
	}
	return append(result, packets...)
}

func TestRepacketizerChoosesTheShortestFraming(t *testing.T) {
	const toc = 9 << 3 // SILK, wideband, 20 ms
	long := make([]byte, 300)
	tests := []struct {
		parts [][]byte
		want  []byte
	}{
		{nil, nil},
		{[][]byte{{toc, 1, 2}}, []byte{toc, 1, 2}},
		{[][]byte{{toc, 1}, {toc, 2}}, []byte{toc | 1, 1, 2}},
		{[][]byte{{toc, 1}, {toc, 2, 3}}, []byte{toc | 2, 1, 1, 2, 3}},
		{[][]byte{join(toc, long), {toc, 7}}, join(toc|2, 252, 12, long, 7)},
		{[][]byte{{toc, 1}, {toc, 2}, {toc, 3}}, []byte{toc | 3, 3, 1, 2, 3}},
		{[][]byte{{toc, 1}, {toc}, {toc, 3, 4}}, []byte{toc | 3, 0x83, 1, 0, 1, 3, 4}},
		{[][]byte{{toc | 1, 1, 2}, {toc, 3}}, []byte{toc | 3, 3, 1, 2, 3}},
		{[][]byte{join(toc|3, 0x41, 3, 9, 0, 0, 0), {toc, 8}}, []byte{toc | 1, 9, 8}}, // padding goes
	}
	for _, tt := range tests {
		var r audio.Repacketizer
		for _, p := range tt.parts {
			if err := r.Push(p); err != nil {
				t.Fatal(err)
			}
		}
		if got := r.AppendPacket(nil); string(got) != string(tt.want) {
			t.Errorf("%x make %x, want %x", tt.parts, got, tt.want)
		}
	}
}

func TestRepacketizerRefuses(t *testing.T) {
	const toc = 11 << 3 // SILK, wideband, 60 ms
	var r audio.Repacketizer
	if err := r.Push([]byte{toc, 1}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		packet []byte
		want   error
	}{
		{nil, audio.ErrPacket},
		{[]byte{toc | 3, 0}, audio.ErrPacket},
		{[]byte{9 << 3, 1}, audio.ErrMismatch},     // 20 ms
		{[]byte{toc | 4, 1}, audio.ErrMismatch},    // stereo
		{[]byte{7 << 3, 1}, audio.ErrMismatch},     // mediumband
		{[]byte{toc | 1, 1, 1}, audio.ErrMismatch}, // 180 ms in all
	} {
		if err := r.Push(tt.packet); !errors.Is(err, tt.want) {
			t.Errorf("%x: %v, want %v", tt.packet, err, tt.want)
		}
	}
	if got := r.AppendPacket(nil); string(got) != string([]byte{toc, 1}) || r.Pending() != 60*time.Millisecond {
		t.Errorf("after refusals %x, %v are pending", got, r.Pending())
	}
}

func TestRepacketizerDoesNotAllocate(t *testing.T) {
	packets := encode(t, audio.EncoderConfig{Rate: 24000, Bitrate: 24000}, speechAt(t, 24000), 480)[:3]
	var r audio.Repacketizer
	var out []byte
	merge := func() {
		r.Reset()
		for _, p := range packets {
			if err := r.Push(p); err != nil {
				t.Fatal(err)
			}
		}
		out = r.AppendPacket(out[:0])
	}
	merge()
	if n := testing.AllocsPerRun(100, merge); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkMerge makes one packet of 60 ms from three of 20 ms.
func BenchmarkMerge(b *testing.B) {
	packets := encode(b, audio.EncoderConfig{Rate: 24000, Bitrate: 24000}, speechAt(b, 24000), 480)[30:33]
	var r audio.Repacketizer
	var out []byte
	b.ReportAllocs()
	for b.Loop() {
		r.Reset()
		for _, p := range packets {
			if err := r.Push(p); err != nil {
				b.Fatal(err)
			}
		}
		out = r.AppendPacket(out[:0])
	}
}
