package audio_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hraban/opus"

	"parley/internal/audio"
)

var background = context.Background()

// requirePlayable fails unless every packet is one that any device plays.
func requirePlayable(t *testing.T, packets [][]byte) {
	t.Helper()
	for i, p := range packets {
		info, err := audio.Inspect(p)
		switch {
		case err != nil:
			t.Fatalf("packet %d: %v", i, err)
		case info.Duration() != audio.FrameDuration || info.Stereo:
			t.Fatalf("packet %d: %+v, want 60 ms mono", i, info)
		case len(p) < audio.MinPayload || len(p) > audio.MaxPayload:
			t.Fatalf("packet %d has %d bytes", i, len(p))
		}
	}
}

// requireSounds fails unless packets sound like pcm, which is at 24 kHz, and
// last as long, up to a packet.
func requireSounds(t *testing.T, pcm []int16, packets [][]byte, least float64) {
	t.Helper()
	requirePlayable(t, packets)
	if want := (len(pcm) + audio.SpeakerFrame - 1) / audio.SpeakerFrame; len(packets) != want {
		t.Errorf("%d samples make %d packets, want %d", len(pcm), len(packets), want)
	}
	got, delay := likeness(pcm, decode(t, audio.SpeakerRate, packets), 800)
	if got < least {
		t.Errorf("correlation with the input is %.3f at a delay of %d samples, want %.2f", got, delay, least)
	}
}

func TestPacketizerTakesPCMInAnyPieces(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, rate := range []int{8000, 16000, 22050, 24000, 44100, 48000} {
		pcm := speechAt(t, rate)
		whole := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
			return p.PCM(background, pcm, rate, emit)
		})
		least := 0.95
		if rate == 8000 {
			least = 0.85 // half of the sibilants is missing
		}
		requireSounds(t, speechAt(t, audio.SpeakerRate), whole, least)
		pieces := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
			for rest := pcm; len(rest) > 0; {
				n := min(len(rest), rng.IntN(4000))
				if err := p.PCM(background, rest[:n], rate, emit); err != nil {
					return err
				}
				rest = rest[n:]
			}
			return nil
		})
		if !slices.EqualFunc(whole, pieces, bytes.Equal) {
			t.Errorf("at %d Hz the pieces make a difference", rate)
		}
	}
}

func TestPacketizerEmitsWhatIsCompleteAtOnce(t *testing.T) {
	p := audio.NewPacketizer(audio.NewEncoderPool(1))
	n := 0
	emit := func([]byte) bool { n++; return true }
	for i, tt := range []struct{ samples, want int }{{1439, 0}, {1, 1}, {1440, 2}, {5000, 5}, {0, 5}} {
		if err := p.PCM(background, make([]int16, tt.samples), audio.SpeakerRate, emit); err != nil || n != tt.want {
			t.Errorf("step %d: %d packets, %v; want %d", i, n, err, tt.want)
		}
	}
	if err := p.Flush(background, emit); err != nil || n != 6 {
		t.Errorf("flushed: %d packets, %v; want 6", n, err)
	}
	if err := p.Flush(background, emit); err != nil || n != 6 {
		t.Errorf("flushed again: %d packets, %v; want 6", n, err)
	}
}

func TestPacketizerSwitchesRates(t *testing.T) {
	want := speechAt(t, audio.SpeakerRate)
	a, b := speechAt(t, 16000), speechAt(t, 48000)
	packets := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
		return errors.Join(
			p.PCM(background, a[:16000], 16000, emit),
			p.PCM(background, b[48000:2*48000], 48000, emit),
			p.PCM(background, want[2*24000:], 24000, emit))
	})
	requireSounds(t, want, packets, 0.95)
}

// Packets of any length that divides 60 ms go through without a codec: the
// samples a device hears are those the source's packets make.
func TestPacketizerPassesOpusOn(t *testing.T) {
	for _, ms := range []int{5, 10, 20, 60} {
		c := audio.EncoderConfig{Rate: 24000, Bitrate: 24000, Complexity: 5}
		pcm := speechAt(t, 24000)
		pcm = pcm[:len(pcm)/audio.SpeakerFrame*audio.SpeakerFrame]
		source := encode(t, c, pcm, 24*ms)
		pool := audio.NewEncoderPool(1)
		p := audio.NewPacketizer(pool)
		var packets [][]byte
		emit := func(packet []byte) bool { packets = append(packets, packet); return true }
		for _, packet := range source {
			scratch := bytes.Clone(packet)
			if err := p.Opus(background, scratch, emit); err != nil {
				t.Fatal(err)
			}
			clear(scratch) // it is not kept
		}
		if err := p.Flush(background, emit); err != nil {
			t.Fatal(err)
		}
		requirePlayable(t, packets)
		same(t, decode(t, 24000, source), decode(t, 24000, packets))
		if s := pool.Stats(); s.Encodes != 0 {
			t.Errorf("%d ms: the codec ran %d times", ms, s.Encodes)
		}
	}
}

// What does not divide, or is stereo, or too long, or too large, is encoded
// again and sounds the same.
func TestPacketizerTranscodes(t *testing.T) {
	mono := func(bitrate, ms int) func(*testing.T) [][]byte {
		return func(t *testing.T) [][]byte {
			c := audio.EncoderConfig{Rate: 24000, Bitrate: bitrate, Complexity: 5}
			return encode(t, c, speechAt(t, 24000), 24*ms)
		}
	}
	tests := []struct {
		name   string
		source func(*testing.T) [][]byte
	}{
		{"40 ms", mono(24000, 40)},
		{"20 ms too large to merge", mono(400000, 20)},
		{"stereo", stereoPackets},
		{"120 ms", func(t *testing.T) [][]byte {
			var long [][]byte
			source := mono(24000, 60)(t)
			for ; len(source) > 1; source = source[2:] {
				var r audio.Repacketizer
				if err := errors.Join(r.Push(source[0]), r.Push(source[1])); err != nil {
					t.Fatal(err)
				}
				long = append(long, r.AppendPacket(nil))
			}
			return append(long, source...)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			source := tt.source(t)
			packets := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
				for _, packet := range source {
					if err := p.Opus(background, packet, emit); err != nil {
						return err
					}
				}
				return nil
			})
			requireSounds(t, decode(t, audio.SpeakerRate, source), packets, 0.9)
		})
	}
}

// An encoder may change its mind in the middle of a group: from there on the
// stream is encoded again, from a decoder and an encoder that know what came
// before. The seam is measured at twelve places, in both directions.
func TestPacketizerTranscodesFromAnotherConfigurationOn(t *testing.T) {
	const delay = 156 // samples, of the codec
	pcm := speechAt(t, 24000)
	celt := encode(t, audio.EncoderConfig{Rate: 24000, Bitrate: 24000, Complexity: 5}, pcm, 480)
	hybrid := encode(t, audio.EncoderConfig{Rate: 24000, Bitrate: 15000, Complexity: 5}, pcm, 480)
	a, _ := audio.Inspect(celt[60])
	b, _ := audio.Inspect(hybrid[60])
	if a.Mode != audio.CELT || b.Mode != audio.Hybrid {
		t.Fatalf("the encodings are %v and %v", a.Mode, b.Mode)
	}
	seams, n := 0.0, 0.0
	for group := 5; group < 40; group += 3 {
		for _, source := range [][][]byte{
			append(slices.Clone(celt[:3*group+1]), hybrid[3*group+1:]...),
			append(slices.Clone(hybrid[:3*group+1]), celt[3*group+1:]...),
		} {
			packets := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
				for _, packet := range source {
					if err := p.Opus(background, packet, emit); err != nil {
						return err
					}
				}
				return nil
			})
			requirePlayable(t, packets)
			want, got := decode(t, 24000, source), decode(t, 24000, packets)
			change := group * audio.SpeakerFrame
			same(t, want[:change], got[:change])
			if c := correlation(want[change:], got[change+delay:]); c < 0.9 {
				t.Errorf("after a change at %d ms the correlation is %.3f, want 0.9", 60*group, c)
			}
			seams += correlation(want[change:change+audio.SpeakerFrame], got[change+delay:])
			n++
		}
	}
	// 0.94 as it is; 0.84 where decoder and encoder start from silence.
	if mean := seams / n; mean < 0.9 {
		t.Errorf("in the 60 ms after a change the correlation is %.3f on average, want 0.9", mean)
	}
}

// Opus does not overtake PCM that is still pending.
func TestPacketizerKeepsTheOrder(t *testing.T) {
	source := encode(t, audio.SpeakerEncoding(), tone(24000, 3*audio.SpeakerFrame, 440), audio.SpeakerFrame)
	packets := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
		return errors.Join(
			p.PCM(background, make([]int16, 720), 24000, emit), // 30 ms of silence
			p.Opus(background, source[0], emit),
			p.Opus(background, source[1], emit))
	})
	if len(packets) != 3 {
		t.Fatalf("%d packets, want 3", len(packets))
	}
	pcm := decode(t, 24000, packets)
	if loud := slices.Max(pcm[:600]); loud > 500 {
		t.Errorf("25 ms of silence peak at %d", loud)
	}
	if loud := slices.Max(pcm[1500:2800]); loud < 10000 {
		t.Errorf("the tone after it peaks at %d", loud)
	}
}

func stereoPackets(t *testing.T) [][]byte {
	t.Helper()
	enc, err := opus.NewEncoder(24000, 2, opus.AppVoIP)
	if err != nil {
		t.Fatal(err)
	}
	var pcm []int16
	for _, s := range speechAt(t, 24000) {
		pcm = append(pcm, s, s/2)
	}
	var packets [][]byte
	for ; len(pcm) >= 960; pcm = pcm[960:] {
		out := make([]byte, 1000)
		n, err := enc.Encode(pcm[:960], out)
		if err != nil {
			t.Fatal(err)
		}
		packets = append(packets, out[:n])
	}
	if info, _ := audio.Inspect(packets[30]); !info.Stereo {
		t.Fatal("not stereo")
	}
	return packets
}

// A stream that ends within a packet loses nothing and gains silence, and the
// next stream is passed on again.
func TestPacketizerFlushesOpus(t *testing.T) {
	pcm := speechAt(t, 24000)[:20*audio.SpeakerFrame+480]
	source := encode(t, audio.EncoderConfig{Rate: 24000, Bitrate: 24000, Complexity: 5}, pcm, 480)
	pool := audio.NewEncoderPool(1)
	p := audio.NewPacketizer(pool)
	for range 2 {
		var packets [][]byte
		emit := func(packet []byte) bool { packets = append(packets, packet); return true }
		for i, packet := range source {
			if err := p.Opus(background, packet, emit); err != nil {
				t.Fatal(err)
			}
			if len(packets) != (i+1)/3 {
				t.Fatalf("after %d packets of 20 ms %d were emitted", i+1, len(packets))
			}
		}
		if err := p.Flush(background, emit); err != nil {
			t.Fatal(err)
		}
		requireSounds(t, decode(t, audio.SpeakerRate, source), packets, 0.9)
		back := decode(t, 24000, packets)
		same(t, decode(t, 24000, source)[:20*audio.SpeakerFrame], back[:20*audio.SpeakerFrame])
	}
}

// PCM in the middle of Opus and the other way round.
func TestPacketizerMixes(t *testing.T) {
	pcm := speechAt(t, 24000)
	source := encode(t, audio.EncoderConfig{Rate: 24000, Bitrate: 24000, Complexity: 5}, pcm, 480)
	packets := packetize(t, func(p *audio.Packetizer, emit func([]byte) bool) error {
		var errs []error
		for i, packet := range source {
			if i%7 < 4 {
				errs = append(errs, p.Opus(background, packet, emit))
			} else {
				errs = append(errs, p.PCM(background, pcm[i*480:(i+1)*480], 24000, emit))
			}
		}
		return errors.Join(errs...)
	})
	requirePlayable(t, packets)
	if want := (len(source) + 2) / 3; len(packets) != want {
		t.Errorf("%d packets, want %d", len(packets), want)
	}
}

func TestPacketizerStopsAndRefuses(t *testing.T) {
	p := audio.NewPacketizer(audio.NewEncoderPool(1))
	emitted := 0
	stop := func([]byte) bool { emitted++; return false }
	if err := p.PCM(background, make([]int16, 24000), 24000, stop); err != audio.ErrStopped || emitted != 1 {
		t.Errorf("got %v after %d packets, want ErrStopped after 1", err, emitted)
	}
	p = audio.NewPacketizer(audio.NewEncoderPool(1))
	if err := p.Opus(background, []byte{11 << 3, 1, 2, 3}, stop); err != audio.ErrStopped || emitted != 2 {
		t.Errorf("got %v after %d packets, want ErrStopped after 2", err, emitted)
	}
	p = audio.NewPacketizer(audio.NewEncoderPool(1))
	for _, packet := range [][]byte{nil, {9<<3 | 3, 0}} {
		if err := p.Opus(background, packet, stop); !errors.Is(err, audio.ErrPacket) {
			t.Errorf("%x: %v, want ErrPacket", packet, err)
		}
	}
	if err := p.PCM(background, make([]int16, 100), 5, stop); err == nil {
		t.Error("5 Hz accepted")
	}
	canceled, cancel := context.WithCancel(background)
	cancel()
	p = audio.NewPacketizer(audio.NewEncoderPool(1))
	if err := p.PCM(canceled, make([]int16, 24000), 24000, stop); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	if emitted != 2 {
		t.Errorf("%d packets emitted, want none more", emitted)
	}
}

// FuzzPacketizer feeds whatever may come out of a service. Whatever it is, what
// is emitted is playable.
func FuzzPacketizer(f *testing.F) {
	f.Add([]byte{9 << 3, 1, 2}, []byte{11 << 3, 1, 2}, 100)
	f.Add(join(9<<3|3, 0x83, 1, 2, []byte{1, 2, 3, 4, 5, 6}), join(13<<3|4, 1, 2, 3), 2000)
	f.Add(join(28<<3|3, 48, make([]byte, 96)), join(10<<3, 1, 2, 3), 0)
	f.Fuzz(func(t *testing.T, a, b []byte, samples int) {
		p := audio.NewPacketizer(audio.NewEncoderPool(1))
		var packets [][]byte
		emit := func(packet []byte) bool { packets = append(packets, packet); return true }
		for _, packet := range [][]byte{a, b, a, a, b} {
			if err := p.Opus(background, packet, emit); err != nil && !errors.Is(err, audio.ErrPacket) {
				t.Fatal(err)
			}
		}
		if err := p.PCM(background, make([]int16, max(0, samples%5000)), 16000, emit); err != nil {
			t.Fatal(err)
		}
		if err := p.Opus(background, b, emit); err != nil && !errors.Is(err, audio.ErrPacket) {
			t.Fatal(err)
		}
		if err := p.Flush(background, emit); err != nil {
			t.Fatal(err)
		}
		requirePlayable(t, packets)
	})
}

// The pool's bound holds, waiting is counted and ends with the context.
func TestEncoderPoolBoundsEncodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := audio.NewEncoderPool(1)
		holder, waiter := audio.NewPacketizer(pool), audio.NewPacketizer(pool)
		frame := make([]int16, audio.SpeakerFrame)
		nothing := func([]byte) bool { return true }

		// Many packetizers at once, none of which may be lost or doubled.
		var wg sync.WaitGroup
		var mu sync.Mutex
		total := 0
		for range 10 {
			wg.Go(func() {
				p := audio.NewPacketizer(pool)
				for range 10 {
					err := p.PCM(t.Context(), frame, audio.SpeakerRate, func([]byte) bool {
						mu.Lock()
						defer mu.Unlock()
						total++
						return true
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if s := pool.Stats(); total != 100 || s.Encodes != 100 {
			t.Errorf("%d packets of %d encodes, want 100", total, s.Encodes)
		}

		release := audio.Hold(pool)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := waiter.PCM(ctx, frame, audio.SpeakerRate, nothing); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		if s := pool.Stats(); s.Waited < time.Second {
			t.Errorf("%+v, want a wait of 1 s", s)
		}
		release()
		if err := holder.PCM(t.Context(), frame, audio.SpeakerRate, nothing); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkPacketizer is one packet of 60 ms, as most synthesizers give it.
func BenchmarkPacketizer(b *testing.B) {
	nothing := func([]byte) bool { return true }
	for _, rate := range []int{16000, 22050, 24000} {
		b.Run(fmt.Sprintf("pcm=%d", rate), func(b *testing.B) {
			p := audio.NewPacketizer(audio.NewEncoderPool(1))
			pcm := speechAt(b, rate)
			n := rate * 60 / 1000
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				if err := p.PCM(background, pcm[at:at+n], rate, nothing); err != nil {
					b.Fatal(err)
				}
				if at += n; at+n > len(pcm) {
					at = 0
				}
			}
		})
	}
	b.Run("opus=3x20ms", func(b *testing.B) {
		p := audio.NewPacketizer(audio.NewEncoderPool(1))
		source := encode(b, audio.EncoderConfig{Rate: 24000, Bitrate: 24000}, speechAt(b, 24000), 480)
		b.ReportAllocs()
		at := 0
		for b.Loop() {
			for range 3 {
				if err := p.Opus(background, source[at], nothing); err != nil {
					b.Fatal(err)
				}
				at = (at + 1) % len(source)
			}
		}
	})
}
