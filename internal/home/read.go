package home

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"parley/mcp"
)

// stale is the age from which a reading is said with its age.
const stale = 30 * time.Minute

// the puts an article before a name, unless it has one.
func the(name string) string {
	first, _, _ := strings.Cut(strings.ToLower(name), " ")
	if first == "the" || first == "my" || first == "our" {
		return name
	}
	return "the " + name
}

// sentence makes a text one: a capital first, and a full stop.
func sentence(text string) string {
	r := []rune(text)
	if len(r) == 0 {
		return ""
	}
	return strings.ToUpper(string(r[0])) + string(r[1:]) + "."
}

// read says what an entity has reported.
func (h *Home) read(v *view, name string) (mcp.Result, error) {
	things, err := v.resolve(toolRead, name)
	if err != nil {
		return mcp.Result{}, err
	}
	t := things[0]
	h.mu.Lock()
	value, unit, text, at := t.say(time.Now())
	h.mu.Unlock()
	if text == "" {
		return mcp.Result{}, refuse("%s", sentence(the(t.called)+" has not reported anything yet"))
	}
	members := map[string]any{"name": t.called, "value": value, "text": text}
	if unit != "" {
		members["unit"] = unit
	}
	if !at.IsZero() {
		members["seen"] = at.UTC().Format(time.RFC3339)
	}
	return result(members), nil
}

// say puts an entity's readings into words; text is "" if there are none. The
// caller holds Home's lock.
func (t *thing) say(now time.Time) (value any, unit, text string, at time.Time) {
	main := t.values[roleState]
	value = main.text
	about := "is " + main.text
	switch t.kind {
	case kindClimate:
		return t.sayClimate()
	case kindSensor, kindNumber:
		if f, err := toFloat(main.text); err == nil {
			f = t.rounded(f)
			value, unit = f, t.unit
			about = strings.TrimSpace("is " + plainNumber(f) + " " + spokenUnit(t.unit, f))
		}
	case kindBinary:
		about = "is " + binaryWord(t.class, main.text == "on")
	case kindLight, kindFan:
		about = "is " + main.text
		r := map[kind]role{kindLight: roleBrightness, kindFan: rolePercentage}[t.kind]
		if p := t.percent(r); p > 0 && main.text == "on" {
			about += " at " + strconv.Itoa(p) + " percent"
		}
	case kindCover:
		p := t.percent(rolePosition)
		moving := main.text == "opening" || main.text == "closing"
		switch {
		case p == 0 && !moving:
			value, about = "closed", "is closed"
		case p == 100 && !moving:
			value, about = "open", "is open"
		case p >= 0 && !moving:
			value, about = p, "is "+strconv.Itoa(p)+" percent open"
			unit = "%"
		}
		if main.text == "" {
			main = t.values[rolePosition]
		}
	default:
		about = "is " + strings.ReplaceAll(main.text, "_", " ")
	}
	if main.text == "" {
		return nil, "", "", time.Time{}
	}
	if limit := t.o.number("expire_after", 0); limit > 0 && !main.at.IsZero() && now.Sub(main.at) > time.Duration(limit*float64(time.Second)) {
		return nil, "", "", time.Time{} // too old to be true, as the entity has announced
	}
	text = the(t.called) + " " + about
	if !main.at.IsZero() && now.Sub(main.at) > stale {
		text += ", as of " + spokenAge(now.Sub(main.at)) + " ago"
	}
	return value, unit, sentence(text), main.at
}

// sayClimate says how warm it is and what was set.
func (t *thing) sayClimate() (value any, unit, text string, at time.Time) {
	unit = "°C"
	if t.fahrenheit() {
		unit = "°F"
	}
	var parts []string
	current, target := t.values[roleCurrent], t.values[roleTarget]
	if f, err := toFloat(current.text); err == nil {
		f = math.Round(f*10) / 10
		value, at = f, current.at
		parts = append(parts, "is at "+plainNumber(f)+" "+spokenUnit(unit, f))
	}
	if f, err := toFloat(target.text); err == nil {
		parts = append(parts, "is set to "+plainNumber(f))
		if value == nil {
			value, at = f, target.at
		}
	}
	if mode := t.value(roleMode); mode == "off" {
		parts = append(parts, "is off")
		if value == nil {
			value = "off"
		}
	}
	if len(parts) == 0 {
		return nil, "", "", at
	}
	return value, unit, sentence(the(t.called) + " " + strings.Join(parts, " and ")), at
}

// rounded is a number with as many decimals as the entity wants shown, or two.
func (t *thing) rounded(f float64) float64 {
	scale := math.Pow10(int(min(max(t.o.number("suggested_display_precision", 2), 0), 6)))
	return math.Round(f*scale) / scale
}

// spokenAge is a time in the largest unit that fits.
func spokenAge(d time.Duration) string {
	n, unit := int(d/time.Minute), "minute"
	switch {
	case d >= 48*time.Hour:
		n, unit = int(d/(24*time.Hour)), "day"
	case d >= 90*time.Minute:
		n, unit = int(d.Round(time.Hour)/time.Hour), "hour"
	}
	if n != 1 {
		unit += "s"
	}
	return strconv.Itoa(n) + " " + unit
}

// binaryWord is what on and off mean for a binary sensor of a class, as in Home
// Assistant.
func binaryWord(class string, on bool) string {
	words := [2]string{"off", "on"}
	switch class {
	case "door", "window", "garage_door", "opening":
		words = [2]string{"closed", "open"}
	case "motion", "occupancy", "presence", "vibration", "sound", "smoke", "gas", "carbon_monoxide":
		words = [2]string{"clear", "detected"}
	case "moisture":
		words = [2]string{"dry", "wet"}
	case "battery":
		words = [2]string{"normal", "low"}
	case "lock":
		words = [2]string{"locked", "unlocked"}
	case "connectivity":
		words = [2]string{"disconnected", "connected"}
	case "plug":
		words = [2]string{"unplugged", "plugged in"}
	case "problem", "safety", "tamper":
		words = [2]string{"all right", "reporting a problem"}
	case "running", "moving":
		words = [2]string{"not " + class, class}
	case "cold":
		words = [2]string{"not cold", "cold"}
	case "heat":
		words = [2]string{"not hot", "hot"}
	}
	if on {
		return words[1]
	}
	return words[0]
}

// spokenUnit is a unit as it is said after a number.
func spokenUnit(unit string, of float64) string {
	one := of == 1 || of == -1
	plural := func(singular, several string) string {
		if one {
			return singular
		}
		return several
	}
	switch unit {
	case "°C":
		return plural("degree", "degrees") + " Celsius"
	case "°F":
		return plural("degree", "degrees") + " Fahrenheit"
	case "°":
		return plural("degree", "degrees")
	case "km/h":
		return plural("kilometre", "kilometres") + " per hour"
	case "m/s":
		return plural("metre", "metres") + " per second"
	case "µg/m³", "μg/m³":
		return plural("microgram", "micrograms") + " per cubic metre"
	case "m³":
		return plural("cubic metre", "cubic metres")
	case "ft³":
		return plural("cubic foot", "cubic feet")
	case "in":
		return plural("inch", "inches")
	}
	if word, ok := unitWords[unit]; ok {
		if one || !strings.HasSuffix(word, "+") {
			return strings.TrimSuffix(word, "+")
		}
		return strings.TrimSuffix(word, "+") + "s"
	}
	return unit
}

// unitWords are units whose word takes an s, marked with a plus, or none. The
// table never changes.
var unitWords = map[string]string{
	"%": "percent", "K": "kelvin", "W": "watt+", "kW": "kilowatt+", "Wh": "watt hour+", "kWh": "kilowatt hour+",
	"V": "volt+", "mV": "millivolt+", "A": "ampere+", "mA": "milliampere+", "VA": "volt ampere+", "Hz": "hertz",
	"Pa": "pascal+", "hPa": "hectopascal+", "kPa": "kilopascal+", "mbar": "millibar+", "bar": "bar", "psi": "psi",
	"lx": "lux", "lux": "lux", "lm": "lumen+", "ppm": "parts per million", "ppb": "parts per billion",
	"dB": "decibel+", "dBm": "decibel milliwatt+", "ms": "millisecond+", "s": "second+", "min": "minute+", "h": "hour+", "d": "day+",
	"mm": "millimetre+", "cm": "centimetre+", "m": "metre+", "km": "kilometre+", "mi": "mile+",
	"g": "gram+", "kg": "kilogram+", "L": "litre+", "l": "litre+", "mL": "millilitre+", "mph": "miles per hour", "€": "euro+", "$": "dollar+",
}

// list names what is in the house, by kind.
func (v *view) list(room string) (mcp.Result, error) {
	const maxListed = 300
	wanted := keyOf(room)
	kinds := map[string][]string{}
	n := 0
	for _, t := range v.things {
		if wanted != "" && !subset(wordsOf(room), append(wordsOf(t.area), t.words...)) {
			continue
		}
		if n++; n <= maxListed {
			kinds[listedAs(t.kind)] = append(kinds[listedAs(t.kind)], t.called)
		}
	}
	if n == 0 {
		return mcp.Result{}, refuse("There is nothing of the room %q online.", room)
	}
	var text []string
	members := map[string]any{}
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		members[k] = kinds[k]
		text = append(text, strconv.Itoa(len(kinds[k]))+" "+pluralOf(k, len(kinds[k])))
	}
	if n > maxListed {
		members["left_out"] = n - maxListed
	}
	members["text"] = "I know of " + strings.Join(text, ", ") + "."
	return result(members), nil
}

// listedAs is what home_list calls the things of a kind.
func listedAs(k kind) string {
	switch k {
	case kindBinary:
		return "detector"
	case kindClimate:
		return "thermostat"
	case kindAlarm:
		return "alarm panel"
	}
	return string(k)
}

func pluralOf(noun string, n int) string {
	switch {
	case n == 1:
		return noun
	case strings.HasSuffix(noun, "ch"):
		return noun + "es"
	}
	return noun + "s"
}
