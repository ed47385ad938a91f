package builtin

import (
	"testing"
	"time"
)

func zone(t testing.TB, name string) *time.Location {
	t.Helper()
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// TestClocksThatChange covers what zones have done to their clocks: an hour at
// two, an hour at midnight, half an hour, a whole day.
func TestClocksThatChange(t *testing.T) {
	for _, c := range []struct {
		zone       string
		y, m, d    int
		clock      clock
		want       string // in UTC; "" if there is no such day
		meansShown string // what clocks show then
	}{
		{"UTC", 2026, 3, 29, clock{2, 30, 0}, "2026-03-29T02:30:00Z", "02:30:00"},
		{"Europe/Berlin", 2026, 3, 29, clock{1, 59, 59}, "2026-03-29T00:59:59Z", "01:59:59"},
		{"Europe/Berlin", 2026, 3, 29, clock{2, 0, 0}, "2026-03-29T01:00:00Z", "03:00:00"},
		{"Europe/Berlin", 2026, 3, 29, clock{2, 59, 59}, "2026-03-29T01:00:00Z", "03:00:00"},
		{"Europe/Berlin", 2026, 3, 29, clock{3, 0, 0}, "2026-03-29T01:00:00Z", "03:00:00"},
		{"Europe/Berlin", 2026, 10, 25, clock{1, 59, 59}, "2026-10-24T23:59:59Z", "01:59:59"},
		{"Europe/Berlin", 2026, 10, 25, clock{2, 0, 0}, "2026-10-25T00:00:00Z", "02:00:00"},
		{"Europe/Berlin", 2026, 10, 25, clock{2, 59, 59}, "2026-10-25T00:59:59Z", "02:59:59"},
		{"Europe/Berlin", 2026, 10, 25, clock{3, 0, 0}, "2026-10-25T02:00:00Z", "03:00:00"},
		{"America/New_York", 2026, 3, 8, clock{2, 30, 0}, "2026-03-08T07:00:00Z", "03:00:00"},
		{"America/New_York", 2026, 11, 1, clock{1, 30, 0}, "2026-11-01T05:30:00Z", "01:30:00"},
		{"America/Sao_Paulo", 2018, 11, 4, clock{0, 30, 0}, "2018-11-04T03:00:00Z", "01:00:00"},
		{"Australia/Lord_Howe", 2026, 10, 4, clock{2, 15, 0}, "2026-10-03T15:30:00Z", "02:30:00"},
		{"Australia/Lord_Howe", 2026, 4, 5, clock{1, 45, 0}, "2026-04-04T14:45:00Z", "01:45:00"},
		{"Pacific/Apia", 2011, 12, 30, clock{7, 30, 0}, "", ""},
		{"Pacific/Apia", 2011, 12, 31, clock{7, 30, 0}, "2011-12-30T17:30:00Z", "07:30:00"},
	} {
		at, ok := c.clock.on(c.y, time.Month(c.m), c.d, zone(t, c.zone))
		if ok != (c.want != "") {
			t.Errorf("%s %d-%d-%d %s: ok is %v, for %v", c.zone, c.y, c.m, c.d, c.clock, ok, at)
			continue
		}
		if got := at.UTC().Format(time.RFC3339); ok && (got != c.want || at.Format(time.TimeOnly) != c.meansShown) {
			t.Errorf("%s %d-%d-%d %s: %s, which shows %s; want %s, %s", c.zone, c.y, c.m, c.d, c.clock, got, at.Format(time.TimeOnly), c.want, c.meansShown)
		}
	}
}

// TestOncePerDay walks through two years of zones with all kinds of changes.
func TestOncePerDay(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata", "Pacific/Chatham"} {
		loc := zone(t, name)
		for _, c := range []clock{{0, 0, 0}, {0, 30, 0}, {2, 15, 0}, {2, 30, 0}, {3, 0, 0}, {7, 30, 0}, {23, 59, 59}} {
			r := rule{daily, c, 0}
			at := time.Date(2026, 1, 1, 0, 0, 0, 0, loc).Add(-1)
			for day := range 730 {
				next := r.next(at, loc)
				want := time.Date(2026, 1, 1+day, 12, 0, 0, 0, loc)
				if next.IsZero() || next.YearDay() != want.YearDay() || next.Year() != want.Year() {
					t.Fatalf("%s %s: after %v comes %v", name, c, at, next)
				}
				if shown := clockOf(next); shown != c && shown.String() < c.String() {
					t.Fatalf("%s %s: %v is too early", name, c, next)
				}
				at = next
			}
		}
	}
}

func clockOf(t time.Time) clock {
	h, m, s := t.Clock()
	return clock{h, m, s}
}

func TestParseClock(t *testing.T) {
	for text, want := range map[string]string{
		"7": "07:00", "07:30": "07:30", "7:5": "07:05", "7:30:15": "07:30:15", "0:00": "00:00", "23:59:59": "23:59:59",
		"7 am": "07:00", "7:30 p.m.": "19:30", "12:00am": "00:00", "12 PM": "12:00", "12:01 a m": "00:01", "7 in the morning": "07:00", "7:30 in the evening": "19:30", " 7:30 ": "07:30",
		"": "", ":": "", "7:": "", "24:00": "", "7:60": "", "-7": "", "+7": "", "007": "", "13 pm": "", "0 am": "", "am": "", "7:30 am pm": "",
		"7:30:15:1": "", "seven": "", "7h30": "", "７:30": "", "noon": "",
	} {
		c, err := parseClock(text)
		if got := c.String(); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: got %s, %v, want %q", text, got, err, want)
		}
	}
}

func TestParseWhen(t *testing.T) {
	berlin := zone(t, "Europe/Berlin")
	now := time.Date(2026, 11, 21, 20, 30, 0, 0, berlin)
	for text, want := range map[string]string{
		"07:30":                     "2026-11-22T07:30:00+01:00",
		"20:30":                     "2026-11-22T20:30:00+01:00",
		"20:31":                     "2026-11-21T20:31:00+01:00",
		"9 pm":                      "2026-11-21T21:00:00+01:00",
		"today 21:00":               "2026-11-21T21:00:00+01:00",
		"Tomorrow at 7:30 AM":       "2026-11-22T07:30:00+01:00",
		"tomorrow 21:00":            "2026-11-22T21:00:00+01:00",
		"2026-11-22T07:30":          "2026-11-22T07:30:00+01:00",
		"2026-11-22 07:30:05":       "2026-11-22T07:30:05+01:00",
		"2026-11-22T07:30:00Z":      "2026-11-22T08:30:00+01:00",
		"2026-11-22T07:30:00-05:00": "2026-11-22T13:30:00+01:00",
		"2027-03-28T02:30":          "2027-03-28T03:00:00+02:00",
		"":                          "", "tomorrow": "", "2026-11-22": "", "2026-11-22T": "", "2026-11-31T07:30": "", "2026-11-20T07:30": "", "today 07:30": "",
		"2026-11-21T20:30": "", "2027-11-23T07:30": "", "9999-12-31T23:59": "", "in 5 minutes": "", "2026-11-22x07:30": "",
	} {
		m, err := parseWhen(text, now, berlin)
		if got := m.at.Format(time.RFC3339); (err == nil) != (want != "") || err == nil && got != want {
			t.Errorf("%q: got %s, %v, want %q", text, got, err, want)
		}
	}
}
