package audio_test

import (
	"fmt"
	"testing"

	"parley/internal/audio"
)

func TestSpeakerEncodingSoundsLikeItsInput(t *testing.T) {
	pcm := speechAt(t, audio.SpeakerRate)
	packets := encode(t, audio.SpeakerEncoding(), pcm, audio.SpeakerFrame)
	bytes := 0
	for i, p := range packets {
		d, err := audio.Duration(p)
		if err != nil || d != audio.FrameDuration {
			t.Fatalf("packet %d lasts %v, %v", i, d, err)
		}
		if len(p) < audio.MinPayload || len(p) > audio.MaxPayload {
			t.Fatalf("packet %d has %d bytes", i, len(p))
		}
		bytes += len(p)
	}
	back := decode(t, audio.SpeakerRate, packets)
	got, delay := likeness(pcm, back, 400)
	rate := float64(bytes*8) / (float64(len(packets)) * audio.FrameDuration.Seconds())
	info, _ := audio.Inspect(packets[len(packets)/2])
	t.Logf("%d packets, %.0f bit/s, %v %v Hz, correlation %.3f at a delay of %d samples",
		len(packets), rate, info.Mode, int(info.Bandwidth), got, delay)
	if got < 0.9 {
		t.Errorf("correlation with the input is %.3f, want 0.9", got)
	}
	if rate > 30000 {
		t.Errorf("%.0f bit/s on average, want about 24,000", rate)
	}
}

// Firmware < 2.4.0 drops payloads of less than 8 bytes; silence is what makes
// them.
func TestSilenceIsPaddedToMinPayload(t *testing.T) {
	for _, bitrate := range []int{6000, 12000, 24000} {
		c := audio.SpeakerEncoding()
		c.Bitrate = bitrate
		c.DTX = true // much smaller packets than silence without DTX makes
		for i, p := range encode(t, c, make([]int16, 20*audio.SpeakerFrame), audio.SpeakerFrame) {
			d, err := audio.Duration(p)
			if len(p) < audio.MinPayload || err != nil || d != audio.FrameDuration {
				t.Fatalf("%d bit/s, packet %d: %d bytes, %v, %v", bitrate, i, len(p), d, err)
			}
		}
	}
}

func TestPaddingChangesNothingHeard(t *testing.T) {
	c := audio.MicrophoneEncoding() // DTX makes short packets, SILK medium ones
	pcm := append(speechAt(t, audio.MicrophoneRate), make([]int16, 16000)...)
	packets := encode(t, c, pcm, 960)
	short := 0
	var padded [][]byte
	for _, p := range packets {
		q := audio.Pad(p)
		if len(p) < audio.MinPayload {
			short++
			if len(q) != audio.MinPayload {
				t.Errorf("%x padded to %x", p, q)
			}
		}
		padded = append(padded, q)
	}
	if short == 0 {
		t.Fatal("no short packet to pad")
	}
	same(t, decode(t, 24000, packets), decode(t, 24000, padded))
}

// same fails unless a and b are the same samples.
func same(t *testing.T, a, b []int16) {
	t.Helper()
	if len(a) != len(b) {
		t.Fatalf("%d samples and %d", len(a), len(b))
	}
	for i := range a {
		if a[i] != b[i] {
			t.Fatalf("sample %d of %d: %d and %d", i, len(a), a[i], b[i])
		}
	}
}

func TestMicrophoneEncodingUsesDTX(t *testing.T) {
	packets := encode(t, audio.MicrophoneEncoding(), make([]int16, 960*50), 960)
	shortest := len(packets[0])
	for _, p := range packets {
		shortest = min(shortest, len(p))
	}
	if shortest > 3 {
		t.Errorf("the shortest packet of 3 s of silence has %d bytes, want DTX", shortest)
	}
}

func TestEncoderRefuses(t *testing.T) {
	for _, c := range []audio.EncoderConfig{
		{Rate: 44100, Bitrate: 24000},
		{Rate: 24000, Bitrate: -5},
		{Rate: 24000, Bitrate: 24000, Complexity: 11},
	} {
		if _, err := audio.NewEncoder(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	enc, err := audio.NewEncoder(audio.SpeakerEncoding())
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, audio.MaxPayload)
	if _, err := enc.Encode(make([]int16, 1441), out); err == nil {
		t.Error("a frame of 1,441 samples accepted")
	}
	if _, err := enc.Encode(nil, out); err == nil {
		t.Error("no PCM accepted")
	}
	if _, err := enc.Encode(make([]int16, 1440), nil); err == nil {
		t.Error("no room accepted")
	}
}

// The slices handed to libopus have no hidden capacity behind them.
func TestCodecStaysWithinTheSlices(t *testing.T) {
	pcm := speechAt(t, audio.SpeakerRate)
	enc, err := audio.NewEncoder(audio.EncoderConfig{Rate: audio.SpeakerRate, Bitrate: 128000, Complexity: 5})
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, 4000)
	n, err := enc.Encode(pcm[9600:9600+1440], out[:100])
	if err != nil || n > 100 {
		t.Fatalf("encoded %d bytes into 100: %v", n, err)
	}
	for i, b := range out[100:] {
		if b != 0 {
			t.Fatalf("byte %d behind the slice written", i)
		}
	}
	dec, err := audio.NewDecoder(audio.SpeakerRate)
	if err != nil {
		t.Fatal(err)
	}
	back := make([]int16, 4000)
	if _, err := dec.Decode(out[:n], back[:1439]); err == nil {
		t.Error("1,440 samples decoded into 1,439")
	}
	if n, err := dec.Decode(out[:n], back[:1440]); n != 1440 || err != nil {
		t.Errorf("decoded %d samples, %v", n, err)
	}
}

func TestConceal(t *testing.T) {
	packets := encode(t, audio.MicrophoneEncoding(), tone(16000, 16000, 440), 960)
	dec, err := audio.NewDecoder(audio.MicrophoneRate)
	if err != nil {
		t.Fatal(err)
	}
	pcm := make([]int16, 960)
	for _, p := range packets {
		if _, err := dec.Decode(p, pcm); err != nil {
			t.Fatal(err)
		}
	}
	clear(pcm)
	if err := dec.Conceal(pcm); err != nil {
		t.Fatal(err)
	}
	loud := 0
	for _, s := range pcm[:160] {
		loud = max(loud, int(s))
	}
	if loud < 4000 {
		t.Errorf("10 ms after a tone of 16,384 the concealment peaks at %d", loud)
	}
	for _, n := range []int{0, 39, 961} {
		if err := dec.Conceal(make([]int16, n)); err == nil {
			t.Errorf("%d samples concealed", n)
		}
	}
	if _, err := dec.Decode(nil, pcm); err == nil {
		t.Error("an empty packet decoded")
	}
	if _, err := dec.Decode([]byte{3, 0}, pcm); err == nil {
		t.Error("a packet without frames decoded")
	}
	if _, err := dec.Decode(packets[0], pcm); err != nil {
		t.Errorf("after an error: %v", err)
	}
}

func TestCodecDoesNotAllocate(t *testing.T) {
	pcm := speechAt(t, audio.SpeakerRate)[9600 : 9600+1440]
	enc, err := audio.NewEncoder(audio.SpeakerEncoding())
	if err != nil {
		t.Fatal(err)
	}
	dec, err := audio.NewDecoder(audio.MicrophoneRate)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]byte, audio.MaxPayload)
	back := make([]int16, 960)
	if n := testing.AllocsPerRun(20, func() {
		size, err := enc.Encode(pcm, out)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dec.Decode(out[:size], back); err != nil {
			t.Fatal(err)
		}
		if err := dec.Conceal(back); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkEncode is one packet of 60 ms for a speaker.
func BenchmarkEncode(b *testing.B) {
	pcm := speechAt(b, audio.SpeakerRate)
	for _, complexity := range []int{1, 3, 5, 8} {
		b.Run(fmt.Sprintf("complexity=%d", complexity), func(b *testing.B) {
			c := audio.SpeakerEncoding()
			c.Complexity = complexity
			enc, err := audio.NewEncoder(c)
			if err != nil {
				b.Fatal(err)
			}
			out := make([]byte, audio.MaxPayload)
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				if _, err := enc.Encode(pcm[at:at+audio.SpeakerFrame], out); err != nil {
					b.Fatal(err)
				}
				if at += audio.SpeakerFrame; at+audio.SpeakerFrame > len(pcm) {
					at = 0
				}
			}
		})
	}
}

// BenchmarkDecode is one packet of 60 ms from a microphone, at 16 kHz.
func BenchmarkDecode(b *testing.B) {
	packets := encode(b, audio.MicrophoneEncoding(), speechAt(b, audio.MicrophoneRate), 960)
	dec, err := audio.NewDecoder(audio.MicrophoneRate)
	if err != nil {
		b.Fatal(err)
	}
	pcm := make([]int16, 960)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := dec.Decode(packets[i%len(packets)], pcm); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkInspect is the check every packet from the network goes through.
func BenchmarkInspect(b *testing.B) {
	packets := encode(b, audio.SpeakerEncoding(), speechAt(b, audio.SpeakerRate), audio.SpeakerFrame)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := audio.Inspect(packets[i%len(packets)]); err != nil {
			b.Fatal(err)
		}
	}
}
