package audio_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hraban/opus"

	"parley/internal/audio"
)

// join makes bytes of numbers and byte slices.
func join(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			b = append(b, byte(p))
		case []byte:
			b = append(b, p...)
		}
	}
	return b
}

func TestInspectReadsEveryConfiguration(t *testing.T) {
	const ms = time.Millisecond
	rows := []struct {
		from, to  int // configurations
		mode      audio.Mode
		bandwidth audio.Bandwidth
		frames    []time.Duration
	}{
		{0, 3, audio.SILK, audio.Narrowband, []time.Duration{10 * ms, 20 * ms, 40 * ms, 60 * ms}},
		{4, 7, audio.SILK, audio.Mediumband, []time.Duration{10 * ms, 20 * ms, 40 * ms, 60 * ms}},
		{8, 11, audio.SILK, audio.Wideband, []time.Duration{10 * ms, 20 * ms, 40 * ms, 60 * ms}},
		{12, 13, audio.Hybrid, audio.SuperWideband, []time.Duration{10 * ms, 20 * ms}},
		{14, 15, audio.Hybrid, audio.Fullband, []time.Duration{10 * ms, 20 * ms}},
		{16, 19, audio.CELT, audio.Narrowband, []time.Duration{2500 * time.Microsecond, 5 * ms, 10 * ms, 20 * ms}},
		{20, 23, audio.CELT, audio.Wideband, []time.Duration{2500 * time.Microsecond, 5 * ms, 10 * ms, 20 * ms}},
		{24, 27, audio.CELT, audio.SuperWideband, []time.Duration{2500 * time.Microsecond, 5 * ms, 10 * ms, 20 * ms}},
		{28, 31, audio.CELT, audio.Fullband, []time.Duration{2500 * time.Microsecond, 5 * ms, 10 * ms, 20 * ms}},
	}
	for _, row := range rows {
		for config := row.from; config <= row.to; config++ {
			for stereo := range 2 {
				got, err := audio.Inspect([]byte{byte(config<<3 | stereo<<2), 1, 2, 3})
				if err != nil {
					t.Fatalf("configuration %d: %v", config, err)
				}
				want := audio.PacketInfo{Mode: row.mode, Bandwidth: row.bandwidth, Stereo: stereo == 1,
					Frame: row.frames[config-row.from], Frames: 1}
				if got != want {
					t.Errorf("configuration %d: got %+v, want %+v", config, got, want)
				}
			}
		}
	}
}

func TestInspectFraming(t *testing.T) {
	const silk20 = 9 << 3 // SILK, wideband, 20 ms
	const silk60 = 11 << 3
	const celt25 = 28 << 3 // CELT, fullband, 2.5 ms
	zeros := func(n int) []byte { return make([]byte, n) }
	tests := []struct {
		name   string
		packet []byte
		want   time.Duration // 0 for an error
	}{
		{"empty [R1]", nil, 0},
		{"code 0, TOC alone", join(silk20), 20 * time.Millisecond},
		{"code 0, the longest frame", join(silk60, zeros(1275)), 60 * time.Millisecond},
		{"code 0, a frame too long [R2]", join(silk60, zeros(1276)), 0},
		{"code 1, no bytes", join(silk20 | 1), 40 * time.Millisecond},
		{"code 1, even", join(silk20|1, zeros(6)), 40 * time.Millisecond},
		{"code 1, odd [R3]", join(silk20|1, zeros(7)), 0},
		{"code 1, frames too long [R2]", join(silk20|1, zeros(2552)), 0},
		{"code 2, no length [R4]", join(silk20 | 2), 0},
		{"code 2, a length of two bytes cut [R4]", join(silk20|2, 252), 0},
		{"code 2, short", join(silk20|2, 3, zeros(5)), 40 * time.Millisecond},
		{"code 2, first frame beyond the end [R4]", join(silk20|2, 6, zeros(5)), 0},
		{"code 2, second frame empty", join(silk20|2, 5, zeros(5)), 40 * time.Millisecond},
		{"code 2, second frame too long [R2]", join(silk20|2, 0, zeros(1276)), 0},
		{"code 2, 1,275 bytes each", join(silk20|2, 255, 255, zeros(2550)), 40 * time.Millisecond},
		{"code 3, no count [R6]", join(silk20 | 3), 0},
		{"code 3, no frames [R5]", join(silk20|3, 0), 0},
		{"code 3, three of 20 ms", join(silk20|3, 3, zeros(9)), 60 * time.Millisecond},
		{"code 3, not divisible [R6]", join(silk20|3, 3, zeros(10)), 0},
		{"code 3, two of 60 ms", join(silk60|3, 2, zeros(10)), 120 * time.Millisecond},
		{"code 3, three of 60 ms [R5]", join(silk60|3, 3, zeros(9)), 0},
		{"code 3, 48 of 2.5 ms", join(celt25|3, 48, zeros(48)), 120 * time.Millisecond},
		{"code 3, 49 of 2.5 ms [R5]", join(celt25|3, 49, zeros(49)), 0},
		{"code 3, padding", join(silk20|3, 0x41, 4, zeros(2), zeros(4)), 20 * time.Millisecond},
		{"code 3, nothing but padding", join(silk20|3, 0x41, 4, zeros(4)), 20 * time.Millisecond},
		{"code 3, more padding than bytes [R6]", join(silk20|3, 0x41, 5, zeros(4)), 0},
		{"code 3, 254 bytes of padding and 3", join(silk20|3, 0x41, 255, 3, zeros(2), zeros(257)), 20 * time.Millisecond},
		{"code 3, padding length cut", join(silk20|3, 0x41, 255), 0},
		{"code 3, no padding length", join(silk20|3, 0x41), 0},
		{"code 3, not divisible less the padding [R6]", join(silk20|3, 0x43, 1, zeros(9)), 0},
		{"code 3, variable", join(silk20|3, 0x83, 1, 2, zeros(1+2+3)), 60 * time.Millisecond},
		{"code 3, variable, beyond the end [R7]", join(silk20|3, 0x83, 3, 4, zeros(6)), 0},
		{"code 3, variable, lengths cut [R7]", join(silk20|3, 0x83, 1), 0},
		{"code 3, variable, padding eats a frame [R7]", join(silk20|3, 0xc3, 2, 1, 2, zeros(4)), 0},
		{"code 3, variable, last too long [R2]", join(silk20|3, 0x82, 0, zeros(1276)), 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := audio.Duration(tt.packet)
			if tt.want == 0 {
				if !errors.Is(err, audio.ErrPacket) {
					t.Fatalf("got %v, %v; want ErrPacket", got, err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("got %v, %v; want %v", got, err, tt.want)
			}
		})
	}
}

// FuzzInspect holds the parser against libopus: what passes is decoded, in the
// length announced, and what is refused here is refused there.
func FuzzInspect(f *testing.F) {
	f.Add([]byte{9 << 3})
	f.Add(join(9<<3|3, 0x83, 1, 2, []byte{1, 2, 3, 4, 5, 6}))
	f.Add(join(28<<3|3, 0xc3, 1, 2, 1, []byte{1, 2, 3, 4, 5, 6}))
	f.Add(join(15<<3|2, 252, 1, make([]byte, 300)))
	f.Fuzz(func(t *testing.T, packet []byte) {
		info, err := audio.Inspect(packet)
		if len(packet) == 0 {
			return // libopus' binding refuses it by itself
		}
		dec, errDec := opus.NewDecoder(48000, 1)
		if errDec != nil {
			t.Fatal(errDec)
		}
		pcm := make([]int16, 48*120)
		n, errDec := dec.Decode(packet, pcm)
		if (err == nil) != (errDec == nil) {
			t.Fatalf("%x: %v here, %v in libopus", packet, err, errDec)
		}
		if err != nil {
			if !errors.Is(err, audio.ErrPacket) {
				t.Fatalf("%x: error %v does not wrap ErrPacket", packet, err)
			}
			return
		}
		if want := time.Duration(n) * time.Second / 48000; info.Duration() != want {
			t.Fatalf("%x: %v here, %v in libopus", packet, info.Duration(), want)
		}
	})
}

// FuzzRepacketize merges and pads whatever passes for packets and holds the
// result against the parser.
func FuzzRepacketize(f *testing.F) {
	f.Add([]byte{9 << 3, 1, 2}, []byte{9 << 3, 1, 2})
	f.Add(join(9<<3|3, 0x83, 1, 2, []byte{1, 2, 3, 4, 5, 6}), join(9<<3|2, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var r audio.Repacketizer
		for _, packet := range [][]byte{a, b} {
			before := r.Pending()
			switch err := r.Push(packet); {
			case err != nil:
				if r.Pending() != before {
					t.Fatalf("a refused packet changed %v pending to %v", before, r.Pending())
				}
			default:
				d, _ := audio.Duration(packet)
				if r.Pending() != before+d {
					t.Fatalf("%v and %v make %v", before, d, r.Pending())
				}
			}
			if padded := audio.Pad(packet); len(padded) < len(packet) {
				t.Fatalf("padding cut %x to %x", packet, padded)
			}
		}
		merged := r.AppendPacket(nil)
		if r.Pending() == 0 {
			if len(merged) != 0 {
				t.Fatalf("nothing pending makes %x", merged)
			}
			return
		}
		if d, err := audio.Duration(merged); err != nil || d != r.Pending() {
			t.Fatalf("merged packet of %v lasts %v, %v", r.Pending(), d, err)
		}
	})
}

func ExampleInspect() {
	info, _ := audio.Inspect([]byte{0x4b, 3, 1, 2, 3}) // three frames of one byte
	fmt.Println(info.Mode, info.Bandwidth, info.Duration())
	// Output: SILK 8000 60ms
}

func TestInspectDoesNotAllocate(t *testing.T) {
	packet := join(9<<3|3, 0x83, 1, 2, bytes.Repeat([]byte{7}, 6))
	if n := testing.AllocsPerRun(100, func() {
		if _, err := audio.Inspect(packet); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
