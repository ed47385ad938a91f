package builtin

import (
	"cmp"
	"container/heap"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"parley/internal/protocol"
)

// Limits on what may be set.
const (
	maxPerDevice = 64
	maxEntries   = 100_000
	maxLabel     = 120 // bytes of a timer's or an alarm's name
	maxReminder  = 500 // bytes of a reminder's text
)

// keepFor is how long a notice waits for its device.
const keepFor = 24 * time.Hour

// Errors of setting something, for the model to speak of.
var (
	errFull    = fmt.Errorf("too many are set already: %d for one device; list them and cancel some first", maxPerDevice)
	errAllFull = fmt.Errorf("the server can keep no more timers, alarms and reminders; %d are set on all devices together", maxEntries)
)

// A record is what is kept of a timer, an alarm or a reminder.
type record struct {
	ID     int64             `json:"id"`
	Device protocol.DeviceID `json:"device"`
	// Number is what users call it by: the lowest that was free on the device.
	Number int    `json:"number"`
	Kind   Kind   `json:"kind"`
	Text   string `json:"text,omitempty"`
	// Due is when it goes off next, zero if it does not any more.
	Due time.Time `json:"due,omitzero"`
	// Pending is when it went off last, zero if that has been delivered.
	Pending time.Time    `json:"pending,omitzero"`
	Repeat  repeat       `json:"repeat,omitempty"`
	Clock   clock        `json:"clock,omitzero"`
	Weekday time.Weekday `json:"weekday,omitempty"`
}

func (r record) rule() rule { return rule{r.Repeat, r.Clock, r.Weekday} }

// An entry is a record at work.
type entry struct {
	record
	ready bool // waits for a worker, or one has it
	told  bool // that the device is absent
	delay      // of attempts that failed

	delivered bool  // for all that is known
	lost      bool  // what is being delivered came to nothing
	losses    delay // of attempts that came to nothing later

	wake  time.Time // when the scheduler must look at it
	index int       // in the heap; -1 when it is gone
}

// A home is what is set for one device.
type home struct {
	entries []*entry // in the order they were set
	hellos  int      // how often the device has connected
	queued  bool     // in the queue, or with a worker
}

// A book holds all entries. Its methods are safe for concurrent use and take no
// time worth mentioning, but for snapshot.
type book struct {
	loc   *time.Location
	stats *counters
	log   *slog.Logger
	// now is the wall clock, by which everything is due. A monotonic reading
	// must not be among its times: that clock stands still while the machine
	// sleeps.
	now func() time.Time
	// kick tells the scheduler that something is due sooner or ready. One
	// signal can wait; more would say the same.
	kick chan struct{}
	// dirty does the same for the store.
	dirty chan struct{}

	mu      sync.Mutex
	last    int64  // id given
	version uint64 // of what the store keeps
	entries wakeups
	homes   map[protocol.DeviceID]*home
	queue   []protocol.DeviceID // with something ready and no worker
	workers int                 // goroutines of the scheduler that deliver
}

func newBook(loc *time.Location, stats *counters, log *slog.Logger) *book {
	return &book{
		loc: loc, stats: stats, log: log,
		now:   func() time.Time { return time.Now().Round(0) },
		kick:  make(chan struct{}, 1),
		dirty: make(chan struct{}, 1),
		homes: map[protocol.DeviceID]*home{},
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// changed is called with mu held when there is something to write.
func (b *book) changed() {
	b.version++
	signal(b.dirty)
}

// count returns the number of entries, and of those that wait to be delivered.
func (b *book) count() (entries, waiting uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		if !e.Pending.IsZero() {
			waiting++
		}
	}
	return uint64(len(b.entries)), waiting
}

// add gives r an id and keeps it. version is what the store must have written
// for it to be safe.
func (b *book) add(r record) (added record, version uint64, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.entries) >= maxEntries {
		return r, 0, errAllFull
	}
	if h := b.homes[r.Device]; h != nil && len(h.entries) >= maxPerDevice {
		return r, 0, errFull
	}
	b.last++
	r.ID, r.Number = b.last, 0
	e := b.insert(r)
	b.changed()
	signal(b.kick)
	return e.record, b.version, nil
}

// load fills an empty book. A repeating alarm is reckoned anew where the zone
// that applies now gives it another time.
func (b *book) load(last int64, records []record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = last
	now := b.now()
	for _, r := range records {
		if r.Repeat != once && r.Due.After(now) && !r.rule().next(r.Due.Add(-1), b.loc).Equal(r.Due) {
			r.Due = r.rule().next(now, b.loc)
		}
		e := b.insert(r)
		if !e.Pending.IsZero() {
			b.makeReady(e)
		}
	}
}

func (b *book) insert(r record) *entry {
	h := b.homes[r.Device]
	if h == nil {
		h = new(home)
		b.homes[r.Device] = h
	}
	if r.Number <= 0 || h.has(r.Number) {
		for r.Number = 1; h.has(r.Number); {
			r.Number++
		}
	}
	e := &entry{record: r}
	h.entries = append(h.entries, e)
	e.wake = e.nextWake()
	heap.Push(&b.entries, e)
	return e
}

func (h *home) has(number int) bool {
	return slices.ContainsFunc(h.entries, func(e *entry) bool { return e.Number == number })
}

// drop removes e. mu is held.
func (b *book) drop(e *entry) {
	heap.Remove(&b.entries, e.index)
	h := b.homes[e.Device]
	h.entries = slices.DeleteFunc(h.entries, func(other *entry) bool { return other == e })
	if len(h.entries) == 0 && !h.queued {
		delete(b.homes, e.Device)
	}
	b.changed()
}

// list returns what is set for a device, what is due first coming first.
func (b *book) list(device protocol.DeviceID) []record {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.homes[device]
	if h == nil {
		return nil
	}
	var records []record
	for _, e := range h.entries {
		records = append(records, e.record)
	}
	slices.SortFunc(records, func(a, b record) int {
		return cmp.Or(a.first().Compare(b.first()), cmp.Compare(a.ID, b.ID))
	})
	return records
}

// first is when a record is or was due first.
func (r record) first() time.Time {
	if !r.Pending.IsZero() {
		return r.Pending
	}
	return r.Due
}

// remove removes entries of a device by their ids.
func (b *book) remove(device protocol.DeviceID, ids ...int64) (version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h := b.homes[device]; h != nil {
		for _, e := range slices.Clone(h.entries) {
			if slices.Contains(ids, e.ID) {
				e.delivered = false // should it be, it is not wanted back
				b.drop(e)
			}
		}
	}
	return b.version
}

// snapshot copies everything for the store.
func (b *book) snapshot() (version uint64, last int64, records []record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	records = make([]record, len(b.entries))
	for i, e := range b.entries {
		records[i] = e.record
	}
	return b.version, b.last, records
}

// connected makes ready what is pending for a device.
func (b *book) connected(device protocol.DeviceID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := b.homes[device]
	if h == nil {
		return
	}
	h.hellos++
	for _, e := range h.entries {
		if !e.Pending.IsZero() && !e.ready {
			e.delay = delay{}
			b.makeReady(e)
			b.reschedule(e)
		}
	}
	if h.queued {
		signal(b.kick)
	}
}

// makeReady hands e to the workers. mu is held.
func (b *book) makeReady(e *entry) {
	e.ready = true
	if h := b.homes[e.Device]; !h.queued {
		h.queued = true
		b.queue = append(b.queue, e.Device)
	}
}

// tick makes ready what is due, gives up what is too old, and returns how long
// the scheduler may sleep; ok is false if for ever.
func (b *book) tick() (wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for len(b.entries) > 0 && !b.entries[0].wake.After(now) {
		b.awaken(b.entries[0], now)
	}
	if len(b.entries) == 0 {
		return 0, false
	}
	return b.entries[0].wake.Sub(now), true
}

// awaken does what is due for e. Afterwards e is gone or wakes later than now.
func (b *book) awaken(e *entry, now time.Time) {
	if !e.Due.IsZero() && !e.Due.After(now) {
		b.fallDue(e, now)
	}
	if !e.Pending.IsZero() && now.Sub(e.Pending) >= keepFor {
		b.giveUp(e, now)
	}
	if e.Pending.IsZero() && e.Due.IsZero() {
		b.drop(e)
		return
	}
	if !e.again.IsZero() && !e.again.After(now) {
		e.again = time.Time{}
		b.makeReady(e)
	}
	b.reschedule(e)
}

// fallDue makes e pending and reckons when it is due next. Of several times that
// have passed, only the last counts.
func (b *book) fallDue(e *entry, now time.Time) {
	due := e.Due
	e.Due = time.Time{}
	if e.Repeat != once {
		from := due // or, for a clock that was years behind, not so far back
		if old := now.Add(-keepFor); old.After(from) {
			from = old
		}
		for t := e.rule().next(from, b.loc); !t.IsZero() && !t.After(now); t = e.rule().next(t, b.loc) {
			due = t
		}
		e.Due = e.rule().next(now, b.loc)
	}
	if !e.Pending.IsZero() {
		b.giveUp(e, now)
	}
	e.Pending, e.delay, e.told, e.losses = due, delay{}, false, delay{}
	b.makeReady(e)
	b.changed()
}

// giveUp forgets what is pending.
func (b *book) giveUp(e *entry, now time.Time) {
	b.stats.dropped.Add(1)
	b.log.Warn("notice dropped: not delivered for too long", "device", string(e.Device), "id", e.ID, "kind", string(e.Kind),
		"late_by", now.Sub(e.Pending).Round(time.Second))
	e.Pending, e.delay, e.ready = time.Time{}, delay{}, false
	b.changed()
}

// reschedule puts e where it belongs in the heap. mu is held.
func (b *book) reschedule(e *entry) {
	e.wake = e.nextWake()
	heap.Fix(&b.entries, e.index)
}

// nextWake is the earliest of what an entry waits for.
func (e *entry) nextWake() time.Time {
	wake := e.Due
	if !e.Pending.IsZero() {
		wake = earlier(wake, e.Pending.Add(keepFor))
	}
	return earlier(wake, e.again)
}

// earlier is the earlier of two moments, a zero one being none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// wakeups are all entries as a heap, that which wakes first at the front.
type wakeups []*entry

func (w wakeups) Len() int           { return len(w) }
func (w wakeups) Less(i, j int) bool { return w[i].wake.Before(w[j].wake) }
func (w wakeups) Swap(i, j int) {
	w[i], w[j] = w[j], w[i]
	w[i].index, w[j].index = i, j
}

// Push implements heap.Interface.
func (w *wakeups) Push(x any) {
	e := x.(*entry)
	e.index = len(*w)
	*w = append(*w, e)
}

// Pop implements heap.Interface.
func (w *wakeups) Pop() any {
	old := *w
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*w = old[:len(old)-1]
	e.index = -1
	return e
}
