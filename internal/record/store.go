package record

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"

	"parley/internal/protocol"
)

const (
	recording   = ".ogg"
	description = ".sdp"

	dirMode  = 0o700
	fileMode = 0o600

	// stamp is when a session began, in UTC, so that names sort by time. There
	// are no colons in it, which some file systems refuse.
	stamp = "20060102T150405Z"
)

// ours matches the names of recordings. No other file is ever removed.
var ours = regexp.MustCompile(`^[0-9]{8}T[0-9]{6}Z_[0-9a-f_]{17}_[0-9A-Za-z-]{1,64}\.ogg$`)

// fileName is the name of a session's files, without extension.
func fileName(begun time.Time, device protocol.DeviceID, session string) (string, error) {
	id, err := protocol.ParseDeviceID(string(device))
	if err != nil {
		return "", fmt.Errorf("%w: device %q: %w", ErrSession, device, err)
	}
	name := begun.UTC().Format(stamp) + "_" + id.Underscored() + "_" + session
	if !ours.MatchString(name + recording) {
		return "", fmt.Errorf("%w: session id %q: want 1 to 64 letters, digits and hyphens", ErrSession, session)
	}
	return name, nil
}

// A store is the directory of recordings and bounds what is in it. Its methods
// may be called concurrently.
type store struct {
	dir   string
	limit int64
	stats *counters
	log   *slog.Logger

	mu       sync.Mutex
	used     int64  // by complete files and those being written
	complete []file // oldest first
}

// A file is a recording nobody writes to.
type file struct {
	name string
	size int64
}

// openStore makes the directory if need be, makes sure of being able to write
// there, and counts what is in it.
func openStore(dir string, limit int64, stats *counters, log *slog.Logger) (*store, error) {
	if dir == "" {
		return nil, fmt.Errorf("%w: no directory given", ErrDir)
	}
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-")
	if err != nil {
		return nil, fmt.Errorf("%w: not writable: %w", ErrDir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	s := &store{dir: dir, limit: limit, stats: stats, log: log}
	entries, err := os.ReadDir(dir) // sorted by name, which is by time
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDir, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !ours.MatchString(e.Name()) {
			continue
		}
		s.complete = append(s.complete, file{e.Name(), info.Size()})
		s.used += info.Size()
	}
	s.mu.Lock()
	s.makeRoom()
	s.mu.Unlock()
	return s, nil
}

// create makes a file that does not exist yet.
func (s *store) create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(s.dir, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
}

// grow counts bytes about to be written, makes room for them, and reports
// whether there is any.
func (s *store) grow(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used += int64(n)
	if s.makeRoom() {
		return true
	}
	s.used -= int64(n)
	return false
}

// shrink takes back what grow counted and was not written.
func (s *store) shrink(n int) {
	s.mu.Lock()
	s.used -= int64(n)
	s.mu.Unlock()
}

// finish hands over a file nobody writes to any more. It was counted by grow.
func (s *store) finish(name string, size int64) {
	s.mu.Lock()
	s.complete = append(s.complete, file{name, size})
	s.mu.Unlock()
}

// makeRoom removes the oldest recordings until the rest is within the limit. It
// is called with mu held.
func (s *store) makeRoom() bool {
	for s.used > s.limit {
		if len(s.complete) == 0 {
			return false
		}
		oldest := s.complete[0]
		s.complete = s.complete[1:]
		s.used -= oldest.size
		err := os.Remove(filepath.Join(s.dir, oldest.name))
		switch {
		case errors.Is(err, fs.ErrNotExist): // somebody else made room
		case err != nil:
			s.log.Warn("old recording not removed", "file", oldest.name, "error", err)
		default:
			s.stats.removed.Add(1)
			s.log.Info("old recording removed", "file", oldest.name, "bytes", oldest.size)
		}
	}
	return true
}
