package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"parley/internal/api"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/mcp"
	"parley/pipeline"
)

// fleet is the connected devices in the words of the API.
type fleet struct{ sessions *session.Server }

var _ api.Fleet = fleet{}

// apiError puts an error of a session into the API's words.
func apiError(err error) error {
	switch {
	case errors.Is(err, session.ErrAbsent):
		return errors.Join(api.ErrAbsent, err)
	case errors.Is(err, session.ErrNoSession):
		return errors.Join(api.ErrNoSession, err)
	}
	return err
}

// Devices implements [api.Fleet], as do the methods after it.
func (f fleet) Devices() []api.Device {
	all := f.sessions.Devices()
	out := make([]api.Device, 0, len(all))
	for _, i := range all {
		out = append(out, apiDevice(i))
	}
	return out
}

// Device returns one connected device.
func (f fleet) Device(id protocol.DeviceID) (api.Device, bool) {
	i, err := f.sessions.Device(id)
	if err != nil {
		return api.Device{}, false
	}
	return apiDevice(i), true
}

func apiDevice(i session.Info) api.Device {
	d := api.Device{
		ID: i.Device.ID, ClientID: i.Device.ClientID, Remote: i.Device.Remote, ConnectedAt: i.ConnectedAt,
		Role: i.Role, State: api.StateConnected, SessionID: i.SessionID, SessionStart: i.SessionStart, Tools: i.Tools,
	}
	if fw, ok := protocol.ParseFirmware(i.Device.Enrolment.Agent); ok {
		d.Board, d.Firmware = fw.Board, fw.Dotted()
	}
	if i.SessionID != "" {
		d.State = api.State(i.Phase)
	}
	return d
}

// Tools lists a device's own tools.
func (f fleet) Tools(_ context.Context, id protocol.DeviceID) ([]mcp.Tool, error) {
	tools, ready, err := f.sessions.Tools(id)
	if err != nil {
		return nil, apiError(err)
	}
	if !ready {
		return nil, api.ErrNoTools
	}
	return tools, nil
}

// Call runs one of a device's own tools.
func (f fleet) Call(ctx context.Context, id protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error) {
	r, err := f.sessions.Call(ctx, id, tool, args)
	return r, apiError(err)
}

// Request answers what programs of the Node gateway ask of a device. Nothing is
// sent that Parley would not send itself: the list is the one that is known, and
// calls go the way of all calls.
func (f fleet) Request(ctx context.Context, id protocol.DeviceID, method string, params json.RawMessage) (json.RawMessage, error) {
	switch method {
	case "initialize":
		d, ok := f.Device(id)
		if !ok {
			return nil, api.ErrAbsent
		}
		return json.Marshal(map[string]any{
			"protocolVersion": "2024-11-05", "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]string{"name": d.Board, "version": d.Firmware},
		})
	case "tools/list":
		return f.list(ctx, id, params)
	case "tools/call":
		var call struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		if err := json.Unmarshal(params, &call); err != nil || call.Name == "" {
			return nil, fmt.Errorf(`%w: "params" names no tool; send {"name":…,"arguments":{…}}`, mcp.ErrArguments)
		}
		r, err := f.Call(ctx, id, call.Name, call.Arguments)
		if err != nil {
			return nil, err
		}
		type text struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		return json.Marshal(map[string]any{"content": []text{{"text", r.Text}}, "isError": r.IsError})
	}
	return nil, fmt.Errorf("%w: devices know initialize, tools/list and tools/call", api.ErrUnable)
}

// list is the reply to tools/list, all on one page.
func (f fleet) list(ctx context.Context, id protocol.DeviceID, params json.RawMessage) (json.RawMessage, error) {
	var want struct {
		WithUserTools bool `json:"withUserTools"`
	}
	_ = json.Unmarshal(params, &want) // other members, and none, are as good
	tools, err := f.Tools(ctx, id)
	if err != nil {
		return nil, err
	}
	type tool struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations any             `json:"annotations,omitempty"`
	}
	list := []tool{}
	for _, t := range tools {
		if t.UserOnly && !want.WithUserTools {
			continue
		}
		one := tool{Name: t.Name, Description: t.Description, InputSchema: t.Schema}
		if t.UserOnly {
			one.Annotations = map[string][]string{"audience": {"user"}}
		}
		list = append(list, one)
	}
	return json.Marshal(map[string]any{"tools": list})
}

// Say brings a text to a device's user.
func (f fleet) Say(_ context.Context, id protocol.DeviceID, text string) (api.Way, error) {
	way, err := f.sessions.Deliver(id, session.Notice{Status: "Message", Text: text})
	return api.Way(way), apiError(err)
}

// Alert shows a message on a device.
func (f fleet) Alert(_ context.Context, id protocol.DeviceID, a api.Alert) error {
	return apiError(f.sessions.Alert(id, a.Status, a.Message, a.Emotion))
}

// Reboot restarts a device.
func (f fleet) Reboot(_ context.Context, id protocol.DeviceID) error {
	return apiError(f.sessions.Reboot(id))
}

// End ends a device's session.
func (f fleet) End(_ context.Context, id protocol.DeviceID, reason string) error {
	return apiError(f.sessions.End(id, reason))
}

// turnEvent is a finished turn for those who watch: how long what took, and not
// what was said.
func turnEvent(id protocol.DeviceID, t pipeline.Trace) api.Event {
	stages := map[string]int64{}
	for _, s := range t.Stages() {
		stages[s.Name] = s.Took.Milliseconds()
	}
	tools := []string{}
	for _, tool := range t.Tools {
		tools = append(tools, tool.Name)
	}
	data := map[string]any{
		"turn": t.Turn, "mode": t.Mode.String(), "stages_ms": stages,
		"packets": t.Packets, "tools": tools, "prompted": t.Prompted, "uplink_loss": t.Line.Loss(),
		"uplink_jitter_ms": t.Line.Jitter.Milliseconds(), "address_moves": t.Line.Moves,
	}
	if !t.Prompted { // nobody had spoken
		data["voice_to_voice_ms"] = t.VoiceToVoice().Milliseconds()
	}
	if t.CancelledBy != "" {
		data["cancelled_by"] = t.CancelledBy
	}
	e := api.Event{Kind: api.EventTurn, At: t.PlayoutEnd, Device: id, Data: data}
	if t.Err != nil {
		e.Detail = "a provider failed"
	}
	return e
}
