package home

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// A colour is one of a light, 0 to 255 each.
type colour struct{ r, g, b int }

// colourNamed reads a colour as it is said, or as #rrggbb.
func colourNamed(name string) (*colour, bool) {
	name = strings.ToLower(strings.TrimSpace(name))
	if hex, ok := strings.CutPrefix(name, "#"); ok && len(hex) == 6 {
		n, err := strconv.ParseUint(hex, 16, 32)
		return &colour{int(n >> 16), int(n >> 8 & 255), int(n & 255)}, err == nil
	}
	switch strings.NewReplacer(" ", "", "-", "", "_", "").Replace(name) {
	case "red":
		return &colour{255, 0, 0}, true
	case "orange":
		return &colour{255, 128, 0}, true
	case "amber":
		return &colour{255, 191, 0}, true
	case "yellow", "gold":
		return &colour{255, 230, 0}, true
	case "lime":
		return &colour{191, 255, 0}, true
	case "green":
		return &colour{0, 255, 0}, true
	case "turquoise", "teal":
		return &colour{0, 255, 191}, true
	case "cyan":
		return &colour{0, 255, 255}, true
	case "lightblue", "skyblue":
		return &colour{100, 190, 255}, true
	case "blue":
		return &colour{0, 0, 255}, true
	case "indigo":
		return &colour{75, 0, 200}, true
	case "purple", "violet":
		return &colour{160, 0, 255}, true
	case "magenta":
		return &colour{255, 0, 255}, true
	case "pink":
		return &colour{255, 90, 180}, true
	case "white":
		return &colour{255, 255, 255}, true
	}
	return nil, false
}

// kelvinNamed reads a colour temperature as it is said: in kelvin, or as a word.
func kelvinNamed(text string) (int, bool) {
	text = strings.ToLower(strings.TrimSpace(text))
	switch strings.TrimSuffix(text, " white") {
	case "candle", "candlelight":
		return 2000, true
	case "warm":
		return 2700, true
	case "neutral", "natural":
		return 4000, true
	case "cool", "cold":
		return 5500, true
	case "daylight":
		return 6500, true
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSuffix(text, "kelvin"), "k")), 64)
	if err != nil || n < 1000 || n > 20000 {
		return 0, false
	}
	return int(n), true
}

// hs is hue in degrees and saturation in percent, to two places.
func (c *colour) hs() (hue, saturation float64) {
	r, g, b := float64(c.r), float64(c.g), float64(c.b)
	high, low := max(r, g, b), min(r, g, b)
	if high == low {
		return 0, 0
	}
	d := high - low
	switch high {
	case r:
		hue = math.Mod((g-b)/d+6, 6)
	case g:
		hue = (b-r)/d + 2
	default:
		hue = (r-g)/d + 4
	}
	return hundredths(hue * 60), hundredths(d / high * 100)
}

func hundredths(f float64) float64 { return math.Round(f*100) / 100 }

// xy is the colour's place in the CIE 1931 chromaticity diagram, by the matrix
// that Philips gave for its lamps and Home Assistant uses.
func (c *colour) xy() (x, y float64) {
	linear := func(v int) float64 {
		f := float64(v) / 255
		if f > 0.04045 {
			return math.Pow((f+0.055)/1.055, 2.4)
		}
		return f / 12.92
	}
	r, g, b := linear(c.r), linear(c.g), linear(c.b)
	bigX := r*0.664511 + g*0.154324 + b*0.162028
	bigY := r*0.283881 + g*0.668433 + b*0.047685
	bigZ := r*0.000088 + g*0.072310 + b*0.986039
	sum := bigX + bigY + bigZ
	if sum == 0 {
		return 0.323, 0.329 // white, to be dark in
	}
	return math.Round(bigX/sum*1000) / 1000, math.Round(bigY/sum*1000) / 1000
}

// object is the colour in the JSON schema, in the first form of modes.
func (c *colour) object(modes []string) any {
	for _, mode := range modes {
		switch {
		case mode == "hs":
			h, s := c.hs()
			return map[string]float64{"h": h, "s": s}
		case mode == "xy":
			x, y := c.xy()
			return map[string]float64{"x": x, "y": y}
		}
		if slices.Contains([]string{"rgb", "rgbw", "rgbww"}, mode) {
			break
		}
	}
	o := map[string]int{"r": c.r, "g": c.g, "b": c.b}
	if slices.Contains(modes, "rgbw") || slices.Contains(modes, "rgbww") {
		o["w"] = 0
	}
	if slices.Contains(modes, "rgbww") {
		o["c"] = 0
	}
	return o
}
