package record

import (
	"log/slog"
	"math"
	"testing"
	"time"

	"parley/internal/audio"
)

// FuzzTimeline feeds a timeline whatever bytes say: packets of both directions,
// their numbers and times. Whatever comes, both tracks are Opus without gaps and
// keep to the clock, no packet is kept for ever, and each is counted once.
func FuzzTimeline(f *testing.F) {
	f.Add([]byte{0, 1, 60, 1, 0x58, 0, 2, 60, 1, 0x58, 1, 0, 60, 3, 0xfb, 3, 0})
	f.Add([]byte{0, 9, 255, 1, 0x58, 0, 3, 255, 1, 0x58, 0, 3, 255, 2, 3, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		var (
			stats counters
			ends  [directions]time.Duration
			now   time.Duration
			put   uint64
			known uint64
		)
		line := newTimeline(func(p placed) {
			d, err := audio.Duration(p.opus)
			if err != nil || d != p.length {
				t.Fatalf("%x of %v: %v, %v", p.opus, p.length, d, err)
			}
			if p.at != ends[p.direction] {
				t.Fatalf("a packet at %v, want %v", p.at, ends[p.direction])
			}
			if ends[p.direction] += d; p.filling && ends[p.direction] > now+hold {
				t.Fatalf("filled up to %v at %v", ends[p.direction], now)
			}
			if !p.filling {
				known++
			}
		}, &stats)
		returned := 0
		for len(script) >= 4 {
			// A direction, a number, milliseconds since the last, a length.
			n := min(int(script[3]), len(script)-4)
			now += time.Duration(script[2]) * 4 * time.Millisecond
			p := new(packet)
			p.set(direction(script[0]&1), uint32(script[1]), now, script[4:4+n])
			script = script[4+n:]
			put++
			if !line.add(p) {
				returned++
			}
			returned += len(line.advance(now))
			if len(line.held) > maxHeld {
				t.Fatalf("%d packets held", len(line.held))
			}
		}
		returned += len(line.finish(now))
		if uint64(returned) != put || len(line.held) != 0 {
			t.Fatalf("%d packets of %d returned, %d held", returned, put, len(line.held))
		}
		if stats.packets.Load() != known || known+stats.bad.Load()+stats.late.Load()+stats.ahead.Load() != put {
			t.Fatalf("%d packets, %d placed, %d bad, %d late, %d ahead", put, known, stats.bad.Load(), stats.late.Load(), stats.ahead.Load())
		}
		if known > 0 {
			for d, end := range ends {
				if end < max(now, ends[1-d])-tick || end > now+maxAhead+time.Second {
					t.Fatalf("tracks of %v and %v after %v", ends[up], ends[down], now)
				}
			}
		}
	})
}

// Concealment lasts as long as what it stands for, for every form of packet.
func TestConcealment(t *testing.T) {
	for toc := range 256 {
		for _, model := range [][]byte{{byte(toc)}, {byte(toc), 1, 0}, {byte(toc), 0xc2, 3, 0, 0, 0}, {byte(toc), 3}} {
			want, err := audio.Duration(model)
			if err != nil {
				continue
			}
			got := appendConcealment(nil, model)
			if d, err := audio.Duration(got); err != nil || d != want || len(got) > 2 {
				t.Errorf("%x for %x: %v, %v; want %v", got, model, d, err, want)
			}
		}
	}
}

// Silence is as long as it says, and as long as fits.
func TestSilence(t *testing.T) {
	for gap := time.Duration(0); gap < 300*time.Millisecond; gap += tick / 2 {
		left := gap
		for {
			p, length := appendSilence(nil, left)
			if length == 0 {
				break
			}
			if d, err := audio.Duration(p); err != nil || d != length {
				t.Fatalf("%x: %v, %v; want %v", p, d, err, length)
			}
			left -= length
		}
		if left < 0 || left >= tick {
			t.Errorf("of %v, %v are left", gap, left)
		}
	}
}

// BenchmarkPacket is what a packet costs a tap's goroutine: its place in time,
// the file, and the mirror.
func BenchmarkPacket(b *testing.B) {
	for name, cfg := range map[string]Config{
		"File":   {},
		"Mirror": {Mirror: "127.0.0.1:40000", MirrorOnly: true},
	} {
		b.Run(name, func(b *testing.B) {
			cfg.Dir, cfg.MaxDuration, cfg.MaxTotal = b.TempDir(), math.MaxInt64, math.MaxInt64
			r, err := New(cfg, slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			tap := &Tap{recorder: r, name: "bench", log: r.log}
			out := newOutput(tap)
			line := newTimeline(out.write, &r.stats)
			opus := make([]byte, 120)
			opus[0] = 11 << 3
			packets := make([]packet, 16)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				at := time.Duration(i) * 60 * time.Millisecond
				p := &packets[i%len(packets)]
				p.set(up, uint32(i+1), at, opus)
				line.add(p)
				line.advance(at)
				out.flush(at)
			}
			b.StopTimer()
			if lost := r.stats.bad.Load() + r.stats.late.Load() + r.stats.ahead.Load(); lost > 0 || out.over != cfg.MirrorOnly {
				b.Fatalf("%d packets lost, output over: %t", lost, out.over)
			}
			out.close()
			if r.mirror != nil {
				r.mirror.close()
			}
		})
	}
}
