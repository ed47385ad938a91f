package session

import (
	"sync"
	"time"

	"parley/internal/protocol"
	"parley/pipeline"
)

// maxMemories bounds the devices whose last words are kept. One takes some
// kilobytes.
const maxMemories = 16384

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
	now := time.Now()
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
