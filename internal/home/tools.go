package home

import (
	"encoding/json"
	"slices"
	"strings"

	"parley/mcp"
)

// The tools of the house. Each is offered while there is something to use it on.
const (
	toolOn      = "home_turn_on"
	toolOff     = "home_turn_off"
	toolToggle  = "home_toggle"
	toolCover   = "home_set_cover"
	toolFan     = "home_set_fan"
	toolClimate = "home_set_climate"
	toolScene   = "home_activate_scene"
	toolPress   = "home_press"
	toolValue   = "home_set_value"
	toolRead    = "home_read"
	toolList    = "home_list"
	toolLock    = "home_lock"
	toolUnlock  = "home_unlock"
	toolArm     = "home_arm"
	toolDisarm  = "home_disarm"
	toolGate    = "home_set_gate"
)

// maxEnum is how many names a tool lists for the model. Beyond it the list would
// cost every request more than a call of home_list now and then.
const maxEnum = 64

// GuardedTools lists the tools that open the house or disarm it: locks, alarm
// panels, garage doors and gates. A role should see one only if it allows the
// tool by its name.
func GuardedTools() []string {
	return []string{toolLock, toolUnlock, toolArm, toolDisarm, toolGate}
}

// isOwnTool reports whether a name is one of the house's tools, or might be.
func isOwnTool(name string) bool { return strings.HasPrefix(name, "home_") }

// A property is one argument of a tool.
type property struct {
	Type        string   `json:"type"`
	Description string   `json:"description,omitempty"`
	Enum        []string `json:"enum,omitempty"`
	Minimum     *float64 `json:"minimum,omitempty"`
	Maximum     *float64 `json:"maximum,omitempty"`
}

// schema is the JSON schema of a tool's arguments.
func schema(properties map[string]property, required ...string) json.RawMessage {
	b, err := json.Marshal(struct {
		Type       string              `json:"type"`
		Properties map[string]property `json:"properties"`
		Required   []string            `json:"required,omitempty"`
	}{"object", properties, required})
	if err != nil {
		panic(err) // texts and numbers always marshal
	}
	return b
}

// between is an argument of whole numbers.
func between(description string, low, high float64) property {
	return property{Type: "integer", Description: description, Minimum: &low, Maximum: &high}
}

// oneOf is an argument of few words.
func oneOf(description string, words ...string) property {
	return property{Type: "string", Description: description, Enum: words}
}

// fits returns what a tool can be used on.
func fits(tool string) func(*thing) bool {
	kinds := func(list ...kind) func(*thing) bool {
		return func(t *thing) bool { return slices.Contains(list, t.kind) }
	}
	switch tool {
	case toolOn, toolOff, toolToggle:
		return kinds(kindLight, kindSwitch, kindFan, kindHumidifier)
	case toolCover:
		return func(t *thing) bool { return t.kind == kindCover && !t.guarded() }
	case toolGate:
		return func(t *thing) bool { return t.kind == kindCover && t.guarded() }
	case toolFan:
		return func(t *thing) bool { return t.kind == kindFan && t.o.topic("percentage_command_topic") != "" }
	case toolClimate:
		return kinds(kindClimate)
	case toolScene:
		return kinds(kindScene)
	case toolPress:
		return kinds(kindButton)
	case toolValue:
		return kinds(kindNumber, kindSelect)
	case toolLock, toolUnlock:
		return kinds(kindLock)
	case toolArm, toolDisarm:
		return kinds(kindAlarm)
	case toolRead:
		return func(t *thing) bool { return len(t.listens) > 0 }
	case toolList:
		return func(*thing) bool { return true }
	}
	return func(*thing) bool { return false }
}

// guarded reports whether a cover lets people into the house.
func (e *entity) guarded() bool { return e.class == "garage" || e.class == "gate" || e.class == "door" }

// ownTools are the tools for what is online, in a fixed order.
func (v *view) ownTools() []mcp.Tool {
	var tools []mcp.Tool
	for _, def := range []struct {
		name, description string
		properties        map[string]property
		required          []string
	}{
		{toolOn, "Switch on a light, a switch or a fan, or all lights of a room.", v.lightProperties(), []string{"name"}},
		{toolOff, "Switch off a light, a switch or a fan, or all lights of a room.", nil, []string{"name"}},
		{toolToggle, "Switch over: on if it is off, off if it is on.", nil, []string{"name"}},
		{toolCover, "Open, close or stop a blind or curtain, or move it to a position.", coverProperties(), []string{"name"}},
		{toolFan, "Set the speed of a fan.", map[string]property{"percent": between("0 is off.", 0, 100)}, []string{"name", "percent"}},
		{toolClimate, "Set the temperature or the mode of heating or cooling.", map[string]property{
			"temperature": {Type: "number", Description: "Degrees, as the thermostat shows them."},
			"mode":        {Type: "string", Description: "Such as heat, cool, auto or off."},
		}, []string{"name"}},
		{toolScene, "Activate a scene.", nil, []string{"name"}},
		{toolPress, "Press a button.", nil, []string{"name"}},
		{toolValue, "Set a number or choose an option.", map[string]property{"value": {Type: "string"}}, []string{"name", "value"}},
		{toolRead, "Find out a temperature or any other reading, or how a thing is: on, open, locked.", nil, []string{"name"}},
		{toolList, "List the names of what is in the house, by kind.", map[string]property{"room": {Type: "string", Description: "Only of this room."}}, nil},
		{toolLock, "Lock a door.", nil, []string{"name"}},
		{toolUnlock, "Unlock a door.", nil, []string{"name"}},
		{toolArm, "Arm an alarm system.", map[string]property{"mode": oneOf("", alarmModes()...), "code": {Type: "string", Description: "Only if the user said one."}}, []string{"name"}},
		{toolDisarm, "Disarm an alarm system.", map[string]property{"code": {Type: "string", Description: "Only if the user said one."}}, []string{"name"}},
		{toolGate, "Open, close or stop a garage door or gate.", coverProperties(), []string{"name"}},
	} {
		names := v.namesFor(def.name)
		if len(names) == 0 {
			continue
		}
		properties := map[string]property{}
		for name, p := range def.properties {
			properties[name] = p
		}
		if slices.Contains(def.required, "name") {
			p := property{Type: "string", Enum: names}
			if len(names) > maxEnum {
				p = property{Type: "string", Description: "A name as home_list gives it, such as " + names[0] + "."}
			}
			properties["name"] = p
		}
		tools = append(tools, mcp.Tool{Name: def.name, Description: def.description, Schema: schema(properties, def.required...)})
	}
	return tools
}

func alarmModes() []string { return []string{"home", "away", "night", "vacation"} }

func coverProperties() map[string]property {
	return map[string]property{
		"action":   oneOf("", "open", "close", "stop"),
		"position": between("Percent open, instead of an action.", 0, 100),
	}
}

// lightProperties are what the lights that are online can do.
func (v *view) lightProperties() map[string]property {
	p := map[string]property{}
	for _, t := range v.things {
		if t.kind != kindLight {
			continue
		}
		if t.dims() {
			p["brightness"] = between("Percent, only for lights.", 1, 100)
		}
		if t.coloured() {
			p["color"] = property{Type: "string", Description: "An English colour name or #rrggbb, only for lights."}
		}
		if t.tempered() {
			p["color_temperature"] = between("Kelvin, only for lights: 2700 is warm, 4000 neutral, 6500 cold.", 1500, 9000)
		}
	}
	return p
}

// namesFor lists the names a tool takes, with those of rooms where it takes them.
func (v *view) namesFor(tool string) []string {
	fit := fits(tool)
	var names []string
	for _, t := range v.things {
		if fit(t) {
			names = append(names, t.called)
		}
	}
	if tool != toolOn && tool != toolOff {
		return names
	}
	for _, lights := range v.rooms {
		if len(lights) > 1 {
			names = append(names, spoken(lights[0].area)+" lights")
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// source is the [mcp.Source] of a Home.
type source struct{ h *Home }

// Tools implements [mcp.Source].
func (s source) Tools() []mcp.Tool { return slices.Clone(s.h.view.Load().tools) }
