package pipeline

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hraban/opus"

	"parley/internal/audio"
)

// TestShareOfSpeechHeard measures what is left of spoken words on a path that loses
// packets: the share of 20 ms pieces of speech that a listener gets within 6 dB of
// what the client's encoder made of them. Where a gap stays a gap it is what
// arrived; concealment adds a little, in-band FEC nearly all. docs/choreography.md
// has the figures.
func TestShareOfSpeechHeard(t *testing.T) {
	b, err := os.ReadFile("../internal/audio/testdata/fox.wav")
	if err != nil {
		t.Fatal(err)
	}
	pcm, rate, err := audio.ReadWAV(bytes.NewReader(b), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	r, err := audio.NewResampler(rate, SampleRate)
	if err != nil {
		t.Fatal(err)
	}
	speech := r.Flush(r.Append(nil, pcm))
	for _, loss := range []float64{0.05, 0.10} {
		var share [3]float64
		for i, how := range []struct{ fec, repair bool }{{false, false}, {false, true}, {true, true}} {
			packets := spoken(t, speech, how.fec)
			synctest.Test(t, func(t *testing.T) {
				share[i] = heardShare(t, packets, loss, how.repair)
			})
		}
		t.Logf("%2.0f %% lost: %.1f %% of speech heard as gaps, %.1f %% concealed, %.1f %% with in-band FEC",
			100*loss, 100*share[0], 100*share[1], 100*share[2])
		if share[1] < share[0] || share[2] < share[1]+(1-share[1])/2 {
			t.Errorf("%v lost: %.3f heard as gaps, %.3f concealed, %.3f with FEC: repair does not help", loss, share[0], share[1], share[2])
		}
	}
}

// spoken is speech, ten times over, as a client encodes it.
func spoken(t *testing.T, speech []int16, fec bool) (packets [][]byte) {
	t.Helper()
	enc, err := opus.NewEncoder(SampleRate, 1, opus.AppVoIP)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(enc.SetInBandFEC(fec), enc.SetPacketLossPerc(10), enc.SetBitrate(24000)); err != nil {
		t.Fatal(err)
	}
	const frame = SampleRate * 60 / 1000
	buf := make([]byte, 1275)
	for range 10 {
		for i := 0; i+frame <= len(speech); i += frame {
			n, err := enc.Encode(speech[i:i+frame], buf)
			if err != nil {
				t.Fatal(err)
			}
			packets = append(packets, bytes.Clone(buf[:n]))
		}
	}
	return packets
}

// heardShare plays packets through an uplink and loses some on the way.
func heardShare(t *testing.T, packets [][]byte, loss float64, repair bool) float64 {
	t.Helper()
	const frame = SampleRate * 60 / 1000
	play := func(lost func(i int) bool, gaps bool) (out []int16) {
		u := &uplink{}
		if err := u.init(); err != nil {
			t.Fatal(err)
		}
		emit := func(pcm []int16) { out = append(out, pcm...) }
		for i, p := range packets {
			now := time.Now()
			if !u.deadline.IsZero() && !now.Before(u.deadline) {
				u.skip(now, emit)
			}
			if !lost(i) {
				u.take(newPacket(uint32(i+1), p), emit)
			}
			time.Sleep(PacketDuration)
		}
		if gaps { // as if nothing had filled them
			for i := range packets {
				if lost(i) && (i+1)*frame <= len(out) {
					clear(out[i*frame : (i+1)*frame])
				}
			}
		}
		return out
	}
	random := rand.New(rand.NewPCG(1, 2))
	gone := make([]bool, len(packets))
	for i := range gone {
		// At most concealMax in a row, so that both sides stay in step; the end arrives.
		gone[i] = random.Float64() < loss && i < len(gone)-reorderDepth-1 && (i < concealMax || !gone[i-1] || !gone[i-2])
	}
	want := play(func(int) bool { return false }, false)
	got := play(func(i int) bool { return gone[i] }, !repair)
	heard, all := 0, 0
	for at := 0; at+320 <= min(len(want), len(got)); at += 320 {
		var energy, off float64
		for i := at; i < at+320; i++ {
			energy += float64(want[i]) * float64(want[i])
			d := float64(want[i]) - float64(got[i])
			off += d * d
		}
		if energy < 320*300*300 {
			continue // a pause
		}
		all++
		if off*4 < energy { // 6 dB
			heard++
		}
	}
	return float64(heard) / float64(all)
}
