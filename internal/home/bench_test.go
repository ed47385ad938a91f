package home_test

import (
	"context"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"parley/internal/home"
)

// BenchmarkLargeHouse is what a conversation asks of a house of 2,000 entities,
// with what the house holds in memory.
func BenchmarkLargeHouse(b *testing.B) {
	bus := newBus()
	for i := range home.MaxEntities {
		n := strconv.Itoa(i)
		bus.send("homeassistant/light/l"+n+"/config", `{"name":"Lamp `+n+`","schema":"json","brightness":true,"brightness_scale":254,"supported_color_modes":["color_temp","xy"],"cmd_t":"l/`+n+`/set","stat_t":"l/`+n+`","uniq_id":"`+n+`","avty":[{"t":"bridge","val_tpl":"{{ value_json.state }}"}],"dev":{"ids":"`+n+`","sa":"Room `+strconv.Itoa(i%40)+`"}}`, true)
		bus.send("l/"+n, `{"state":"ON","brightness":127,"linkquality":99}`, true)
	}
	bus.send("bridge", `{"state":"online"}`, true)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	h, err := home.New(home.Config{Discover: true}, bus, discard())
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	source := h.Source()
	for len(source.Tools()) == 0 || h.Counters().Available.Load() < home.MaxEntities {
		runtime.Gosched()
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.Run("Tools", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			source.Tools()
		}
	})
	b.Run("Read", func(b *testing.B) {
		for b.Loop() {
			if _, err := source.Call(b.Context(), "home_read", []byte(`{"name":"the lamp 1234"}`)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Logf("%d bytes an entity", (after.HeapAlloc-before.HeapAlloc)/home.MaxEntities)
	cancel()
	running.Wait()
}
