package builtin_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
	"parley/mcp/builtin"
)

// fleetSize is how many alarms a fleet has, 50 a device.
const fleetSize = 10_000

// fleet writes a file with alarms that are due at the same moment.
func fleet(t *testing.T, due time.Time) (dir string) {
	t.Helper()
	var b strings.Builder
	b.WriteString(`{"version":1,"entries":[`)
	for i := range fleetSize {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"id":%d,"device":%q,"kind":"alarm","text":"a name as people give them","due":%q,"repeat":"daily","clock":"07:30"}`,
			i+1, fleetDevice(i/50), due.Format(time.RFC3339))
	}
	b.WriteString("]}")
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "timers.json"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func fleetDevice(i int) protocol.DeviceID {
	return protocol.DeviceID(fmt.Sprintf("00:00:00:00:%02x:%02x", i>>8, i&0xff))
}

// TestFleetAtOnce is half past seven on 200 devices.
func TestFleetAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		due := begin.Add(7*time.Hour + 30*time.Minute)
		h := &house{}
		r := run(t, builtin.Config{Dir: fleet(t, due.UTC())}, h)
		time.Sleep(time.Until(due))
		synctest.Wait()
		if s := r.Stats(); s.Spoken != fleetSize || s.Waiting != 0 || s.Entries != fleetSize {
			t.Errorf("%+v", s)
		}
		last := map[protocol.DeviceID]int64{}
		for _, d := range h.deliveries {
			if !d.at.Equal(due) || d.ID <= last[d.device] {
				t.Fatalf("%+v, after id %d", d, last[d.device])
			}
			last[d.device] = d.ID
		}
	})
}
