package audio

import (
	"encoding/binary"
	"io"
	"math"
)

// granuleRate is the rate of timestamps in Ogg Opus and of Opus in RTP, in Hz,
// whatever the packets' own (RFC 7845 §4, RFC 7587 §4.1).
const granuleRate = 48000

// encoderDelay is how much audio libopus' encoder puts before the first sample
// it was given, in samples of granuleRate; players drop it.
const encoderDelay = 312

// An OggWriter writes Opus packets as an Ogg Opus file that any player plays.
// It is not safe for concurrent use.
type OggWriter struct {
	muxer *OggMuxer
}

// NewOggWriter returns a writer of a mono stream to w. The rate, in Hz, is the
// one players are told the audio had before it was encoded; it does not change
// how they play it.
func NewOggWriter(w io.Writer, rate int) (*OggWriter, error) {
	m, err := NewOggMuxer(w, OggTrack{Rate: rate})
	if err != nil {
		return nil, err
	}
	return &OggWriter{muxer: m}, nil
}

// WritePacket writes one packet as a page of its own, so that a file cut short
// lacks nothing that was written. The error wraps [ErrPacket] if packet is not
// an Opus packet, and is the underlying writer's otherwise.
func (o *OggWriter) WritePacket(packet []byte) error { return o.muxer.WritePacket(0, packet) }

// Close ends the file. It does not close the underlying writer.
func (o *OggWriter) Close() error { return o.muxer.Close() }

// oggPages passes pages on to w, and puts two of each stream right on the way:
//
//   - the first names 80 ms of pre-skip, that of a stream cut out of a longer
//     one, for which players would drop the first 80 ms of speech. It is to be
//     the encoder's delay (RFC 7845 §4.2).
//   - the last, which only ends the stream, has a position although no packet
//     ends on it. It is to have −1 (RFC 3533 §6).
//
// It also hides a Close method of w, which the library would call.
type oggPages struct {
	w io.Writer
}

// Write writes one page.
func (o *oggPages) Write(page []byte) (int, error) {
	const (
		flags    = 5
		position = 6
		checksum = 22
		segments = 26
		preSkip  = oggHeaderBytes + 1 + 10 // after one segment length and 10 bytes of OpusHead
	)
	le := binary.LittleEndian
	switch {
	case page[flags]&oggFirst != 0 && len(page) >= preSkip+2:
		le.PutUint16(page[preSkip:], encoderDelay)
	case len(page) == oggHeaderBytes && page[segments] == 0:
		le.PutUint64(page[position:], math.MaxUint64)
	default:
		return o.w.Write(page)
	}
	le.PutUint32(page[checksum:], 0)
	le.PutUint32(page[checksum:], oggChecksum(oggTable(), page))
	return o.w.Write(page)
}
