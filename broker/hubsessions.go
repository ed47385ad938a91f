package broker

import (
	"fmt"
	"strings"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
)

// attach gives a connection its session, new or old, ends the connection that had
// it, sends CONNACK and lets the session's queue flow. It refuses when there are
// too many sessions.
func (h *hub) attach(c *homeClient, in *homeConnect) *refusal {
	h.mu.Lock()
	defer h.unlock()
	if h.closed {
		return &refusal{why: RefusedShutdown, v3: 3, v5: 0x8B, err: ErrShutdown}
	}
	s := h.sessions[in.key]
	if s != nil && s.client != nil {
		old := s.client
		h.leave(s, ErrTakenOver)
		h.stats.takenOver.Add(1)
		old.conn.shut(ErrTakenOver)
	}
	if s != nil && in.clean {
		h.end(s)
	}
	s = h.sessions[in.key]
	present := s != nil
	if !present {
		if !h.makeRoom() {
			return &refusal{why: RefusedFull, v3: 3, v5: 0x89,
				err: fmt.Errorf("%d home clients are connected, the limit", h.limits.MaxClients)}
		}
		s = &homeSession{key: in.key, limits: &h.limits, stats: &h.stats, subs: make(map[string]subscription)}
		h.sessions[in.key] = s
	}
	s.rules, s.expiry = c.rules, in.expiry
	s.will, s.willAt, s.expires = in.will, time.Time{}, time.Time{}
	if s.will != nil {
		s.will.msg.from = s
	}
	c.session = s
	// An error means that the connection has ended already, which its reader finds.
	_ = c.conn.enqueue(in.connack(present))
	if c.v5 {
		c.conn.letIn()
	}
	for _, id := range s.connect(c) {
		_ = c.conn.enqueue(ackPacket(firstPubrel, id, 0, c.v5))
	}
	c.conn.attend(c)
	return nil
}

// makeRoom reports whether there may be one session more. If there are too many
// it ends the absent one that is nearest its end. The lock is held.
func (h *hub) makeRoom() bool {
	if len(h.sessions) < h.limits.MaxClients {
		return true
	}
	var first *homeSession
	for _, s := range h.sessions {
		if s.client == nil && (first == nil || s.expires.Before(first.expires)) {
			first = s
		}
	}
	if first == nil {
		return false
	}
	h.end(first)
	return true
}

// detach takes a connection off its session when it has ended. A nil reason means
// that the client said DISCONNECT; wills are for all others.
func (h *hub) detach(c *homeClient, reason error) {
	h.mu.Lock()
	defer h.unlock()
	if c.session.client == c { // not taken over
		h.leave(c.session, reason)
	}
}

// setExpiry is for a client that leaves and asks for another time than it came
// with.
func (h *hub) setExpiry(c *homeClient, expiry time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.session.client == c {
		c.session.expiry = min(expiry, h.limits.SessionExpiry)
	}
}

// leave makes a session an absent one, or ends it. The lock is held.
func (h *hub) leave(s *homeSession, reason error) {
	s.disconnect()
	if reason == nil || h.closed {
		s.will = nil
	}
	if s.expiry <= 0 {
		h.end(s)
		return
	}
	now := time.Now()
	s.expires = now.Add(s.expiry)
	if s.will != nil {
		if s.willAt = now.Add(s.will.delay); s.will.delay <= 0 {
			h.publishWill(s)
		}
	}
	select {
	case h.kick <- struct{}{}:
	default: // keep will look anyway
	}
}

// end forgets a session without a connection, after its will. The lock is held.
func (h *hub) end(s *homeSession) {
	h.publishWill(s)
	for filter := range s.subs {
		h.unsubscribe(s, filter)
	}
	delete(h.sessions, s.key)
}

// publishWill publishes the will if there is one. The lock is held.
func (h *hub) publishWill(s *homeSession) {
	w := s.will
	s.will = nil
	if w == nil || h.closed {
		return
	}
	if w.expiry > 0 {
		w.msg.expires = time.Now().Add(w.expiry)
	}
	if err := h.route(w.msg); err != nil {
		h.log.Warn("will not retained", "user", s.key.user, "client_id", s.key.clientID, "topic", w.msg.topic, "error", err)
	}
}

// subscribe adds the filters of a SUBSCRIBE packet, answers it with a code for
// each, and queues what is retained under them. Whatever is published later comes
// after that. The error is ErrTakenOver if c no longer has its session.
func (h *hub) subscribe(c *homeClient, pk *packets.Packet) (denied string, err error) {
	h.mu.Lock()
	defer h.unlock()
	s := c.session
	if s.client != c {
		return "", ErrTakenOver
	}
	codes := make([]byte, len(pk.Filters))
	isNew := make([]bool, len(pk.Filters))
	for i := range pk.Filters {
		f := &pk.Filters[i]
		_, had := s.subs[f.Filter]
		isNew[i] = !had
		if codes[i] = h.judgeSubscription(s, f.Filter); codes[i] != 0 {
			if codes[i] == packets.ErrNotAuthorized.Code {
				denied = f.Filter
			}
			if !c.v5 {
				codes[i] = packets.ErrUnspecifiedError.Code // the one failure MQTT 3.1.1 has
			}
			continue
		}
		codes[i] = f.Qos
		h.add(s, f)
	}
	if err := c.conn.enqueue(suback(firstSuback, pk.PacketID, codes, c.v5)); err != nil {
		return denied, err
	}
	for i, f := range pk.Filters {
		if codes[i] <= 2 && (f.RetainHandling == 0 || f.RetainHandling == 1 && isNew[i]) {
			h.replay(s, f)
		}
	}
	return denied, nil
}

// judgeSubscription is 0 or the code that refuses a filter.
func (h *hub) judgeSubscription(s *homeSession, filter string) byte {
	_, had := s.subs[filter]
	switch {
	case strings.HasPrefix(filter, "$share/"):
		return packets.ErrSharedSubscriptionsNotSupported.Code
	case !validFilter(filter):
		return packets.ErrTopicFilterInvalid.Code
	case !s.rules.maySubscribe(filter):
		h.stats.denied.Add(1)
		return packets.ErrNotAuthorized.Code
	case !had && len(s.subs) >= h.limits.MaxSubscriptions:
		return packets.ErrQuotaExceeded.Code
	}
	return 0
}

// add makes a subscription, in place of the one with the same filter.
func (h *hub) add(s *homeSession, f *packets.Subscription) {
	sub := subscription{id: uint32(f.Identifier), qos: f.Qos, noLocal: f.NoLocal, retainAsPublished: f.RetainAsPublished}
	if _, had := s.subs[f.Filter]; !had {
		h.filters++
	}
	s.subs[f.Filter] = sub
	n := h.root.at(f.Filter)
	if n.clients == nil {
		n.clients = make(map[*homeSession]subscription)
	}
	n.clients[s] = sub
}

// unsubscribe removes a subscription, and reports whether there was one.
func (h *hub) unsubscribe(s *homeSession, filter string) bool {
	if _, ok := s.subs[filter]; !ok {
		return false
	}
	h.filters--
	delete(s.subs, filter)
	n := h.root.at(filter)
	if delete(n.clients, s); len(n.clients) == 0 {
		n.clients = nil
	}
	h.root.prune(filter)
	return true
}

// replay queues what is retained under a filter for a client that subscribed.
func (h *hub) replay(s *homeSession, f packets.Subscription) {
	for _, m := range h.retainedFor(f.Filter) {
		d := delivery{msg: m, qos: min(m.qos, f.Qos), retain: true, replay: true}
		if f.Identifier > 0 {
			d.ids = []uint32{uint32(f.Identifier)}
		}
		h.deliver(s, d)
	}
}

// unsubscribeAll removes the filters of an UNSUBSCRIBE packet and answers it.
func (h *hub) unsubscribeAll(c *homeClient, pk *packets.Packet) error {
	h.mu.Lock()
	defer h.unlock()
	if c.session.client != c {
		return ErrTakenOver
	}
	codes := make([]byte, len(pk.Filters))
	for i, f := range pk.Filters {
		if !h.unsubscribe(c.session, f.Filter) {
			codes[i] = packets.CodeNoSubscriptionExisted.Code
		}
	}
	if !c.v5 {
		codes = nil
	}
	return c.conn.enqueue(suback(firstUnsuback, pk.PacketID, codes, c.v5))
}
