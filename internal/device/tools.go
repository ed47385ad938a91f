package device

import (
	"context"
	"strings"
	"sync"
	"time"
)

// board is the state behind the default tools.
type board struct {
	mu         sync.Mutex
	volume     int
	brightness int
	theme      string
	battery    int
}

// DefaultTools are the tools of a board with a speaker, a screen, a camera and a
// battery, with the names, arguments and order of firmware 2.4. Each call makes
// tools with a state of their own: volume 70, brightness 75, theme light,
// battery 80 %, discharging.
func DefaultTools() []Tool {
	b := &board{volume: 70, brightness: 75, theme: "light", battery: 80}
	percent := func(name string) Property {
		low, high := 0, 100
		return Property{Name: name, Type: Integer, Min: &low, Max: &high}
	}
	return []Tool{
		{Name: "self.get_device_status", Call: b.status,
			Description: "Provides the real-time information of the device, including the current status of the audio speaker, screen, battery, network, etc.\nUse this tool for: \n1. Answering questions about current condition (e.g. what is the current volume of the audio speaker?)\n2. As the first step to control the device (e.g. turn up / down the volume of the audio speaker, etc.)"},
		{Name: "self.audio_speaker.set_volume", Properties: []Property{percent("volume")}, Call: b.setVolume,
			Description: "Set the volume of the audio speaker. If the current volume is unknown, you must call `self.get_device_status` tool first and then call this tool."},
		{Name: "self.screen.set_brightness", Properties: []Property{percent("brightness")}, Call: b.setBrightness,
			Description: "Set the brightness of the screen."},
		{Name: "self.screen.set_theme", Properties: []Property{{Name: "theme", Type: String}}, Call: b.setTheme,
			Description: "Set the theme of the screen. The theme can be `light` or `dark`."},
		{Name: "self.camera.take_photo", Properties: []Property{{Name: "question", Type: String}}, Duration: 2 * time.Second, Call: b.takePhoto,
			Description: "Take a photo and explain it. Use this tool after the user asks you to see something.\nArgs:\n  `question`: The question that you want to ask about the photo.\nReturn:\n  A JSON object that provides the photo information."},
		{Name: "self.get_system_info", UserOnly: true, Call: b.systemInfo,
			Description: "Get the system information"},
		{Name: "self.upgrade_firmware", UserOnly: true, Call: b.upgrade,
			// The description of url is its default by a slip in the firmware,
			// so url is not required.
			Properties:  []Property{{Name: "url", Type: String, Default: "The URL of the firmware binary file to download and install"}},
			Description: "Upgrade firmware from a specific URL. This will download and install the firmware, then reboot the device."},
		{Name: "self.screen.get_info", UserOnly: true, Call: b.screenInfo,
			Description: "Information about the screen, including width, height, etc."},
	}
}

func (b *board) status(context.Context, Args) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return map[string]any{
		"audio_speaker": map[string]any{"volume": b.volume},
		"screen":        map[string]any{"brightness": b.brightness, "theme": b.theme},
		"battery":       map[string]any{"level": b.battery, "charging": false},
		"network":       map[string]any{"type": "wifi", "ssid": "simulated", "signal": "strong"},
	}, nil
}

func (b *board) setVolume(_ context.Context, a Args) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.volume = a.Int("volume")
	return true, nil
}

func (b *board) setBrightness(_ context.Context, a Args) (any, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.brightness = a.Int("brightness")
	return true, nil
}

func (b *board) setTheme(_ context.Context, a Args) (any, error) {
	theme := a.Text("theme")
	if theme != "light" && theme != "dark" {
		return false, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.theme = theme
	return true, nil
}

// takePhoto answers what the vision service would; nothing is uploaded.
func (b *board) takePhoto(_ context.Context, a Args) (any, error) {
	return map[string]any{"success": true, "result": "A grey simulated wall. Asked: " + strings.TrimSpace(a.Text("question"))}, nil
}

func (b *board) systemInfo(context.Context, Args) (any, error) {
	return map[string]any{"version": 2, "chip_model_name": "esp32s3", "board": map[string]any{"type": boardName, "name": boardName}}, nil
}

// upgrade pretends: a simulated device has no firmware to replace.
func (b *board) upgrade(context.Context, Args) (any, error) { return true, nil }

func (b *board) screenInfo(context.Context, Args) (any, error) {
	return map[string]any{"width": 320, "height": 240, "monochrome": false}, nil
}
