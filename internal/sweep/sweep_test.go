package sweep

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestSweepsOnceWhenTheStormIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connections atomic.Uint64
		var sweeps []time.Duration
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		done := make(chan struct{})
		go func() { // ends with ctx
			defer close(done)
			run(ctx, connections.Load, func() { sweeps = append(sweeps, time.Since(began)) })
		}()
		time.Sleep(look / 2)
		for range 5 { // seconds of a storm
			connections.Add(600)
			time.Sleep(look)
		}
		time.Sleep(time.Hour) // and peace, in which a few come and go
		for range 20 {
			connections.Add(40)
			time.Sleep(look)
		}
		synctest.Wait()
		if len(sweeps) != 1 || sweeps[0] != 6*look {
			t.Errorf("swept at %v, want once, in the first quiet second", sweeps)
		}
		for range 10 { // these add up
			connections.Add(40)
			time.Sleep(look)
		}
		synctest.Wait()
		if len(sweeps) != 2 {
			t.Errorf("%d sweeps after 1,200 more connections, want 2", len(sweeps))
		}
		cancel()
		<-done
	})
}
