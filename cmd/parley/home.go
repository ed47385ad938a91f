package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"parley/broker"
	"parley/internal/config"
	"parley/internal/home"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/mcp"
	"parley/pipeline"
)

// The tools of devices that volume goes by.
const (
	volumeTool = "self.audio_speaker.set_volume"
	statusTool = "self.get_device_status"
)

// homeBus is the broker's bus in the words of the home.
type homeBus struct{ *broker.Bus }

// Subscribe implements [home.Bus].
func (b homeBus) Subscribe(filter string, f func(home.Message)) (func(), error) {
	return b.Bus.Subscribe(filter, func(m broker.Message) {
		f(home.Message{Topic: m.Topic, Payload: m.Payload, Retained: m.Retained})
	})
}

// newHome makes the home of cfg on the broker's bus.
func newHome(cfg *config.Config, path string, sessions *session.Server, bus *broker.Bus, log *slog.Logger) (*home.Home, error) {
	tools := make([]home.Custom, 0, len(cfg.MQTT.Tool))
	for _, t := range cfg.MQTT.Tool {
		args := make(map[string]home.Arg, len(t.Arguments))
		for name, a := range t.Arguments {
			args[name] = home.Arg{Type: a.Type, Description: a.Description, Enum: a.Enum, Min: a.Min, Max: a.Max, Required: a.Required}
		}
		tools = append(tools, home.Custom{
			Name: t.Name, Description: t.Description, Arguments: args, Topic: t.Topic, Payload: t.Payload, Retain: t.Retain,
			ReplyTopic: t.ReplyTopic, ReplyWait: t.ReplyWait, ReplyTemplate: t.ReplyTemplate,
		})
	}
	h, err := home.New(home.Config{
		Discover: true, Prefix: cfg.Home.Discovery, Tools: tools, Version: version,
		Announce: cfg.Home.Announce, LastWords: cfg.Home.LastWords, House: homeHouse{sessions},
	}, homeBus{bus}, log)
	if err != nil {
		return nil, &usageError{config.Fault(path, "mqtt.tool", err.Error(), "see docs/home.md")}
	}
	return h, nil
}

// homeHouse carries out what Home Assistant asks of a voice device.
type homeHouse struct{ sessions *session.Server }

// Say implements [home.House].
func (h homeHouse) Say(_ context.Context, id protocol.DeviceID, text string) error {
	_, err := h.sessions.Deliver(id, session.Notice{Status: "Home", Text: text})
	return err
}

// SetVolume implements [home.House].
func (h homeHouse) SetVolume(ctx context.Context, id protocol.DeviceID, percent int) error {
	r, err := h.sessions.Call(ctx, id, volumeTool, fmt.Appendf(nil, `{"volume":%d}`, percent))
	if err == nil && r.IsError {
		return fmt.Errorf("the device refused: %s", r.Text)
	}
	return err
}

// announcer shows voice devices to Home Assistant as things happen to them. Its
// methods return at once.
type announcer struct {
	home     *home.Home
	sessions *session.Server
	ask      chan protocol.DeviceID // devices to be asked for their volume; when full, they are not
}

// maxAsking bounds the devices that wait to be asked for their volume, and askers
// how many are asked at once.
const (
	maxAsking = 1024
	askers    = 4
)

func newAnnouncer(h *home.Home, sessions *session.Server) *announcer {
	return &announcer{home: h, sessions: sessions, ask: make(chan protocol.DeviceID, maxAsking)}
}

// event shows what happened to a device.
func (a *announcer) event(e session.Event) {
	id := e.Device.ID
	switch e.Kind {
	case session.EventConnected:
		d := home.Device{ID: id}
		if f, ok := protocol.ParseFirmware(e.Device.Enrolment.Agent); ok {
			d.Board, d.Firmware = f.Board, f.Dotted()
		}
		a.home.Announce(d)
		a.home.State(id, home.Idle)
		a.wonder(id)
	case session.EventDisconnected:
		a.home.Offline(id)
	case session.EventListening:
		a.home.State(id, home.Listening)
	case session.EventSpeaking:
		a.home.State(id, home.Speaking)
	case session.EventSilent:
		state := home.Idle
		if i, err := a.sessions.Device(id); err == nil && i.Phase == string(home.Listening) {
			state = home.Listening // in realtime the microphone stays on
		}
		a.home.State(id, state)
	case session.EventClosed:
		a.home.State(id, home.Idle)
		a.wonder(id)
	}
}

// turn shows what was said, and what became of the volume.
func (a *announcer) turn(id protocol.DeviceID, t pipeline.Trace) {
	a.home.LastWords(id, t.Heard, t.Said)
	for _, tool := range t.Tools {
		var args struct {
			Volume *int `json:"volume"`
		}
		// The name is the one the model knows the device's tool by.
		if !tool.Failed && tool.Name == strings.ReplaceAll(volumeTool, ".", "_") &&
			json.Unmarshal([]byte(tool.Args), &args) == nil && args.Volume != nil {
			a.home.Volume(id, *args.Volume)
		}
	}
}

// wonder has a device asked for its volume, when it has time.
func (a *announcer) wonder(id protocol.DeviceID) {
	select {
	case a.ask <- id:
	default: // its volume stays as it was last known
	}
}

// run asks until ctx ends.
func (a *announcer) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case id := <-a.ask:
			a.learn(ctx, id)
		}
	}
}

// learn asks one device, which waits for its tools.
func (a *announcer) learn(ctx context.Context, id protocol.DeviceID) {
	r, err := a.sessions.Call(ctx, id, statusTool, nil)
	volume, ok := volumeOf(r)
	if err != nil || !ok {
		return // it has none, or is busy
	}
	i, err := a.sessions.Device(id)
	if err != nil {
		return
	}
	d := home.Device{ID: id, HasVolume: true}
	if f, ok := protocol.ParseFirmware(i.Device.Enrolment.Agent); ok {
		d.Board, d.Firmware = f.Board, f.Dotted()
	}
	a.home.Announce(d)
	a.home.Volume(id, volume)
}

// volumeOf reads a device's status.
func volumeOf(r mcp.Result) (int, bool) {
	var status struct {
		Speaker struct {
			Volume *int `json:"volume"`
		} `json:"audio_speaker"`
	}
	if r.IsError || json.Unmarshal([]byte(r.Text), &status) != nil || status.Speaker.Volume == nil {
		return 0, false
	}
	return *status.Speaker.Volume, true
}
