package device

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// headerLen is the length of a packet's header in bytes, which is also the
// initial counter block of its encryption.
const headerLen = 16

// A codec holds the key and nonce of one audio session.
type codec struct {
	block cipher.Block
	nonce [headerLen]byte
}

var errHelloKey = errors.New("key and nonce must be 32 hexadecimal digits")

func newCodec(key, nonce string) (codec, error) {
	k, err := hex.DecodeString(key)
	if err != nil || len(k) != 16 {
		return codec{}, errHelloKey
	}
	n, err := hex.DecodeString(nonce)
	if err != nil || len(n) != headerLen {
		return codec{}, errHelloKey
	}
	block, err := aes.NewCipher(k)
	if err != nil {
		return codec{}, fmt.Errorf("key: %w", err)
	}
	return codec{block: block, nonce: [headerLen]byte(n)}, nil
}

// seal returns the packet of payload. Type, flags and ssrc are the
// nonce's; so is the timestamp where ts is nil.
func (c codec) seal(payload []byte, ts *uint32, seq uint32) []byte {
	dst := append(make([]byte, 0, headerLen+len(payload)), c.nonce[:]...)
	dst = append(dst, payload...)
	header, body := dst[:headerLen], dst[headerLen:]
	binary.BigEndian.PutUint16(header[2:], uint16(len(payload)))
	if ts != nil {
		binary.BigEndian.PutUint32(header[8:], *ts)
	}
	binary.BigEndian.PutUint32(header[12:], seq)
	cipher.NewCTR(c.block, header).XORKeyStream(body, body)
	return dst
}

// open decrypts the payload of a packet, which has at least headerLen bytes, to
// a new slice.
func (c codec) open(packet []byte) []byte {
	payload := make([]byte, len(packet)-headerLen)
	cipher.NewCTR(c.block, packet[:headerLen]).XORKeyStream(payload, packet[headerLen:])
	return payload
}

// A header is what a device reads of a downlink packet's first bytes.
type header struct {
	kind      byte
	length    int
	timestamp uint32
	sequence  uint32
}

// readHeader reads a packet of at least headerLen bytes.
func readHeader(packet []byte) header {
	return header{
		kind:      packet[0],
		length:    int(binary.BigEndian.Uint16(packet[2:])),
		timestamp: binary.BigEndian.Uint32(packet[8:]),
		sequence:  binary.BigEndian.Uint32(packet[12:]),
	}
}
