package device

import (
	"errors"
	"fmt"
	"time"

	"github.com/hraban/opus"

	"parley/internal/protocol"
)

// errFrame is the firmware's decoder staying closed.
var errFrame = errors.New("device: frame_duration is none of 5, 10, 20, 40, 60, 80, 100 and 120 ms")

// frameLegal reports whether the firmware can open its decoder for frames of d
// (AS_OPUS_GET_FRAME_DRU_ENUM).
func frameLegal(d time.Duration) bool {
	switch d.Milliseconds() {
	case 5, 10, 20, 40, 60, 80, 100, 120:
		return true
	}
	return false
}

// A frameDecoder decodes the downlink. One goroutine uses it.
type frameDecoder struct {
	decoder *opus.Decoder
	pcm     []int16
}

// decode returns the PCM of one packet, valid until the next call. As in the
// firmware, a packet that does not fit the negotiated duration d is an error,
// and a reset decoder knows nothing of what was before.
func (f *frameDecoder) decode(payload []byte, d time.Duration, reset bool) ([]int16, error) {
	if f.decoder == nil || reset {
		decoder, err := opus.NewDecoder(protocol.DownlinkSampleRate, 1)
		if err != nil {
			return nil, fmt.Errorf("device: decoder: %w", err)
		}
		f.decoder = decoder
	}
	want := int(d.Milliseconds()) * protocol.DownlinkSampleRate / 1000
	if cap(f.pcm) < want {
		f.pcm = make([]int16, want)
	}
	n, err := f.decoder.Decode(payload, f.pcm[:want:want])
	if err != nil {
		return nil, fmt.Errorf("device: packet of %d bytes: %w", len(payload), err)
	}
	return f.pcm[:n], nil
}
