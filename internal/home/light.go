package home

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
)

// light switches a light on or off, in the schema that it announced.
func (o *order) light(on bool, s setting) error {
	e := o.t.entity
	if on {
		switch {
		case s.brightness > 0 && !e.dims():
			return refuse("%s cannot be dimmed.", the(o.t.called))
		case s.colour != nil && !e.coloured():
			return refuse("%s has no colours.", the(o.t.called))
		case s.kelvin > 0 && !e.tempered():
			return refuse("%s has no colour temperature.", the(o.t.called))
		}
		if s.brightness > 0 {
			o.want[roleBrightness] = strconv.Itoa(s.brightness)
		}
	}
	switch e.o.text("schema", "default") {
	case "json":
		return o.jsonLight(on, s)
	case "template":
		return o.templateLight(on, s)
	}
	return o.defaultLight(on, s)
}

// colourModes are those a light of the JSON schema has announced.
func (e *entity) colourModes() []string {
	modes := e.o.list("supported_color_modes")
	for _, old := range []string{"brightness", "color_temp", "rgb", "hs", "xy"} {
		if e.o.flag(old) {
			modes = append(modes, old)
		}
	}
	return modes
}

func (e *entity) dims() bool {
	switch e.o.text("schema", "default") {
	case "json":
		return slices.ContainsFunc(e.colourModes(), func(m string) bool { return m != "onoff" })
	case "template":
		return e.templates["brightness_template"] != nil
	}
	return e.o.topic("brightness_command_topic") != ""
}

func (e *entity) coloured() bool {
	switch e.o.text("schema", "default") {
	case "json":
		return slices.ContainsFunc(e.colourModes(), func(m string) bool { return strings.HasPrefix(m, "rgb") || m == "hs" || m == "xy" })
	case "template":
		return e.templates["red_template"] != nil
	}
	return e.o.topic("rgb_command_topic") != "" || e.o.topic("hs_command_topic") != "" || e.o.topic("xy_command_topic") != ""
}

func (e *entity) tempered() bool {
	switch e.o.text("schema", "default") {
	case "json":
		return slices.Contains(e.colourModes(), "color_temp")
	case "template":
		return e.templates["color_temp_template"] != nil
	}
	return e.o.topic("color_temp_command_topic") != ""
}

// scaleBrightness is a brightness in percent on a light's own scale; what is not
// off is at least 1.
func scaleBrightness(percent int, scale float64) int64 {
	return max(1, int64(math.Round(float64(percent)*scale/100)))
}

// temperature is a colour temperature as the light wants it: in mireds, unless it
// has announced kelvin, and within its range.
func (e *entity) temperature(kelvin int) int64 {
	if e.o.flag("color_temp_kelvin") {
		low, high := e.o.number("min_kelvin", 2000), e.o.number("max_kelvin", 6535)
		return int64(min(max(float64(kelvin), low), high))
	}
	low, high := e.o.number("min_mireds", 153), e.o.number("max_mireds", 500)
	return int64(math.Round(min(max(1e6/float64(kelvin), low), high)))
}

// jsonLight publishes one JSON object.
func (o *order) jsonLight(on bool, s setting) error {
	e := o.t.entity
	p := struct {
		State      string `json:"state"`
		Brightness *int64 `json:"brightness,omitempty"`
		Color      any    `json:"color,omitempty"`
		ColorTemp  *int64 `json:"color_temp,omitempty"`
	}{State: "OFF"}
	if on {
		p.State = "ON"
		if s.brightness > 0 {
			p.Brightness = new(scaleBrightness(s.brightness, e.o.number("brightness_scale", 255)))
		}
		if s.colour != nil {
			p.Color = s.colour.object(e.colourModes())
		}
		if s.kelvin > 0 {
			p.ColorTemp = new(e.temperature(s.kelvin))
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return o.publish("command_topic", "", string(b), nil)
}

// templateLight publishes what the light's own template makes.
func (o *order) templateLight(on bool, s setting) error {
	if !on {
		return o.publish("command_topic", "command_off_template", "off", map[string]any{"state": "off"})
	}
	vars := map[string]any{"state": "on"}
	if s.brightness > 0 {
		vars["brightness"] = scaleBrightness(s.brightness, 255)
	}
	if s.kelvin > 0 {
		vars["color_temp"] = o.t.temperature(s.kelvin)
	}
	if c := s.colour; c != nil {
		hue, saturation := c.hs()
		vars["red"], vars["green"], vars["blue"] = int64(c.r), int64(c.g), int64(c.b)
		vars["hue"], vars["sat"] = hue, saturation
	}
	return o.publish("command_topic", "command_on_template", "on", vars)
}

// defaultLight publishes to a topic for each property. on_command_type says
// whether the command to switch on comes first, last, or is left out because the
// brightness switches on.
func (o *order) defaultLight(on bool, s setting) error {
	e := o.t.entity
	if !on {
		return o.publish("command_topic", "", e.o.text("payload_off", "OFF"), nil)
	}
	style := e.o.text("on_command_type", "last")
	if style == "brightness" && s.brightness < 0 && e.dims() {
		// As it was, or full: the brightness is what switches it on.
		s.brightness = 100
		if b := e.percent(roleBrightness); b > 0 {
			s.brightness = b
		}
	}
	switchOn := func() error { return o.publish("command_topic", "", e.o.text("payload_on", "ON"), nil) }
	if style == "first" {
		if err := switchOn(); err != nil {
			return err
		}
	}
	if c := s.colour; c != nil {
		if err := o.colour(c); err != nil {
			return err
		}
	}
	if s.kelvin > 0 {
		v := e.temperature(s.kelvin)
		if err := o.publish("color_temp_command_topic", "color_temp_command_template", strconv.FormatInt(v, 10), map[string]any{"value": v}); err != nil {
			return err
		}
	}
	if s.brightness > 0 {
		v := scaleBrightness(s.brightness, e.o.number("brightness_scale", 255))
		if err := o.publish("brightness_command_topic", "brightness_command_template", strconv.FormatInt(v, 10), map[string]any{"value": v}); err != nil {
			return err
		}
	}
	if style == "first" || style == "brightness" && s.brightness > 0 {
		return nil
	}
	return switchOn()
}

// colour publishes a colour in the first form the light takes.
func (o *order) colour(c *colour) error {
	e := o.t.entity
	hue, saturation := c.hs()
	switch {
	case e.o.topic("rgb_command_topic") != "":
		return o.publish("rgb_command_topic", "rgb_command_template",
			strconv.Itoa(c.r)+","+strconv.Itoa(c.g)+","+strconv.Itoa(c.b),
			map[string]any{"red": int64(c.r), "green": int64(c.g), "blue": int64(c.b)})
	case e.o.topic("hs_command_topic") != "":
		return o.publish("hs_command_topic", "hs_command_template", plainNumber(hue)+","+plainNumber(saturation),
			map[string]any{"hue": hue, "sat": saturation})
	}
	x, y := c.xy()
	return o.publish("xy_command_topic", "xy_command_template", plainNumber(x)+","+plainNumber(y), map[string]any{"x": x, "y": y})
}
