package record_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/audio"
	"parley/internal/protocol"
	"parley/internal/record"
)

// talk sends packets at their pace.
func talk(tap *record.Tap, packets [][]byte) {
	for i, p := range packets {
		time.Sleep(frame)
		tap.Up(uint32(i+1), p)
	}
}

func TestBadPacketsAreNotRecorded(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)[:12]
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		bad := [][]byte{{3}, {3, 0}, {3, 63}, {1, 2}, make([]byte, 1400), make([]byte, 1501), bytes.Repeat([]byte{0xff}, 70)}
		for i, p := range question {
			time.Sleep(frame)
			if i < len(bad) {
				tap.Up(uint32(2*i), bad[i])
				tap.Down(bad[i])
			}
			tap.Up(uint32(2*i+1), p)
			tap.Up(uint32(2*i+1), nil) // silence, sent as such
			tap.Down(nil)
		}
		stop(t, r)
		tracks := load(t, only(t, dir)) // fails on what is not Opus
		if n := len(tracks[0].heard); n != len(question) {
			t.Errorf("%d packets, want %d", n, len(question))
		}
		if s := r.Stats(); s.Bad != uint64(2*len(bad)) || s.Packets != uint64(len(question)) {
			t.Errorf("%+v, want %d bad packets", s, 2*len(bad))
		}
	})
}

// Silence a device sends as packets of a byte or two is kept as it is.
func TestDTXIsKept(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		dtx := [][]byte{{11 << 3}, {11 << 3, 0}, {11<<3 | 3, 1}, {11<<3 | 3, 1, 0}}
		talk(tap, dtx)
		stop(t, r)
		for i, at := range load(t, only(t, dir))[0].places(t, dtx) {
			if at != time.Duration(i)*frame {
				t.Errorf("packet %d is at %v", i, at)
			}
		}
	})
}

// A device that sends more than time passes does not make a file of any length.
func TestFloodIsCut(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		for i := range 10000 {
			tap.Up(uint32(i+1), []byte{11 << 3})
			time.Sleep(time.Millisecond) // 60 times as fast
		}
		tap.Close()
		stop(t, r)
		if n := load(t, only(t, dir))[0].length(); n > 21*time.Second {
			t.Errorf("10 s make a recording of %v", n)
		}
		if s := r.Stats(); s.Ahead == 0 || s.Packets+s.Ahead+s.Dropped != 10000 {
			t.Errorf("%+v", s)
		}
	})
}

// A queue nobody empties is full at its bound, and callers do not notice.
func TestFullQueueDrops(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, slog.New(slow{}))
		tap := open(t, r, session)
		tap.Up(1, []byte{11 << 3})
		time.Sleep(time.Second) // the tap's goroutine is at its log line
		before := time.Now()
		for i := range 1000 {
			tap.Up(uint32(i+2), []byte{11 << 3})
		}
		if d := time.Since(before); d != 0 {
			t.Errorf("a full queue takes %v", d)
		}
		if s := r.Stats(); s.Dropped != 1000-128 {
			t.Errorf("%+v, want %d dropped", s, 1000-128)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close waits for a disk that hangs: %v", err)
		}
		stop(t, r)
	})
}

// slow is a log handler that hangs for an hour, as a disk may.
type slow struct{}

func (s slow) Enabled(context.Context, slog.Level) bool { return true }
func (s slow) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s slow) WithGroup(string) slog.Handler            { return s }
func (s slow) Handle(context.Context, slog.Record) error {
	time.Sleep(time.Hour)
	return nil
}

func TestMaxDuration(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := start(t, record.Config{Dir: dir, MaxDuration: 2 * time.Second}, slog.New(slog.NewTextHandler(&log, nil)))
		tap := open(t, r, session)
		talk(tap, question)
		stop(t, r)
		tracks := load(t, only(t, dir))
		if d := tracks[0].length(); d > 2*time.Second || d < 2*time.Second-frame || !tracks[0].closed {
			t.Errorf("%v recorded (ended: %t), want 2 s", d, tracks[0].closed)
		}
		if s := r.Stats(); s.Cut != 1 || strings.Count(log.String(), "recording ended early") != 1 || !strings.Contains(log.String(), "limit=max_duration") {
			t.Errorf("%+v\n%s", s, &log)
		}
	})
}

func TestMaxTotalRemovesTheOldest(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)
	dir := t.TempDir()
	// Not ours, and therefore not to be touched.
	for _, name := range []string{"mine.ogg", "20000101T000000Z_notes.ogg"} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 100_000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := record.Config{Dir: dir, MaxTotal: 1 << 30}
		var size int64
		for i := range 6 { // each a process of its own, as after a restart
			r := start(t, cfg, quiet())
			tap := open(t, r, "S"+string(rune('0'+i)))
			talk(tap, question)
			stop(t, r)
			if s := r.Stats(); s.Cut != 0 || s.Removed != uint64(max(0, min(1, i-2))) {
				t.Errorf("recording %d: %+v", i, s)
			}
			if i == 0 {
				size = int64(r.Stats().Bytes)
				cfg.MaxTotal = 3*size + size/2
			}
		}
		names := files(t, dir)
		var kept []string
		for _, n := range names {
			if i := strings.LastIndex(n, "_S"); i > 0 {
				kept = append(kept, n[i+1:])
			}
		}
		if want := []string{"S3.ogg", "S4.ogg", "S5.ogg"}; !slices.Equal(kept, want) || len(names) != 5 {
			t.Errorf("kept %v of %v, want %v and what is not ours", kept, names, want)
		}
	})
}

// If nothing can be removed the recording stops, and what it has is playable.
func TestMaxTotalEndsARecording(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir, MaxTotal: 4000}, quiet())
		tap := open(t, r, session)
		talk(tap, question)
		stop(t, r)
		info, err := os.Stat(only(t, dir))
		if err != nil || info.Size() > 4000 || info.Size() < 2000 {
			t.Errorf("%d bytes, %v", info.Size(), err)
		}
		load(t, only(t, dir))
		if s := r.Stats(); s.Cut != 1 || s.Failed != 0 || s.Bytes != uint64(info.Size()) {
			t.Errorf("%+v", s)
		}
	})
}

// What was said more than a second ago is on the disk, whatever happens now.
func TestCrashLosesASecond(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		for i, p := range question {
			time.Sleep(frame)
			tap.Up(uint32(i+1), p)
			synctest.Wait()
			if said := time.Duration(i+1) * frame; said > time.Second {
				if d := load(t, only(t, dir))[0].length(); d < said-time.Second {
					t.Fatalf("after %v only %v are in the file", said, d)
				}
			}
		}
		stop(t, r)
	})
}

func TestUnusableDirectory(t *testing.T) {
	inTheWay := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"", inTheWay, filepath.Join(inTheWay, "below"), "/proc"} {
		if r, err := record.New(record.Config{Dir: dir}, quiet()); !errors.Is(err, record.ErrDir) {
			t.Errorf("%q: %v, %v", dir, r, err)
		}
	}
}

// A directory that goes away later costs the recording, one log line and
// nothing else.
func TestDirectoryGone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "recordings")
	question := speech(t, audio.MicrophoneEncoding(), frame)
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		r := start(t, record.Config{Dir: dir}, slog.New(slog.NewTextHandler(&log, nil)))
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		tap := open(t, r, session)
		talk(tap, question)
		stop(t, r)
		if s := r.Stats(); s.Failed != 1 || s.Packets != uint64(len(question)) || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("%+v\n%s", s, &log)
		}
	})
}

func TestNames(t *testing.T) {
	r := start(t, record.Config{Dir: t.TempDir()}, quiet())
	defer stop(t, r)
	for _, bad := range []struct {
		device  protocol.DeviceID
		session string
	}{
		{device, ""}, {device, "../../etc/cron.d/x"}, {device, "a/b"}, {device, "a b"}, {device, strings.Repeat("x", 65)},
		{"", session}, {"../../../../../..", session},
	} {
		if tap, err := r.Open(bad.device, bad.session); !errors.Is(err, record.ErrSession) {
			t.Errorf("%q %q: %v, %v", bad.device, bad.session, tap, err)
		}
	}
	open(t, r, protocol.NewSessionID()).Close()
}

func TestNobodyListens(t *testing.T) {
	var tap *record.Tap
	tap.Up(1, []byte{1})
	tap.Down([]byte{1})
	tap.Close()
	r := start(t, record.Config{Dir: t.TempDir()}, quiet())
	open(t, r, session).Close()
	stop(t, r)
	if s := r.Stats(); s != (record.Stats{}) {
		t.Errorf("a session without a packet leaves %+v", s)
	}
}
