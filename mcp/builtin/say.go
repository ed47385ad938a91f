package builtin

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Words are the sentences said when something is due, with {label} for what the
// user called it and {time} for when it was due, such as 07:30.
type Words struct {
	Timer      string // of a timer without a label
	NamedTimer string
	Alarm      string // of an alarm without a label
	NamedAlarm string
	Reminder   string
	Late       string // follows any of them that comes a minute late or more
}

// complete fills in English and checks the placeholders.
func (w Words) complete() (Words, error) {
	w.Timer = cmp.Or(w.Timer, "Your timer has ended.")
	w.NamedTimer = cmp.Or(w.NamedTimer, "Your timer has ended: {label}.")
	w.Alarm = cmp.Or(w.Alarm, "This is your alarm for {time}.")
	w.NamedAlarm = cmp.Or(w.NamedAlarm, "This is your alarm for {time}: {label}.")
	w.Reminder = cmp.Or(w.Reminder, "This is your reminder: {label}.")
	w.Late = cmp.Or(w.Late, "This was due at {time}.")
	placeholder := regexp.MustCompile(`\{[^}]*\}?`)
	for _, s := range []string{w.Timer, w.NamedTimer, w.Alarm, w.NamedAlarm, w.Reminder, w.Late} {
		for _, p := range placeholder.FindAllString(s, -1) {
			if p != "{label}" && p != "{time}" {
				return w, fmt.Errorf("the sentence %q holds %s; there are {label} and {time}", s, p)
			}
		}
	}
	return w, nil
}

// lateAfter is from when on a notice says when it was due.
const lateAfter = time.Minute

// notice is what is said of r, which was due at the given moment, at now.
func (w Words) notice(r record, due, now time.Time, loc *time.Location) Notice {
	n := Notice{ID: r.ID, Kind: r.Kind, Label: r.Text, Due: due, Late: now.Sub(due) >= lateAfter}
	n.Text = w.Reminder
	switch {
	case r.Kind == Timer && r.Text == "":
		n.Text = w.Timer
	case r.Kind == Timer:
		n.Text = w.NamedTimer
	case r.Kind == Alarm && r.Text == "":
		n.Text = w.Alarm
	case r.Kind == Alarm:
		n.Text = w.NamedAlarm
	}
	if n.Late {
		n.Text += " " + w.Late
	}
	// The label comes last, and what is in it stays as it is.
	label := strings.TrimRight(r.Text, ".!? ")
	n.Text = strings.NewReplacer("{label}", label, "{time}", due.In(loc).Format(clockLayout)).Replace(n.Text)
	return n
}

// clockLayout is how a time of day is written for models and users.
const clockLayout = "15:04"

// stamp is a moment with everything a model may want to know of it.
func stamp(t time.Time) string { return t.Format("Monday, 2 January 2006, 15:04") }

// on says when t is, seen from now: today at 07:30, on Sunday at 07:30.
func on(t, now time.Time, loc *time.Location) string {
	t, now = t.In(loc), now.In(loc)
	days := int(asShown(t).Truncate(24*time.Hour).Sub(asShown(now).Truncate(24*time.Hour)) / (24 * time.Hour))
	switch {
	case days == 0:
		return t.Format("today at " + clockLayout)
	case days == 1:
		return t.Format("tomorrow at " + clockLayout)
	case days > 1 && days < 7:
		return t.Format("on Monday at " + clockLayout)
	}
	return t.Format("on Monday, 2 January 2006, at " + clockLayout)
}

// duration says d in hours, minutes and seconds, rounded to a second.
func duration(d time.Duration) string {
	d = d.Round(time.Second)
	var parts []string
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		n := int(d / unit.length)
		d %= unit.length
		switch {
		case n == 1:
			parts = append(parts, "1 "+unit.name)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit.name))
		}
	}
	if len(parts) == 0 {
		return "0 seconds"
	}
	return strings.Join(parts, " ")
}

// often says how an alarm repeats: every day at 07:30.
func (r rule) often() string {
	switch r.repeat {
	case weekdays:
		return "every weekday at " + r.clock.String()
	case weekly:
		return "every " + r.weekday.String() + " at " + r.clock.String()
	}
	return "every day at " + r.clock.String()
}

// called is "timer 3" or `timer 3 "eggs"`.
func (r record) called() string {
	if r.Text == "" || r.Kind == Reminder {
		return fmt.Sprintf("%s %d", r.Kind, r.Number)
	}
	return fmt.Sprintf("%s %d %q", r.Kind, r.Number, r.Text)
}

// described is one line of a list.
func (r record) described(now time.Time, loc *time.Location) string {
	var s string
	switch {
	case !r.Pending.IsZero() && r.Due.IsZero():
		s = "was due " + on(r.Pending, now, loc) + " and has not been delivered yet"
	case r.Kind == Timer:
		s = duration(r.Due.Sub(now)) + " left, until " + r.Due.In(loc).Format(clockLayout)
	case r.Repeat != once:
		s = r.rule().often() + ", next " + on(r.Due, now, loc)
	default:
		s = on(r.Due, now, loc)
	}
	if r.Kind == Reminder {
		s += ", " + strings.TrimRight(r.Text, ".!? ")
	}
	return capital(r.called()) + ": " + s + "."
}

// capital is s with its first letter, which is ASCII, in upper case.
func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
