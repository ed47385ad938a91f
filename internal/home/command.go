package home

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A message is one to publish.
type message struct {
	topic, payload string
	retain         bool
}

// An order is what is published to one entity, and the readings that will show
// that it was obeyed.
type order struct {
	t    *thing
	send []message
	want map[role]string
}

// refusal is an error for the model to read: the command cannot be given.
type refusal string

func (r refusal) Error() string { return string(r) }

func refuse(format string, args ...any) error { return refusal(fmt.Sprintf(format, args...)) }

// A setting is what home_turn_on may change of a light besides.
type setting struct {
	brightness int // percent, -1 if not said
	colour     *colour
	kelvin     int // 0 if not said
}

// publish adds a message to the topic that an option names, its payload made by
// a template if there is one.
func (o *order) publish(topicKey, templateKey, payload string, vars map[string]any) error {
	e := o.t.entity
	topic := e.o.topic(topicKey)
	if topic == "" {
		return refuse("%s cannot do that.", the(o.t.called))
	}
	if t, ok := e.templates[templateKey]; ok {
		if t == nil {
			return refuse("%s cannot do that: its %s is not understood.", the(o.t.called), templateKey)
		}
		var err error
		payload, err = t.render(func(name string) (any, bool) { v, ok := vars[name]; return v, ok })
		if err != nil {
			return fmt.Errorf("%s of %s: %w", templateKey, o.t.called, err)
		}
	}
	if len(payload) > MaxPayload {
		return refuse("%s cannot do that: its payload is too long.", the(o.t.called))
	}
	o.send = append(o.send, message{topic, payload, e.o.flag("retain")})
	return nil
}

// turn switches an entity on or off.
func (o *order) turn(on bool, s setting) error {
	e := o.t.entity
	state := map[bool]string{true: "on", false: "off"}[on]
	o.want = map[role]string{roleState: state}
	if e.kind == kindLight {
		if on && s.brightness == 0 {
			return o.turn(false, setting{brightness: -1})
		}
		return o.light(on, s)
	}
	if s != (setting{brightness: -1}) {
		return refuse("%s is no light.", the(o.t.called))
	}
	payload := e.o.text("payload_off", "OFF")
	if on {
		payload = e.o.text("payload_on", "ON")
	}
	return o.publish("command_topic", "command_template", payload, map[string]any{"value": payload, "state": payload})
}

// cover moves a cover: open, close, stop, or to a position in percent.
func (o *order) cover(action string, percent int) error {
	e := o.t.entity
	canPosition := e.o.topic("set_position_topic") != ""
	if percent < 0 && canPosition && e.o.topic("command_topic") == "" {
		switch action {
		case "open":
			percent = 100
		case "close":
			percent = 0
		}
	}
	if percent >= 0 && canPosition {
		closed, open := e.o.number("position_closed", 0), e.o.number("position_open", 100)
		value := math.Round(closed + (open-closed)*float64(percent)/100)
		payload := plainNumber(value)
		o.want = map[role]string{rolePosition: strconv.Itoa(percent)}
		vars := map[string]any{"position": int64(value), "value": int64(value), "position_open": int64(open), "position_closed": int64(closed)}
		return o.publish("set_position_topic", "set_position_template", payload, vars)
	}
	switch percent {
	case -1:
	case 0:
		action = "close"
	case 100:
		action = "open"
	default:
		return refuse("%s can only be opened and closed.", the(o.t.called))
	}
	var key, payload string
	switch action {
	case "open":
		key, payload = "payload_open", "OPEN"
		o.want = map[role]string{roleState: "open"}
	case "close":
		key, payload = "payload_close", "CLOSE"
		o.want = map[role]string{roleState: "closed"}
	case "stop":
		key, payload = "payload_stop", "STOP"
		o.want = nil
	default:
		return refuse("Say open, close or stop, or a position from 0 to 100.")
	}
	if v, ok := e.o[key]; ok && v == nil {
		return refuse("%s cannot %s.", the(o.t.called), action) // announced as null
	}
	payload = e.o.text(key, payload)
	return o.publish("command_topic", "command_template", payload, map[string]any{"value": payload})
}

// fan sets a fan's speed in percent.
func (o *order) fan(percent int) error {
	if percent == 0 {
		return o.turn(false, setting{brightness: -1})
	}
	low, high := o.t.o.number("speed_range_min", 1), o.t.o.number("speed_range_max", 100)
	value := int64(math.Ceil((high-low+1)*float64(percent)/100 + low - 1))
	steps := high - low + 1
	shown, _ := percentOf(float64(value)-low+1, 0, steps)
	o.want = map[role]string{rolePercentage: strconv.Itoa(shown)}
	return o.publish("percentage_command_topic", "percentage_command_template", strconv.FormatInt(value, 10), map[string]any{"value": value})
}

// climate sets a temperature in the entity's own degrees, a mode, or both.
func (o *order) climate(temperature *float64, mode string) error {
	e := o.t.entity
	if temperature == nil && mode == "" {
		return refuse("Say a temperature or a mode.")
	}
	o.want = map[role]string{}
	if mode != "" {
		modes := e.o.list("modes")
		if len(modes) == 0 {
			modes = []string{"auto", "off", "cool", "heat", "dry", "fan_only"} // Home Assistant's default
		}
		i := slices.IndexFunc(modes, func(m string) bool {
			return strings.EqualFold(strings.ReplaceAll(m, "_", " "), strings.ReplaceAll(mode, "_", " "))
		})
		if i < 0 {
			return refuse("%s has no mode %q. It has: %s.", the(o.t.called), mode, strings.Join(modes, ", "))
		}
		if err := o.publish("mode_command_topic", "mode_command_template", modes[i], map[string]any{"value": modes[i]}); err != nil {
			return err
		}
		o.want[roleMode] = strings.ToLower(modes[i])
	}
	if temperature == nil {
		return nil
	}
	low, high := 7.0, 35.0
	if e.fahrenheit() {
		low, high = 44.6, 95
	}
	low, high = e.o.number("min_temp", low), e.o.number("max_temp", high)
	if *temperature < low || *temperature > high {
		return refuse("%s takes %s to %s degrees.", the(o.t.called), plainNumber(low), plainNumber(high))
	}
	text := plainNumber(*temperature)
	o.want[roleTarget] = text
	return o.publish("temperature_command_topic", "temperature_command_template", text, map[string]any{"value": *temperature})
}

func (e *entity) fahrenheit() bool {
	return e.o.text("temperature_unit", "C") == "F" || e.unit == "°F"
}

// activate starts a scene or presses a button.
func (o *order) activate() error {
	payload := o.t.o.text("payload_on", "ON")
	if o.t.kind == kindButton {
		payload = o.t.o.text("payload_press", "PRESS")
	}
	return o.publish("command_topic", "command_template", payload, map[string]any{"value": payload})
}

// setValue sets a number or selects an option.
func (o *order) setValue(value string) error {
	e := o.t.entity
	var v any
	if e.kind == kindSelect {
		choices := e.o.list("options")
		i := slices.IndexFunc(choices, func(c string) bool { return keyOf(speakable(c)) == keyOf(speakable(value)) })
		if i < 0 {
			return refuse("%s has no option %q. It has: %s.", the(o.t.called), value, strings.Join(choices[:min(20, len(choices))], ", "))
		}
		value, v = choices[i], choices[i]
	} else {
		f, err := toFloat(strings.TrimSuffix(strings.TrimSpace(value), "%"))
		low, high := e.o.number("min", 1), e.o.number("max", 100)
		if err != nil || f < low || f > high {
			return refuse("%s takes a number from %s to %s.", the(o.t.called), plainNumber(low), plainNumber(high))
		}
		value, v = plainNumber(f), f
		if f == math.Trunc(f) {
			v = int64(f)
		}
	}
	o.want = map[role]string{roleState: value}
	return o.publish("command_topic", "command_template", value, map[string]any{"value": v})
}

// lock locks or unlocks.
func (o *order) lock(lock bool) error {
	if o.t.o.text("code_format", "") != "" {
		return refuse("%s asks for a code, which cannot be given by voice.", the(o.t.called))
	}
	state, payload := "unlocked", o.t.o.text("payload_unlock", "UNLOCK")
	if lock {
		state, payload = "locked", o.t.o.text("payload_lock", "LOCK")
	}
	o.want = map[role]string{roleState: state}
	return o.publish("command_topic", "command_template", payload, map[string]any{"value": payload})
}

// alarm arms or disarms; mode is home, away, night, vacation or disarm.
func (o *order) alarm(mode, code string) error {
	e := o.t.entity
	state, key, payload := "armed_"+mode, "payload_arm_"+mode, "ARM_"+strings.ToUpper(mode)
	need := "code_arm_required"
	if mode == "disarm" {
		state, key, payload, need = "disarmed", "payload_disarm", "DISARM", "code_disarm_required"
	} else if features := e.o.list("supported_features"); features != nil && !slices.Contains(features, "arm_"+mode) {
		return refuse("%s cannot be armed like that.", the(o.t.called))
	}
	announced := e.o.text("code", "")
	required := announced != "" && (e.o[need] == nil || e.o.flag(need))
	remote := announced == "REMOTE_CODE" || announced == "REMOTE_CODE_TEXT"
	switch {
	case required && code == "":
		return refuse("%s asks for its code.", the(o.t.called))
	case required && !remote && !codeMatches(code, announced):
		return refuse("That is not the code of %s.", the(o.t.called))
	}
	payload = e.o.text(key, payload)
	o.want = map[role]string{roleState: state}
	return o.publish("command_topic", "command_template", payload, map[string]any{"action": payload, "code": code, "value": payload})
}
