package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"parley/internal/protocol"
)

// Tools of devices that these build on; docs/protocol.md lists them.
const (
	getStatus     = "self.get_device_status"
	setVolume     = "self.audio_speaker.set_volume"
	setBrightness = "self.screen.set_brightness"
	setTheme      = "self.screen.set_theme"
)

// Steps of louder and brighter, in percent points.
const (
	volumeStep     = 10
	brightnessStep = 20
)

func (t *Tools) deviceTools() []tool {
	return []tool{{
		name:        "adjust_volume",
		description: "Changes how loud the device is. percent is the new volume with set, and by how much with louder and quieter (10 if left out).",
		schema: json.RawMessage(`{"type":"object","properties":{
			"change":{"type":"string","enum":["louder","quieter","mute","max","set"]},
			"percent":{"type":"number","minimum":0,"maximum":100}},"required":["change"]}`),
		run: t.adjustVolume,
	}, {
		name:        "adjust_screen",
		description: "Changes the device's screen: its brightness, or its light or dark theme. percent is the new brightness with set, and by how much with brighter and darker (20 if left out).",
		schema: json.RawMessage(`{"type":"object","properties":{
			"change":{"type":"string","enum":["brighter","darker","light","dark","set"]},
			"percent":{"type":"number","minimum":0,"maximum":100}},"required":["change"]}`),
		run: t.adjustScreen,
	}}
}

func (t *Tools) adjustVolume(ctx context.Context, who caller, args arguments) (string, error) {
	change, err := args.oneOf("change", "louder", "quieter", "mute", "max", "set")
	if err != nil {
		return "", err
	}
	scale := scale{what: "volume", tool: setVolume, argument: "volume", path: [2]string{"audio_speaker", "volume"}, step: volumeStep}
	switch change {
	case "louder":
		return t.move(ctx, who, args, scale, 1)
	case "quieter":
		return t.move(ctx, who, args, scale, -1)
	case "mute":
		return t.put(ctx, who, scale, 0)
	case "max":
		return t.put(ctx, who, scale, 100)
	case "set":
		return t.putPercent(ctx, who, args, scale)
	}
	return "", errors.New("change is missing; it is one of louder, quieter, mute, max, set")
}

func (t *Tools) adjustScreen(ctx context.Context, who caller, args arguments) (string, error) {
	change, err := args.oneOf("change", "brighter", "darker", "light", "dark", "set")
	if err != nil {
		return "", err
	}
	scale := scale{what: "brightness", tool: setBrightness, argument: "brightness", path: [2]string{"screen", "brightness"}, step: brightnessStep}
	switch change {
	case "brighter":
		return t.move(ctx, who, args, scale, 1)
	case "darker":
		return t.move(ctx, who, args, scale, -1)
	case "set":
		return t.putPercent(ctx, who, args, scale)
	case "light", "dark":
		if _, err := t.ask(ctx, who.device, setTheme, map[string]any{"theme": change}); err != nil {
			return "", err
		}
		return "The screen is " + change + " now.", nil
	}
	return "", errors.New("change is missing; it is one of brighter, darker, light, dark, set")
}

// A scale is something on a device that goes from 0 to 100.
type scale struct {
	what           string
	tool, argument string    // that set it
	path           [2]string // of it in the device's status
	step           int
}

// move changes a scale by percent or a step in the direction of sign.
func (t *Tools) move(ctx context.Context, who caller, args arguments, s scale, sign int) (string, error) {
	step, given, err := args.number("percent", 0, 100)
	if err != nil {
		return "", err
	}
	if !given {
		step = float64(s.step)
	}
	text, err := t.ask(ctx, who.device, getStatus, nil)
	if err != nil {
		return "", err
	}
	now, ok := readStatus(text, s.path)
	if !ok {
		return "", fmt.Errorf("the device does not tell its %s; use change set with percent", s.what)
	}
	wanted := min(max(now+sign*int(math.Round(step)), 0), 100)
	if wanted == now {
		return fmt.Sprintf("The %s is at %d percent, which is as far as it goes.", s.what, now), nil
	}
	return t.put(ctx, who, s, wanted)
}

// putPercent sets a scale to the percent given.
func (t *Tools) putPercent(ctx context.Context, who caller, args arguments, s scale) (string, error) {
	n, given, err := args.number("percent", math.Inf(-1), math.Inf(1))
	if err != nil {
		return "", err
	}
	if !given {
		return "", errors.New("percent is missing; with set it is the new value, from 0 to 100")
	}
	return t.put(ctx, who, s, int(math.Round(min(max(n, 0), 100))))
}

func (t *Tools) put(ctx context.Context, who caller, s scale, percent int) (string, error) {
	if _, err := t.ask(ctx, who.device, s.tool, map[string]any{s.argument: percent}); err != nil {
		return "", err
	}
	return fmt.Sprintf("The %s is now %d percent.", s.what, percent), nil
}

// ask calls a tool of the device. Firmware answers false where it could not do
// what it was asked.
func (t *Tools) ask(ctx context.Context, device protocol.DeviceID, tool string, args map[string]any) (string, error) {
	if !t.house.HasTool(device, tool) {
		return "", fmt.Errorf("this device cannot do that: it has no tool %s", tool)
	}
	encoded, err := json.Marshal(args)
	if err != nil {
		return "", err
	}
	res, err := t.house.Call(ctx, device, tool, encoded)
	switch {
	case err != nil:
		return "", fmt.Errorf("the device did not do it: %w", err)
	case res.IsError || strings.TrimSpace(res.Text) == "false":
		return "", fmt.Errorf("the device refused: %s", clip(tidy(res.Text), 200))
	}
	return res.Text, nil
}

// readStatus finds a percentage in a device's status. It may be a number or, on
// some boards, a text.
func readStatus(text string, path [2]string) (int, bool) {
	var status map[string]json.RawMessage
	var part map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &status) != nil || json.Unmarshal(status[path[0]], &part) != nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(strings.Trim(string(part[path[1]]), `"`), 64)
	if err != nil || !(n >= 0 && n <= 100) {
		return 0, false
	}
	return int(math.Round(n)), true
}
