package session

import (
	"slices"
	"sync"
	"time"

	"parley/internal/protocol"
	"parley/pipeline"
)

// Bounds of what is kept: devices, and bytes of each. A conversation has some
// kilobytes, but tools may have answered with 64 KiB each time.
const (
	maxMemories = 16384
	maxMemory   = 32 << 10
)

// sweepEvery is how often at most what is too old is looked for.
const sweepEvery = time.Minute

// memories are what was said in the last session of each device, for its next
// one. They outlive the connection: py-xiaozhi makes a new one for every
// conversation, and Wi-Fi comes and goes.
type memories struct {
	keep time.Duration

	mu    sync.Mutex
	of    map[protocol.DeviceID]memory
	swept time.Time
}

type memory struct {
	said    []pipeline.Message
	session uint64 // which session's it is, counted over all
	at      time.Time
}

// recall returns what was said in a device's last session, if that is not long
// ago.
func (m *memories) recall(id protocol.DeviceID) []pipeline.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.of[id]
	if time.Since(old.at) >= m.keep {
		delete(m.of, id)
		return nil
	}
	return old.said
}

// put keeps what was said in the session of this number. One that took long to
// end does not overwrite a later one's.
func (m *memories) put(id protocol.DeviceID, session uint64, said []pipeline.Message) {
	now, said := time.Now(), latest(said)
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Sub(m.swept) >= sweepEvery {
		m.swept = now
		for id, old := range m.of {
			if now.Sub(old.at) >= m.keep {
				delete(m.of, id)
			}
		}
	}
	old, known := m.of[id]
	if len(said) == 0 || known && old.session > session || !known && len(m.of) >= maxMemories {
		return
	}
	m.of[id] = memory{said: said, session: session, at: now}
}

// latest is the end of what was said that fits into maxMemory, from a message of
// the user on, so that no result is parted from its call.
func latest(said []pipeline.Message) []pipeline.Message {
	from, size := len(said), 0
	for i, m := range slices.Backward(said) {
		size += len(m.Text)
		for _, c := range m.Calls {
			size += len(c.Args)
		}
		if size > maxMemory {
			break
		}
		if m.Role == pipeline.RoleUser || i == 0 {
			from = i
		}
	}
	return slices.Clone(said[from:])
}
