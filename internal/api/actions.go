package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"parley/internal/protocol"
	"parley/mcp"
)

// Bounds of texts, in characters: what a device can show, and what is heard to
// the end.
const (
	maxSay     = 1000
	maxStatus  = 64
	maxMessage = 500
)

// An action is one controlling request, for its audit line.
type action struct {
	name   string
	device protocol.DeviceID
	tool   string // "" where none is called
	result string // of one that did not fail; "" means ok
}

// perform carries out one action of c, who needs one of the scopes, and logs it:
// who did what to which device, and how it went. What was said or given as
// arguments is not logged.
func (a *API) perform(ctx context.Context, c caller, act *action, need scopes, do func(context.Context) error) error {
	began := time.Now()
	err := a.permitted(c, need)
	if err == nil {
		err = a.bounded(ctx, do)
	}
	a.stats.actions.Add(1)
	result := act.result
	switch {
	case err != nil:
		a.stats.failed.Add(1)
		result = string(problemOf(err).Code)
	case result == "":
		result = "ok"
	}
	attrs := []slog.Attr{slog.String("token", c.name), slog.String("action", act.name), slog.String("device", string(act.device))}
	if act.tool != "" {
		attrs = append(attrs, slog.String("tool", clip(act.tool)))
	}
	attrs = append(attrs, slog.String("result", result), slog.Int64("took_ms", time.Since(began).Milliseconds()))
	a.log.LogAttrs(ctx, slog.LevelInfo, "api action", attrs...)
	return err
}

// call runs a tool of a device for c.
func (a *API) call(ctx context.Context, c caller, id protocol.DeviceID, name string, args json.RawMessage) (mcp.Result, error) {
	var result mcp.Result
	act := &action{name: "call", device: id, tool: name}
	err := a.perform(ctx, c, act, canControl|canAdmin, func(ctx context.Context) (err error) {
		if err = a.mayCall(ctx, c, id, name); err != nil {
			return err
		}
		result, err = a.fleet.Call(ctx, id, name, args)
		if result.IsError {
			act.result = "tool_error"
		}
		return err
	})
	return result, err
}

// mayCall reports whether c may call the tool, by what the device says of it.
// Who may call every tool need not wait for that.
func (a *API) mayCall(ctx context.Context, c caller, id protocol.DeviceID, name string) error {
	if c.scopes&(canControl|canAdmin) == canControl|canAdmin {
		return nil
	}
	all, err := a.fleet.Tools(ctx, id)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Name == name {
			return a.permitted(c, scopeOf(t).bit())
		}
	}
	return fmt.Errorf("%w: device %s has no %q", mcp.ErrUnknownTool, id, clip(name))
}

// say brings a text to a device's user.
func (a *API) say(ctx context.Context, c caller, id protocol.DeviceID, text string) (Way, error) {
	var way Way
	err := a.perform(ctx, c, &action{name: "say", device: id}, canControl, func(ctx context.Context) (err error) {
		if err = checkText("text", text, maxSay); err != nil {
			return err
		}
		way, err = a.fleet.Say(ctx, id, text)
		return err
	})
	return way, err
}

// neutral is the face of an alert that asks for none.
const neutral = "neutral"

// alert shows a message on a device.
func (a *API) alert(ctx context.Context, c caller, id protocol.DeviceID, alert Alert) error {
	return a.perform(ctx, c, &action{name: "alert", device: id}, canControl, func(ctx context.Context) error {
		if err := alert.check(); err != nil {
			return err
		}
		return a.fleet.Alert(ctx, id, alert)
	})
}

// emotionName is what the names of faces look like. Devices ignore those they do
// not have.
var emotionName = regexp.MustCompile(`^[a-z_]{1,32}$`)

func (a Alert) check() error {
	if err := checkText("status", a.Status, maxStatus); err != nil {
		return err
	}
	if err := checkText("message", a.Message, maxMessage); err != nil {
		return err
	}
	if !emotionName.MatchString(a.Emotion) {
		return badRequest("emotion", "the emotion is no name of one", "use one such as happy, sad or neutral, or leave it out")
	}
	return nil
}

// reboot restarts a device.
func (a *API) reboot(ctx context.Context, c caller, id protocol.DeviceID) error {
	return a.perform(ctx, c, &action{name: "reboot", device: id}, canAdmin, func(ctx context.Context) error {
		return a.fleet.Reboot(ctx, id)
	})
}

// end ends a device's session.
func (a *API) end(ctx context.Context, c caller, id protocol.DeviceID) error {
	return a.perform(ctx, c, &action{name: "end", device: id}, canControl, func(ctx context.Context) error {
		return a.fleet.End(ctx, id, "api")
	})
}

// A result is what a tool answered, for clients of REST.
type result struct {
	Text    string  `json:"text"`
	IsError bool    `json:"is_error"`
	Images  []image `json:"images,omitempty"`
}

type image struct {
	MIMEType string `json:"mime_type"`
	Data     []byte `json:"data"` // base64 in JSON
}

func (a *API) postCall(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	if err := q.noParameters(); err != nil {
		return nil, err
	}
	args := bytes.TrimSpace(q.body)
	if len(args) > 0 && (args[0] != '{' || !json.Valid(args)) {
		return nil, newProblem(http.StatusBadRequest, codeArguments, "the arguments are not one JSON object", "send one, or no body for no arguments")
	}
	r, err := a.call(q.r.Context(), q.caller, id, q.r.PathValue("name"), args)
	if err != nil {
		return nil, err
	}
	out := result{Text: r.Text, IsError: r.IsError}
	for _, i := range r.Images {
		out.Images = append(out.Images, image{i.MIMEType, i.Data})
	}
	return out, nil
}

func (a *API) postSay(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	var text string
	if err := q.read(map[string]*string{"text": &text}); err != nil {
		return nil, err
	}
	way, err := a.say(q.r.Context(), q.caller, id, text)
	return said{way}, err
}

// said is the answer to a text that reached a device.
type said struct {
	Way Way `json:"way"`
}

func (a *API) postAlert(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	alert := Alert{Emotion: neutral}
	if err := q.read(map[string]*string{"status": &alert.Status, "message": &alert.Message, "emotion": &alert.Emotion}); err != nil {
		return nil, err
	}
	return nil, a.alert(q.r.Context(), q.caller, id, alert)
}

func (a *API) postReboot(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	if err := q.read(nil); err != nil {
		return nil, err
	}
	return nil, a.reboot(q.r.Context(), q.caller, id)
}

func (a *API) deleteSession(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	if err := q.read(nil); err != nil {
		return nil, err
	}
	return nil, a.end(q.r.Context(), q.caller, id)
}
