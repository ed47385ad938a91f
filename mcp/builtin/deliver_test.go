package builtin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
	"parley/mcp/builtin"
)

func TestAbsentDeviceGetsItWhenItConnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{answer: absent}
		r := run(t, builtin.Config{}, h)
		begin := time.Now()
		r.call(kitchen, "set_timer", `{"minutes":1,"label":"first"}`)
		r.call(kitchen, "set_timer", `{"minutes":2}`)
		time.Sleep(time.Until(begin.Add(2*time.Hour - time.Second)))
		r.must(kitchen, "list_timers", `{"kind":"timer"}`,
			"Timer 1 \"first\": was due today at 00:01 and has not been delivered yet.\nTimer 2: was due today at 00:02 and has not been delivered yet.")
		time.Sleep(time.Second)
		equal(t, h.seen(begin), "1m0s Your timer has ended: first.", "2m0s Your timer has ended.")
		r.Connected(bedroom)
		r.Connected(kitchen) // absent again: only the first is tried
		synctest.Wait()
		h.behave(nil)
		r.Connected(kitchen)
		synctest.Wait()
		equal(t, h.seen(begin)[2:],
			"2h0m0s Your timer has ended: first. This was due at 00:01.",
			"2h0m0s Your timer has ended: first. This was due at 00:01.",
			"2h0m0s Your timer has ended. This was due at 00:02.")
		if s := r.Stats(); s.Entries != 0 || s.Spoken != 2 || s.Late != 2 || s.Refused != 0 {
			t.Errorf("%+v", s)
		}
		if log := r.log.String(); strings.Count(log, "notice waits for its device") != 2 || strings.Contains(log, "first") {
			t.Errorf("the log says once for each that it waits, and not what was said:\n%s", log)
		}
	})
}

func TestAbsentDeviceIsForgottenAfterADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{answer: absent}
		r := run(t, builtin.Config{}, h)
		begin := time.Now()
		r.call(kitchen, "set_timer", `{"minutes":1}`)
		r.call(bedroom, "set_timer", `{"minutes":1}`)
		due := begin.Add(time.Minute)
		time.Sleep(time.Until(due.Add(24*time.Hour - time.Nanosecond)))
		h.behave(nil)
		r.Connected(kitchen)
		synctest.Wait()
		time.Sleep(2 * time.Second) // the bedroom's was set a second later
		r.Connected(bedroom)
		synctest.Wait()
		if s := r.Stats(); s.Spoken != 1 || s.Dropped != 1 || s.Entries != 0 {
			t.Errorf("%+v", s)
		}
		if !strings.Contains(r.log.String(), "notice dropped") {
			t.Errorf("the log says nothing of it:\n%s", r.log)
		}
	})
}

func TestRefusedNoticeIsTriedAgainForTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{answer: func(delivery) (builtin.Way, error) { return "", errors.New("in the middle of something") }}
		r := run(t, builtin.Config{}, h)
		r.call(kitchen, "set_timer", `{"seconds":10}`)
		begin := time.Now() // the writing of the first took no time
		time.Sleep(3 * time.Hour)
		var at []string
		for _, s := range h.seen(begin.Add(10 * time.Second)) {
			at = append(at, strings.Fields(s)[0])
		}
		equal(t, at, "0s", "5s", "15s", "35s", "1m15s", "2m35s", "4m35s", "6m35s", "8m35s")
		if log := r.log.String(); strings.Count(log, "it is tried again") != 1 || strings.Count(log, "until the device connects anew") != 1 {
			t.Errorf("the log says:\n%s", log)
		}
		h.behave(func(delivery) (builtin.Way, error) { return builtin.Shown, nil })
		r.Connected(kitchen)
		synctest.Wait()
		if s := r.Stats(); s.Shown != 1 || s.Refused != 9 || s.Entries != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestDeviceThatComesDuringTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		h.behave(func(d delivery) (builtin.Way, error) {
			time.Sleep(time.Second)
			h.behave(nil)
			return absent(d)
		})
		begin := time.Now()
		r.call(kitchen, "set_timer", `{"minutes":1}`)
		time.Sleep(time.Minute + time.Second/2)
		r.Connected(kitchen)
		time.Sleep(time.Hour)
		equal(t, h.seen(begin), "1m0s Your timer has ended.", "1m1s Your timer has ended.")
	})
}

func TestCancelledDuringTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		h.behave(func(d delivery) (builtin.Way, error) {
			time.Sleep(10 * time.Second)
			if d.device == bedroom {
				return builtin.Spoken, nil
			}
			return "", errors.New("no")
		})
		r.call(bedroom, "set_timer", `{"seconds":61}`)
		r.call(kitchen, "set_timer", `{"minutes":1}`)
		r.call(kitchen, "set_alarm", `{"time":"00:01","repeat":"daily"}`)
		time.Sleep(time.Minute + 2*time.Second)
		r.must(kitchen, "cancel_timer", `{"which":"all"}`, "Cancelled: timer 1, alarm 2.")
		r.must(bedroom, "cancel_timer", `{}`, "Cancelled: timer 1.")
		time.Sleep(48 * time.Hour)
		if s := r.Stats(); s.Entries != 0 || s.Refused != 1 || s.Spoken != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSlowDevicesHoldUpNobody has as many of them as there can be.
func TestSlowDevicesHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{answer: func(d delivery) (builtin.Way, error) {
			if d.device != kitchen {
				time.Sleep(20 * time.Second)
			}
			return builtin.Called, nil
		}}
		r := run(t, builtin.Config{}, h)
		midnight := time.Now()
		for i := range 63 {
			r.call(protocol.DeviceID(fmt.Sprintf("00:00:00:00:00:%02x", i)), "set_alarm", `{"time":"07:30"}`)
		}
		r.call(kitchen, "set_alarm", `{"time":"07:30"}`)
		r.call(kitchen, "set_alarm", `{"time":"07:30"}`)
		time.Sleep(time.Until(midnight.Add(7*time.Hour + 31*time.Minute)))
		for _, at := range h.seen(midnight) {
			if !strings.HasPrefix(at, "7h30m0s ") {
				t.Error(at)
			}
		}
		if s := r.Stats(); s.Called != 65 {
			t.Errorf("%+v", s)
		}
	})
}

// TestDailyAlarmOfAnAbsentDevice shows that yesterday's gives way to today's.
func TestDailyAlarmOfAnAbsentDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{answer: absent}
		r := run(t, builtin.Config{}, h)
		begin := time.Now()
		r.call(kitchen, "set_alarm", `{"time":"07:30","repeat":"daily"}`)
		time.Sleep(time.Until(begin.Add(5*24*time.Hour + 8*time.Hour)))
		h.behave(nil)
		before := len(h.seen(begin))
		r.Connected(kitchen)
		synctest.Wait()
		equal(t, h.seen(begin)[before:], "128h0m0s This is your alarm for 07:30. This was due at 07:30.")
		r.must(kitchen, "list_timers", `{}`, "Alarm 1: every day at 07:30, next tomorrow at 07:30.")
		if s := r.Stats(); s.Dropped != 5 {
			t.Errorf("%+v", s)
		}
	})
}

func TestLateIsAMinute(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Minute - 1: "Your timer has ended.", time.Minute: "Your timer has ended. This was due at 00:01.",
	} {
		synctest.Test(t, func(t *testing.T) {
			h := &house{answer: absent}
			r := run(t, builtin.Config{}, h)
			r.call(kitchen, "set_timer", `{"minutes":1}`)
			time.Sleep(time.Minute + after)
			h.behave(nil)
			r.Connected(kitchen)
			synctest.Wait()
			equal(t, h.seen(time.Now())[1:], "0s "+want)
		})
	}
}

// TestClockIsSet moves the wall clock and not the monotonic one, as NTP and a
// machine that slept do.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		ahead := new(atomicDuration)
		r := run(t, builtin.Config{}, h, func(tools *builtin.Tools) {
			tools.SetClock(func() time.Time { return time.Now().Round(0).Add(ahead.Load()) })
		})
		begin := time.Now()
		r.call(kitchen, "set_alarm", `{"time":"07:30"}`)
		time.Sleep(90 * time.Second)
		ahead.Store(8 * time.Hour)
		time.Sleep(24 * time.Hour)
		equal(t, h.seen(begin), "2m0s This is your alarm for 07:30. This was due at 07:30.")
		ahead.Store(7 * time.Hour) // and back an hour
		begin = time.Now()
		r.call(kitchen, "set_timer", `{"minutes":3}`)
		time.Sleep(time.Second)
		ahead.Store(6 * time.Hour)
		time.Sleep(24 * time.Hour)
		equal(t, h.seen(begin)[1:], "1h3m0s Your timer has ended.")
	})
}

func TestWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{answer: absent}
		r := run(t, builtin.Config{Words: builtin.Words{
			Timer: "时间到。", Reminder: "提醒你:{label}。", Late: "本来是{time}的。",
		}}, h)
		r.call(kitchen, "set_timer", `{"seconds":1}`)
		r.call(kitchen, "set_reminder", `{"text":"浇花。","at":"00:10"}`)
		time.Sleep(20 * time.Minute)
		h.behave(nil)
		r.Connected(kitchen)
		synctest.Wait()
		seen := h.seen(time.Now())
		equal(t, seen[2:], "0s 时间到。 本来是00:00的。", "0s 提醒你:浇花。。 本来是00:10的。")
	})
	if _, err := builtin.New(builtin.Config{Dir: t.TempDir(), Words: builtin.Words{Late: "{when}"}}, &house{}, nil); err == nil || !strings.Contains(err.Error(), "{when}") {
		t.Errorf("got %v", err)
	}
}
