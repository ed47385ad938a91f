package home

import (
	"sync"
	"time"
)

// An itemKind says which subscription a message came by.
type itemKind int

const (
	itemAnnouncement itemKind = iota
	itemReport
	itemBirth   // of Home Assistant
	itemCommand // to a voice device
)

// An item is one message of the bus, copied.
type item struct {
	kind     itemKind
	topic    string
	payload  string
	retained bool
	at       time.Time
}

// An inbox holds the messages of the bus, in order, for Home's goroutine. It is
// bounded in number and bytes; a message that finds it full is dropped.
type inbox struct {
	wake chan struct{} // holds a token while there is something to take

	mu    sync.Mutex
	items []item
	bytes int
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put never blocks. It reports whether the message found a place.
func (b *inbox) put(kind itemKind, m Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.items) >= maxQueue || b.bytes+len(m.Payload) > maxQueueBytes {
		return false
	}
	b.items = append(b.items, item{kind, m.Topic, string(m.Payload), m.Retained, time.Now()})
	b.bytes += len(m.Payload)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns all that waits.
func (b *inbox) take() []item {
	b.mu.Lock()
	defer b.mu.Unlock()
	items := b.items
	b.items, b.bytes = nil, 0
	return items
}
