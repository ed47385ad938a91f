package audio

// Pad lengthens a packet shorter than [MinPayload] to that length with the
// padding of RFC 6716 §3.2.5, which decoders skip, and returns it as a new
// slice. It returns packet itself if it is long enough, or is not an Opus
// packet.
func Pad(packet []byte) []byte {
	if len(packet) >= MinPayload {
		return packet
	}
	var frames [maxFrames][]byte
	info, err := parsePacket(packet, &frames)
	if err != nil {
		return packet
	}
	return appendPadded(nil, packet[0], frames[:info.Frames])
}

// appendPadded appends a code 3 packet of the frames, of MinPayload bytes or
// more. The frames are shorter than MinPayload, so that each length takes one
// byte.
func appendPadded(dst []byte, toc byte, frames [][]byte) []byte {
	equal := true
	length := 3 // TOC, frame count, length of the padding
	for _, f := range frames {
		equal = equal && len(f) == len(frames[0])
		length += len(f)
	}
	count := byte(len(frames)) | 0x40
	if !equal {
		count |= 0x80
		length += len(frames) - 1
	}
	padding := max(0, MinPayload-length)
	dst = append(dst, toc|3, count, byte(padding))
	if !equal {
		for _, f := range frames[:len(frames)-1] {
			dst = appendFrameLength(dst, len(f))
		}
	}
	for _, f := range frames {
		dst = append(dst, f...)
	}
	return append(dst, make([]byte, padding)...)
}
