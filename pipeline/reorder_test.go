package pipeline

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestTheFirstPacketsMayBeSwapped: devices count from 1, so a conversation knows
// that something is missing before its first packet.
func TestTheFirstPacketsMayBeSwapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.c.ListenStart(Manual)
		synctest.Wait()
		for _, seq := range []uint32{2, 1, 3} {
			b.c.Hear(seq, tonePacket)
		}
		b.after(time.Second)
		b.c.ListenStop()
		b.after(time.Second)
		if got := b.asr.utterances(); len(got) != 1 || got[0] != 3*PacketDuration {
			t.Errorf("the recogniser heard %v of 180ms", got)
		}
	})
}

// TestTwoPacketsAtOnceAreNoWakeWord: Wi-Fi often delivers two packets together.
// The question that overtook its listen start is not cut there.
func TestTwoPacketsAtOnceAreNoWakeWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.seq += 33
		for seq := range b.seq { // the wake word comes as a burst
			b.c.Hear(seq+1, tonePacket)
		}
		b.c.Detect("hi there")
		b.after(120 * ms)
		b.speak(300 * ms)
		for range 2 {
			b.seq++
			b.c.Hear(b.seq, tonePacket)
		}
		b.after(120 * ms)
		b.c.ListenStart(Manual)
		synctest.Wait()
		b.speak(480 * ms)
		b.c.ListenStop()
		b.after(time.Second)
		if got := b.asr.utterances(); len(got) != 1 || got[0] != 900*ms {
			t.Errorf("the recogniser heard %v of 900ms", got)
		}
	})
}
