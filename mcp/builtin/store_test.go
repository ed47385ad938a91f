package builtin_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"parley/mcp/builtin"
)

// written is what lies in a directory.
func written(t *testing.T, dir string) (ids []int64) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, "timers.json"))
	if err != nil {
		t.Error(err)
		return nil
	}
	var f struct{ Entries []struct{ ID int64 } }
	if err := json.Unmarshal(content, &f); err != nil {
		t.Error(err)
	}
	for _, e := range f.Entries {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestWhatIsSetIsOnDiskBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data", "parley")
		r := run(t, builtin.Config{Dir: dir}, &house{})
		begin := time.Now()
		for i := range 5 {
			r.call(kitchen, "set_timer", `{"hours":1}`)
			if ids := written(t, dir); len(ids) != i+1 {
				t.Errorf("after %d: %v", i+1, ids)
			}
		}
		if took := time.Since(begin); took != 4*time.Second {
			t.Errorf("took %v; there is one writing a second", took)
		}
		r.call(kitchen, "cancel_timer", `{"which":"3"}`)
		if got := fmt.Sprint(written(t, dir)); got != "[1 2 4 5]" {
			t.Errorf("after cancelling: %s", got)
		}
		for path, mode := range map[string]os.FileMode{dir: 0o700 | os.ModeDir, filepath.Join(dir, "timers.json"): 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode() != mode {
				t.Errorf("%s: %v, %v", path, info.Mode(), err)
			}
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("left behind: %v", entries)
		}
	})
}

func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := &house{}
		begin := time.Now()
		r := run(t, builtin.Config{Dir: dir}, h)
		r.call(kitchen, "set_timer", `{"minutes":10,"label":"\"<&é"}`)
		r.call(kitchen, "set_timer", `{"hours":3}`)
		r.call(kitchen, "set_alarm", `{"time":"07:30","repeat":"daily"}`)
		r.call(kitchen, "set_alarm", `{"time":"06:00","repeat":"weekly"}`)
		r.call(kitchen, "set_reminder", `{"text":"x","at":"tomorrow 18:00"}`)
		before, _ := r.call(kitchen, "list_timers", ``)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r = run(t, builtin.Config{Dir: dir}, h)
		r.must(kitchen, "list_timers", ``, before)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		// Parley is down until noon of the next day.
		time.Sleep(time.Until(begin.Add(36 * time.Hour)))
		h.behave(func(d delivery) (builtin.Way, error) {
			if time.Now().Before(begin.Add(37 * time.Hour)) {
				return absent(d)
			}
			return builtin.Spoken, nil
		})
		r = run(t, builtin.Config{Dir: dir}, h)
		time.Sleep(time.Hour)
		first := len(h.seen(begin))
		r.Connected(kitchen)
		synctest.Wait()
		equal(t, h.seen(begin)[first:],
			// What was due before noon of the first day is dropped.
			"37h0m0s This is your alarm for 07:30. This was due at 07:30.")
		if log := r.log.String(); strings.Count(log, "notice dropped") != 3 {
			t.Errorf("two timers and the weekly alarm are dropped:\n%s", log)
		}
		r.must(kitchen, "set_timer", `{"minutes":1}`, "Timer 1 is set: 1 minute, until 13:01.") // the number is free
		if got := fmt.Sprint(written(t, dir)); got != "[3 4 5 6]" {
			t.Errorf("on disk are %s, and no id is given twice", got)
		}
	})
}

// TestNothingIsLostWhenItEnds has something to write when Run is asked to end.
func TestNothingIsLostWhenItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := &house{}
		r := run(t, builtin.Config{Dir: dir}, h)
		r.call(kitchen, "set_timer", `{"seconds":1.5}`)
		r.call(kitchen, "set_timer", `{"hours":1}`) // written after a second
		time.Sleep(time.Second / 2)                 // the first goes off
		synctest.Wait()
		if ids := written(t, dir); len(ids) != 2 {
			t.Errorf("the writing is due in half a second, and %v are on disk", ids)
		}
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		if got := fmt.Sprint(written(t, dir)); got != "[2]" {
			t.Errorf("got %s", got)
		}
	})
}

// TestEndsDuringTheAttempt asks Run to end while two notices are on their way: one
// arrives all the same, and the other is left for the next time.
func TestEndsDuringTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := &house{}
		r := run(t, builtin.Config{Dir: dir}, h)
		h.behave(func(d delivery) (builtin.Way, error) {
			time.Sleep(10 * time.Second)
			if d.device == bedroom {
				return "", context.Canceled
			}
			return builtin.Spoken, nil
		})
		r.call(kitchen, "set_timer", `{"seconds":61}`)
		r.call(bedroom, "set_timer", `{"seconds":60}`)
		time.Sleep(time.Minute + time.Second)
		begin := time.Now()
		if err := r.stop(); err != nil || time.Since(begin) != 9*time.Second {
			t.Errorf("after %v: %v", time.Since(begin), err)
		}
		if got := fmt.Sprint(written(t, dir)); got != "[2]" {
			t.Errorf("left is %s", got)
		}
		if strings.Contains(r.log.String(), "WARN") {
			t.Errorf("the log takes the end for a failure:\n%s", r.log)
		}
	})
}

func TestDiskFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := &house{}
		var full atomic.Bool
		r := run(t, builtin.Config{Dir: dir}, h, func(tools *builtin.Tools) {
			tools.SetWrite(func(path string, content []byte) error {
				if full.Load() {
					return errors.New("no space left on device")
				}
				return builtin.ReplaceFile(path, content)
			})
		})
		r.call(kitchen, "set_timer", `{"hours":1}`)
		synctest.Wait()
		full.Store(true)
		r.refuses(kitchen, "set_timer", `{"hours":2}`, "it could not be saved")
		r.must(kitchen, "list_timers", ``, "Timer 1: 59 minutes 59 seconds left, until 01:00.")
		r.must(kitchen, "cancel_timer", ``, "Cancelled: timer 1. But that could not be saved: after a restart of the server it is set again.")
		time.Sleep(10 * time.Second)
		if log := r.log.String(); strings.Count(log, "no space left") != 1 {
			t.Errorf("the log does not say so once:\n%s", log)
		}
		if err := r.stop(); err == nil {
			t.Error("Run does not say that the last writing failed")
		}
		full.Store(false)
		if got := fmt.Sprint(written(t, dir)); got != "[1]" {
			t.Errorf("on disk: %s", got)
		}
	})
}

func TestDiskFailsForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var full atomic.Bool
		r := run(t, builtin.Config{Dir: dir}, &house{}, func(tools *builtin.Tools) {
			tools.SetWrite(func(path string, content []byte) error {
				if full.Load() {
					return errors.New("no space left on device")
				}
				return builtin.ReplaceFile(path, content)
			})
		})
		r.call(kitchen, "set_timer", `{"hours":1}`)
		synctest.Wait()
		full.Store(true)
		r.call(kitchen, "cancel_timer", ``)
		synctest.Wait()
		full.Store(false)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := fmt.Sprint(written(t, dir)); got != "[]" {
			t.Errorf("on disk: %s", got)
		}
		if log := r.log.String(); !strings.Contains(log, "written again") {
			t.Errorf("the log says nothing of it:\n%s", log)
		}
	})
}

func TestCorruptFile(t *testing.T) {
	good := `{"id":7,"device":"A0-85-E3-F4-49-34","kind":"alarm","due":"2000-01-02T07:30:00Z","repeat":"daily","clock":"07:30"}`
	for _, c := range []struct {
		name, content string
		kept          string
	}{
		{"empty", "", ""},
		{"torn", `{"version":1,"last":9,"entries":[` + good, ""},
		{"of a later version", `{"version":2,"entries":[` + good + `]}`, ""},
		{"not even close", strings.Repeat("\x00", 4096), ""},
		{"one entry wrong", `{"version":1,"last":9,"entries":[{"id":1},` + good + `,{"id":7,"device":"a0:85:e3:f4:49:34","kind":"timer","due":"2000-01-02T07:30:00Z"}]}`,
			"Alarm 1: every day at 07:30, next tomorrow at 07:30."},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(12 * time.Hour)
				dir := t.TempDir()
				path := filepath.Join(dir, "timers.json")
				for range 2 { // within one second
					if err := os.WriteFile(path, []byte(c.content), 0o600); err != nil {
						t.Fatal(err)
					}
					r := run(t, builtin.Config{Dir: dir}, &house{})
					want := c.kept
					if want == "" {
						want = "There is no timer, alarm or reminder set."
					}
					r.must(kitchen, "list_timers", ``, want)
					if !strings.Contains(r.log.String(), "level=ERROR msg=\"file of timers not understood, and set aside\"") {
						t.Errorf("the log says:\n%s", r.log)
					}
					if err := r.stop(); err != nil {
						t.Error(err)
					}
				}
				for _, name := range []string{path + ".corrupt-20000101T120000Z", path + ".corrupt-20000101T120000Z-2"} {
					if content, err := os.ReadFile(name); err != nil || string(content) != c.content {
						t.Errorf("set aside: %.80q, %v", content, err)
					}
				}
				r := run(t, builtin.Config{Dir: dir}, &house{}) // what was written since is in order
				if strings.Contains(r.log.String(), "ERROR") {
					t.Errorf("the log says:\n%s", r.log)
				}
			})
		})
	}
}

func TestDirectoryThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	unreadable := t.TempDir()
	if err := os.Mkdir(filepath.Join(unreadable, "timers.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	huge := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(huge, "timers.json"), nil, 0o600), os.Truncate(filepath.Join(huge, "timers.json"), 129<<20)); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	for dir, says := range map[string]string{"": "name one", file: "not a directory", unreadable: "is a directory", huge: "at most 134217728 are read"} {
		if _, err := builtin.New(builtin.Config{Dir: dir}, &house{}, log); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want %q", dir, err, says)
		}
	}
}

// TestAnotherZone moves house: alarms by the clock follow, moments do not.
func TestAnotherZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		r := run(t, builtin.Config{Dir: dir}, &house{})
		r.call(kitchen, "set_alarm", `{"time":"07:30","repeat":"daily"}`)
		r.call(kitchen, "set_alarm", `{"time":"07:30"}`)
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r = run(t, builtin.Config{Dir: dir, Location: time.FixedZone("there", 3*3600)}, &house{})
		r.must(kitchen, "list_timers", ``, "Alarm 1: every day at 07:30, next today at 07:30.\nAlarm 2: today at 10:30.")
	})
}
