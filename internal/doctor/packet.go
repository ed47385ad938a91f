package doctor

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"errors"
)

// headerLen is the length of an audio packet's header, in bytes; see
// docs/protocol.md. It is also the first counter block of its encryption.
const headerLen = 16

// A codec seals and opens the audio packets of one session.
type codec struct {
	block cipher.Block
	nonce [headerLen]byte
}

var errKey = errors.New("key and nonce must be 32 hexadecimal digits each")

func newCodec(key, nonce string) (*codec, error) {
	k, err := hex.DecodeString(key)
	n, err2 := hex.DecodeString(nonce)
	if err != nil || err2 != nil || len(k) != 16 || len(n) != headerLen {
		return nil, errKey
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return nil, err
	}
	return &codec{block, [headerLen]byte(n)}, nil
}

// seal returns the packet of a payload.
func (c *codec) seal(payload []byte, seq uint32) []byte {
	p := append(make([]byte, 0, headerLen+len(payload)), c.nonce[:]...)
	binary.BigEndian.PutUint16(p[2:], uint16(len(payload)))
	binary.BigEndian.PutUint32(p[12:], seq)
	p = append(p, payload...)
	cipher.NewCTR(c.block, p[:headerLen]).XORKeyStream(p[headerLen:], payload)
	return p
}

// open returns the sequence number and payload of a packet, in place, by the
// rules of firmware 2.4: type 1 and an exact length.
func (c *codec) open(p []byte) (seq uint32, payload []byte, ok bool) {
	if len(p) < headerLen || p[0] != 1 || int(binary.BigEndian.Uint16(p[2:])) != len(p)-headerLen {
		return 0, nil, false
	}
	payload = p[headerLen:]
	cipher.NewCTR(c.block, p[:headerLen]).XORKeyStream(payload, payload)
	return binary.BigEndian.Uint32(p[12:]), payload, true
}

// The sound that is sent: one Opus packet of 60 ms of silence as long as speech,
// with its number where a decoder does not look. A server that does not know the
// echo test hears nothing in it.
//
// It is a packet of code 3 (RFC 6716 §3.2.5): SILK, wideband, mono; one
// empty frame; and padding, whose value a decoder must not care about.
const (
	soundTOC   = 11<<3 | 3
	soundCount = 1<<6 | 1 // padding, one frame
	soundLen   = 120      // bytes, what firmware sends for 60 ms of speech
	soundMark  = "parley"
)

// sound is the payload of this number.
func sound(number uint32) []byte {
	p := make([]byte, soundLen)
	p[0], p[1], p[2] = soundTOC, soundCount, soundLen-3
	copy(p[3:], soundMark)
	binary.BigEndian.PutUint32(p[3+len(soundMark):], number)
	return p
}

// soundNumber is the number of a sound that came back.
func soundNumber(p []byte) (uint32, bool) {
	const at = 3 + len(soundMark)
	if len(p) != soundLen || p[0] != soundTOC || string(p[3:at]) != soundMark {
		return 0, false
	}
	return binary.BigEndian.Uint32(p[at:]), true
}
