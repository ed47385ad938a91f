package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"parley/internal/protocol"
	"parley/mcp"
)

// Bounds of a page of devices.
const (
	defaultPage = 100
	maxPage     = 1000
)

// A filter says which devices are wanted. What is empty is not asked for.
type filter struct {
	State, Role, Board, Firmware string
	Limit                        int
	After                        protocol.DeviceID
}

func (f filter) takes(d Device) bool {
	return (f.State == "" || f.State == string(d.State)) && (f.Role == "" || f.Role == d.Role) &&
		(f.Board == "" || f.Board == d.Board) && (f.Firmware == "" || f.Firmware == d.Firmware)
}

// A page is some of the devices a filter takes, in the order of their ids.
type page struct {
	Devices []Device `json:"devices"`
	// Total counts all devices the filter takes, on this page or not.
	Total int `json:"total"`
	// Next is the cursor of the page after this one; absent on the last. It is
	// the id of this page's last device, so devices that come and go between
	// two pages move no others.
	Next string `json:"next_cursor,omitempty"`
}

// list returns one page.
func (a *API) list(f filter) page {
	out := page{Devices: []Device{}}
	more := false
	for _, d := range a.fleet.Devices() {
		if !f.takes(d) {
			continue
		}
		out.Total++
		switch {
		case d.ID <= f.After:
		case len(out.Devices) < f.Limit:
			out.Devices = append(out.Devices, d)
		default:
			more = true
		}
	}
	if more {
		out.Next = string(out.Devices[len(out.Devices)-1].ID)
	}
	return out
}

// newFilter checks what a client asks for. A limit of "" is the default.
func newFilter(state, role, board, firmware, limit, cursor string) (filter, error) {
	f := filter{State: state, Role: role, Board: board, Firmware: firmware, Limit: defaultPage}
	states := []string{string(StateConnected), string(StateIdle), string(StateListening), string(StateThinking), string(StateSpeaking)}
	if state != "" && !slices.Contains(states, state) {
		return f, badRequest("state", fmt.Sprintf("there is no state %q", clip(state)), "use one of "+strings.Join(states, ", "))
	}
	if limit != "" {
		n, err := strconv.Atoi(limit)
		if err != nil || n < 1 || n > maxPage {
			return f, badRequest("limit", "limit is no number in its range", fmt.Sprintf("use 1 to %d", maxPage))
		}
		f.Limit = n
	}
	if cursor != "" {
		id, err := protocol.ParseDeviceID(cursor)
		if err != nil {
			return f, badRequest("cursor", "the cursor is none that was given out", "use next_cursor of the page before")
		}
		f.After = id
	}
	return f, nil
}

func (a *API) getDevices(q *query) (any, error) {
	var state, role, board, firmware, limit, cursor string
	err := q.parameters(map[string]*string{
		"state": &state, "role": &role, "board": &board, "firmware": &firmware, "limit": &limit, "cursor": &cursor,
	})
	if err != nil {
		return nil, err
	}
	f, err := newFilter(state, role, board, firmware, limit, cursor)
	if err != nil {
		return nil, err
	}
	return a.list(f), nil
}

func (a *API) getDevice(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	if err := q.noParameters(); err != nil {
		return nil, err
	}
	return a.connected(id)
}

// connected returns a connected device.
func (a *API) connected(id protocol.DeviceID) (Device, error) {
	d, ok := a.fleet.Device(id)
	if !ok {
		return Device{}, absent(id)
	}
	return d, nil
}

// A tool is a device's tool as clients are told of it.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
	UserOnly    bool            `json:"user_only"`
	Scope       Scope           `json:"scope"` // that calling it needs
}

// tools is a device's tools.
type tools struct {
	Tools []tool `json:"tools"`
}

func (a *API) getTools(q *query) (any, error) {
	id, err := q.device()
	if err != nil {
		return nil, err
	}
	if err := q.noParameters(); err != nil {
		return nil, err
	}
	return a.tools(q.r.Context(), id)
}

// tools asks for the tools of a device.
func (a *API) tools(ctx context.Context, id protocol.DeviceID) (tools, error) {
	out := tools{Tools: []tool{}}
	err := a.bounded(ctx, func(ctx context.Context) error {
		all, err := a.fleet.Tools(ctx, id)
		for _, t := range all {
			schema := t.Schema
			if len(schema) == 0 {
				schema = json.RawMessage(`{"type":"object"}`)
			}
			out.Tools = append(out.Tools, tool{t.Name, t.Description, schema, t.UserOnly, scopeOf(t)})
		}
		return err
	})
	return out, err
}

// scopeOf is the scope that calling t needs. Firmware marks tools for people
// only since 2.0, so those that can put a device out of order are known by name.
func scopeOf(t mcp.Tool) Scope {
	switch {
	case t.UserOnly, t.Name == "self.upgrade_firmware", t.Name == "self.reboot", strings.HasPrefix(t.Name, "self.assets."):
		return Admin
	}
	return Control
}

// bounded runs one operation on a device within the bounds of time and number.
func (a *API) bounded(ctx context.Context, do func(context.Context) error) error {
	select {
	case a.slots <- struct{}{}:
		defer func() { <-a.slots }()
	default:
		a.stats.overload.Add(1)
		p := newProblem(http.StatusServiceUnavailable, codeOverload, fmt.Sprintf("%d operations are running already", MaxOperations), "ask again later, and for less at once")
		p.retry = 1
		return p
	}
	ctx, cancel := context.WithTimeout(ctx, OperationTimeout)
	defer cancel()
	return do(ctx)
}
