package udpaudio

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"encoding/binary"
)

// A Cipher encrypts and decrypts the payloads of one session, both directions.
// It keeps no state between packets and may be used concurrently.
type Cipher struct {
	block cipher.Block
}

// NewCipher returns a cipher for the AES-128 key of a session.
func NewCipher(key [16]byte) *Cipher {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // only for keys that are not 16, 24 or 32 bytes
	}
	return &Cipher{block}
}

// XOR encrypts or decrypts src, which is the same in counter mode, to
// dst[:len(src)], starting from the counter block that header is.
//
// The keystream is made in dst before src is added, and it is made in whole
// blocks: dst must not overlap src, and must have room for len(src) rounded up
// to a multiple of 16 bytes, which [RoundUp] computes. In exchange nothing is
// allocated, which the Stream of cipher.NewCTR cannot avoid, at 512 bytes a
// packet.
func (c *Cipher) XOR(dst, src []byte, header *[HeaderSize]byte) {
	n := RoundUp(len(src))
	keystream := dst[:n]
	high := binary.BigEndian.Uint64(header[:8])
	low := binary.BigEndian.Uint64(header[8:])
	for i := 0; i < n; i += aes.BlockSize {
		block := keystream[i : i+aes.BlockSize]
		binary.BigEndian.PutUint64(block, high)
		binary.BigEndian.PutUint64(block[8:], low)
		c.block.Encrypt(block, block)
		if low++; low == 0 {
			high++ // the counter is all 128 bits
		}
	}
	subtle.XORBytes(dst, src, keystream)
}

// RoundUp returns n rounded up to whole cipher blocks of 16 bytes.
func RoundUp(n int) int { return (n + aes.BlockSize - 1) &^ (aes.BlockSize - 1) }
