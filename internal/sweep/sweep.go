// Package sweep gives back the memory of a storm. When ten thousand devices come
// at once, as after a power cut, connecting them leaves as much garbage as the
// devices keep. A process that then idles, because idle devices cost nothing,
// would hold it for two minutes, until Go collects for lack of anything better to
// do, and its memory would stay the process's for longer.
package sweep

import (
	"context"
	"runtime/debug"
	"time"
)

const (
	// storm is how many connections make a sweep worth its while: some
	// megabytes of garbage.
	storm = 1000
	// look is how often is looked whether a storm is over.
	look = time.Second
)

// Run collects garbage and returns memory to the system whenever a storm of
// connections is over: at least a thousand since the last time, and less than a
// tenth of that in the last second. connections counts all there have been. It
// returns when ctx ends.
//
// A sweep takes some tens of milliseconds of one processor, beside everything
// else.
func Run(ctx context.Context, connections func() uint64) {
	run(ctx, connections, debug.FreeOSMemory)
}

func run(ctx context.Context, connections func() uint64, sweep func()) {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	last, since := connections(), uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := connections()
		grown := now - last
		last, since = now, since+grown
		if since >= storm && grown < storm/10 {
			sweep()
			since = 0
		}
	}
}
