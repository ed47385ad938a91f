package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"parley/internal/protocol"
)

const (
	fileName    = "timers.json"
	fileVersion = 1
	// maxFile bounds the file in bytes. The most there can be set, with the
	// longest texts, takes some 80 MB.
	maxFile = 128 << 20
	// writeEvery is the least time between two writings.
	writeEvery = time.Second

	dirMode  = 0o700
	fileMode = 0o600
)

// file is what lies in the data directory.
type file struct {
	Version int      `json:"version"`
	Last    int64    `json:"last"` // the highest id ever given
	Entries []record `json:"entries"`
}

// A store keeps a book in a file. What is written replaces the file in one step,
// so that a crash leaves the old one or the new one.
type store struct {
	path  string
	book  *book
	stats *counters
	log   *slog.Logger
	write func(path string, content []byte) error

	mu      sync.Mutex
	saved   uint64 // version of the book
	waiting []waiter
}

// A waiter is told when a version has been written, or could not be.
type waiter struct {
	version uint64
	done    chan error // has room for the one answer
}

// openStore makes the directory if need be and fills the book. A file that is
// not understood is renamed, and what could be read of it is kept.
func openStore(dir string, b *book, stats *counters, log *slog.Logger) (*store, error) {
	if dir == "" {
		return nil, errors.New("no data directory is given for timers; name one")
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("data directory for timers: %w", err)
	}
	s := &store{path: filepath.Join(dir, fileName), book: b, stats: stats, log: log, write: replaceFile}
	content, err := readFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("file of timers: %w", err)
	}
	last, records, fault := parseFile(content)
	if fault != nil {
		aside, err := setAside(s.path, time.Now())
		if err != nil {
			return nil, fmt.Errorf("file of timers: %w; it could not be renamed, move it away: %w", fault, err)
		}
		log.Error("file of timers not understood, and set aside", "file", s.path, "renamed_to", aside, "kept", len(records), "error", fault)
		if err := s.write(s.path, encodeFile(last, records)); err != nil {
			return nil, fmt.Errorf("file of timers: %w", err)
		}
	}
	b.load(last, records)
	return s, nil
}

// run is the store's goroutine: it writes what has changed, at most once a
// second. When ctx ends it writes what is left and returns the error of that.
func (s *store) run(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	failing := false
	for arrives(ctx, pause.C) && arrives(ctx, s.book.dirty) {
		err := s.flush()
		switch {
		case err != nil && !failing:
			s.log.Error("timers not written; trying again every second", "file", s.path, "error", err)
		case err == nil && failing:
			s.log.Info("timers are written again", "file", s.path)
		}
		if failing = err != nil; failing {
			signal(s.book.dirty)
		}
		pause.Reset(writeEvery)
	}
	return s.flush()
}

// arrives waits for something from c, and reports false if ctx ends before.
func arrives[T any](ctx context.Context, c <-chan T) bool {
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// flush writes the book if it has changed.
func (s *store) flush() error {
	version, last, records := s.book.snapshot()
	s.mu.Lock()
	unchanged := version == s.saved
	s.mu.Unlock()
	var err error
	if !unchanged {
		slices.SortFunc(records, func(a, b record) int { return int(a.ID - b.ID) })
		if err = s.write(s.path, encodeFile(last, records)); err == nil {
			s.stats.writes.Add(1)
		} else {
			s.stats.writeFailures.Add(1)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.saved = version
	}
	s.waiting = slices.DeleteFunc(s.waiting, func(w waiter) bool {
		if w.version > version {
			return false
		}
		w.done <- err
		return true
	})
	return err
}

// durable returns when a version has been written, with the error of that.
func (s *store) durable(ctx context.Context, version uint64) error {
	w := waiter{version, make(chan error, 1)}
	s.mu.Lock()
	if s.saved >= version {
		s.mu.Unlock()
		return nil
	}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	signal(s.book.dirty) // should the writing be over that was to cover it
	select {
	case err := <-w.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replaceFile writes content to path in one step that survives a crash.
func replaceFile(path string, content []byte) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, fileMode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close()) // so that the rename survives
}

// readFile reads a file of acceptable size.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read; move it away", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

// setAside renames a file to one that does not exist yet.
func setAside(path string, now time.Time) (string, error) {
	name := path + ".corrupt-" + now.UTC().Format("20060102T150405Z")
	for i := 2; ; i++ {
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, os.Rename(path, name)
		} else if err != nil {
			return "", err
		}
		name = fmt.Sprintf("%s.corrupt-%s-%d", path, now.UTC().Format("20060102T150405Z"), i)
	}
}

func encodeFile(last int64, records []record) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if records == nil {
		records = []record{}
	}
	if err := e.Encode(file{fileVersion, last, records}); err != nil {
		panic(err) // records are checked where they come in
	}
	return b.Bytes()
}

// parseFile returns what can be used of a file, and what is wrong with it, if
// anything is.
func parseFile(content []byte) (last int64, records []record, fault error) {
	var f struct {
		Version int               `json:"version"`
		Last    int64             `json:"last"`
		Entries []json.RawMessage `json:"entries"`
	}
	if err := json.Unmarshal(content, &f); err != nil {
		return 0, nil, fmt.Errorf("not the JSON expected: %w", err)
	}
	if f.Version != fileVersion {
		return 0, nil, fmt.Errorf("version %d where %d is understood", f.Version, fileVersion)
	}
	last = max(f.Last, 0)
	ids := map[int64]bool{}
	perDevice := map[protocol.DeviceID]int{}
	for i, raw := range f.Entries {
		var r record
		err := json.Unmarshal(raw, &r)
		if err == nil {
			err = r.check()
		}
		switch {
		case err != nil:
		case ids[r.ID]:
			err = errors.New("its id is used twice")
		case perDevice[r.Device] == maxPerDevice:
			err = errFull
		case len(records) == maxEntries:
			err = errAllFull
		}
		if err != nil {
			if fault == nil { // the first says enough
				fault = fmt.Errorf("entry %d: %w", i+1, err)
			}
			continue
		}
		ids[r.ID] = true
		perDevice[r.Device]++
		last = max(last, r.ID)
		records = append(records, r)
	}
	return last, records, fault
}

// check reports what is wrong with a record from outside, and puts its times
// into UTC.
func (r *record) check() error {
	id, err := protocol.ParseDeviceID(string(r.Device))
	if err != nil {
		return fmt.Errorf("device: %w", err)
	}
	r.Device, r.Due, r.Pending = id, r.Due.UTC(), r.Pending.UTC()
	switch {
	case r.ID <= 0 || r.ID >= 1<<53: // so that every reader of JSON can hold it
		return fmt.Errorf("id %d: want a whole number above 0", r.ID)
	case r.Kind != Timer && r.Kind != Alarm && r.Kind != Reminder:
		return fmt.Errorf("kind %q: want timer, alarm or reminder", r.Kind)
	case r.Kind == Reminder && r.Text == "":
		return errors.New("a reminder of nothing")
	case len(r.Text) > maxReminder || !utf8.ValidString(r.Text):
		return fmt.Errorf("text: want at most %d bytes of UTF-8", maxReminder)
	case r.Due.IsZero() && r.Pending.IsZero():
		return errors.New("due: it is never due")
	case r.Repeat != once && r.Repeat != daily && r.Repeat != weekdays && r.Repeat != weekly:
		return fmt.Errorf("repeat %q: want daily, weekdays or weekly", r.Repeat)
	case r.Repeat != once && r.Due.IsZero():
		return errors.New("due: it repeats and is not due again")
	case r.Weekday < time.Sunday || r.Weekday > time.Saturday:
		return fmt.Errorf("weekday %d: want 0 for Sunday to 6", r.Weekday)
	case tooFar(r.Due) || tooFar(r.Pending):
		return errors.New("due: the year is not believed")
	}
	return nil
}

// tooFar reports whether a moment is in a year that no clock shows, not even one that was never set.
func tooFar(t time.Time) bool { return !t.IsZero() && (t.Year() < 1970 || t.Year() > 9000) }
