package udpaudio

const (
	// maxSilence is the largest payload taken for silence, in bytes. With
	// discontinuous transmission an encoder sends a TOC byte, with at most the
	// count and length bytes of empty frames, or nothing at all.
	maxSilence = 3

	// maxDuration is the longest an Opus packet may last, in units of 2.5 ms:
	// 120 ms, RFC 6716 §3.2.5.
	maxDuration = 48

	// maxFrame is the longest an Opus frame may be, in bytes: RFC 6716 §3.2.1.
	maxFrame = 1275
)

// opusDuration returns how long an Opus packet lasts, in units of 2.5 ms, or 0
// if the packet breaks a rule of RFC 6716 §3.4 or is not mono.
//
// This is the only thing that tells a payload decrypted with the right key and
// header from any other: one in 85 random payloads passes for 60 ms.
func opusDuration(p []byte) int {
	if len(p) == 0 || p[0]&0x04 != 0 { // the s bit: stereo
		return 0
	}
	frame := frameDuration(p[0] >> 3)
	switch p[0] & 0x03 {
	case 0: // one frame
		if len(p)-1 > maxFrame {
			return 0
		}
		return frame
	case 1: // two frames of equal length
		if (len(p)-1)%2 != 0 || (len(p)-1)/2 > maxFrame {
			return 0
		}
		return 2 * frame
	case 2: // two frames, the length of the first given
		rest, ok := skipLengths(p[1:], 1)
		if !ok || rest > maxFrame {
			return 0
		}
		return 2 * frame
	}
	if len(p) < 2 {
		return 0
	}
	count := int(p[1] & 0x3f)
	if count == 0 || count*frame > maxDuration || !framesFit(p, count) {
		return 0
	}
	return count * frame
}

// frameDuration returns how long a frame of a TOC configuration lasts, in units
// of 2.5 ms: RFC 6716 §3.1, table 2.
func frameDuration(config byte) int {
	switch {
	case config < 12: // SILK: 10, 20, 40, 60 ms
		return [4]int{4, 8, 16, 24}[config&3]
	case config < 16: // hybrid: 10, 20 ms
		return 4 << (config & 1)
	}
	return 1 << (config & 3) // CELT: 2.5, 5, 10, 20 ms
}

// framesFit reports whether count frames fill a code 3 packet as RFC 6716
// §3.2.5 says.
func framesFit(p []byte, count int) bool {
	vbr, padded := p[1]&0x80 != 0, p[1]&0x40 != 0
	p = p[2:]
	if padded {
		padding := 0
		for more := true; more; p = p[1:] {
			if len(p) == 0 {
				return false
			}
			more = p[0] == 255
			padding += int(p[0])
			if more {
				padding-- // 255 stands for 254 bytes and another length byte
			}
		}
		if padding > len(p) {
			return false
		}
		p = p[:len(p)-padding]
	}
	if vbr {
		last, ok := skipLengths(p, count-1)
		return ok && last <= maxFrame
	}
	return len(p)%count == 0 && len(p)/count <= maxFrame
}

// skipLengths reads the lengths of n frames from the start of p and returns how
// many bytes remain of p after those lengths and frames; false if there are
// fewer than none. RFC 6716 §3.2.1.
func skipLengths(p []byte, n int) (int, bool) {
	frames := 0
	for range n {
		if len(p) == 0 {
			return 0, false
		}
		length, size := int(p[0]), 1
		if length >= 252 {
			if len(p) < 2 {
				return 0, false
			}
			length, size = length+4*int(p[1]), 2
		}
		frames += length
		p = p[size:]
	}
	return len(p) - frames, frames <= len(p)
}

// establishedBy is how many packets of one duration in a row make it the
// duration of the session.
const establishedBy = 8

// A shape is what a session's audio has looked like so far. A device encodes a
// whole session with one frame duration, but which is not known beforehand:
// firmware uses 60 ms, other clients 20 and 40 as well, whatever the hello says.
type shape struct {
	duration int // 2.5 ms
	count    int // packets of that duration, up to establishedBy
	rival    int // another duration, and its packets since the last of duration
	rivals   int
}

// fits reports whether an Opus payload is plausible for the session. Silence
// always is: it has nothing to be judged by.
func (s *shape) fits(p []byte) bool {
	if len(p) <= maxSilence {
		return true
	}
	d := opusDuration(p)
	return d != 0 && (s.count < establishedBy || d == s.duration)
}

// learn takes note of a payload from the session's own address, fitting or not,
// and reports whether it is to be accepted. A device that has changed its
// duration for good is believed after establishedBy packets, none of the old
// duration between them.
func (s *shape) learn(p []byte) bool {
	if len(p) <= maxSilence {
		return true
	}
	d := opusDuration(p)
	switch {
	case d == 0:
		return false
	case d == s.duration:
		s.count = min(s.count+1, establishedBy)
		s.rivals = 0
		return true
	case s.count < establishedBy:
		s.duration, s.count = d, 1
		return true
	case d == s.rival:
		s.rivals++
	default:
		s.rival, s.rivals = d, 1
	}
	if s.rivals < establishedBy {
		return false
	}
	*s = shape{duration: d, count: establishedBy}
	return true
}
