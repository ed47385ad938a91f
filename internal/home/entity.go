package home

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A kind is what an entity is; its text is the component of discovery topics.
type kind string

const (
	kindDevice     kind = "device" // many entities in one announcement
	kindLight      kind = "light"
	kindSwitch     kind = "switch"
	kindFan        kind = "fan"
	kindHumidifier kind = "humidifier"
	kindCover      kind = "cover"
	kindClimate    kind = "climate"
	kindScene      kind = "scene"
	kindButton     kind = "button"
	kindNumber     kind = "number"
	kindSelect     kind = "select"
	kindSensor     kind = "sensor"
	kindBinary     kind = "binary_sensor"
	kindLock       kind = "lock"
	kindAlarm      kind = "alarm_control_panel"
)

// kindNamed is the kind of a component, "" for those nothing is made of.
func kindNamed(name string) kind {
	switch k := kind(name); k {
	case kindDevice, kindLight, kindSwitch, kindFan, kindHumidifier, kindCover, kindClimate, kindScene, kindButton,
		kindNumber, kindSelect, kindSensor, kindBinary, kindLock, kindAlarm:
		return k
	}
	return ""
}

// A role is what a value of an entity means.
type role string

const (
	roleState      role = "state"
	roleBrightness role = "brightness" // percent
	rolePercentage role = "percentage" // percent
	rolePosition   role = "position"   // percent, 100 is open
	roleCurrent    role = "current"    // of a climate, degrees
	roleTarget     role = "target"     // of a climate, degrees
	roleMode       role = "mode"       // of a climate
	roleAction     role = "action"     // of a climate
)

// A reading is a value an entity has reported, in Parley's own terms: "on" and
// "off", "open", "locked", percent.
type reading struct {
	text string
	at   time.Time // zero if it was retained, and nobody knows how old it is
}

// A listen is one topic an entity follows for one of its values.
type listen struct {
	topic string
	tpl   *template
	role  role
	key   string // of the template, for the log
	json  bool   // the payload is the whole state of a light
	noted bool   // that the template failed
}

// An entity is one thing that was announced. Its readings and its availability
// belong to Home's lock, all else never changes.
type entity struct {
	key       string
	kind      kind
	o         options
	templates map[string]*template // nil for one beyond the subset
	unique    string
	class     string
	unit      string
	area      string
	name      string // as Home Assistant would call it
	own       string // without its device's name
	device    string // its device's name
	listens   []listen
	presence  presence

	values map[role]reading
}

// A fault is a template or a topic that an entity has to do without.
type fault struct {
	key, value string
	err        error
}

// newEntity makes an entity of an announced component. errNotUsed means that it
// is fit for no tool; another error that the announcement is wrong.
func newEntity(key string, c component) (*entity, []fault, error) {
	o := c.o
	if category := o.text("entity_category", ""); category != "" && !isBattery(c.kind, o) {
		return nil, nil, errNotUsed // settings and diagnostics of the device itself
	}
	if o["enabled_by_default"] != nil && !o.flag("enabled_by_default") {
		return nil, nil, errNotUsed
	}
	e := &entity{
		key: key, kind: c.kind, o: o, templates: map[string]*template{}, values: map[role]reading{},
		unique: clip(o.text("unique_id", "")), class: clip(o.text("device_class", "")),
		unit: clip(o.text("unit_of_measurement", "")), area: speakable(c.device.text("suggested_area", "")),
	}
	e.device = speakable(c.device.text("name", ""))
	e.name, e.own = e.friendlyName()
	if e.name == "" {
		return nil, nil, errors.New("it has no name, nor has its device")
	}
	for _, heavy := range []string{"device", "origin", "effect_list", "effect_template", "json_attributes", "components"} {
		delete(o, heavy)
	}
	var faults []fault
	for key, v := range o {
		source, ok := v.(string)
		if !ok || !strings.HasSuffix(key, "_template") {
			continue
		}
		t, err := parseTemplate(source)
		if err != nil {
			t = nil
			if usesTemplate(c.kind, key) {
				faults = append(faults, fault{key, source, err})
			}
		}
		e.templates[key] = t
		delete(o, key)
	}
	e.listens = e.wanted()
	e.presence = newPresence(o, e.templates)
	for _, topic := range e.requiredTopics() {
		if o.topic(topic) == "" {
			return nil, nil, fmt.Errorf("%s is missing or is no topic", topic)
		}
	}
	return e, faults, nil
}

func isBattery(k kind, o options) bool {
	return k == kindSensor && o.text("device_class", "") == "battery"
}

func clip(s string) string {
	if len(s) > 128 {
		s = s[:128]
	}
	return strings.ToValidUTF8(s, "")
}

// friendlyName is what Home Assistant calls the entity: the device's name and its
// own, which may be absent, or begin with the device's.
func (e *entity) friendlyName() (name, own string) {
	dev := e.device
	own = speakable(e.o.text("name", ""))
	if own == "" && e.class != "" && (e.kind == kindSensor || e.kind == kindBinary || e.kind == kindNumber) {
		own = speakable(e.class)
		if len(dev) >= len(own) && strings.EqualFold(dev[len(dev)-len(own):], own) {
			return dev, dev // a door sensor that is called after its door
		}
	}
	switch {
	case own == "" && dev == "":
		own = speakable(e.o.text("object_id", ""))
		return own, own
	case own == "":
		return dev, dev
	case dev == "" || hasWordPrefix(own, dev):
		return own, own
	}
	return speakable(dev + " " + own), own
}

func hasWordPrefix(s, prefix string) bool {
	if len(s) < len(prefix) || !strings.EqualFold(s[:len(prefix)], prefix) {
		return false
	}
	return len(s) == len(prefix) || s[len(prefix)] == ' '
}

// requiredTopics are those without which the entity is of no use.
func (e *entity) requiredTopics() []string {
	switch e.kind {
	case kindSensor, kindBinary:
		return []string{"state_topic"}
	case kindCover:
		if e.o.topic("set_position_topic") != "" {
			return nil
		}
	case kindClimate:
		return nil
	}
	return []string{"command_topic"}
}

// usesTemplate reports whether a tool depends on a template, so that it is worth
// a line in the log that it cannot be used.
func usesTemplate(k kind, key string) bool {
	if key == "availability_template" || key == "value_template" || key == "command_template" || key == "state_value_template" {
		return true
	}
	for _, w := range wantedKeys(k) {
		if w.template == key {
			return true
		}
	}
	switch k {
	case kindLight:
		return slices.Contains([]string{"command_on_template", "command_off_template", "brightness_command_template",
			"color_temp_command_template", "rgb_command_template", "hs_command_template", "xy_command_template"}, key)
	case kindFan:
		return key == "percentage_command_template"
	case kindCover:
		return key == "set_position_template"
	case kindClimate:
		return key == "temperature_command_template" || key == "mode_command_template"
	}
	return false
}

// A wantedKey names the topic and the template of a role.
type wantedKey struct {
	role            role
	topic, template string
}

// wantedKeys says where an entity of a kind reports its values.
func wantedKeys(k kind) []wantedKey {
	switch k {
	case kindLight:
		return []wantedKey{{roleState, "state_topic", "state_value_template"}, {roleBrightness, "brightness_state_topic", "brightness_value_template"}}
	case kindFan:
		return []wantedKey{{roleState, "state_topic", "state_value_template"}, {rolePercentage, "percentage_state_topic", "percentage_value_template"}}
	case kindHumidifier:
		return []wantedKey{{roleState, "state_topic", "state_value_template"}}
	case kindCover:
		return []wantedKey{{roleState, "state_topic", "value_template"}, {rolePosition, "position_topic", "position_template"}}
	case kindClimate:
		return []wantedKey{
			{roleCurrent, "current_temperature_topic", "current_temperature_template"},
			{roleTarget, "temperature_state_topic", "temperature_state_template"},
			{roleMode, "mode_state_topic", "mode_state_template"},
			{roleAction, "action_topic", "action_template"},
		}
	case kindScene, kindButton:
		return nil
	}
	return []wantedKey{{roleState, "state_topic", "value_template"}}
}

// wanted lists the topics to follow. One whose template is beyond the subset is
// left out, and with it the value.
func (e *entity) wanted() []listen {
	if e.kind == kindLight {
		switch topic := e.o.topic("state_topic"); e.o.text("schema", "default") {
		case "json":
			if topic == "" {
				return nil
			}
			return []listen{{topic: topic, role: roleState, json: true}}
		case "template":
			keys := []wantedKey{{roleState, "state_topic", "state_template"}}
			if e.templates["brightness_template"] != nil {
				keys = append(keys, wantedKey{roleBrightness, "state_topic", "brightness_template"})
			}
			return e.listenTo(keys...)
		}
	}
	return e.listenTo(wantedKeys(e.kind)...)
}

func (e *entity) listenTo(keys ...wantedKey) []listen {
	var out []listen
	for _, w := range keys {
		topic, key := e.o.topic(w.topic), w.template
		t, own := e.templates[key]
		if !own && (w.role == roleState || e.kind == kindClimate) {
			// Tasmota's lights have it under this name, and a climate may have
			// one template for all.
			if general, ok := e.templates["value_template"]; ok {
				t, own, key = general, true, "value_template"
			}
		}
		if topic == "" || own && t == nil {
			continue
		}
		out = append(out, listen{topic: topic, tpl: t, role: w.role, key: key})
	}
	return out
}

// reports says whether the entity tells of a value at all.
func (e *entity) reports(r role) bool {
	if e.o.flag("optimistic") {
		return false
	}
	for _, l := range e.listens {
		if l.role == r || l.json && r == roleBrightness {
			return true
		}
	}
	return false
}

// value is the latest reading of a role, "" if there is none.
func (e *entity) value(r role) string { return e.values[r].text }

// percent is a reading as a number, -1 if there is none.
func (e *entity) percent(r role) int {
	if f, err := toFloat(e.value(r)); err == nil {
		return int(f)
	}
	return -1
}

// codeMatches compares a code that was said with the one announced.
func codeMatches(said, announced string) bool {
	return subtle.ConstantTimeCompare([]byte(said), []byte(announced)) == 1
}
