package audio_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"parley/internal/audio"
)

// u16 and u32 are little-endian numbers.
func u16(n int) []byte { return binary.LittleEndian.AppendUint16(nil, uint16(n)) }
func u32(n int) []byte { return binary.LittleEndian.AppendUint32(nil, uint32(n)) }

// chunk is a RIFF chunk, padded to an even length.
func chunk(id string, data []byte) []byte {
	b := join([]byte(id), u32(len(data)), data)
	return append(b, make([]byte, len(b)%2)...)
}

// format is the data of a fmt chunk.
func format(tag, channels, rate, bits int) []byte {
	return join(u16(tag), u16(channels), u32(rate), u32(rate*channels*bits/8), u16(channels*bits/8), u16(bits))
}

// wav is a file of chunks.
func wav(chunks ...[]byte) []byte {
	b := bytes.Join(chunks, nil)
	return join([]byte("RIFF"), u32(4+len(b)), []byte("WAVE"), b)
}

// readAll reads a WAV file in pieces of three samples.
func readAll(r io.Reader) (pcm []int16, w *audio.WAVReader, err error) {
	w, err = audio.NewWAVReader(r)
	if err != nil {
		return nil, nil, err
	}
	buf := make([]int16, 3)
	for {
		n, err := w.Read(buf)
		pcm = append(pcm, buf[:n]...)
		if err == io.EOF {
			return pcm, w, nil
		}
		if err != nil {
			return pcm, w, err
		}
		if n == 0 {
			return pcm, w, errors.New("nothing read and no error")
		}
	}
}

func floats(values ...float64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}

func TestWAVReader(t *testing.T) {
	data := []byte{1, 0, 2, 0, 0, 0x80, 0xff, 0x7f}
	samples := []int16{1, 2, math.MinInt16, math.MaxInt16}
	mono := chunk("fmt ", format(1, 1, 16000, 16))
	// The last field of an extensible format's GUID begins with the tag.
	extensible := join(format(0xfffe, 1, 48000, 16), u16(22), u16(16), u32(4), u16(1), make([]byte, 14))
	// A data chunk whose size says what a program that writes to a pipe says.
	piped := func(size int) []byte { return wav(mono, []byte("data"), u32(size), data) }
	tests := []struct {
		name string
		file []byte
		rate int
		want []int16
	}{
		{"as it should be", wav(mono, chunk("data", data)), 16000, samples},
		{"nothing", wav(mono, chunk("data", nil)), 16000, nil},
		{"size 0", piped(0), 16000, samples},
		{"size 0xFFFFFFFF", piped(0xffffffff), 16000, samples},
		{"size 0x7FFFF000", piped(0x7ffff000), 16000, samples},
		{"cut short", piped(4000), 16000, samples},
		{"cut within a sample", piped(4000)[:12+24+8+5], 16000, samples[:2]},
		{"an odd length", wav(mono, chunk("data", data[:5])), 16000, samples[:2]},
		{"chunks around, one of odd length",
			wav(chunk("LIST", []byte("INFO!")), chunk("JUNK", nil), mono, chunk("fact", u32(4)), chunk("data", data), chunk("LIST", data)),
			16000, samples},
		{"extensible", wav(chunk("fmt ", extensible), chunk("data", data)), 48000, samples},
		{"a fmt chunk of 18 bytes", wav(chunk("fmt ", append(format(1, 1, 22050, 16), 0, 0)), chunk("data", data)), 22050, samples},
		{"8 bits", wav(chunk("fmt ", format(1, 1, 8000, 8)), chunk("data", []byte{0, 128, 255})), 8000, []int16{-32768, 0, 127 << 8}},
		{"24 bits", wav(chunk("fmt ", format(1, 1, 44100, 24)), chunk("data", []byte{9, 1, 0, 9, 0, 0x80})), 44100, []int16{1, -32768}},
		{"32 bits", wav(chunk("fmt ", format(1, 1, 44100, 32)), chunk("data", []byte{9, 9, 1, 0, 9, 9, 0, 0x80})), 44100, []int16{1, -32768}},
		{"floats", wav(chunk("fmt ", format(3, 1, 24000, 32)), chunk("data", floats(0, 0.5, -0.5, 1, -1, 7, -7, math.NaN(), math.Inf(1)))),
			24000, []int16{0, 16384, -16384, 32767, -32768, 32767, -32768, 0, 32767}},
		{"stereo", wav(chunk("fmt ", format(1, 2, 24000, 16)), chunk("data", data)), 24000, []int16{1, 0}},
		{"loud stereo", wav(chunk("fmt ", format(1, 2, 24000, 16)), chunk("data", []byte{0, 0x80, 0, 0x80, 0xff, 0x7f, 0xff, 0x7f})),
			24000, []int16{-32768, 32767}},
		{"RF64", append([]byte("RF64"), wav(chunk("ds64", make([]byte, 28)), mono, []byte("data"), u32(-1), data)[4:]...), 16000, samples},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, r := range map[string]io.Reader{
				"whole":        bytes.NewReader(tt.file),
				"byte by byte": iotest.OneByteReader(bytes.NewReader(tt.file)),
				"with its end": iotest.DataErrReader(bytes.NewReader(tt.file)),
			} {
				got, w, err := readAll(r)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if w.Rate() != tt.rate {
					t.Errorf("%s: %d Hz, want %d", name, w.Rate(), tt.rate)
				}
				same(t, tt.want, got)
			}
		})
	}
}

func TestWAVReaderRefuses(t *testing.T) {
	mono := chunk("fmt ", format(1, 1, 16000, 16))
	for name, file := range map[string][]byte{
		"empty":             nil,
		"not RIFF":          []byte("OggS............................"),
		"not WAVE":          []byte("RIFF\x00\x00\x00\x00AVI LIST........"),
		"no chunks":         wav(),
		"no data":           wav(mono),
		"data first":        wav(chunk("data", []byte{1, 2}), mono),
		"a short fmt chunk": wav(chunk("fmt ", format(1, 1, 16000, 16)[:14]), chunk("data", nil)),
		"a fmt chunk cut":   wav(mono)[:30],
		"a chunk cut":       wav(chunk("LIST", make([]byte, 100)))[:50],
		"MP3 inside":        wav(chunk("fmt ", format(0x55, 1, 16000, 16)), chunk("data", nil)),
		"12 bits":           wav(chunk("fmt ", format(1, 1, 16000, 12)), chunk("data", nil)),
		"doubles":           wav(chunk("fmt ", format(3, 1, 16000, 64)), chunk("data", nil)),
		"no channels":       wav(chunk("fmt ", format(1, 0, 16000, 16)), chunk("data", nil)),
		"nine channels":     wav(chunk("fmt ", format(1, 9, 16000, 16)), chunk("data", nil)),
		"0 Hz":              wav(chunk("fmt ", format(1, 1, 0, 16)), chunk("data", nil)),
		"4 GHz":             wav(chunk("fmt ", format(1, 1, 4e9, 16)), chunk("data", nil)),
	} {
		if _, err := audio.NewWAVReader(bytes.NewReader(file)); !errors.Is(err, audio.ErrWAV) {
			t.Errorf("%s: %v, want ErrWAV", name, err)
		}
	}
	broken := errors.New("the pipe broke")
	if _, err := audio.NewWAVReader(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
	r := io.MultiReader(bytes.NewReader(wav(mono, chunk("data", make([]byte, 100)))[:60]), iotest.ErrReader(broken))
	if _, _, err := readAll(r); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

// A sample is given as soon as it is there: a synthesizer may take seconds to
// write the next.
func TestWAVReaderDoesNotWaitForMoreThanOneSample(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		file := wav(chunk("fmt ", format(1, 1, 16000, 16)), []byte("data"), u32(0), []byte{1, 0, 2, 0, 3})
		_, _ = w.Write(file) // and never anything more
	}()
	reader, err := audio.NewWAVReader(r)
	if err != nil {
		t.Fatal(err)
	}
	pcm := make([]int16, 100)
	n, err := reader.Read(pcm)
	if n != 2 || err != nil || pcm[0] != 1 || pcm[1] != 2 {
		t.Errorf("read %v, %v; want 1 and 2", pcm[:n], err)
	}
}

func TestWAVRoundTrip(t *testing.T) {
	pcm := []int16{0, 1, -1, math.MaxInt16, math.MinInt16}
	var file bytes.Buffer
	if err := audio.WriteWAV(&file, 24000, pcm); err != nil {
		t.Fatal(err)
	}
	if want := wav(chunk("fmt ", format(1, 1, 24000, 16)), chunk("data", audio.AppendPCM(nil, pcm))); !bytes.Equal(file.Bytes(), want) {
		t.Errorf("wrote %x, want %x", file.Bytes(), want)
	}
	got, rate, err := audio.ReadWAV(bytes.NewReader(file.Bytes()), len(pcm))
	if err != nil || rate != 24000 {
		t.Fatalf("%d Hz, %v", rate, err)
	}
	same(t, pcm, got)
	if _, _, err := audio.ReadWAV(bytes.NewReader(file.Bytes()), len(pcm)-1); err == nil {
		t.Error("more samples than the limit were read")
	}
	back := make([]int16, 9)
	if n := audio.DecodePCM(back, append(audio.AppendPCM(nil, pcm), 1)); n != len(pcm) {
		t.Errorf("decoded %d samples, want %d", n, len(pcm))
	}
	same(t, pcm, back[:len(pcm)])
}

func FuzzWAVReader(f *testing.F) {
	mono := chunk("fmt ", format(1, 1, 16000, 16))
	f.Add(wav(mono, chunk("data", []byte{1, 2, 3, 4})))
	f.Add(wav(chunk("LIST", []byte("INFO!")), chunk("fmt ", format(3, 2, 44100, 32)), chunk("data", floats(0.5, 1e30))))
	f.Add(wav(chunk("fmt ", format(1, 8, 192000, 24)), []byte("data"), u32(-1), make([]byte, 100)))
	f.Fuzz(func(t *testing.T, file []byte) {
		pcm, w, err := readAll(bytes.NewReader(file))
		switch {
		case err != nil && !errors.Is(err, audio.ErrWAV):
			t.Fatalf("error %v does not wrap ErrWAV", err)
		case len(pcm) > len(file):
			t.Fatalf("%d bytes make %d samples", len(file), len(pcm))
		case err == nil && (w.Rate() < audio.MinRate || w.Rate() > audio.MaxRate || w.Channels() < 1):
			t.Fatalf("%d channels at %d Hz", w.Channels(), w.Rate())
		}
	})
}
