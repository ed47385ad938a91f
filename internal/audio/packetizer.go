package audio

import (
	"context"
	"errors"
	"time"
)

// ErrStopped is returned by a [Packetizer] whose emit function returned false.
var ErrStopped = errors.New("the receiver of packets has stopped")

// maxDecoded is the length of the longest packet, decoded, in samples.
const maxDecoded = SpeakerRate * int(maxPacketDuration/time.Millisecond) / 1000

// A Packetizer makes the packets a device is to play, each of 60 ms and between
// [MinPayload] and [MaxPayload] bytes, of what a synthesizer yields: PCM at any
// rate, or Opus packets.
//
// Opus packets are passed on as they are, shorter ones merged without a codec.
// From the first that cannot be (stereo, longer than 60 ms, or of another
// configuration in the middle of a merged packet) to the end of the stream they
// are decoded and encoded again.
//
// A Packetizer serves one stream after another, each ended by Flush. It is not
// safe for concurrent use. There is nothing to close.
type Packetizer struct {
	pool *EncoderPool

	pending []int16          // 24 kHz PCM to encode, less than a packet between calls
	enc     *Encoder         // once anything was encoded
	out     [MaxPayload]byte // where it encodes to
	from    *Resampler       // of the current PCM, nil at 24 kHz
	rate    int              // of the current PCM, 0 before any

	merge   Repacketizer
	merged  []byte    // scratch for a merged packet
	history [2][]byte // the last packets passed on, the older first

	dec     *Decoder // not nil once this stream is being decoded
	decoded []int16  // scratch for a decoded packet
}

// NewPacketizer returns a Packetizer that encodes within the bound of pool.
func NewPacketizer(pool *EncoderPool) *Packetizer {
	return &Packetizer{pool: pool}
}

// PCM takes a piece of mono PCM of any length and emits the packets that are
// complete. The rate, in Hz, may differ from the last piece's.
//
// emit receives a slice it may keep; when it returns false, PCM returns
// [ErrStopped] at once. The other errors are ctx's, while waiting for the
// encoder pool, and an unusable rate. A Packetizer that has returned an error
// is of no further use, unless the error wraps [ErrPacket].
func (p *Packetizer) PCM(ctx context.Context, pcm []int16, rate int, emit func(packet []byte) bool) error {
	if p.merge.Pending() > 0 {
		if err := p.decodeOn(ctx, emit); err != nil {
			return err
		}
	}
	if err := p.setRate(rate); err != nil {
		return err
	}
	// In pieces, so that a minute of PCM in one call is not copied whole.
	for len(pcm) > 0 {
		n := min(SpeakerFrame, len(pcm))
		if p.from != nil {
			p.pending = p.from.Append(p.pending, pcm[:n])
		} else {
			p.pending = append(p.pending, pcm[:n]...)
		}
		if err := p.encodePending(ctx, emit); err != nil {
			return err
		}
		pcm = pcm[n:]
	}
	return nil
}

// Opus takes one Opus packet and emits the packets that are complete. See
// [Packetizer.PCM] for emit and the errors; one that wraps [ErrPacket] leaves
// the stream as it was. The packet is not kept.
func (p *Packetizer) Opus(ctx context.Context, packet []byte, emit func(packet []byte) bool) error {
	info, err := Inspect(packet)
	if err != nil {
		return err
	}
	if err := p.setRate(SpeakerRate); err != nil {
		return err
	}
	fits := p.dec == nil && len(p.pending) == 0 && !info.Stereo &&
		p.merge.Pending()+info.Duration() <= FrameDuration
	if fits && p.merge.Push(packet) == nil {
		return p.passOn(ctx, emit)
	}
	if err := p.decodeOn(ctx, emit); err != nil {
		return err
	}
	return p.transcode(ctx, packet, emit)
}

// Flush ends the stream: it fills the last packet up with silence, emits it,
// and makes the Packetizer ready for another stream. It does not make up for
// the codec's delay of 6.5 ms, which a further packet would cost.
func (p *Packetizer) Flush(ctx context.Context, emit func(packet []byte) bool) error {
	if p.merge.Pending() > 0 {
		if err := p.decodeOn(ctx, emit); err != nil {
			return err
		}
	}
	if err := p.setRate(SpeakerRate); err != nil {
		return err
	}
	for len(p.pending)%SpeakerFrame != 0 {
		p.pending = append(p.pending, 0)
	}
	if err := p.encodePending(ctx, emit); err != nil {
		return err
	}
	p.dec = nil
	p.history = [2][]byte{}
	return nil
}

// setRate ends the PCM of one rate and prepares for that of another.
func (p *Packetizer) setRate(rate int) error {
	if rate == p.rate {
		return nil
	}
	if p.from != nil {
		p.pending = p.from.Flush(p.pending)
	}
	p.from, p.rate = nil, rate
	if rate == SpeakerRate {
		return nil
	}
	from, err := p.pool.resampler(rate, SpeakerRate)
	if err != nil {
		p.rate = 0
		return err
	}
	p.from = from
	return nil
}

// passOn emits the merged packet if it is complete.
func (p *Packetizer) passOn(ctx context.Context, emit func(packet []byte) bool) error {
	if p.merge.Pending() < FrameDuration {
		return nil
	}
	p.merged = p.merge.AppendPacket(p.merged[:0])
	if len(p.merged) > MaxPayload {
		return p.decodeOn(ctx, emit)
	}
	p.merge.Reset()
	older := p.history[0]
	p.history[0] = p.history[1]
	p.history[1] = append(older[:0], p.merged...)
	return p.emit(p.merged, emit)
}

// emit hands on a copy of packet.
func (p *Packetizer) emit(packet []byte, emit func(packet []byte) bool) error {
	fresh := Pad(packet)
	if len(packet) >= MinPayload {
		fresh = append([]byte(nil), packet...)
	}
	if !emit(fresh) {
		return ErrStopped
	}
	return nil
}

// decodeOn turns from passing packets on to decoding and encoding them, the
// ones pending first. It does nothing if that has been done.
func (p *Packetizer) decodeOn(ctx context.Context, emit func(packet []byte) bool) error {
	if p.dec != nil {
		return nil
	}
	dec, err := NewDecoder(SpeakerRate)
	if err != nil {
		return err
	}
	p.dec = dec
	if p.decoded == nil {
		p.decoded = make([]int16, maxDecoded)
	}
	if err := p.prime(ctx); err != nil {
		return err
	}
	if p.merge.Pending() == 0 {
		return nil
	}
	p.merged = p.merge.AppendPacket(p.merged[:0])
	p.merge.Reset()
	return p.transcode(ctx, p.merged, emit)
}

// prime brings the decoder and the encoder up to date with what was passed on,
// so that neither starts out of silence in the middle of a word. Two packets
// are 120 ms; RFC 7845 §4.6 asks for 80 to make a decoder converge.
func (p *Packetizer) prime(ctx context.Context) error {
	for _, packet := range p.history {
		if len(packet) == 0 {
			continue
		}
		n, err := p.decode(ctx, packet)
		if err != nil {
			return err
		}
		if err := p.encode(ctx, p.decoded[:n], func([]byte) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

// transcode decodes a packet and encodes what becomes complete with it.
func (p *Packetizer) transcode(ctx context.Context, packet []byte, emit func(packet []byte) bool) error {
	n, err := p.decode(ctx, packet)
	if err != nil {
		return err
	}
	p.pending = append(p.pending, p.decoded[:n]...)
	return p.encodePending(ctx, emit)
}

// decode decodes a packet into p.decoded and returns how many samples it held.
// Frames a decoder cannot read, in a packet whose framing is sound, become
// silence: the words after them matter more.
func (p *Packetizer) decode(ctx context.Context, packet []byte) (int, error) {
	duration, err := Duration(packet)
	if err != nil {
		return 0, err
	}
	var n int
	err = p.pool.do(ctx, func() {
		var err error
		if n, err = p.dec.Decode(packet, p.decoded); err != nil {
			n = int(duration * SpeakerRate / time.Second)
			clear(p.decoded[:n])
		}
	})
	return n, err
}

// encodePending encodes and emits every whole packet of the pending PCM.
func (p *Packetizer) encodePending(ctx context.Context, emit func(packet []byte) bool) error {
	done := 0
	for ; len(p.pending)-done >= SpeakerFrame; done += SpeakerFrame {
		if err := p.encode(ctx, p.pending[done:done+SpeakerFrame], emit); err != nil {
			return err
		}
	}
	p.pending = p.pending[:copy(p.pending, p.pending[done:])]
	return nil
}

// encode encodes and emits one packet.
func (p *Packetizer) encode(ctx context.Context, frame []int16, emit func(packet []byte) bool) error {
	if p.enc == nil {
		enc, err := NewEncoder(SpeakerEncoding())
		if err != nil {
			return err
		}
		p.enc = enc
	}
	var (
		n   int
		err error
	)
	if waited := p.pool.do(ctx, func() { n, err = p.enc.Encode(frame, p.out[:]) }); waited != nil {
		return waited
	}
	if err != nil {
		return err
	}
	return p.emit(p.out[:n], emit)
}
