package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/hraban/opus"

	"parley/internal/protocol"
)

// maxOpus is the longest packet an encoder is given room for, in bytes; a 60 ms
// frame at the firmware's bitrate has about 120.
const maxOpus = 1275

// A micEncoder encodes microphone frames as the firmware does: complexity 0,
// variable bitrate, DTX. A lean one stops encoding silence once the encoder
// itself has fallen silent, and repeats what that sent.
type micEncoder struct {
	lean    bool
	frame   time.Duration
	encoder *opus.Encoder
	silence []int16
	dtx     []byte // what a lean encoder repeats; nil: the encoder is at work
}

// dtxLen is the longest packet of an encoder that has nothing to say, in bytes
// (RFC 6716 §2.1.9 and libopus' opus_encode documentation: 2 or less).
const dtxLen = 2

func newMicEncoder(lean bool, frame time.Duration) *micEncoder {
	e := &micEncoder{lean: lean, frame: frame, silence: make([]int16, frame*protocol.UplinkSampleRate/time.Second)}
	if lean {
		e.dtx = silentPacket(frame)
	}
	return e
}

// silentPacket is what a microphone that never heard anything sends: DTX of one
// byte, SILK wideband of 20, 40 or 60 ms (RFC 6716 §3.1, configurations 9 to
// 11).
func silentPacket(frame time.Duration) []byte {
	return []byte{byte(8+frame/(20*time.Millisecond)) << 3}
}

// encode encodes one frame; nil is silence. What cannot be encoded is an empty
// payload, which the wire allows.
func (e *micEncoder) encode(pcm []int16) []byte {
	if pcm == nil {
		if e.dtx != nil {
			return e.dtx
		}
		pcm = e.silence
	} else {
		e.dtx = nil
	}
	if e.encoder == nil {
		var err error
		if e.encoder, err = newOpusEncoder(); err != nil {
			return nil
		}
	}
	buf := make([]byte, maxOpus)
	n, err := e.encoder.Encode(pcm, buf)
	if err != nil {
		return nil
	}
	if e.lean && n <= dtxLen {
		e.dtx = buf[:n:n]
	}
	return buf[:n:n]
}

func newOpusEncoder() (*opus.Encoder, error) {
	e, err := opus.NewEncoder(protocol.UplinkSampleRate, 1, opus.AppAudio)
	if err != nil {
		return nil, err
	}
	if err := e.SetComplexity(0); err != nil {
		return nil, err
	}
	if err := e.SetDTX(true); err != nil {
		return nil, err
	}
	return e, nil
}

// An Utterance is something said, encoded once for many devices, which then need
// no encoder of their own.
type Utterance struct {
	packets [][]byte
	tail    [][]byte // the silence after it, until the encoder sends no more
	frame   time.Duration
}

// Len is how long it takes to say.
func (u Utterance) Len() time.Duration { return time.Duration(len(u.packets)) * u.frame }

// maxTail bounds the silence an encoder needs to fall silent; libopus takes
// about 0.4 s.
const maxTail = 2 * time.Second

// Encode turns 16 kHz mono PCM into the packets a device's microphone would send
// for it: frames of the given length (20, 40 or 60 ms; 0 means 60 ms), the last
// one filled up with silence.
func Encode(pcm []int16, frame time.Duration) (Utterance, error) {
	if frame == 0 {
		frame = defaultFrame
	}
	enc := newMicEncoder(false, frame)
	u := Utterance{frame: frame}
	for len(pcm) > 0 {
		chunk := make([]int16, len(enc.silence))
		pcm = pcm[copy(chunk, pcm):]
		p := enc.encode(chunk)
		if len(p) == 0 {
			return Utterance{}, fmt.Errorf("device: encode: %w", errEncode)
		}
		u.packets = append(u.packets, p)
	}
	for range maxTail / frame {
		p := enc.encode(nil)
		u.tail = append(u.tail, p)
		if len(p) <= dtxLen {
			break
		}
	}
	return u, nil
}

// errEncode is libopus refusing a frame of 20, 40 or 60 ms, which it never does.
var errEncode = errors.New("the encoder refused a frame of 20, 40 or 60 ms")

// sendPreroll sends the last two seconds before a wake word in one burst, whole
// frames only, with timestamp 0.
func (d *Device) sendPreroll(pcm []int16) {
	limit := int(prerollLimit * protocol.UplinkSampleRate / time.Second)
	if len(pcm) > limit {
		pcm = pcm[len(pcm)-limit:]
	}
	size := int(d.opts.Frame * protocol.UplinkSampleRate / time.Second)
	u, err := Encode(pcm[:len(pcm)/size*size], d.opts.Frame)
	if err != nil {
		d.opts.Log.Debug("device could not encode its pre-roll", "device_id", d.opts.ID, "error", err)
		return
	}
	for _, p := range u.packets {
		d.sendPacket(p, 0)
	}
}
