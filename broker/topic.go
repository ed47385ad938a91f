package broker

import (
	"strings"
	"unicode/utf8"

	"parley/internal/protocol"
)

// Bounds of a home client's topics and filters. Topics in use have under 200
// bytes and 12 levels; the tree of subscriptions has a node a level.
const (
	maxTopic  = 1024 // bytes
	maxLevels = 32
)

// validTopic reports whether t is a topic name that may be routed: MQTT 5,
// section 4.7.1, within our bounds.
func validTopic(t string) bool {
	return t != "" && len(t) <= maxTopic && strings.Count(t, "/") < maxLevels &&
		!strings.ContainsAny(t, "+#\x00") && utf8.ValidString(t)
}

// validFilter reports whether f is a topic filter within our bounds: "+" and "#"
// stand alone in their level, and "#" in the last.
func validFilter(f string) bool {
	if f == "" || len(f) > maxTopic || strings.Count(f, "/") >= maxLevels ||
		strings.ContainsRune(f, 0) || !utf8.ValidString(f) {
		return false
	}
	for more := true; more; {
		var level string
		level, f, more = strings.Cut(f, "/")
		if strings.ContainsAny(level, "+#") && (len(level) > 1 || level == "#" && more) {
			return false
		}
	}
	return true
}

// covers reports whether every topic that matches filter matches allowed. Both
// are valid filters; a topic is the filter that only it matches. "a/#" matches
// "a" as well (MQTT 5, section 4.7.1.2). Where two spellings mean the same, as
// "#" and "+/#" do, it may say no.
func covers(allowed, filter string) bool {
	for {
		a, restA, moreA := strings.Cut(allowed, "/")
		f, restF, moreF := strings.Cut(filter, "/")
		switch {
		case a == "#":
			return true
		case f == "#", a != "+" && a != f:
			return false
		case !moreF:
			return !moreA || restA == "#"
		case !moreA:
			return false
		}
		allowed, filter = restA, restF
	}
}

// coveredByAny reports whether one of the allowed filters covers filter.
func coveredByAny(allowed []string, filter string) bool {
	for _, a := range allowed {
		if covers(a, filter) {
			return true
		}
	}
	return false
}

// deviceTopics are the topics of voice devices. The leading slash is how another
// server spells the downlink.
var deviceTopics = []string{
	protocol.SharedUplinkTopic + "/#",
	protocol.DownlinkTopic("") + "#",
	"/" + protocol.DownlinkTopic("") + "#",
}

// reserved reports whether a topic, or all that a filter means, belongs to voice
// devices or to no client at all ($SYS, $share and their like). No rule of a user
// reaches there.
func reserved(filter string) bool {
	return strings.HasPrefix(filter, "$") || coveredByAny(deviceTopics, filter)
}

// rules are what one home client may do: its user's filters, with its names in
// the place of %u and %c.
type rules struct {
	publish, subscribe []string
}

// rulesFor fills in a user's filters. A client id that is no single level would
// reach beyond what the filter's author meant, so it gets none of those with %c.
func rulesFor(u *User, clientID string) rules {
	fill := func(filters []string) []string {
		out := make([]string, 0, len(filters))
		for _, f := range filters {
			if strings.Contains(f, "%c") && (clientID == "" || strings.ContainsAny(clientID, "+#/$%\x00")) {
				continue
			}
			f = strings.ReplaceAll(strings.ReplaceAll(f, "%u", u.Name), "%c", clientID)
			if validFilter(f) {
				out = append(out, f)
			}
		}
		return out
	}
	return rules{publish: fill(u.Publish), subscribe: fill(u.Subscribe)}
}

// mayPublish reports whether the client may publish to a topic.
func (r *rules) mayPublish(topic string) bool {
	return !reserved(topic) && coveredByAny(r.publish, topic)
}

// maySubscribe reports whether the client may have all that a filter means.
func (r *rules) maySubscribe(filter string) bool {
	return !reserved(filter) && coveredByAny(r.subscribe, filter)
}
