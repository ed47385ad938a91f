package udpaudio

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// Vectors made by OpenSSL; testdata/golden.sh is how.
func TestCipherGolden(t *testing.T) {
	f, err := os.Open("testdata/golden.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	vectors := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Fields(lines.Text())
		if len(fields) != 5 {
			t.Fatalf("line %q", lines.Text())
		}
		vectors++
		t.Run(fields[0], func(t *testing.T) {
			key, header := unhex(t, fields[1]), unhex(t, fields[2])
			plain, sealed := unhex(t, fields[3]), unhex(t, fields[4])
			c := NewCipher([16]byte(key))
			got := make([]byte, RoundUp(len(plain)))
			c.XOR(got, plain, (*[16]byte)(header))
			if !bytes.Equal(got[:len(plain)], sealed) {
				t.Errorf("encrypted to %x", got)
			}
			c.XOR(got, sealed, (*[16]byte)(header))
			if !bytes.Equal(got[:len(plain)], plain) {
				t.Errorf("decrypted to %x", got)
			}
		})
	}
	if vectors != 13 {
		t.Errorf("%d vectors, want 13", vectors)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The standard library's stream and ours agree, also where the counter carries.
func TestCipherInterop(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20000 {
		var key, header [16]byte
		for i := 0; i < 16; i += 8 {
			binary.BigEndian.PutUint64(key[i:], r.Uint64())
			binary.BigEndian.PutUint64(header[i:], r.Uint64())
		}
		for i := range r.IntN(17) { // a tail of ones brings carries about
			header[15-i] = 0xff
		}
		src := make([]byte, r.IntN(MaxPayload+1))
		for i := range src {
			src[i] = byte(r.Uint32())
		}
		want := make([]byte, len(src))
		standardCTR(key, header, want, src)
		got := make([]byte, RoundUp(len(src)))
		NewCipher(key).XOR(got, src, &header)
		if !bytes.Equal(got[:len(src)], want) {
			t.Fatalf("key %x, header %x, %d bytes: they differ", key, header, len(src))
		}
	}
}

// standardCTR is AES-128-CTR by the standard library, an oracle for ours.
func standardCTR(key, iv [16]byte, dst, src []byte) {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err)
	}
	cipher.NewCTR(block, iv[:]).XORKeyStream(dst, src)
}

func BenchmarkCipher(b *testing.B) {
	c := NewCipher([16]byte{1})
	header := [16]byte{1}
	src, dst := make([]byte, 100), make([]byte, 112)
	b.ReportAllocs()
	for b.Loop() {
		c.XOR(dst, src, &header)
	}
}
