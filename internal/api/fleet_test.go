package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"parley/internal/api"
	"parley/internal/protocol"
	"parley/mcp"
)

const kitchen = protocol.DeviceID("a0:85:e3:f4:49:34")

// A fakeFleet is a fleet whose devices do what they are asked, and remember it.
type fakeFleet struct {
	mu      sync.Mutex
	devices map[protocol.DeviceID]api.Device
	tools   []mcp.Tool
	asked   []string      // what the devices were asked, in order
	fail    error         // what every operation fails with
	hold    chan struct{} // operations wait until it is closed, or their context ends; nil: none waits
	holding chan struct{} // gets a value for every operation that begins to wait
}

func newFleet() *fakeFleet {
	return &fakeFleet{
		devices: map[protocol.DeviceID]api.Device{kitchen: {
			ID: kitchen, ClientID: "GID_parley@@@a0_85_e3_f4_49_34@@@uuid", Board: "bread-compact-wifi", Firmware: "2.2.1",
			Remote: netip.MustParseAddrPort("192.168.1.20:50001"), ConnectedAt: time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC),
			Role: "default", State: api.StateConnected, Tools: 4,
		}},
		tools: []mcp.Tool{
			{Name: "self.audio_speaker.set_volume", Description: "Sets it.", Schema: json.RawMessage(`{"type":"object","properties":{"volume":{"type":"integer"}}}`)},
			{Name: "self.camera.take_photo"},
			{Name: "self.reboot", UserOnly: true},
			{Name: "self.upgrade_firmware"}, // as old firmware tells it: not marked
		},
	}
}

// do is one operation: it notes what was asked, waits if it must, and fails if
// it must.
func (f *fakeFleet) do(ctx context.Context, id protocol.DeviceID, format string, args ...any) error {
	f.mu.Lock()
	_, known := f.devices[id]
	if known {
		f.asked = append(f.asked, fmt.Sprintf(format, args...))
	}
	fail, hold, holding := f.fail, f.hold, f.holding
	f.mu.Unlock()
	if !known {
		return fmt.Errorf("device %s: %w", id, api.ErrAbsent)
	}
	if hold != nil {
		if holding != nil {
			holding <- struct{}{}
		}
		select {
		case <-hold:
		case <-ctx.Done():
			return fmt.Errorf("it may still take effect: %w", ctx.Err())
		}
	}
	return fail
}

// requests returns what was asked since the last time.
func (f *fakeFleet) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

func (f *fakeFleet) set(change func(*fakeFleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func (f *fakeFleet) Devices() []api.Device {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []api.Device
	for _, id := range slices.Sorted(maps.Keys(f.devices)) {
		out = append(out, f.devices[id])
	}
	return out
}

func (f *fakeFleet) Device(id protocol.DeviceID) (api.Device, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok := f.devices[id]
	return d, ok
}

func (f *fakeFleet) Tools(_ context.Context, id protocol.DeviceID) ([]mcp.Tool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.devices[id]; !ok {
		return nil, api.ErrAbsent
	}
	if f.tools == nil {
		return nil, api.ErrNoTools
	}
	return slices.Clone(f.tools), nil
}

func (f *fakeFleet) Call(ctx context.Context, id protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error) {
	if err := f.do(ctx, id, "call %s %s", tool, args); err != nil {
		return mcp.Result{}, err
	}
	switch tool {
	case "self.camera.take_photo":
		return mcp.Result{Text: "a cat", Images: []mcp.Image{{MIMEType: "image/jpeg", Data: []byte{0xff, 0xd8}}}}, nil
	case "self.audio_speaker.set_volume":
		if string(args) == `{"volume":200}` {
			return mcp.Result{Text: "Value exceeds maximum allowed: 100", IsError: true}, nil
		}
	}
	return mcp.Result{Text: "true"}, nil
}

func (f *fakeFleet) Request(ctx context.Context, id protocol.DeviceID, method string, params json.RawMessage) (json.RawMessage, error) {
	if err := f.do(ctx, id, "request %s %s", method, params); err != nil {
		return nil, err
	}
	return json.RawMessage(`{"content":[{"type":"text","text":"true"}],"isError":false}`), nil
}

func (f *fakeFleet) Say(ctx context.Context, id protocol.DeviceID, text string) (api.Way, error) {
	return api.Spoken, f.do(ctx, id, "say %s", text)
}

func (f *fakeFleet) Alert(ctx context.Context, id protocol.DeviceID, a api.Alert) error {
	return f.do(ctx, id, "alert %s|%s|%s", a.Status, a.Message, a.Emotion)
}

func (f *fakeFleet) Reboot(ctx context.Context, id protocol.DeviceID) error {
	return f.do(ctx, id, "reboot")
}

func (f *fakeFleet) End(ctx context.Context, id protocol.DeviceID, reason string) error {
	return f.do(ctx, id, "end %s", reason)
}
