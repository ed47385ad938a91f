package builtin

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxAhead is how far ahead anything may be set.
const maxAhead = 366 * 24 * time.Hour

// A moment is a point in time as a model writes it.
type moment struct {
	at    time.Time
	clock clock
	dated bool // it named a date, so it is not simply the next of its clock
}

// errWhen is said of a time that is not understood. It shows the forms.
func errWhen(text string) error {
	return fmt.Errorf("the time %q is not understood; write it as 07:30, as tomorrow 07:30 or as 2026-11-22T07:30", clip(text, 40))
}

// parseWhen reads 07:30, 7:30 pm, tomorrow 07:30, 2026-11-22T07:30 or the same
// with an offset, as they are meant at now in loc. The moment is in the future
// and at most [maxAhead] away.
func parseWhen(text string, now time.Time, loc *time.Location) (moment, error) {
	now = now.In(loc)
	m, err := readWhen(text, now, loc)
	if err != nil {
		return moment{}, err
	}
	switch {
	case !m.at.After(now):
		return moment{}, fmt.Errorf("%s is in the past; it is now %s", stamp(m.at), stamp(now))
	case m.at.Sub(now) > maxAhead:
		return moment{}, fmt.Errorf("%s is too far away; at most a year ahead is possible", stamp(m.at))
	}
	return m, nil
}

func readWhen(text string, now time.Time, loc *time.Location) (moment, error) {
	s := strings.ToLower(strings.TrimSpace(text))
	if t, err := time.Parse(time.RFC3339, strings.ToUpper(s)); err == nil {
		t = t.In(loc).Round(0)
		hour, minute, second := t.Clock()
		return moment{t, clock{hour, minute, second}, true}, nil
	}
	days, rest, dated := 0, s, false
	for i, word := range []string{"today", "tomorrow"} {
		if after, ok := strings.CutPrefix(s, word); ok {
			days, rest, dated = i, strings.TrimPrefix(strings.TrimSpace(after), "at "), true
		}
	}
	const date = "2006-01-02"
	year, month, day := now.Date()
	if !dated && len(s) > len(date) && (s[len(date)] == 't' || s[len(date)] == ' ') {
		d, err := time.Parse(date, s[:len(date)])
		if err != nil {
			return moment{}, errWhen(text)
		}
		year, month, day = d.Date()
		rest, dated = s[len(date)+1:], true
	}
	c, err := parseClock(rest)
	if err != nil {
		return moment{}, errWhen(text)
	}
	if !dated {
		return moment{rule{clock: c}.next(now, loc), c, false}, nil
	}
	d := time.Date(year, month, day+days, 0, 0, 0, 0, time.UTC)
	at, ok := c.on(d.Year(), d.Month(), d.Day(), loc)
	if !ok {
		return moment{}, fmt.Errorf("there is no such day in the time zone %s", loc)
	}
	return moment{at, c, true}, nil
}

// parseClock reads 7, 7:30, 07:30:15, 7 pm, 7:30 a.m., 12:00am and 7:30 in the
// evening.
func parseClock(text string) (clock, error) {
	bad := fmt.Errorf("%q is no time of day such as 07:30", clip(text, 40))
	s := strings.NewReplacer(" ", "", ".", "").Replace(strings.ToLower(text))
	s = strings.NewReplacer("inthemorning", "am", "intheafternoon", "pm", "intheevening", "pm").Replace(s)
	s, am := strings.CutSuffix(s, "am")
	s, pm := strings.CutSuffix(s, "pm")
	parts := strings.Split(s, ":")
	if len(parts) > 3 || am && pm {
		return clock{}, bad
	}
	var n [3]int
	for i, part := range parts {
		v, err := strconv.ParseUint(part, 10, 8)
		if err != nil || len(part) > 2 {
			return clock{}, bad
		}
		n[i] = int(v)
	}
	c := clock{n[0], n[1], n[2]}
	if c.hour > 23 || c.minute > 59 || c.second > 59 {
		return clock{}, bad
	}
	if am || pm {
		if c.hour < 1 || c.hour > 12 {
			return clock{}, bad
		}
		c.hour %= 12
		if pm {
			c.hour += 12
		}
	}
	return c, nil
}
