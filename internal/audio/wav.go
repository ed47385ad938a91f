package audio

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrWAV is wrapped by every error about bytes that are not a WAV file this
// package reads.
var ErrWAV = errors.New("not a readable WAV file")

const (
	wavPCM        = 1
	wavFloat      = 3
	wavExtensible = 0xfffe

	// wavMaxChannels bounds the channels that are mixed down.
	wavMaxChannels = 8
	// wavStream is the data size from which on it means "until the end".
	// Programs that write to a pipe do not know it: ffmpeg and pocketsphinx
	// leave 0xFFFFFFFF, sox 0x7FFFF000 and more, espeak-ng 0x7FFFF000, and
	// others 0.
	wavStream = 0x7fff0000
)

// A WAVReader reads the samples of a WAV file as it arrives, mixed down to mono.
// It reads integers of 8, 16, 24 and 32 bits and floats of 32.
type WAVReader struct {
	r        *bufio.Reader
	rate     int
	channels int
	width    int // bytes a sample
	float    bool
	left     int64 // bytes of samples, negative for "until the end"
	frame    []byte
}

// NewWAVReader reads the header of a WAV file up to its samples and returns a
// reader of them. The error wraps [ErrWAV] if r does not hold a WAV file, or
// one of a form this package does not read, and the error of r if it failed.
func NewWAVReader(r io.Reader) (*WAVReader, error) {
	w := &WAVReader{r: bufio.NewReader(r)}
	var head [12]byte
	if err := w.full(head[:], "its header"); err != nil {
		return nil, err
	}
	// RF64 is RIFF whose sizes may be 0xFFFFFFFF.
	if id := string(head[:4]); id != "RIFF" && id != "RF64" || string(head[8:]) != "WAVE" {
		return nil, fmt.Errorf("%w: it begins with %q, want RIFF and WAVE", ErrWAV, head[:])
	}
	for {
		var chunk [8]byte
		if err := w.full(chunk[:], "a chunk header"); err != nil {
			return nil, err
		}
		size := int64(binary.LittleEndian.Uint32(chunk[4:]))
		switch string(chunk[:4]) {
		case "fmt ":
			if err := w.readFormat(size); err != nil {
				return nil, err
			}
		case "data":
			if w.width == 0 {
				return nil, fmt.Errorf("%w: the data chunk comes before the fmt chunk", ErrWAV)
			}
			w.left = size
			if size == 0 || size >= wavStream {
				w.left = -1
			}
			w.frame = make([]byte, w.width*w.channels)
			return w, nil
		default:
			if err := w.skip(size + size%2); err != nil {
				return nil, err
			}
		}
	}
}

// full fills b, which holds what.
func (w *WAVReader) full(b []byte, what string) error {
	_, err := io.ReadFull(w.r, b)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: it ends within %s", ErrWAV, what)
	}
	return err
}

func (w *WAVReader) skip(n int64) error {
	_, err := io.CopyN(io.Discard, w.r, n)
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ends before its data chunk", ErrWAV)
	}
	return err
}

// readFormat reads the fmt chunk.
func (w *WAVReader) readFormat(size int64) error {
	var b [40]byte // with the extension
	n := min(size, int64(len(b)))
	if n < 16 {
		return fmt.Errorf("%w: its fmt chunk has %d bytes, want 16 or more", ErrWAV, size)
	}
	if err := w.full(b[:n], "its fmt chunk"); err != nil {
		return err
	}
	if err := w.skip(size + size%2 - n); err != nil {
		return err
	}
	format := binary.LittleEndian.Uint16(b[0:])
	channels := int(binary.LittleEndian.Uint16(b[2:]))
	rate := binary.LittleEndian.Uint32(b[4:])
	bits := int(binary.LittleEndian.Uint16(b[14:]))
	if format == wavExtensible && n >= 26 {
		format = binary.LittleEndian.Uint16(b[24:])
	}
	switch {
	case format == wavPCM && (bits == 8 || bits == 16 || bits == 24 || bits == 32):
	case format == wavFloat && bits == 32:
	default:
		return fmt.Errorf("%w: format %d of %d bits; integers of 8, 16, 24 or 32 bits (format 1) and floats of 32 (format 3) are read",
			ErrWAV, format, bits)
	}
	if channels < 1 || channels > wavMaxChannels {
		return fmt.Errorf("%w: %d channels, want 1 to %d", ErrWAV, channels, wavMaxChannels)
	}
	if rate < MinRate || rate > MaxRate {
		return fmt.Errorf("%w: a rate of %d Hz, want %d to %d", ErrWAV, rate, MinRate, MaxRate)
	}
	w.rate, w.channels, w.width, w.float = int(rate), channels, bits/8, format == wavFloat
	return nil
}

// Rate is the sample rate, in Hz.
func (w *WAVReader) Rate() int { return w.rate }

// Channels is how many channels the file has. Read mixes them.
func (w *WAVReader) Channels() int { return w.channels }

// Read fills pcm with the next samples and returns how many there were: as many
// as have arrived, and at least one, or io.EOF at the end of the data. A file
// that ends before the length in its header is not an error; half a sample at
// its end is dropped. The other errors are those of the underlying reader.
func (w *WAVReader) Read(pcm []int16) (int, error) {
	for n := range pcm {
		// Wait for the first sample only: the rest may take a synthesizer a
		// while.
		if n > 0 && w.r.Buffered() < len(w.frame) {
			return n, nil
		}
		if w.left >= 0 && w.left < int64(len(w.frame)) {
			return n, eofUnless(n)
		}
		if _, err := io.ReadFull(w.r, w.frame); err != nil {
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			return n, err
		}
		if w.left >= 0 {
			w.left -= int64(len(w.frame))
		}
		pcm[n] = w.mix()
	}
	return len(pcm), nil
}

// eofUnless is io.EOF if nothing was read.
func eofUnless(n int) error {
	if n > 0 {
		return nil
	}
	return io.EOF
}

// mix is the mean of the channels of one frame.
func (w *WAVReader) mix() int16 {
	sum := 0
	for b := w.frame; len(b) > 0; b = b[w.width:] {
		sum += int(w.sample(b))
	}
	return int16(sum / w.channels)
}

// sample reads one sample; of wide ones the upper 16 bits.
func (w *WAVReader) sample(b []byte) int16 {
	switch {
	case w.float:
		f := math.Float32frombits(binary.LittleEndian.Uint32(b))
		if f != f { // not a number
			return 0
		}
		return clip(f * 32768)
	case w.width == 1:
		return (int16(b[0]) - 128) << 8
	}
	return int16(binary.LittleEndian.Uint16(b[w.width-2:]))
}

// ReadWAV reads a whole WAV file of at most limit samples, and its rate. It
// fails as [NewWAVReader] does, and for a longer file.
func ReadWAV(r io.Reader, limit int) (pcm []int16, rate int, err error) {
	w, err := NewWAVReader(r)
	if err != nil {
		return nil, 0, err
	}
	buf := make([]int16, 4096)
	for {
		n, err := w.Read(buf)
		pcm = append(pcm, buf[:n]...)
		switch {
		case len(pcm) > limit:
			return nil, 0, fmt.Errorf("WAV file of more than %d samples", limit)
		case errors.Is(err, io.EOF):
			return pcm, w.rate, nil
		case err != nil:
			return nil, 0, err
		}
	}
}

// wavHeaderBytes is the length of the header [AppendWAV] writes.
const wavHeaderBytes = 44

// AppendWAV appends pcm as a mono WAV file of 16-bit samples at rate Hz to dst.
func AppendWAV(dst []byte, rate int, pcm []int16) []byte {
	size := uint32(2 * len(pcm))
	le := binary.LittleEndian
	dst = append(dst, "RIFF"...)
	dst = le.AppendUint32(dst, wavHeaderBytes-8+size)
	dst = append(dst, "WAVEfmt "...)
	dst = le.AppendUint32(dst, 16)
	dst = le.AppendUint16(dst, wavPCM)
	dst = le.AppendUint16(dst, 1) // channels
	dst = le.AppendUint32(dst, uint32(rate))
	dst = le.AppendUint32(dst, uint32(2*rate)) // bytes a second
	dst = le.AppendUint16(dst, 2)              // bytes a frame
	dst = le.AppendUint16(dst, 16)             // bits a sample
	dst = append(dst, "data"...)
	dst = le.AppendUint32(dst, size)
	return AppendPCM(dst, pcm)
}

// WriteWAV writes pcm as a mono WAV file of 16-bit samples at rate Hz, in one
// call of Write.
func WriteWAV(w io.Writer, rate int, pcm []int16) error {
	_, err := w.Write(AppendWAV(make([]byte, 0, wavHeaderBytes+2*len(pcm)), rate, pcm))
	return err
}

// AppendPCM appends pcm to dst as bytes, little-endian: the form recognisers
// and synthesizers call "pcm", "s16le" or "linear16".
func AppendPCM(dst []byte, pcm []int16) []byte {
	for _, s := range pcm {
		dst = binary.LittleEndian.AppendUint16(dst, uint16(s))
	}
	return dst
}

// DecodePCM fills pcm with samples from bytes, little-endian, and returns how
// many there were: as many as fit in both.
func DecodePCM(pcm []int16, b []byte) int {
	n := min(len(pcm), len(b)/2)
	for i := range n {
		pcm[i] = int16(binary.LittleEndian.Uint16(b[2*i:]))
	}
	return n
}
