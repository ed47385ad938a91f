package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"parley/internal/protocol"
	"parley/internal/session"
	"parley/mcp"
	"parley/mcp/builtin"
)

// ownHouse is what Parley's own tools need of sessions and roles.
type ownHouse struct {
	sessions *session.Server
	roles    *roles
	log      *slog.Logger
}

var _ builtin.House = ownHouse{}

// headlines are what a device shows above a notice it cannot speak.
var headlines = map[builtin.Kind]string{builtin.Timer: "Timer", builtin.Alarm: "Alarm", builtin.Reminder: "Reminder"}

// Deliver implements [builtin.House], as do the methods after it.
func (h ownHouse) Deliver(_ context.Context, device protocol.DeviceID, n builtin.Notice) (builtin.Way, error) {
	way, err := h.sessions.Deliver(device, session.Notice{Status: headlines[n.Kind], Text: n.Text, Lost: n.Lost})
	if errors.Is(err, session.ErrAbsent) {
		return "", fmt.Errorf("%w: %w", builtin.ErrAbsent, err)
	}
	if err != nil {
		return "", err
	}
	return map[session.Way]builtin.Way{
		session.WaySpoken: builtin.Spoken, session.WayRequested: builtin.Called, session.WayShown: builtin.Shown,
	}[way], nil
}

// EndConversation hangs up after the answer.
func (h ownHouse) EndConversation(device protocol.DeviceID) error { return h.sessions.HangUp(device) }

// Roles lists the roles a device may be switched to by asking: its own, by the
// configuration, and those that allow it.
func (h ownHouse) Roles(device protocol.DeviceID) []string { return h.roles.choices(string(device)) }

// SwitchRole gives a device another role from its next session on.
func (h ownHouse) SwitchRole(device protocol.DeviceID, role string) error {
	return h.roles.choose(string(device), role)
}

// Call runs a tool of the device itself.
func (h ownHouse) Call(ctx context.Context, device protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error) {
	return h.sessions.Call(ctx, device, tool, args)
}

// HasTool reports whether the device has told of a tool for models.
func (h ownHouse) HasTool(device protocol.DeviceID, tool string) bool {
	tools, _, err := h.sessions.Tools(device)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(tools, func(t mcp.Tool) bool { return t.Name == tool && !t.UserOnly })
}
