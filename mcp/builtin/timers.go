package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxTimer is the longest timer; what is later than that has a date.
const maxTimer = 7 * 24 * time.Hour

// errNotKept is what a model is told when the file cannot be written. Why, is in
// the log.
var errNotKept = errors.New("it could not be saved on the server, so it was not set; tell the user")

func (t *Tools) timeTools() []tool {
	return []tool{{
		name:        "get_time",
		description: "Tells the date, the time, the weekday and the time zone, of the user or of another place.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"timezone":{"type":"string","description":"IANA name such as Asia/Tokyo; leave out for the user's own"}}}`),
		run: t.getTime,
	}}
}

func (t *Tools) getTime(_ context.Context, _ caller, args arguments) (string, error) {
	name, err := args.text("timezone", 64)
	if err != nil {
		return "", err
	}
	loc := t.cfg.Location
	if name != "" {
		if loc, err = time.LoadLocation(name); err != nil {
			return "", fmt.Errorf("the time zone %q is not known; give an IANA name such as Europe/Berlin", name)
		}
	}
	now := t.book.now().In(loc)
	place, _ := now.Zone()
	if loc != time.Local { // whose name is Local
		place = loc.String() + ", " + place
	}
	return fmt.Sprintf("%s (time zone %s, UTC%s)", now.Format("Monday, 2 January 2006, 15:04:05"), place, now.Format("-07:00")), nil
}

func (t *Tools) timerTools() []tool {
	return []tool{{
		name:        "set_timer",
		description: "Starts a countdown; the device speaks up when it ends. Parts of the time add up.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"hours":{"type":"number","minimum":0},
			"minutes":{"type":"number","minimum":0},
			"seconds":{"type":"number","minimum":0},
			"label":{"type":"string","description":"what it is for, if the user said so"}}}`),
		run: t.setTimer,
	}, {
		name:        "set_alarm",
		description: "Sets an alarm for a time of day, once or repeatedly.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"time":{"type":"string","description":"24-hour 07:30 for the next time it is that late, tomorrow 07:30, or 2026-11-22T07:30"},
			"label":{"type":"string","description":"what it is for, if the user said so"},
			"repeat":{"type":"string","enum":["none","daily","weekdays","weekly"],"default":"none"}},"required":["time"]}`),
		run: t.setAlarm,
	}, {
		name:        "set_reminder",
		description: "Reminds the user of something later, at a time or in so many minutes.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"text":{"type":"string","description":"what to remind of, as it will be spoken to the user"},
			"at":{"type":"string","description":"24-hour 18:00, tomorrow 18:00, or 2026-11-22T18:00"},
			"in_minutes":{"type":"number","minimum":0}},"required":["text"]}`),
		run: t.setReminder,
	}, {
		name:        "list_timers",
		description: "Lists the timers, alarms and reminders that are set, with their numbers.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"kind":{"type":"string","enum":["timer","alarm","reminder"],"description":"only these"}}}`),
		run: t.listTimers,
	}, {
		name:        "cancel_timer",
		description: "Cancels a timer, an alarm or a reminder, or all of them.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"which":{"type":"string","description":"a number from list_timers, a label, or all; leave out if there is only one"},
			"kind":{"type":"string","enum":["timer","alarm","reminder"],"description":"only these"}}}`),
		run: t.cancelTimer,
	}}
}

func (t *Tools) setTimer(ctx context.Context, who caller, args arguments) (string, error) {
	var length time.Duration
	for _, unit := range []struct {
		name   string
		length time.Duration
	}{{"hours", time.Hour}, {"minutes", time.Minute}, {"seconds", time.Second}} {
		n, _, err := args.number(unit.name, 0, float64(maxTimer/unit.length))
		if err != nil {
			return "", err
		}
		length += time.Duration(n * float64(unit.length))
	}
	label, err := args.text("label", maxLabel)
	if err != nil {
		return "", err
	}
	switch {
	case length < time.Second:
		return "", errors.New("how long? give hours, minutes or seconds, at least one second in all")
	case length > maxTimer:
		return "", fmt.Errorf("%s is too long for a timer, at most %s; set an alarm or a reminder", duration(length), duration(maxTimer))
	}
	r := record{Device: who.device, Kind: Timer, Text: label, Due: t.book.now().Add(length).UTC()}
	return t.set(ctx, r, func(r record, now time.Time) string {
		return fmt.Sprintf("%s is set: %s, until %s.", capital(r.called()), duration(length), r.Due.In(t.cfg.Location).Format(clockLayout))
	})
}

func (t *Tools) setAlarm(ctx context.Context, who caller, args arguments) (string, error) {
	text, err := args.text("time", 100)
	if err != nil {
		return "", err
	}
	if text == "" {
		return "", errors.New("time is missing; give it as 07:30 or 2026-11-22T07:30")
	}
	label, err := args.text("label", maxLabel)
	if err != nil {
		return "", err
	}
	often, err := args.oneOf("repeat", "none", string(daily), string(weekdays), string(weekly))
	if err != nil {
		return "", err
	}
	m, err := parseWhen(text, t.book.now(), t.cfg.Location)
	if err != nil {
		return "", err
	}
	r := record{Device: who.device, Kind: Alarm, Text: label, Due: m.at.UTC()}
	if often != "" && often != "none" {
		r.Repeat, r.Clock = repeat(often), m.clock
		if r.Repeat == weekly {
			r.Weekday = m.at.Weekday()
		}
		// The first time may have to be a weekday, and never is before the
		// one asked for.
		r.Due = r.rule().next(m.at.Add(-time.Nanosecond), t.cfg.Location).UTC()
	}
	return t.set(ctx, r, func(r record, now time.Time) string {
		when := "for " + strings.TrimPrefix(on(r.Due, now, t.cfg.Location), "on ")
		if r.Repeat != once {
			when = "for " + r.rule().often() + ", next " + on(r.Due, now, t.cfg.Location)
		}
		return fmt.Sprintf("%s is set %s.", capital(r.called()), when)
	})
}

func (t *Tools) setReminder(ctx context.Context, who caller, args arguments) (string, error) {
	text, err := args.text("text", maxReminder)
	if err != nil {
		return "", err
	}
	at, err := args.text("at", 100)
	if err != nil {
		return "", err
	}
	minutes, in, err := args.number("in_minutes", 0, maxAhead.Minutes())
	if err != nil {
		return "", err
	}
	now := t.book.now()
	var due time.Time
	switch {
	case text == "":
		return "", errors.New("text is missing; say what to remind the user of")
	case in && at != "":
		return "", errors.New("give at or in_minutes, not both")
	case in:
		if due = now.Add(time.Duration(minutes * float64(time.Minute))); due.Sub(now) < time.Second {
			return "", errors.New("in_minutes must be more than 0")
		}
	case at != "":
		m, err := parseWhen(at, now, t.cfg.Location)
		if err != nil {
			return "", err
		}
		due = m.at
	default:
		return "", errors.New("when? give at or in_minutes")
	}
	r := record{Device: who.device, Kind: Reminder, Text: text, Due: due.UTC()}
	return t.set(ctx, r, func(r record, now time.Time) string {
		return fmt.Sprintf("%s is set for %s: %s", capital(r.called()), strings.TrimPrefix(on(r.Due, now, t.cfg.Location), "on "), r.Text)
	})
}

// set keeps a record and answers when it is safe on disk.
func (t *Tools) set(ctx context.Context, r record, answer func(record, time.Time) string) (string, error) {
	now := t.book.now()
	r, version, err := t.book.add(r)
	if err != nil {
		return "", err
	}
	if err := t.store.durable(ctx, version); err != nil {
		t.book.remove(r.Device, r.ID)
		return "", errNotKept
	}
	t.stats.set.Add(1)
	t.log.Info("timer set", "device", string(r.Device), "id", r.ID, "kind", string(r.Kind), "in", r.Due.Sub(now).Round(time.Second), "repeat", string(r.Repeat))
	return answer(r, now), nil
}

func (t *Tools) listTimers(_ context.Context, who caller, args arguments) (string, error) {
	kind, err := kindOfEntry(args)
	if err != nil {
		return "", err
	}
	return t.describe(t.ofKind(who, kind), kind), nil
}

// kindOfEntry reads the argument kind, which people say as timers, too.
func kindOfEntry(args arguments) (string, error) {
	kind, err := args.oneOf("kind", string(Timer), string(Alarm), string(Reminder), "timers", "alarms", "reminders")
	return strings.TrimSuffix(kind, "s"), err
}

// ofKind lists what is set for a device; kind "" is everything.
func (t *Tools) ofKind(who caller, kind string) []record {
	return slices.DeleteFunc(t.book.list(who.device), func(r record) bool {
		return kind != "" && string(r.Kind) != kind
	})
}

func (t *Tools) describe(records []record, kind string) string {
	if len(records) == 0 {
		return "There is no " + orAny(kind) + " set."
	}
	now := t.book.now()
	var lines []string
	for _, r := range records {
		lines = append(lines, r.described(now, t.cfg.Location))
	}
	return strings.Join(lines, "\n")
}

func orAny(kind string) string {
	if kind == "" {
		return "timer, alarm or reminder"
	}
	return kind
}

func (t *Tools) cancelTimer(ctx context.Context, who caller, args arguments) (string, error) {
	which, err := args.text("which", maxReminder)
	if err != nil {
		return "", err
	}
	kind, err := kindOfEntry(args)
	if err != nil {
		return "", err
	}
	records := t.ofKind(who, kind)
	if len(records) == 0 {
		return t.describe(nil, kind), nil
	}
	found, err := choose(records, which)
	if err != nil {
		return "", fmt.Errorf("%w. Set are:\n%s", err, t.describe(records, kind))
	}
	var ids []int64
	var names []string
	for _, r := range found {
		ids = append(ids, r.ID)
		names = append(names, r.called())
	}
	version := t.book.remove(who.device, ids...)
	t.log.Info("timers cancelled", "device", string(who.device), "ids", ids)
	answer := "Cancelled: " + strings.Join(names, ", ") + "."
	if err := t.store.durable(ctx, version); err != nil {
		answer += " But that could not be saved: after a restart of the server it is set again."
	}
	return answer, nil
}

// choose returns those of records that a model means.
func choose(records []record, which string) ([]record, error) {
	switch {
	case strings.EqualFold(which, "all"):
		return records, nil
	case which == "" && len(records) == 1:
		return records, nil
	case which == "":
		return nil, fmt.Errorf("there are %d; say which", len(records))
	}
	var found []record
	for _, matches := range []func(record) bool{
		func(r record) bool { return fmt.Sprint(r.Number) == which },
		func(r record) bool { return strings.EqualFold(r.Text, which) },
		func(r record) bool { return strings.Contains(strings.ToLower(r.Text), strings.ToLower(which)) },
	} {
		for _, r := range records {
			if matches(r) {
				found = append(found, r)
			}
		}
		if len(found) > 0 {
			break
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("none is called %q", clip(which, 40))
	case 1:
		return found, nil
	}
	return nil, fmt.Errorf("%d are called %q; give the number", len(found), clip(which, 40))
}
