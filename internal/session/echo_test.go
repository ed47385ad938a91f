package session_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"parley/internal/device"
	"parley/internal/protocol"
	"parley/internal/record"
	"parley/internal/session"
)

// TestEcho has every kind of client hear itself.
func TestEcho(t *testing.T) {
	for _, m := range []protocol.Mode{protocol.ModeAuto, protocol.ModeManual} {
		t.Run(string(m), func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				h := newHouse(t, func(_ *session.Config, r *session.Role) { r.Echo = true })
				d := h.device(1, line{}, func(o *device.Options) { o.Mode = m })
				a, err := h.ask(d)
				if err != nil {
					t.Fatal(err)
				}
				loud := 0
				for _, s := range a.PCM {
					if s > 3000 || s < -3000 {
						loud++
					}
				}
				// A second of a tone is loud about four fifths of the time.
				if seconds := float64(loud) / protocol.DownlinkSampleRate; seconds < 0.6 || seconds > 1 {
					t.Errorf("%.2f s of loud samples in %d", seconds, len(a.PCM))
				}
				if r := d.Report(); r.Clipped() != 0 || r.Underruns != 0 {
					t.Errorf("report %+v", r)
				}
				if len(h.turns()) != 0 {
					t.Error("an echo has no turns")
				}
			})
		})
	}
}

// TestASessionIsRecorded asserts that a role's session leaves one file that
// belongs to its owner, and that nothing is recorded without being asked for.
func TestASessionIsRecorded(t *testing.T) {
	for name, recorded := range map[string]bool{"asked for": true, "not asked for": false} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "recordings")
			virtual(t, func(t *testing.T) {
				recorder, err := record.New(record.Config{Dir: dir}, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				h := newHouse(t, func(_ *session.Config, r *session.Role) {
					if recorded {
						r.Recorder = recorder
					}
				})
				d := h.device(1, line{}, nil)
				a, err := h.ask(d)
				mustHear(t, d, a, err)
				h.stop()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				if err := recorder.Close(ctx); err != nil {
					t.Fatal(err)
				}
			})
			files, err := filepath.Glob(filepath.Join(dir, "*.ogg"))
			if err != nil {
				t.Fatal(err)
			}
			if !recorded {
				if len(files) != 0 {
					t.Errorf("files %q", files)
				}
				return
			}
			if len(files) != 1 || !strings.Contains(files[0], "02_00_00_00_00_01") {
				t.Fatalf("files %q", files)
			}
			info, err := os.Stat(files[0])
			if err != nil || info.Size() < 2000 || info.Mode().Perm() != 0o600 {
				t.Errorf("%v, %v", info, err)
			}
		})
	}
}
