package home

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"parley/mcp"
)

// A Home is the house on one bus. [Home.Run] does its work; its other methods
// are safe for concurrent use and do not block, except that a tool call of its
// source waits for the state that the command asks for.
type Home struct {
	cfg      Config
	bus      Bus
	log      *slog.Logger
	inbox    *inbox
	counters Counters
	noise    rate.Sometimes // keeps what strangers send from filling the log
	customs  []*custom
	replies  replyLocks
	fleet    *fleet
	view     atomic.Pointer[view]
	ended    chan struct{}

	mu        sync.Mutex
	entities  map[string]*entity
	announced map[string]announcement // by discovery topic
	feeds     map[string]*feed
	changed   chan struct{} // closed and replaced when a value changes
}

// An announcement is what a discovery topic held last.
type announcement struct {
	digest [sha256.Size]byte
	keys   []string // of the entities made of it
}

// A feed is a topic that entities follow.
type feed struct {
	cancel func()
	last   *item // the latest message, nil before the first
	long   bool  // the latest was too long to keep
	users  []use
}

// A use is one place where an entity needs a feed: listens[i], or
// presence.sources[i].
type use struct {
	e        *entity
	i        int
	presence bool
}

// New returns a Home on bus. It returns an error that names what is wrong in cfg.
// Nothing is subscribed or published before [Home.Run].
func New(cfg Config, bus Bus, log *slog.Logger) (*Home, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	h := &Home{
		cfg: cfg, bus: bus, log: log, inbox: newInbox(),
		noise:     rate.Sometimes{First: 20, Interval: 10 * time.Second},
		entities:  map[string]*entity{},
		announced: map[string]announcement{},
		feeds:     map[string]*feed{},
		changed:   make(chan struct{}),
		ended:     make(chan struct{}),
	}
	names := map[string]bool{}
	for i, c := range cfg.Tools {
		compiled, err := compileCustom(c)
		if err == nil && (names[c.Name] || isOwnTool(c.Name)) {
			err = fmt.Errorf("the name %q is taken; choose another", c.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("home: tool %d (%.40q): %w", i+1, c.Name, err)
		}
		names[c.Name] = true
		h.customs = append(h.customs, compiled)
	}
	h.fleet = newFleet(&h.cfg, bus, log, &h.counters)
	h.rebuild()
	return h, nil
}

// Counters are the figures of h, which it keeps up to date.
func (h *Home) Counters() *Counters { return &h.counters }

// Source returns the tools of the house and the configured ones. Before
// [Home.Run] and after it there are none of the house.
func (h *Home) Source() mcp.Source { return source{h} }

// Run follows the bus until ctx ends, and returns when everything it started has
// ended. It may be called once. The bus must still be there when it returns: the
// last thing it publishes is that Parley is offline.
func (h *Home) Run(ctx context.Context) error {
	defer close(h.ended)
	var cancels []func()
	defer func() {
		for _, cancel := range cancels {
			cancel()
		}
	}()
	subscribe := func(filter string, kind itemKind) error {
		cancel, err := h.bus.Subscribe(filter, func(m Message) { h.receive(kind, m) })
		if err != nil {
			return fmt.Errorf("home: subscribe to %q: %w", filter, err)
		}
		cancels = append(cancels, cancel)
		return nil
	}
	type subscription struct {
		filter string
		kind   itemKind
	}
	var wanted []subscription
	if h.cfg.Discover {
		wanted = append(wanted, subscription{h.cfg.Prefix + "/+/+/config", itemAnnouncement},
			subscription{h.cfg.Prefix + "/+/+/+/config", itemAnnouncement})
	}
	if h.cfg.Announce {
		wanted = append(wanted, subscription{h.cfg.Prefix + "/status", itemBirth},
			subscription{h.cfg.Base + "/+/say", itemCommand}, subscription{h.cfg.Base + "/+/volume/set", itemCommand})
		h.fleet.start()
		defer h.fleet.stop()
	}
	for _, s := range wanted {
		if err := subscribe(s.filter, s.kind); err != nil {
			return err
		}
	}
	defer h.forget()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-h.inbox.wake:
			h.process(h.inbox.take())
		case <-h.fleet.wake:
			h.fleet.schedule()
		case <-h.fleet.timer.C:
			h.fleet.flush()
		}
	}
}

// receive is called on the publisher's goroutine.
func (h *Home) receive(kind itemKind, m Message) {
	h.counters.Messages.Add(1)
	if len(m.Payload) > MaxPayload {
		h.counters.Refused.Add(1)
		h.noise.Do(func() {
			h.log.Warn("home message is too long and was ignored", "topic", clip(m.Topic), "bytes", len(m.Payload), "limit", MaxPayload)
		})
		return
	}
	if !h.inbox.put(kind, m) {
		h.counters.Dropped.Add(1)
		h.noise.Do(func() {
			h.log.Warn("home queue is full and a message was dropped", "topic", clip(m.Topic), "queued", maxQueue)
		})
	}
}

// process works through what arrived. What conversations see is brought up to
// date once, at the end.
func (h *Home) process(items []item) {
	before := h.counters.Entities.Load()
	dirty, changed := false, false
	for i := range items {
		it := &items[i]
		switch it.kind {
		case itemAnnouncement:
			dirty = h.announcedAt(it) || dirty
		case itemReport:
			d, c := h.reported(it)
			dirty, changed = dirty || d, changed || c || d
		case itemBirth:
			if it.payload == "online" {
				h.fleet.republish()
			}
		case itemCommand:
			h.fleet.command(it)
		}
	}
	if dirty {
		h.rebuild()
		if n := h.counters.Entities.Load(); n != before {
			h.log.Info("home discovery", "entities", n, "available", h.counters.Available.Load())
		}
	}
	if dirty || changed {
		h.mu.Lock()
		close(h.changed)
		h.changed = make(chan struct{})
		h.mu.Unlock()
	}
}

// announcedAt reads a discovery topic and reports whether entities came or went.
func (h *Home) announcedAt(it *item) bool {
	k, object, ok := discoveryTopic(h.cfg.Prefix, it.topic)
	if !ok || k == "" || k == kindDevice && h.fleet.owns(object) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before, known := h.announced[it.topic]
	digest := sha256.Sum256([]byte(it.payload))
	if known && before.digest == digest {
		return false
	}
	parts, err := parseAnnouncement(k, []byte(it.payload))
	if err != nil {
		h.malformed(it.topic, err)
		return false
	}
	now := announcement{digest: digest}
	fresh := map[string]*entity{}
	for _, part := range parts {
		key := it.topic + "\x00" + part.id
		e, faults, err := newEntity(key, part)
		if err != nil {
			h.malformed(it.topic, err)
			continue
		}
		if h.entities[key] == nil && len(h.entities)+len(fresh) >= MaxEntities {
			h.counters.Refused.Add(1)
			h.noise.Do(func() {
				h.log.Warn("home has too many entities; this one is left out", "topic", clip(it.topic), "limit", MaxEntities)
			})
			continue
		}
		for _, f := range faults {
			h.noise.Do(func() {
				h.log.Warn("home template is not understood; the entity is used without it",
					"topic", clip(it.topic), "key", f.key, "template", clip(f.value), "error", f.err)
			})
		}
		fresh[key] = e
		now.keys = append(now.keys, key)
	}
	// The new ones first, so that a topic both follow is not left in between.
	gone := make([]*entity, 0, len(before.keys))
	for _, key := range before.keys {
		gone = append(gone, h.entities[key])
		delete(h.entities, key)
	}
	for key, e := range fresh {
		h.entities[key] = e
		h.follow(e)
	}
	for _, e := range gone {
		h.unfollow(e)
	}
	if len(now.keys) == 0 {
		delete(h.announced, it.topic)
	} else {
		h.announced[it.topic] = now
	}
	return len(fresh)+len(gone) > 0
}

// malformed counts and logs an announcement that cannot be used. The caller holds
// mu.
func (h *Home) malformed(topic string, err error) {
	if errors.Is(err, errNotUsed) {
		return
	}
	h.counters.Malformed.Add(1)
	h.noise.Do(func() {
		h.log.Warn("home announcement cannot be used", "topic", clip(topic), "error", err)
	})
}

// follow subscribes to what e reports. The caller holds mu.
func (h *Home) follow(e *entity) {
	for i := range e.listens {
		h.feed(e.listens[i].topic, use{e: e, i: i})
	}
	for i := range e.presence.sources {
		h.feed(e.presence.sources[i].topic, use{e: e, i: i, presence: true})
	}
}

// feed gives u the messages of a topic: the latest at once, and those to come.
func (h *Home) feed(topic string, u use) {
	f := h.feeds[topic]
	if f != nil && f.last != nil {
		h.hand(u, f.last, &report{text: f.last.payload, at: seen(f.last)})
	}
	if f != nil {
		f.users = append(f.users, u)
		if !f.long {
			return
		}
		f.cancel() // to be given the retained message again
	} else {
		if len(h.feeds) >= maxFeeds {
			h.counters.Refused.Add(1)
			return
		}
		f = &feed{users: []use{u}}
		h.feeds[topic] = f
	}
	cancel, err := h.bus.Subscribe(topic, func(m Message) { h.receive(itemReport, m) })
	if err != nil {
		delete(h.feeds, topic)
		h.noise.Do(func() { h.log.Warn("home cannot follow a topic", "topic", clip(topic), "error", err) })
		return
	}
	f.cancel = cancel
}

// unfollow ends the subscriptions nobody else needs. The caller holds mu.
func (h *Home) unfollow(e *entity) {
	leave := func(topic string) {
		f := h.feeds[topic]
		if f == nil {
			return
		}
		f.users = slices.DeleteFunc(f.users, func(u use) bool { return u.e == e })
		if len(f.users) == 0 {
			f.cancel()
			delete(h.feeds, topic)
		}
	}
	for _, l := range e.listens {
		leave(l.topic)
	}
	for _, s := range e.presence.sources {
		leave(s.topic)
	}
}

// seen is when a message was sent; nobody knows it of a retained one.
func seen(it *item) time.Time {
	if it.retained {
		return time.Time{}
	}
	return it.at
}

// reported hands a message to the entities that follow its topic. It returns
// whether entities came or went, and whether a value changed.
func (h *Home) reported(it *item) (dirty, changed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := h.feeds[it.topic]
	if f == nil {
		return false, false
	}
	f.last, f.long = nil, len(it.payload) > maxKept
	if !f.long {
		kept := *it
		f.last = &kept
	}
	r := &report{text: it.payload, at: seen(it)}
	for _, u := range f.users {
		d, c := h.hand(u, it, r)
		dirty, changed = dirty || d, changed || c
	}
	return dirty, changed
}

// hand gives an entity a report. The caller holds mu.
func (h *Home) hand(u use, it *item, r *report) (dirty, changed bool) {
	if u.presence {
		return u.e.presence.take(u.i, r), false
	}
	l := &u.e.listens[u.i]
	changed, err := u.e.take(l, r)
	if err != nil {
		h.counters.Templates.Add(1)
		if !l.noted {
			l.noted = true
			h.log.Debug("home template made nothing of a message", "topic", clip(it.topic), "entity", u.e.name, "key", l.key, "error", err)
		}
	}
	return false, changed
}

// forget ends all subscriptions of entities and empties the tools.
func (h *Home) forget() {
	h.mu.Lock()
	for _, f := range h.feeds {
		f.cancel()
	}
	clear(h.feeds)
	clear(h.entities)
	clear(h.announced)
	h.mu.Unlock()
	h.rebuild()
}
