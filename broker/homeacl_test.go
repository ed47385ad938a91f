package broker

import (
	"strings"
	"testing"

	"github.com/mochi-mqtt/server/v2/packets"

	"parley/internal/protocol"
)

// What the user "lamp" may do as client "l1".
func TestRules(t *testing.T) {
	for _, c := range []struct {
		publish bool
		topic   string
		allowed bool
	}{
		{true, "lamps/lamp/l1", true},
		{true, "lamps/lamp/l1/state/on", true},
		{true, "lamps/lamp/l2/state", false},
		{true, "lamps/other/l1/state", false},
		{true, "lamps/lamp/l1x", false},
		{true, "shared/x/state", true},
		{true, "shared/x/y/state", false},
		{true, "shared/x/set", false},
		{true, "cmnd/l1/x", false},
		{false, "cmnd/l1/#", true},
		{false, "cmnd/l1/+/x", true},
		{false, "cmnd/l1", true},
		{false, "cmnd/+/x", false},
		{false, "cmnd/#", false},
		{false, "cmnd/l2/#", false},
		{false, "#", false},
		{false, "+", false},
		{false, "shared/+/set", true},
		{false, "shared/x/set", true},
		{false, "shared/#", false},
		{false, "shared/+/#", false},
		{false, "shared/+/+", false},
		{false, "$SYS/#", false},
		{false, "lamps/lamp/l1/#", false},
	} {
		inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
			for _, version := range []byte{4, 5} {
				h := asUser("lamp", "l1")
				h.version = version
				p := joinHome(t, l.dial(t, "10.0.0.1:1"), h)
				if !c.publish {
					want := byte(0)
					if !c.allowed {
						want = map[byte]byte{4: 0x80, 5: 0x87}[version]
					}
					if code := p.subscribe(c.topic, 0); code != want {
						t.Errorf("SUBSCRIBE %q, version %d: code %#x, want %#x", c.topic, version, code, want)
					}
					continue
				}
				p.send(c.topic, "x", 1, true, 3)
				ack := p.next(firstPuback)
				if refused := len(ack.body) > 2 && ack.body[2] == 0x87; refused != (version == 5 && !c.allowed) {
					t.Errorf("PUBLISH %q, version %d: PUBACK %x", c.topic, version, ack.body)
				}
				p.send(c.topic, "x", 2, true, 4)
				if ack := p.next(firstPubrec); version == 5 && !c.allowed && (len(ack.body) < 3 || ack.body[2] != 0x87) {
					t.Errorf("PUBLISH %q: PUBREC %x", c.topic, ack.body)
				}
				p.send(c.topic, "x", 0, true, 0)
				p.ping() // it stays connected
			}
			s := b.Stats().Home
			if got := s.Retained == 1; got != (c.publish && c.allowed) {
				t.Errorf("PUBLISH %q: %d retained", c.topic, s.Retained)
			}
			if (s.Denied > 0) == c.allowed {
				t.Errorf("%q: %d denied", c.topic, s.Denied)
			}
		})
	}
}

// A client id that would widen a rule with %c gets nothing from it.
func TestClientIDIsOneLevel(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, _ *Embedded, l *pipeListener) {
		for _, id := range []string{"#", "+", "l1/#", "l1/x", "%u", "$x"} {
			p := joinHome(t, l.dial(t, "10.0.0.1:1"), asUser("lamp", id))
			for _, f := range []string{"cmnd/#", "cmnd/+/#", "cmnd/" + id, "cmnd/" + id + "/x", "cmnd/l1/x"} {
				if code := p.subscribe(f, 0); code != 0x80 {
					t.Errorf("client id %q may subscribe to %q", id, f)
				}
			}
			p.mustSubscribe("shared/+/set", 0)
		}
	})
}

// Whatever a session subscribed to, what the rules do not allow is not delivered.
func TestDeliveryIsChecked(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := joinHome(t, l.dial(t, "10.0.0.1:1"), asUser("lamp", "l1"))
		p.ping()
		b.home.mu.Lock()
		for _, s := range b.home.sessions {
			b.home.add(s, &packets.Subscription{Filter: "#"})
		}
		b.home.mu.Unlock()
		for _, topic := range []string{"secret", "cmnd/l2/x", "cmnd/l1/x"} {
			if err := b.Home().Publish(topic, nil, false); err != nil {
				t.Fatal(err)
			}
		}
		p.hears("cmnd/l1/x ")
		p.quiet()
		if s := b.Stats().Home; s.Denied != 2 {
			t.Errorf("%d denied, want 2", s.Denied)
		}
	})
}

func TestFilterCodes(t *testing.T) {
	inHome(t, HomeLimits{MaxSubscriptions: 2}, func(t *testing.T, b *Embedded, l *pipeListener) {
		p := home5(t, l, hello{clientID: "p"})
		for _, c := range []struct {
			filter string
			code   byte
		}{
			{"", 0x8F}, {"a#", 0x8F}, {"#/a", 0x8F}, {"a/+b", 0x8F}, {strings.Repeat("x", 1025), 0x8F},
			{strings.Repeat("/", 32), 0x8F}, {"$share/g/a", 0x9E}, {"$SYS/#", 0x87}, {protocol.DownlinkTopic(macA), 0x87},
			{"a", 0}, {"b", 0}, {"c", 0x97}, {"a", 0},
		} {
			if code := p.subscribe(c.filter, 0); code != c.code {
				t.Errorf("SUBSCRIBE %.20q: code %#x, want %#x", c.filter, code, c.code)
			}
		}
		p.send(strings.Repeat("/", 32), "x", 1, true, 1)
		if ack := p.next(firstPuback); len(ack.body) < 3 || ack.body[2] != 0x90 {
			t.Errorf("PUBACK %x, want code 0x90", ack.body)
		}
	})
}

// FuzzCovers: a filter that is covered by another matches nothing the other does
// not, by a matcher that knows only the specification's words.
func FuzzCovers(f *testing.F) {
	for _, s := range [][3]string{{"a/#", "a", "a"}, {"+/b/#", "a/b/+", "a/b/c"}, {"#", "+/x", "a/x"}, {"a/+", "a/#", "a/"}} {
		f.Add(s[0], s[1], s[2])
	}
	f.Fuzz(func(t *testing.T, allowed, filter, topic string) {
		if !validFilter(allowed) || !validFilter(filter) || !validTopic(topic) {
			return
		}
		if got, want := covers(filter, topic), specMatch(strings.Split(filter, "/"), strings.Split(topic, "/")); got != want {
			t.Errorf("%q matches %q: %v, want %v", filter, topic, got, want)
		}
		if covers(allowed, filter) && covers(filter, topic) && !covers(allowed, topic) {
			t.Errorf("%q covers %q, which matches %q, which the first does not", allowed, filter, topic)
		}
		// The tree finds what matches.
		var root node
		var hits int
		root.at(filter).listeners = []*listener{nil}
		root.match(topic, func(n *node) { hits += len(n.listeners) })
		if want := covers(filter, topic); (hits == 1) != want || hits > 1 {
			t.Errorf("the tree finds %q for %q %d times, want %v", filter, topic, hits, want)
		}
		root.at(topic).retained = new(message)
		hits = 0
		root.matchRetained(filter, func(*message) { hits++ })
		if want := covers(filter, topic); (hits == 1) != want || hits > 1 {
			t.Errorf("the tree finds %q under %q %d times, want %v", topic, filter, hits, want)
		}
		root.at(topic).retained, root.at(filter).listeners = nil, nil
		root.prune(topic)
		if root.prune(filter); len(root.next) != 0 {
			t.Errorf("the tree keeps nodes of %q and %q", filter, topic)
		}
	})
}

// specMatch is section 4.7.1 of MQTT 5, word for word.
func specMatch(filter, topic []string) bool {
	switch {
	case len(filter) > 0 && filter[0] == "#":
		return true
	case len(filter) == 0 || len(topic) == 0:
		return len(filter) == len(topic)
	case filter[0] != "+" && filter[0] != topic[0]:
		return false
	case len(topic) == 1 && len(filter) == 2 && filter[1] == "#":
		return true
	}
	return specMatch(filter[1:], topic[1:])
}
