package home

import (
	"strings"
	"time"
)

// A report is one message on a topic that entities follow. Its JSON is decoded
// once, however many entities read it.
type report struct {
	text    string
	at      time.Time // zero for one that was retained
	decoded bool
	json    any
	isJSON  bool
}

func (r *report) value() (any, bool) {
	if !r.decoded {
		r.json, r.isJSON = decodeJSON([]byte(r.text))
		r.decoded = true
	}
	return r.json, r.isJSON
}

// render applies a template, if there is one.
func (r *report) render(t *template) (string, error) {
	if t == nil {
		return strings.TrimSpace(r.text), nil
	}
	return t.render(func(name string) (any, bool) {
		switch name {
		case "value":
			return r.text, true
		case "value_json":
			return r.value()
		}
		return nil, false
	})
}

// take reads a report for one of the topics the entity follows. It returns
// whether anything is different now, and an error if the template made nothing
// of it.
func (e *entity) take(l *listen, r *report) (changed bool, err error) {
	if l.json {
		v, _ := r.value()
		object, ok := v.(map[string]any)
		if !ok {
			return false, nil
		}
		o := options(object)
		changed = e.set(roleState, o.text("state", ""), r)
		if b := o.number("brightness", -1); b >= 0 {
			changed = e.set(roleBrightness, plainNumber(b), r) || changed
		}
		return changed, nil
	}
	text, err := r.render(l.tpl)
	if err != nil {
		return false, err
	}
	return e.set(l.role, text, r), nil
}

// set keeps a value if it means anything.
func (e *entity) set(role role, text string, r *report) bool {
	canonical, ok := e.canonical(role, text)
	if !ok {
		return false
	}
	before := e.values[role]
	e.values[role] = reading{text: canonical, at: r.at}
	return before.text != canonical
}

// canonical puts a reported value into Parley's own terms. Values that mean
// nothing for the entity are not kept: messages for several entities often
// share one topic.
func (e *entity) canonical(r role, text string) (string, bool) {
	if len(text) > 1024 || !cleanText(text) {
		return "", false
	}
	switch text {
	case "None", "unknown":
		return "", true
	case "":
		return "", false
	}
	switch r {
	case roleBrightness:
		return e.scaled(text, 0, e.o.number("brightness_scale", 255))
	case rolePercentage:
		low, high := e.o.number("speed_range_min", 1), e.o.number("speed_range_max", 100)
		return e.scaled(text, low-1, high)
	case rolePosition:
		return e.scaled(text, e.o.number("position_closed", 0), e.o.number("position_open", 100))
	case roleCurrent, roleTarget:
		_, err := toFloat(text)
		return text, err == nil
	case roleMode, roleAction:
		return strings.ToLower(text), true
	}
	table := e.stateTable()
	if table == nil {
		return text, true
	}
	for _, pair := range table {
		if text == pair[0] {
			return pair[1], true
		}
	}
	return "", false
}

func (e *entity) scaled(text string, from, to float64) (string, bool) {
	f, err := toFloat(text)
	if err != nil {
		return "", false
	}
	p, ok := percentOf(f, from, to)
	return plainNumber(float64(p)), ok
}

// stateTable pairs what an entity reports as its state with what it means, nil
// where every text is a state.
func (e *entity) stateTable() [][2]string {
	on, off := e.o.text("payload_on", "ON"), e.o.text("payload_off", "OFF")
	switch e.kind {
	case kindLight:
		switch e.o.text("schema", "default") {
		case "json":
			on, off = "ON", "OFF"
		case "template":
			on, off = "on", "off"
		}
		return [][2]string{{on, "on"}, {off, "off"}}
	case kindSwitch:
		return [][2]string{{e.o.text("state_on", on), "on"}, {e.o.text("state_off", off), "off"}}
	case kindFan, kindHumidifier, kindBinary:
		return [][2]string{{on, "on"}, {off, "off"}}
	case kindCover:
		return [][2]string{
			{e.o.text("state_open", "open"), "open"}, {e.o.text("state_closed", "closed"), "closed"},
			{e.o.text("state_opening", "opening"), "opening"}, {e.o.text("state_closing", "closing"), "closing"},
			{e.o.text("state_stopped", "stopped"), "stopped"},
		}
	case kindLock:
		return [][2]string{
			{e.o.text("state_locked", "LOCKED"), "locked"}, {e.o.text("state_unlocked", "UNLOCKED"), "unlocked"},
			{e.o.text("state_locking", "LOCKING"), "locking"}, {e.o.text("state_unlocking", "UNLOCKING"), "unlocking"},
			{e.o.text("state_jammed", "JAMMED"), "jammed"},
		}
	}
	return nil
}

// A presence decides whether an entity is online.
type presence struct {
	mode    string // all, any or latest
	sources []presenceSource
	latest  bool
	never   bool // a template beyond the subset: nobody can tell
}

type presenceSource struct {
	topic   string
	tpl     *template
	yes, no string
	online  bool
}

// newPresence reads availability in its two forms.
func newPresence(o options, templates map[string]*template) presence {
	p := presence{mode: o.text("availability_mode", "latest")}
	entries, _ := o["availability"].([]any)
	for i, entry := range entries {
		members, ok := entry.(map[string]any)
		if !ok || i >= maxAvailability {
			continue
		}
		p.add(options(members), nil)
	}
	if topic := o.topic("availability_topic"); topic != "" && len(p.sources) == 0 {
		t, has := templates["availability_template"]
		p.never = p.never || has && t == nil
		p.add(options{"topic": topic, "payload_available": o["payload_available"], "payload_not_available": o["payload_not_available"]}, t)
	}
	delete(o, "availability")
	return p
}

func (p *presence) add(o options, t *template) {
	topic := o.topic("topic")
	if topic == "" {
		return
	}
	if source := o.text("value_template", ""); source != "" {
		var err error
		if t, err = parseTemplate(source); err != nil {
			p.never = true
		}
	}
	p.sources = append(p.sources, presenceSource{
		topic: topic, tpl: t,
		yes: o.text("payload_available", "online"), no: o.text("payload_not_available", "offline"),
	})
}

// take reads a report for the source at i, and returns whether the entity came or
// went.
func (p *presence) take(i int, r *report) bool {
	before := p.online()
	s := &p.sources[i]
	text, err := r.render(s.tpl)
	switch {
	case err != nil:
		return false
	case text == s.yes:
		s.online = true
	case text == s.no:
		s.online = false
	default:
		return false
	}
	p.latest = s.online
	return p.online() != before
}

// online is whether the entity can be used. As in Home Assistant, one with
// availability topics is offline until it has been heard of.
func (p *presence) online() bool {
	if p.never || len(p.sources) == 0 {
		// Where nobody can tell, it is taken to be there: better a command that
		// nobody hears than a lamp that cannot be switched.
		return true
	}
	n := 0
	for _, s := range p.sources {
		if s.online {
			n++
		}
	}
	switch p.mode {
	case "all":
		return n == len(p.sources)
	case "any":
		return n > 0
	}
	return p.latest
}
