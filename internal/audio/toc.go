package audio

import (
	"errors"
	"fmt"
	"time"
)

// ErrPacket is wrapped by every error about bytes that are not an Opus packet.
var ErrPacket = errors.New("not an Opus packet")

const (
	// maxFrameBytes is the length of the longest Opus frame (RFC 6716 §3.2.1).
	maxFrameBytes = 1275
	// maxFrames is how many frames the longest packet has: 48 of 2.5 ms
	// (RFC 6716 §3.2.5).
	maxFrames = 48
	// maxPacketDuration is the length of the longest packet (RFC 6716 §3.2.5).
	maxPacketDuration = 120 * time.Millisecond
)

// A Mode is the codec inside Opus that made a packet.
type Mode uint8

// The modes of RFC 6716 §2.
const (
	SILK Mode = iota
	Hybrid
	CELT
)

// String returns the name the RFC gives the mode.
func (m Mode) String() string {
	switch m {
	case SILK:
		return "SILK"
	case Hybrid:
		return "Hybrid"
	}
	return "CELT"
}

// A Bandwidth is the highest audio frequency a packet carries, in Hz.
type Bandwidth int

// The bandwidths of RFC 6716 §2.
const (
	Narrowband    Bandwidth = 4000
	Mediumband    Bandwidth = 6000
	Wideband      Bandwidth = 8000
	SuperWideband Bandwidth = 12000
	Fullband      Bandwidth = 20000
)

// A PacketInfo is what the framing of an Opus packet says about it.
type PacketInfo struct {
	Mode      Mode
	Bandwidth Bandwidth
	Stereo    bool
	Frame     time.Duration // of one frame
	Frames    int           // 1 to 48
}

// Duration is the length of the audio in the packet, 2.5 to 120 ms.
func (i PacketInfo) Duration() time.Duration {
	return time.Duration(i.Frames) * i.Frame
}

// Inspect reads the framing of an Opus packet and checks it against every
// requirement of RFC 6716 §3.4, so that a packet that passes is one that a
// decoder accepts. It does not look into the frames. It does not allocate
// unless it fails, and its errors wrap [ErrPacket].
func Inspect(packet []byte) (PacketInfo, error) {
	return parsePacket(packet, nil)
}

// Duration is the length of the audio in an Opus packet. It fails where
// [Inspect] does.
func Duration(packet []byte) (time.Duration, error) {
	info, err := parsePacket(packet, nil)
	return info.Duration(), err
}

// tocInfo reads the table-of-contents byte (RFC 6716 §3.1, table 2), all but
// the frame count.
func tocInfo(toc byte) PacketInfo {
	info := PacketInfo{Stereo: toc&4 != 0}
	config := toc >> 3
	switch {
	case config < 12:
		info.Mode = SILK
		info.Bandwidth = [...]Bandwidth{Narrowband, Mediumband, Wideband}[config/4]
		info.Frame = [...]time.Duration{10, 20, 40, 60}[config%4] * time.Millisecond
	case config < 16:
		info.Mode = Hybrid
		info.Bandwidth = [...]Bandwidth{SuperWideband, Fullband}[(config-12)/2]
		info.Frame = [...]time.Duration{10, 20}[config%2] * time.Millisecond
	default:
		info.Mode = CELT
		info.Bandwidth = [...]Bandwidth{Narrowband, Wideband, SuperWideband, Fullband}[(config-16)/4]
		info.Frame = 2500 * time.Microsecond << (config % 4)
	}
	return info
}

// parsePacket reads a packet's framing and, if frames is not nil, points its
// entries at the frames inside the packet. The requirements [R1] to [R7] are
// those of RFC 6716 §3.4.
func parsePacket(packet []byte, frames *[maxFrames][]byte) (PacketInfo, error) {
	if len(packet) == 0 { // [R1]
		return PacketInfo{}, fmt.Errorf("%w: it is empty", ErrPacket)
	}
	info := tocInfo(packet[0])
	body := packet[1:]
	switch packet[0] & 3 {
	case 0:
		info.Frames = 1
		return info, sliceEqual(body, 1, frames)
	case 1: // [R3]
		info.Frames = 2
		return info, sliceEqual(body, 2, frames)
	case 2: // [R4]
		info.Frames = 2
		return info, sliceVariable(body, 2, frames)
	}
	return parseCode3(info, body, frames)
}

// parseCode3 reads the framing of RFC 6716 §3.2.5: a frame count byte, the
// length of the padding, and frames of one or several lengths.
func parseCode3(info PacketInfo, body []byte, frames *[maxFrames][]byte) (PacketInfo, error) {
	if len(body) == 0 { // [R6] [R7]
		return info, fmt.Errorf("%w: the frame count byte is missing", ErrPacket)
	}
	count := body[0]
	body = body[1:]
	info.Frames = int(count & 0x3f)
	if info.Frames == 0 || info.Duration() > maxPacketDuration { // [R5]
		return info, fmt.Errorf("%w: %d frames of %v (at least one, at most %v in all)",
			ErrPacket, info.Frames, info.Frame, maxPacketDuration)
	}
	if count&0x40 != 0 {
		padding := 0
		for {
			if len(body) == 0 {
				return info, fmt.Errorf("%w: it ends within the padding length", ErrPacket)
			}
			b := body[0]
			body = body[1:]
			if b < 255 {
				padding += int(b)
				break
			}
			padding += 254
		}
		if padding > len(body) {
			return info, fmt.Errorf("%w: %d bytes of padding, %d bytes left", ErrPacket, padding, len(body))
		}
		body = body[:len(body)-padding]
	}
	if count&0x80 != 0 { // [R7]
		return info, sliceVariable(body, info.Frames, frames)
	}
	return info, sliceEqual(body, info.Frames, frames) // [R6]
}

// sliceEqual cuts body into n frames of one length.
func sliceEqual(body []byte, n int, frames *[maxFrames][]byte) error {
	size := len(body) / n
	if size*n != len(body) {
		return fmt.Errorf("%w: %d bytes do not divide into %d equal frames", ErrPacket, len(body), n)
	}
	if size > maxFrameBytes { // [R2]
		return fmt.Errorf("%w: a frame of %d bytes (at most %d)", ErrPacket, size, maxFrameBytes)
	}
	if frames != nil {
		for i := range n {
			frames[i] = body[i*size : (i+1)*size]
		}
	}
	return nil
}

// sliceVariable cuts body into n frames, the lengths of all but the last of
// which stand before the first.
func sliceVariable(body []byte, n int, frames *[maxFrames][]byte) error {
	var sizes [maxFrames]int
	total := 0
	for i := range n - 1 {
		size, used := frameLength(body)
		if used == 0 {
			return fmt.Errorf("%w: it ends within the frame lengths", ErrPacket)
		}
		sizes[i] = size
		total += size
		body = body[used:]
	}
	if total > len(body) {
		return fmt.Errorf("%w: frames of %d bytes, %d bytes left", ErrPacket, total, len(body))
	}
	sizes[n-1] = len(body) - total
	if sizes[n-1] > maxFrameBytes { // [R2]; the other lengths cannot exceed it
		return fmt.Errorf("%w: a frame of %d bytes (at most %d)", ErrPacket, sizes[n-1], maxFrameBytes)
	}
	if frames != nil {
		for i, size := range sizes[:n] {
			frames[i] = body[:size]
			body = body[size:]
		}
	}
	return nil
}

// frameLength reads a frame length (RFC 6716 §3.2.1) and says how many bytes it
// took, 0 if b ends too early.
func frameLength(b []byte) (size, used int) {
	switch {
	case len(b) == 0:
		return 0, 0
	case b[0] < 252:
		return int(b[0]), 1
	case len(b) == 1:
		return 0, 0
	}
	return int(b[1])*4 + int(b[0]), 2
}

// appendFrameLength writes what [frameLength] reads.
func appendFrameLength(dst []byte, size int) []byte {
	if size < 252 {
		return append(dst, byte(size))
	}
	low := 252 + size&3
	return append(dst, byte(low), byte((size-low)/4))
}
