package record

import "time"

const (
	// tick is the shortest Opus frame. Gaps are filled to a multiple of it
	// (RFC 7845 §4.1); what is left is in the next.
	tick = 2500 * time.Microsecond
	// concealFor is how much of a gap the decoder is asked to conceal. Its
	// concealment has faded out by then.
	concealFor = 120 * time.Millisecond
	// longestSilence is the longest packet there is.
	longestSilence = 120 * time.Millisecond
)

// celtToc is the first byte of a CELT packet of one frame of 2.5 ms, mono and
// wideband (RFC 6716 §3.1, configuration 20). The next three configurations are
// those of 5, 10 and 20 ms.
const celtToc = 20 << 3

// appendSilence appends a packet of digital silence, as long as fits into gap,
// and returns how long it is: 120 ms, 20, 10, 5 or 2.5 ms, or 0 if nothing fits.
// Frames FF FE have nothing but CELT's silence flag set (RFC 6716 §4.3, table
// 56), which every decoder of CELT answers with zeros, whatever it decoded
// before.
func appendSilence(dst []byte, gap time.Duration) ([]byte, time.Duration) {
	if gap >= longestSilence {
		dst = append(dst, celtToc|3<<3|3, 6) // six frames of 20 ms and one length
		for range 6 {
			dst = append(dst, 0xff, 0xfe)
		}
		return dst, longestSilence
	}
	for size := 3; size >= 0; size-- {
		if length := tick << size; length <= gap {
			return append(dst, celtToc|byte(size)<<3, 0xff, 0xfe), length
		}
	}
	return dst, 0
}

// appendConcealment appends a packet like model, but with frames of no bytes,
// for which decoders put what they make up for a lost packet.
func appendConcealment(dst, model []byte) []byte {
	switch model[0] & 3 {
	case 0, 1:
		return append(dst, model[0]) // one, or two equal frames of nothing
	case 2:
		return append(dst, model[0]&^3|1)
	}
	return append(dst, model[0], model[1]&0x3f) // as many frames, neither padded nor of unequal length
}
