package home

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"parley/mcp"
)

// maxArguments bounds a call's arguments in bytes, as for devices.
const maxArguments = 16 << 10

// arguments that a model gave, or a rule; numbers may be texts.
type callArguments struct {
	Name             string `json:"name"`
	Brightness       any    `json:"brightness"`
	Color            string `json:"color"`
	ColorTemperature any    `json:"color_temperature"`
	Action           string `json:"action"`
	Position         any    `json:"position"`
	Percent          any    `json:"percent"`
	Temperature      any    `json:"temperature"`
	Mode             string `json:"mode"`
	Value            any    `json:"value"`
	Code             any    `json:"code"`
	Room             string `json:"room"`
}

// Call implements [mcp.Source]. What cannot be done is a result with IsError that
// says why, so that a model can say it.
func (s source) Call(ctx context.Context, name string, args json.RawMessage) (mcp.Result, error) {
	h := s.h
	v := h.view.Load()
	if !slices.ContainsFunc(v.tools, func(t mcp.Tool) bool { return t.Name == name }) {
		return mcp.Result{}, fmt.Errorf("tool %q: %w; there is nothing to use it on now", name, mcp.ErrUnknownTool)
	}
	h.counters.Calls.Add(1)
	if len(args) > maxArguments {
		return mcp.Result{}, fmt.Errorf("tool %q: %w: %d bytes, at most %d are allowed", name, mcp.ErrArguments, len(args), maxArguments)
	}
	for _, c := range h.customs {
		if c.Name == name {
			return h.callCustom(ctx, c, args)
		}
	}
	var a callArguments
	if len(args) > 0 {
		if err := json.Unmarshal(args, &a); err != nil {
			return mcp.Result{}, fmt.Errorf("tool %q: %w: %w", name, mcp.ErrArguments, err)
		}
	}
	var r mcp.Result
	var err error
	switch name {
	case toolRead:
		r, err = h.read(v, a.Name)
	case toolList:
		r, err = v.list(a.Room)
	default:
		r, err = h.command(ctx, v, name, &a)
	}
	if no, ok := errors.AsType[refusal](err); ok {
		return mcp.Result{Text: string(no), IsError: true}, nil
	}
	return r, err
}

// resolve finds what a name means for a tool, or refuses with what it might have
// meant.
func (v *view) resolve(tool, name string) ([]*thing, error) {
	fit := fits(tool)
	rooms := tool == toolOn || tool == toolOff || tool == toolToggle
	if strings.TrimSpace(name) == "" {
		return nil, refuse("Say the name of what is meant.")
	}
	found, unsure := v.find(name, fit, rooms)
	if len(found) > 0 {
		return found, nil
	}
	if len(unsure) > 0 {
		var names []string
		for _, t := range unsure[:min(8, len(unsure))] {
			names = append(names, t.called)
		}
		return nil, refuse("%q may be several: %s. Ask which one is meant.", name, strings.Join(names, ", "))
	}
	var all []*thing
	for _, t := range v.things {
		if fit(t) {
			all = append(all, t)
		}
	}
	return nil, refuse("There is no %q that is online. The nearest names are: %s.", name, strings.Join(nearest(name, all, 5), ", "))
}

// command gives a command to what the name means, and waits for the states that
// show that it was obeyed.
func (h *Home) command(ctx context.Context, v *view, tool string, a *callArguments) (mcp.Result, error) {
	things, err := v.resolve(tool, a.Name)
	if err != nil {
		return mcp.Result{}, err
	}
	orders := make([]*order, 0, len(things))
	var refused error
	h.mu.Lock()
	for _, t := range things {
		o := &order{t: t}
		if err := o.fill(tool, a); err != nil {
			refused = err // one lamp of a room that has no colours does not keep the others from theirs
			continue
		}
		orders = append(orders, o)
	}
	h.mu.Unlock()
	if len(orders) == 0 {
		return mcp.Result{}, refused
	}
	for _, o := range orders {
		for _, m := range o.send {
			if err := h.bus.Publish(m.topic, []byte(m.payload), m.retain); err != nil {
				return mcp.Result{}, fmt.Errorf("tool %q: publish to %s: %w", tool, o.t.called, err)
			}
		}
	}
	confirmed := h.confirm(ctx, orders)
	if confirmed {
		h.counters.Confirmed.Add(1)
	} else {
		h.counters.Sent.Add(1)
	}
	return outcome(tool, orders, confirmed), nil
}

// fill makes the order that a tool gives. The caller holds Home's lock.
func (o *order) fill(tool string, a *callArguments) error {
	percent := func(v any, name string) (int, error) {
		if v == nil || v == "" {
			return -1, nil
		}
		if text, ok := v.(string); ok {
			text = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(text), "%"), "percent")
			v = strings.TrimSpace(text)
		}
		f, err := toFloat(v)
		if err != nil || f < 0 || f > 100 {
			return 0, refuse("%s takes a number from 0 to 100.", name)
		}
		return int(math.Round(f)), nil
	}
	switch tool {
	case toolOn:
		s, err := a.setting(percent)
		if err != nil {
			return err
		}
		return o.turn(true, s)
	case toolOff:
		return o.turn(false, setting{brightness: -1})
	case toolToggle:
		return o.turn(o.t.value(roleState) != "on", setting{brightness: -1})
	case toolCover, toolGate:
		p, err := percent(a.Position, "position")
		if err != nil {
			return err
		}
		return o.cover(strings.ToLower(strings.TrimSpace(a.Action)), p)
	case toolFan:
		p, err := percent(a.Percent, "percent")
		if err == nil && p < 0 {
			err = refuse("Say the speed in percent.")
		}
		if err != nil {
			return err
		}
		return o.fan(p)
	case toolClimate:
		var degrees *float64
		if a.Temperature != nil && a.Temperature != "" {
			f, err := toFloat(a.Temperature)
			if err != nil {
				return refuse("temperature takes a number of degrees.")
			}
			degrees = &f
		}
		return o.climate(degrees, strings.TrimSpace(a.Mode))
	case toolScene, toolPress:
		return o.activate()
	case toolValue:
		return o.setValue(textOf(a.Value))
	case toolLock, toolUnlock:
		return o.lock(tool == toolLock)
	case toolArm:
		mode := strings.ToLower(strings.TrimSpace(a.Mode))
		if mode == "" {
			mode = "away"
		}
		if !slices.Contains(alarmModes(), mode) {
			return refuse("mode is one of %s.", strings.Join(alarmModes(), ", "))
		}
		return o.alarm(mode, textOf(a.Code))
	}
	return o.alarm("disarm", textOf(a.Code))
}

// textOf is an argument as text; models give numbers where texts are wanted.
func textOf(v any) string {
	if f, ok := v.(float64); ok {
		return strconv.FormatFloat(f, 'f', -1, 64)
	}
	if v == nil {
		return ""
	}
	return toText(v)
}

// setting reads what home_turn_on is to change of a light.
func (a *callArguments) setting(percent func(any, string) (int, error)) (setting, error) {
	s := setting{}
	var err error
	if s.brightness, err = percent(a.Brightness, "brightness"); err != nil {
		return s, err
	}
	if a.Color != "" {
		if k, ok := kelvinNamed(a.Color); ok {
			s.kelvin = k // "warm white" is no colour
		} else if c, ok := colourNamed(a.Color); ok {
			s.colour = c
		} else {
			return s, refuse("%q is no colour that is known. Use a simple name, or #rrggbb.", a.Color)
		}
	}
	if t := textOf(a.ColorTemperature); t != "" {
		k, ok := kelvinNamed(t)
		if !ok {
			return s, refuse("color_temperature takes kelvin from 1500 to 9000.")
		}
		s.kelvin = k
	}
	return s, nil
}

// confirm waits for what the orders want to be seen, for Config.Confirm at most.
// What an entity never reports is taken for done.
func (h *Home) confirm(ctx context.Context, orders []*order) bool {
	h.mu.Lock()
	waits := false
	for _, o := range orders {
		for r, text := range o.want {
			if o.t.reports(r) {
				waits = true
			} else {
				delete(o.want, r)
				o.t.values[r] = reading{text: text, at: time.Now()}
			}
		}
	}
	h.mu.Unlock()
	if !waits {
		return false
	}
	limit := time.NewTimer(h.cfg.Confirm)
	defer limit.Stop()
	for {
		h.mu.Lock()
		changed := h.changed
		done := true
		for _, o := range orders {
			done = done && o.obeyed()
		}
		h.mu.Unlock()
		if done {
			return true
		}
		select {
		case <-changed:
		case <-limit.C:
			return false
		case <-ctx.Done():
			return false
		case <-h.ended:
			return false
		}
	}
}

// obeyed reports whether the entity shows what was wanted. Percentages may be two
// off: devices round. The caller holds Home's lock.
func (o *order) obeyed() bool {
	for r, want := range o.want {
		have := o.t.value(r)
		if have == want {
			continue
		}
		x, err1 := toFloat(have)
		y, err2 := toFloat(want)
		near := 0.001
		if r == roleBrightness || r == rolePercentage || r == rolePosition {
			near = 2
		}
		if err1 != nil || err2 != nil || math.Abs(x-y) > near {
			return false
		}
	}
	return true
}

// outcome is what a command's result says.
func outcome(tool string, orders []*order, confirmed bool) mcp.Result {
	name := orders[0].t.called
	if len(orders) > 1 {
		name = strconv.Itoa(len(orders)) + " lights"
	}
	text := the(name)
	if confirmed {
		text += " " + verb(len(orders)) + " " + done(tool, orders[0])
	} else {
		text += ": the command was sent"
	}
	return result(map[string]any{"name": name, "confirmed": confirmed, "text": sentence(text)})
}

func verb(n int) string {
	if n > 1 {
		return "are"
	}
	return "is"
}

// done says how an entity is now.
func done(tool string, o *order) string {
	if p := o.want[rolePosition]; p != "" && p != "0" && p != "100" {
		return "at " + p + " percent"
	}
	if p := o.want[rolePercentage]; p != "" {
		return "at " + p + " percent"
	}
	if t := o.want[roleTarget]; t != "" {
		return "set to " + t + " degrees"
	}
	if m := o.want[roleMode]; m != "" {
		return "in the mode " + strings.ReplaceAll(m, "_", " ")
	}
	switch o.want[rolePosition] {
	case "0":
		return "closed"
	case "100":
		return "open"
	}
	state := strings.ReplaceAll(o.want[roleState], "_", " ")
	if tool == toolValue {
		return "set to " + state
	}
	return state
}

// result is a result of JSON, for models and for rules that take its members.
func result(members map[string]any) mcp.Result {
	b, err := json.Marshal(members)
	if err != nil {
		panic(err) // texts and booleans always marshal
	}
	return mcp.Result{Text: string(b)}
}
