package device

import (
	"encoding/hex"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/simnet"
)

// The vector was made with another implementation, and its counter carries
// beyond 32 bits:
//
//	openssl enc -aes-128-ctr -K 000102030405060708090a0b0c0d0e0f \
//	    -iv 0100003caabbccdd00001234fffffffe   (input: bytes 0 to 59)
func TestGoldenPacket(t *testing.T) {
	const want = "0100003caabbccdd00001234fffffffe" +
		"a7d95d2afb55cd950babc90e7b2d50b3ff27bfce5eda2de78e6751e51a1fcbbf0f2894f64ea5aa4196a094fde7cedde938982fde75d81e21cf0f0603"
	c, err := newCodec("000102030405060708090a0b0c0d0e0f", "01000000AABBCCDD0000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 60)
	for i := range payload {
		payload[i] = byte(i)
	}
	ts := uint32(0x1234)
	got := c.seal(payload, &ts, 0xfffffffe)
	if hex.EncodeToString(got) != want {
		t.Fatalf("sealed\n got %x\nwant %s", got, want)
	}
	if h := readHeader(got); h != (header{kind: 1, length: 60, timestamp: 0x1234, sequence: 0xfffffffe}) {
		t.Errorf("header %+v", h)
	}
	if string(c.open(got)) != string(payload) {
		t.Errorf("opened %x", c.open(got))
	}
	c.nonce[8] = 7 // firmware up to 1.6.0 sends the nonce's timestamp
	if got := readHeader(c.seal(payload, nil, 1)); got.timestamp != 7<<24 {
		t.Errorf("timestamp %x", got.timestamp)
	}
}

func TestWindow(t *testing.T) {
	w := newWindow()
	for _, c := range []struct {
		seq     uint32
		order   order
		skipped int64
	}{
		{0, repeated, 0}, {1, inOrder, 0}, {1, repeated, 0}, {4, inOrder, 2}, {2, late, -1}, {2, repeated, 0},
		{100, inOrder, 95}, {36, late, 0}, {37, late, -1}, {99, late, -1}, {99, repeated, 0}, {101, inOrder, 0},
	} {
		if o, skipped := w.note(c.seq); o != c.order || skipped != c.skipped {
			t.Errorf("sequence %d: order %d, skipped %d; want %d and %d", c.seq, o, skipped, c.order, c.skipped)
		}
	}
}

// Over a bad network, with speech begun, ended and interrupted at random, every
// packet is accounted for once.
func TestEveryPacketIsCounted(t *testing.T) {
	for _, p := range Profiles() {
		t.Run(p.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, server: newServer(t)}
				b.down = simnet.Path{Delay: 20 * ms, Jitter: 30 * ms, Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, ReorderBy: 100 * ms}
				b.boot(Options{Profile: p})
				b.open()
				rng := rand.New(rand.NewPCG(uint64(p), 1))
				sent := 0
				for range 2000 {
					switch rng.IntN(40) {
					case 0:
						b.start()
					case 1:
						b.stop()
					case 2:
						b.Abort()
					case 3:
						b.frames(30)
						sent += 30
					default:
						b.frame()
						sent++
					}
					time.Sleep(time.Duration(rng.IntN(80)) * ms)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				r := b.Report()
				sum := r.Played + r.Queued + r.Duplicate + r.Late + r.Malformed + r.Undecodable + r.Clipped() + r.Interrupted
				if sum != r.Received || r.Queued != 0 {
					t.Errorf("%d received, %d accounted for: %+v", r.Received, sum, r)
				}
				if r.Played == 0 || r.ClippedState+r.ClippedStop+r.ClippedStart+r.ClippedOverflow == 0 {
					t.Errorf("the test tests nothing: %+v", r)
				}
				// What was sent and neither arrived nor was skipped over in the
				// end is at most the tail of the stream.
				if unique := r.Received - r.Duplicate - r.Repeated; p != Py && int64(sent)-unique-r.Lost > 70 {
					t.Errorf("%d sent, %d came, %d lost", sent, unique, r.Lost)
				}
			})
		})
	}
}
