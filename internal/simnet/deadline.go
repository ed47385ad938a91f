package simnet

import (
	"sync"
	"time"
)

// A deadline is a moment after which calls that wait give up. Its fields are
// guarded by the network's mutex, and so is its method.
type deadline struct {
	expired bool
	timer   *time.Timer
	changes uint64 // tells a timer that was too late to be stopped
}

// set replaces the deadline by at, the zero time meaning none, and wakes those
// who wait on c when it has passed.
func (d *deadline) set(at time.Time, c *sync.Cond) {
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.changes++
	d.expired = false
	if at.IsZero() {
		return
	}
	wait := time.Until(at)
	if wait <= 0 {
		d.expired = true
		c.Broadcast()
		return
	}
	changes := d.changes
	d.timer = time.AfterFunc(wait, func() {
		c.L.Lock()
		defer c.L.Unlock()
		if d.changes == changes {
			d.expired = true
			c.Broadcast()
		}
	})
}
