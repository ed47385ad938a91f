package builtin

import (
	"fmt"
	"time"
)

// A repeat is how often an alarm rings.
type repeat string

const (
	once     repeat = ""
	daily    repeat = "daily"
	weekdays repeat = "weekdays" // Monday to Friday
	weekly   repeat = "weekly"   // on the weekday of its first time
)

// A clock is a time of day as clocks show it.
type clock struct{ hour, minute, second int }

// String is 07:30, or 07:30:15.
func (c clock) String() string {
	if c.second == 0 {
		return fmt.Sprintf("%02d:%02d", c.hour, c.minute)
	}
	return fmt.Sprintf("%02d:%02d:%02d", c.hour, c.minute, c.second)
}

// MarshalText implements encoding.TextMarshaler.
func (c clock) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (c *clock) UnmarshalText(text []byte) error {
	parsed, err := parseClock(string(text))
	if err != nil {
		return err
	}
	*c = parsed
	return nil
}

// on returns the moment at which clocks in loc show c on this date. Where clocks
// are put back and show it twice, that is the first; where they are put forward
// and never show it, the moment they skip it. ok is false if the whole date is
// skipped.
func (c clock) on(year int, month time.Month, day int, loc *time.Location) (at time.Time, ok bool) {
	t := time.Date(year, month, day, c.hour, c.minute, c.second, 0, loc)
	wanted := time.Date(year, month, day, c.hour, c.minute, c.second, 0, time.UTC)
	begin, end := t.ZoneBounds()
	switch shown := asShown(t); {
	case shown.After(wanted):
		t = begin
	case shown.Before(wanted):
		t = end
	case !begin.IsZero():
		_, offset := t.Zone()
		_, before := begin.Add(-time.Nanosecond).Zone()
		if first := t.Add(-time.Duration(before-offset) * time.Second); before > offset && first.Before(begin) {
			t = first
		}
	}
	shown := asShown(t)
	return t, shown.YearDay() == wanted.YearDay() && shown.Year() == wanted.Year()
}

// asShown is what clocks at t's place show, as if they were in UTC.
func asShown(t time.Time) time.Time {
	year, month, day := t.Date()
	hour, minute, second := t.Clock()
	return time.Date(year, month, day, hour, minute, second, t.Nanosecond(), time.UTC)
}

// A rule is when an alarm rings again.
type rule struct {
	repeat  repeat
	clock   clock
	weekday time.Weekday // of a weekly one
}

// next returns the first moment of the rule after the given one. It is zero only
// if the zone skips the same weekday twice in a row, which none does. A rule
// that does not repeat is taken as a daily one.
func (r rule) next(after time.Time, loc *time.Location) time.Time {
	year, month, day := after.In(loc).Date()
	for i := range 16 {
		date := time.Date(year, month, day+i, 0, 0, 0, 0, time.UTC)
		if !r.includes(date.Weekday()) {
			continue
		}
		at, ok := r.clock.on(date.Year(), date.Month(), date.Day(), loc)
		if ok && at.After(after) {
			return at
		}
	}
	return time.Time{}
}

func (r rule) includes(day time.Weekday) bool {
	switch r.repeat {
	case weekdays:
		return day != time.Saturday && day != time.Sunday
	case weekly:
		return day == r.weekday
	}
	return true
}
