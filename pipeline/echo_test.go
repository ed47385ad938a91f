package pipeline

import (
	"context"
	"log/slog"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// startEcho runs an echo whose path is ready until the test ends.
func startEcho(t *testing.T) (*Echo, *fakeDevice) {
	t.Helper()
	dev := &fakeDevice{}
	e, err := NewEcho(DefaultConfig(), loudness{}, dev, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { e.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
	e.PathReady()
	synctest.Wait()
	return e, dev
}

func TestEchoInRealtimeIsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, dev := startEcho(t)
		e.ListenStart(Realtime)
		synctest.Wait()
		var sent []time.Time
		for i := range 50 {
			sent = append(sent, time.Now())
			e.Hear(uint32(i+1), packetOf(byte(i)))
			time.Sleep(PacketDuration)
		}
		synctest.Wait()
		if !reflect.DeepEqual(dev.frames, sent) {
			t.Errorf("echoed at %v, sent at %v", dev.frames, sent)
		}
		for i, p := range dev.packets {
			if p[1] != byte(i) {
				t.Fatalf("packet %d carries %d", i, p[1])
			}
		}
		e.ListenStop()
		synctest.Wait()
		if got := dev.log(); got != "start stop" {
			t.Errorf("told %q", got)
		}
	})
}

func TestEchoAfterTheButton(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, dev := startEcho(t)
		for range 2 {
			e.ListenStart(Manual)
			synctest.Wait()
			for i := range 10 {
				e.Hear(uint32(i+1), packetOf(byte(i)))
				time.Sleep(PacketDuration)
			}
			e.ListenStop()
			released := time.Now()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			n := len(dev.frames)
			if n%10 != 0 || dev.frames[n-10].Sub(released) != 150*ms {
				t.Fatalf("%d packets, the first after %v", n, dev.frames[max(0, n-10)].Sub(released))
			}
			if got, want := dev.frames[n-1].Sub(dev.frames[n-10]), 7*PacketDuration; got != want {
				t.Errorf("played in %v, want %v: a lead of three", got, want)
			}
		}
		if got := dev.log(); got != "start stop start stop" {
			t.Errorf("told %q", got)
		}
	})
}

func TestEchoFindsTheEndByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, dev := startEcho(t)
		e.ListenStart(Auto)
		seq := uint32(0)
		send := func(packet []byte, n int) {
			for range n {
				seq++
				e.Hear(seq, packet)
				time.Sleep(PacketDuration)
			}
		}
		send(silencePacket, 40)
		send(tonePacket, 10)
		send(silencePacket, 40)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := dev.log(); got != "start stop" {
			t.Errorf("told %q", got)
		}
		tones := 0
		for _, p := range dev.packets {
			if string(p) == string(tonePacket) {
				tones++
			}
		}
		if tones != 10 || len(dev.packets) > 10+11+9 {
			t.Errorf("%d packets played, %d of them the tone", len(dev.packets), tones)
		}
	})
}

func TestEchoOfADeviceThatStopsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, dev := startEcho(t)
		e.ListenStart(Manual)
		synctest.Wait()
		for i := range 5 {
			e.Hear(uint32(i+1), packetOf(byte(i)))
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if len(dev.packets) != 5 {
			t.Errorf("%d packets echoed", len(dev.packets))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := dev.log(); got != "start stop end:silence end:silence" && got != "start stop end:silence" {
			t.Errorf("told %q", got)
		}
	})
}
