package builtin_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
	"parley/mcp"
	"parley/mcp/builtin"
)

func TestTimerIsDueToTheNanosecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		begin := time.Now()
		r.must(kitchen, "set_timer", `{"minutes":10}`, "Timer 1 is set: 10 minutes, until 00:10.")
		r.must(kitchen, "set_timer", `{"hours":1,"minutes":"30","seconds":0.5,"label":" eggs\n"}`, `Timer 2 "eggs" is set: 1 hour 30 minutes 1 second, until 01:30.`)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		equal(t, h.seen(begin),
			"10m0s Your timer has ended.",
			fmt.Sprint(90*time.Minute+500*time.Millisecond)+" Your timer has ended: eggs.")
		r.must(kitchen, "list_timers", `{}`, "There is no timer, alarm or reminder set.")
		if s := r.Stats(); s.Set != 2 || s.Spoken != 2 || s.Entries != 0 || s.Late != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestEverythingThatCanBeSetAtTheWrongTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, builtin.Config{}, &house{}) // it is Saturday, 1 January 2000, 00:00
		time.Sleep(9 * time.Hour)
		for _, c := range []struct{ tool, args, says string }{
			{"set_timer", `{}`, "how long?"},
			{"set_timer", `{"minutes":0}`, "at least one second"},
			{"set_timer", `{"minutes":-1}`, "minutes must be from 0 to 10080"},
			{"set_timer", `{"hours":168,"seconds":1}`, "too long for a timer, at most 7 days"},
			{"set_timer", `{"minutes":"ten"}`, "minutes must be a number"},
			{"set_timer", `{"minutes":"NaN"}`, "minutes must be a number"},
			{"set_timer", `{"minutes":1e400}`, "minutes must be a number"},
			{"set_timer", `{"minutes":[1]}`, "minutes must be a number"},
			{"set_timer", `{"duration":"5 minutes"}`, `no argument "duration"; this tool takes hours, label, minutes, seconds`},
			{"set_timer", `{"minutes":1,"label":{"a":1}}`, "label must be a text"},
			{"set_timer", `{"minutes":1,"label":"` + strings.Repeat("x", 121) + `"}`, "label is too long"},
			{"set_alarm", `{}`, "time is missing"},
			{"set_alarm", `{"time":null}`, "time is missing"},
			{"set_alarm", `{"time":"25:00"}`, `the time "25:00" is not understood; write it as 07:30`},
			{"set_alarm", `{"time":"2000-02-30T07:30"}`, "not understood"},
			{"set_alarm", `{"time":"1999-12-31T07:30"}`, "Friday, 31 December 1999, 07:30 is in the past; it is now Saturday, 1 January 2000, 09:00"},
			{"set_alarm", `{"time":"today 08:59"}`, "in the past"},
			{"set_alarm", `{"time":"2001-01-03T07:30"}`, "too far away"},
			{"set_alarm", `{"time":"07:30","repeat":"hourly"}`, "repeat must be one of none, daily, weekdays, weekly"},
			{"set_reminder", `{"at":"10:00"}`, "text is missing"},
			{"set_reminder", `{"text":"x"}`, "when? give at or in_minutes"},
			{"set_reminder", `{"text":"x","at":"10:00","in_minutes":5}`, "not both"},
			{"set_reminder", `{"text":"x","in_minutes":0}`, "more than 0"},
			{"set_reminder", `{"text":"x","in_minutes":1e9}`, "in_minutes must be from 0 to"},
			{"list_timers", `{"kind":"clock"}`, "kind must be one of timer, alarm, reminder"},
			{"end_conversation", `{"now":true}`, "takes no arguments"},
			{"get_time", `{"timezone":"Mars/Olympus"}`, "give an IANA name"},
			{"get_time", `{"timezone":"../../etc/passwd"}`, "not known"},
		} {
			r.refuses(kitchen, c.tool, c.args, c.says)
		}
		if s := r.Stats(); s.Entries != 0 || s.Set != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		begin := time.Now() // Saturday
		time.Sleep(7 * time.Hour)
		for _, c := range []struct{ args, says string }{
			{`{"time":"07:30"}`, "Alarm 1 is set for today at 07:30."},
			{`{"time":"6:15 am"}`, "Alarm 2 is set for tomorrow at 06:15."},
			{`{"time":"2000-01-03T20:00:05","label":"bins"}`, `Alarm 3 "bins" is set for Monday at 20:00.`},
			{`{"time":"07:00","repeat":"weekdays"}`, "Alarm 4 is set for every weekday at 07:00, next on Monday at 07:00."},
			{`{"time":"tomorrow 9:00 PM","repeat":"weekly"}`, "Alarm 5 is set for every Sunday at 21:00, next tomorrow at 21:00."},
			{`{"time":"2000-02-01T12:00:00Z","repeat":"none"}`, "Alarm 6 is set for Tuesday, 1 February 2000, at 12:00."},
		} {
			r.must(kitchen, "set_alarm", c.args, c.says)
		}
		r.must(kitchen, "list_timers", `{"kind":"alarm"}`, strings.Join([]string{
			"Alarm 1: today at 07:30.",
			"Alarm 2: tomorrow at 06:15.",
			"Alarm 5: every Sunday at 21:00, next tomorrow at 21:00.",
			"Alarm 4: every weekday at 07:00, next on Monday at 07:00.",
			`Alarm 3 "bins": on Monday at 20:00.`,
			"Alarm 6: on Tuesday, 1 February 2000, at 12:00.",
		}, "\n"))
		time.Sleep(time.Until(begin.Add(10 * 24 * time.Hour)))
		hour := func(day, h int) string { return fmt.Sprint(time.Duration(day*24+h) * time.Hour) }
		weekday := " This is your alarm for 07:00."
		equal(t, h.seen(begin),
			"7h30m0s This is your alarm for 07:30.",
			"30h15m0s This is your alarm for 06:15.",
			hour(1, 21)+" This is your alarm for 21:00.",
			hour(2, 7)+weekday,
			fmt.Sprint(2*24*time.Hour+20*time.Hour+5*time.Second)+" This is your alarm for 20:00: bins.",
			hour(3, 7)+weekday, hour(4, 7)+weekday, hour(5, 7)+weekday, hour(6, 7)+weekday,
			hour(8, 21)+" This is your alarm for 21:00.",
			hour(9, 7)+weekday)
	})
}

func TestReminders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		begin := time.Now()
		r.must(kitchen, "set_reminder", `{"text":"water the {label} plants.","in_minutes":1.5}`, "Reminder 1 is set for today at 00:01: water the {label} plants.")
		time.Sleep(time.Second)
		r.must(kitchen, "set_reminder", `{"text":"call Ann","at":"18:00"}`, "Reminder 2 is set for today at 18:00: call Ann")
		r.must(kitchen, "list_timers", `{}`, "Reminder 1: today at 00:01, water the {label} plants.\nReminder 2: today at 18:00, call Ann.")
		time.Sleep(24 * time.Hour)
		equal(t, h.seen(begin), "1m30s This is your reminder: water the {label} plants.", "18h0m0s This is your reminder: call Ann.")
	})
}

func TestCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		r.must(kitchen, "cancel_timer", `{"which":"all"}`, "There is no timer, alarm or reminder set.")
		r.call(kitchen, "set_timer", `{"minutes":5,"label":"Eggs"}`)
		r.call(kitchen, "set_timer", `{"minutes":7,"label":"Eggs for Ann"}`)
		r.call(kitchen, "set_alarm", `{"time":"07:30"}`)
		r.call(bedroom, "set_alarm", `{"time":"07:00"}`)
		r.refuses(kitchen, "cancel_timer", `{}`, "there are 3; say which. Set are:\nTimer 1")
		r.refuses(kitchen, "cancel_timer", `{"which":"gg"}`, `2 are called "gg"; give the number`)
		r.refuses(kitchen, "cancel_timer", `{"which":"4"}`, `none is called "4"`) // another device's
		r.must(kitchen, "cancel_timer", `{"which":"eggs"}`, `Cancelled: timer 1 "Eggs".`)
		r.must(kitchen, "cancel_timer", `{"kind":"alarm"}`, "Cancelled: alarm 3.")
		r.must(kitchen, "cancel_timer", `{"kind":"reminder"}`, "There is no reminder set.")
		r.must(kitchen, "cancel_timer", `{"which":2}`, `Cancelled: timer 2 "Eggs for Ann".`)
		r.must(bedroom, "list_timers", `{}`, "Alarm 1: today at 07:00.")
		r.must(bedroom, "cancel_timer", `{"which":"ALL"}`, "Cancelled: alarm 1.")
		time.Sleep(48 * time.Hour)
		equal(t, h.seen(time.Now()))
	})
}

// TestDaylightSaving sets alarms before Berlin puts its clocks forward, on 26
// March 2000 at 02:00, and back, on 29 October at 03:00.
func TestDaylightSaving(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, clock string
		from        time.Time // 00:00 of the first day
		want        []time.Duration
	}{
		{"forward", "07:30", time.Date(2000, 3, 25, 0, 0, 0, 0, berlin), []time.Duration{7*time.Hour + 30*time.Minute, (24+6)*time.Hour + 30*time.Minute, (48+6)*time.Hour + 30*time.Minute}},
		{"forward, in the gap", "02:30", time.Date(2000, 3, 25, 0, 0, 0, 0, berlin), []time.Duration{2*time.Hour + 30*time.Minute, 26 * time.Hour, (48+1)*time.Hour + 30*time.Minute}},
		{"back", "07:30", time.Date(2000, 10, 28, 0, 0, 0, 0, berlin), []time.Duration{7*time.Hour + 30*time.Minute, (24+8)*time.Hour + 30*time.Minute, (48+8)*time.Hour + 30*time.Minute}},
		{"back, in the hour that comes twice", "02:30", time.Date(2000, 10, 28, 0, 0, 0, 0, berlin), []time.Duration{2*time.Hour + 30*time.Minute, 26*time.Hour + 30*time.Minute, (48+3)*time.Hour + 30*time.Minute}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &house{}
				time.Sleep(time.Until(c.from))
				r := run(t, builtin.Config{Location: berlin}, h)
				if _, ok := r.call(kitchen, "set_alarm", `{"time":"`+c.clock+`","repeat":"daily"}`); !ok {
					t.Fatal("not set")
				}
				time.Sleep(72 * time.Hour)
				var want []string
				for _, d := range c.want {
					want = append(want, fmt.Sprintf("%v This is your alarm for %s.", d, c.from.Add(d).In(berlin).Format("15:04")))
				}
				equal(t, h.seen(c.from), want...)
			})
		})
	}
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, builtin.Config{}, &house{})
		var sets sync.WaitGroup
		for i := range 64 {
			sets.Go(func() { r.call(kitchen, "set_timer", fmt.Sprintf(`{"minutes":%d}`, i+1)) })
		}
		sets.Wait()
		r.refuses(kitchen, "set_timer", `{"minutes":1}`, "too many are set already: 64")
		r.must(bedroom, "set_timer", `{"minutes":1}`, "Timer 1 is set: 1 minute, until 00:01.")
		if s := r.Stats(); s.Entries != 65 || s.Writes > 4 {
			t.Errorf("%+v: 65 timers of the same second take a few writings", s)
		}
	})
}

func TestCallsWithoutADevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, builtin.Config{}, &house{})
		for _, device := range []protocol.DeviceID{"", "somebody"} {
			ctx := mcp.WithCaller(t.Context(), mcp.Caller{Device: device})
			res, err := r.Source().Call(ctx, "get_time", nil)
			if err != nil || !res.IsError || !strings.Contains(res.Text, "names none") {
				t.Errorf("%q: %+v, %v", device, res, err)
			}
		}
		// What a model puts into its arguments is no caller.
		res, err := r.Source().Call(t.Context(), "get_time", json.RawMessage(`{"_meta":{"parley/device":"`+string(kitchen)+`"}}`))
		if err != nil || !res.IsError {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestGetTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		r := run(t, builtin.Config{Location: berlin}, &house{})
		time.Sleep(12*time.Hour + time.Second)
		r.must(kitchen, "get_time", ``, "Saturday, 1 January 2000, 13:00:01 (time zone Europe/Berlin, CET, UTC+01:00)")
		r.must(kitchen, "get_time", `{"timezone":"Asia/Kolkata"}`, "Saturday, 1 January 2000, 17:30:01 (time zone Asia/Kolkata, IST, UTC+05:30)")
	})
}
