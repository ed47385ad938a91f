package udpaudio

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// A table finds channels by SSRC. Because the SSRCs are ours to choose, their
// low bits can be made the index of a slot nobody else has: finding one is a
// load and a comparison, without a lock or a hash, while others come and go.
type table struct {
	slots []atomic.Pointer[Channel] // a power of two, at least twice limit
	mu    sync.Mutex                // for adding and removing
	open  int
	limit int
}

func newTable(limit int) *table {
	size := 2
	for size < 2*limit {
		size *= 2
	}
	return &table{slots: make([]atomic.Pointer[Channel], size), limit: limit}
}

func (t *table) slot(ssrc uint32) *atomic.Pointer[Channel] {
	return &t.slots[ssrc&uint32(len(t.slots)-1)]
}

// find returns the open channel with that SSRC, or nil.
func (t *table) find(ssrc uint32) *Channel {
	if c := t.slot(ssrc).Load(); c != nil && c.ssrc == ssrc {
		return c
	}
	return nil
}

// add gives c a random SSRC with a free slot and makes it found. It reports
// false if the table is full. At most half of the slots are taken, so that two
// draws are enough on average.
func (t *table) add(c *Channel) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == t.limit {
		return false
	}
	for {
		var b [4]byte
		rand.Read(b[:]) // never fails: crypto/rand
		ssrc := binary.BigEndian.Uint32(b[:])
		if ssrc == 0 || t.slot(ssrc).Load() != nil {
			continue
		}
		c.ssrc = ssrc
		t.slot(ssrc).Store(c)
		t.open++
		return true
	}
}

// remove makes c no longer found. It is called once for each channel added.
func (t *table) remove(c *Channel) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slot(c.ssrc).Store(nil)
	t.open--
}

func (t *table) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}
