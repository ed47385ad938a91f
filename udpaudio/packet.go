package udpaudio

import (
	"encoding/binary"
	"errors"
)

const (
	// HeaderSize is the length of the header of every packet, in bytes. It is
	// the block size of AES because the header is the initial counter block.
	HeaderSize = 16

	// MaxDatagram is the most bytes a packet may have, both ways: what an
	// Ethernet frame holds. Larger ones are dropped and counted.
	MaxDatagram = 1500

	// MaxPayload is the largest Opus packet that is sent, in bytes: a datagram
	// of 1,400 bytes, which passes the tunnels and mobile networks whose MTU is
	// below Ethernet's without being fragmented.
	MaxPayload = 1400 - HeaderSize

	// MinPayload is the smallest Opus packet that is sent, in bytes. Firmware
	// before 2.4.0 drops smaller ones, because it compares the length of the
	// datagram with the size of a string object (24) instead of the header's.
	MinPayload = 8

	// typeAudio is the only packet type. Devices drop any other.
	typeAudio = 0x01

	// FlagDownlink is set in the flags of every packet of the server and in
	// none of a device, which copies its flags from the nonce. No firmware and
	// no client looks at it (1.0.1 to 2.4.2 checked), but as a part of the
	// counter block it keeps the keystreams of the two directions, which share
	// a key, apart.
	FlagDownlink = 0x80
)

// Errors of [ParseHeader]. They carry no detail, so that refusing a packet
// costs no allocation.
var (
	ErrShort  = errors.New("udpaudio: datagram shorter than a header (16 bytes)")
	ErrLong   = errors.New("udpaudio: datagram longer than 1500 bytes")
	ErrType   = errors.New("udpaudio: packet type is not 1 (audio)")
	ErrLength = errors.New("udpaudio: payload_len is not the number of bytes after the header")
)

// A Header is what stands before the payload of a packet. The type, always 1,
// is not kept.
type Header struct {
	Flags      byte   // [FlagDownlink] from the server, 0 from devices
	PayloadLen uint16 // bytes
	SSRC       uint32 // which session; chosen by the server
	Timestamp  uint32 // ms; from a device, that of the downlink packet whose echo it may contain, or 0
	Sequence   uint32 // 1, 2, 3, … in each direction of a session
}

// ParseHeader reads the header of datagram b and checks the datagram against
// it: the payload is then b[HeaderSize:]. It fails with [ErrShort], [ErrLong],
// [ErrType] or [ErrLength].
func ParseHeader(b []byte) (Header, error) {
	switch {
	case len(b) < HeaderSize:
		return Header{}, ErrShort
	case len(b) > MaxDatagram:
		return Header{}, ErrLong
	case b[0] != typeAudio:
		return Header{}, ErrType
	}
	h := Header{
		Flags:      b[1],
		PayloadLen: binary.BigEndian.Uint16(b[2:]),
		SSRC:       binary.BigEndian.Uint32(b[4:]),
		Timestamp:  binary.BigEndian.Uint32(b[8:]),
		Sequence:   binary.BigEndian.Uint32(b[12:]),
	}
	if int(h.PayloadLen) != len(b)-HeaderSize {
		return Header{}, ErrLength
	}
	return h, nil
}

// Put writes the header to the first [HeaderSize] bytes of b, which must be
// there.
func (h Header) Put(b []byte) {
	_ = b[HeaderSize-1]
	b[0] = typeAudio
	b[1] = h.Flags
	binary.BigEndian.PutUint16(b[2:], h.PayloadLen)
	binary.BigEndian.PutUint32(b[4:], h.SSRC)
	binary.BigEndian.PutUint32(b[8:], h.Timestamp)
	binary.BigEndian.PutUint32(b[12:], h.Sequence)
}
