package pipeline

import "time"

// A skew is how much later audio arrives than the messages it belongs to, or
// they than it. UDP and MQTT take their own ways, and a device acts on both: audio
// that comes before it has acted on tts start is dropped, and on many versions
// of firmware so is audio that comes after tts stop. Nothing acknowledges
// either, but every listen start is followed by the microphone's first packet
// after a known time, and the way back is as long as the way here.
type skew struct {
	announced time.Time // the listen start that waits for its first packet
	late      time.Duration
	early     time.Duration
}

const (
	// micDelay is the time from a listen start to the first packet of the
	// microphone: 120 ms of warm-up (firmware, audio_service.cc), 60 ms to fill
	// the packet, and the encoder.
	micDelay = 200 * time.Millisecond
	// earlyLeast is how long before its listen start audio must have come to
	// mean anything: clients without a warm-up send it at about the same time.
	earlyLeast = 100 * time.Millisecond
	// skewMost bounds what a skew may cost. More is no skew but an outage.
	skewMost = 1500 * time.Millisecond
)

// listenStart takes the arrival of a listen start, and of the first packet of the
// microphone if that came before; the zero time if not.
func (s *skew) listenStart(at, first time.Time) {
	s.announced = at
	if !first.IsZero() {
		s.packet(first)
	}
}

// packet takes the arrival of the first packet of the microphone.
func (s *skew) packet(at time.Time) {
	if s.announced.IsZero() {
		return
	}
	after := at.Sub(s.announced)
	s.announced, s.late, s.early = time.Time{}, 0, 0
	switch {
	case after < -earlyLeast:
		s.early = min(micDelay-after, skewMost)
	case after > micDelay:
		s.late = min(after-micDelay, skewMost)
	}
}
