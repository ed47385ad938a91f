package home

import (
	"errors"
	"fmt"
	"strings"
)

// A component is one entity of an announcement.
type component struct {
	kind   kind
	id     string // of a device's payload, "" otherwise
	o      options
	device options
}

// discoveryTopic takes a discovery topic apart:
// <prefix>/<component>/[<node_id>/]<object_id>/config.
func discoveryTopic(prefix, topic string) (kind kind, object string, ok bool) {
	rest, ok := strings.CutPrefix(topic, prefix+"/")
	if !ok {
		return "", "", false
	}
	rest, ok = strings.CutSuffix(rest, "/config")
	parts := strings.Split(rest, "/")
	if !ok || len(parts) < 2 || len(parts) > 3 || len(topic) > maxTopic {
		return "", "", false
	}
	return kindNamed(parts[0]), parts[len(parts)-1], true
}

// errNotUsed marks an announcement of something that no tool is made of.
var errNotUsed = errors.New("not used")

// parseAnnouncement reads the payload of a discovery topic. An empty list without
// an error means that what was announced there is gone.
func parseAnnouncement(k kind, payload []byte) ([]component, error) {
	if len(payload) == 0 {
		return nil, nil
	}
	v, ok := decodeJSON(payload)
	root, isObject := v.(map[string]any)
	if !ok || !isObject {
		return nil, errors.New("it is no JSON object")
	}
	o := options(expand(root, abbreviations))
	if o.flag("migrate_discovery") && len(o) == 1 {
		return nil, errNotUsed // Home Assistant moves it to another topic
	}
	device := options(expand(o.object("device"), deviceAbbreviations))
	if k != kindDevice {
		spreadBase(o, o.text("~", ""))
		return []component{{kind: k, o: o, device: device}}, nil
	}
	parts := o.object("components")
	if parts == nil {
		return nil, errors.New("it has no components")
	}
	if len(parts) > maxComponents {
		return nil, fmt.Errorf("it has %d components, at most %d are read", len(parts), maxComponents)
	}
	var out []component
	for id, part := range parts {
		members, ok := part.(map[string]any)
		if !ok {
			continue
		}
		c := options(expand(members, abbreviations))
		k := kindNamed(c.text("platform", ""))
		if k == "" || k == kindDevice || len(c) == 1 {
			continue // nothing but its platform: it is gone
		}
		for _, key := range sharedKeys() {
			if _, own := c[key]; !own && o[key] != nil {
				c[key] = o[key]
			}
		}
		spreadBase(c, c.text("~", o.text("~", "")))
		out = append(out, component{kind: k, id: id, o: c, device: device})
	}
	return out, nil
}

// sharedKeys are the members that a device's payload has for all its components.
func sharedKeys() []string {
	return []string{"availability", "availability_mode", "availability_topic", "availability_template",
		"payload_available", "payload_not_available", "command_topic", "state_topic", "encoding"}
}

// spreadBase puts the base topic in place of a ~ at either end of a topic.
func spreadBase(o options, base string) {
	put := func(topic string) string {
		if after, ok := strings.CutPrefix(topic, "~"); ok {
			return base + after
		}
		if before, ok := strings.CutSuffix(topic, "~"); ok {
			return before + base
		}
		return topic
	}
	for key, v := range o {
		if s, ok := v.(string); ok && strings.HasSuffix(key, "topic") {
			o[key] = put(s)
		}
	}
	entries, ok := o["availability"].([]any)
	if one, isObject := o["availability"].(map[string]any); isObject {
		entries, ok = []any{one}, true
	}
	if !ok {
		return
	}
	fresh := make([]any, 0, len(entries)) // the components of a device share the entries
	for _, entry := range entries {
		if members, ok := entry.(map[string]any); ok {
			members = expand(members, abbreviations)
			if s, ok := members["topic"].(string); ok {
				members["topic"] = put(s)
			}
			fresh = append(fresh, members)
		}
	}
	o["availability"] = fresh
}
