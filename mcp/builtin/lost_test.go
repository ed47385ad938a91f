package builtin_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/mcp/builtin"
)

// A house may find only later that what it took was not heard: the device was in
// a conversation and lost its Wi-Fi. The user is told when it is back.
func TestWhatIsLostIsToldAgain(t *testing.T) {
	const text = "Your timer has ended: eggs."
	for name, c := range map[string]struct {
		after time.Duration // from the delivery to the loss; 0 for within it
		back  time.Duration // from the loss to the device's return
		want  string        // the last text
	}{
		"a moment later":                       {2 * time.Second, 3 * time.Second, text},
		"before it was known to be delivered":  {0, 3 * time.Second, text},
		"the device comes back in the evening": {time.Second, 10 * time.Hour, text + " This was due at 00:01."},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &house{}
				cfg := builtin.Config{Dir: t.TempDir()}
				r := run(t, cfg, h)
				var lost func()
				h.behave(func(d delivery) (builtin.Way, error) {
					h.behave(absent)
					if lost = d.Lost; c.after == 0 {
						lost()
					}
					return builtin.Spoken, nil
				})
				begin := time.Now()
				r.call(kitchen, "set_timer", `{"minutes":1,"label":"eggs"}`)
				time.Sleep(time.Until(begin.Add(time.Minute)))
				synctest.Wait()
				if c.after > 0 {
					if s := r.Stats(); s.Entries != 0 {
						t.Errorf("delivered, and %d are left", s.Entries)
					}
					time.Sleep(c.after)
					synctest.Wait()
					lost()
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if content, err := os.ReadFile(filepath.Join(cfg.Dir, "timers.json")); err != nil || !strings.Contains(string(content), "eggs") {
					t.Errorf("it is not kept: %s, %v", content, err)
				}
				time.Sleep(c.back)
				h.behave(nil)
				r.Connected(kitchen)
				time.Sleep(time.Minute)
				seen := h.seen(begin)
				if got := seen[len(seen)-1]; !strings.HasSuffix(got, c.want) {
					t.Errorf("told %q, want %q", got, c.want)
				}
				if s := r.Stats(); s.Entries != 0 {
					t.Errorf("%d are left in the end", s.Entries)
				}
				n := len(seen)
				time.Sleep(25 * time.Hour)
				if got := len(h.seen(begin)); got != n {
					t.Errorf("told %d times more", got-n)
				}
			})
		})
	}
}

// An alarm that repeats is not lost either, and one that is cancelled stays so.
func TestWhatIsLostOfAnAlarmThatRepeats(t *testing.T) {
	for name, cancelled := range map[string]bool{"kept": false, "cancelled": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := &house{}
				r := run(t, builtin.Config{}, h)
				begin := time.Now()
				r.call(kitchen, "set_alarm", `{"time":"07:00","repeat":"daily"}`)
				var lost func()
				h.behave(func(d delivery) (builtin.Way, error) {
					lost = d.Lost
					h.behave(nil)
					return builtin.Spoken, nil
				})
				time.Sleep(7*time.Hour + time.Minute)
				synctest.Wait()
				if cancelled {
					r.call(kitchen, "cancel_timer", `{}`)
				}
				lost()
				time.Sleep(time.Hour)
				want := []string{"7h0m0s This is your alarm for 07:00.", "7h1m5s This is your alarm for 07:00. This was due at 07:00."}
				if cancelled {
					want = want[:1]
				}
				equal(t, h.seen(begin), want...)
				time.Sleep(24 * time.Hour)
				if got := len(h.seen(begin)); !cancelled && got != 3 {
					t.Errorf("told %d times in two days", got)
				}
			})
		})
	}
}

// What is lost whenever it is told ends like what is refused.
func TestWhatIsAlwaysLostIsNotTriedForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		r := run(t, builtin.Config{}, h)
		h.behave(func(d delivery) (builtin.Way, error) {
			go func() { time.Sleep(time.Second); d.Lost() }() // ends soon
			return builtin.Called, nil
		})
		begin := time.Now()
		r.call(kitchen, "set_timer", `{"minutes":1}`)
		time.Sleep(20 * time.Hour)
		if got := len(h.seen(begin)); got < 5 || got > 12 {
			t.Errorf("tried %d times", got)
		}
		if s := r.Stats(); s.Entries != 1 {
			t.Errorf("%d wait for the device to come back", s.Entries)
		}
	})
}
