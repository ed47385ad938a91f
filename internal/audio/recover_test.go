package audio_test

import (
	"errors"
	"math"
	"testing"

	"github.com/hraban/opus"

	"parley/internal/audio"
)

// TestRecover compares what in-band FEC and what concealment make of a lost packet
// with what was said. The encoder is configured as a client's that sends FEC.
func TestRecover(t *testing.T) {
	enc, err := opus.NewEncoder(16000, 1, opus.AppVoIP)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(enc.SetInBandFEC(true), enc.SetPacketLossPerc(20), enc.SetBitrate(24000)); err != nil {
		t.Fatal(err)
	}
	const frame = 960
	var packets [][]byte
	buf := make([]byte, 1275)
	phase := 0.0
	for i := range 40 {
		pcm := make([]int16, frame)
		for j := range pcm { // a voice-like tone that changes from frame to frame
			phase += 2 * math.Pi * (120 + 40*float64(i%7)) / 16000
			if i < 26 || i >= 30 { // the lost packet is the first after a pause: nothing to conceal it by
				pcm[j] = int16(6000*math.Sin(phase) + 3000*math.Sin(3*phase))
			}
		}
		n, err := enc.Encode(pcm, buf)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, append([]byte(nil), buf[:n]...))
	}
	run := func(fill func(d *audio.Decoder, pcm []int16) error) (out []int16) {
		d, err := audio.NewDecoder(16000)
		if err != nil {
			t.Fatal(err)
		}
		pcm := make([]int16, frame)
		for i, p := range packets {
			if i == 30 && fill != nil {
				if err := fill(d, pcm); err != nil {
					t.Fatal(err)
				}
				out = append(out, pcm...)
				continue
			}
			n, err := d.Decode(p, pcm)
			if err != nil {
				t.Fatal(err)
			}
			if i == 30 {
				out = append(out, pcm[:n]...)
			}
		}
		return out
	}
	whole := run(nil)
	distance := func(got []int16) (sum float64) {
		for i := range got {
			d := float64(got[i]) - float64(whole[i])
			sum += d * d
		}
		return sum
	}
	concealed := distance(run(func(d *audio.Decoder, pcm []int16) error { return d.Conceal(pcm) }))
	recovered := distance(run(func(d *audio.Decoder, pcm []int16) error { return d.Recover(packets[31], pcm) }))
	if recovered > concealed/2 {
		t.Errorf("recovery is %.2g from the truth, concealment %.2g", recovered, concealed)
	}
	d, err := audio.NewDecoder(16000)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Recover(packets[0], make([]int16, 7)); err == nil {
		t.Error("seven samples were recovered")
	}
}
