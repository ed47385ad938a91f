package record_test

import (
	"testing"

	"parley/internal/audio"
	"parley/internal/record"
)

// BenchmarkTap is what a packet costs the goroutine it comes on: the read loop
// of all devices' audio in one direction, a conversation in the other.
func BenchmarkTap(b *testing.B) {
	packet := speech(b, audio.MicrophoneEncoding(), frame)[3]
	for _, bb := range []struct {
		name string
		put  func(*record.Tap, int)
	}{
		{"Up", func(t *record.Tap, i int) { t.Up(uint32(i+1), packet) }},
		{"Down", func(t *record.Tap, _ int) { t.Down(packet) }},
		{"Nobody", func(_ *record.Tap, i int) { (*record.Tap)(nil).Up(uint32(i), packet) }},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := start(b, record.Config{Dir: b.TempDir(), MaxTotal: 1 << 40}, quiet())
			tap := open(b, r, session)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				bb.put(tap, i)
			}
			b.StopTimer()
			tap.Close()
			stop(b, r)
		})
	}
}
