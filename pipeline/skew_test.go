package pipeline

import (
	"testing"
	"time"
)

func TestSkew(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name        string
		first       time.Duration // of audio, after the listen start; negative: before
		late, early time.Duration
	}{
		{"LAN", 200 * ms, 0, 0},
		{"a little jitter", 230 * ms, 30 * ms, 0},
		{"a client without warm-up", -50 * ms, 0, 0},
		{"UDP half a second slower", 700 * ms, 500 * ms, 0},
		{"MQTT half a second slower", -300 * ms, 0, 500 * ms},
		{"an outage", time.Hour, skewMost, 0},
	} {
		var s skew
		if c.first < 0 {
			s.listenStart(at, at.Add(c.first))
		} else {
			s.listenStart(at, time.Time{})
			s.packet(at.Add(c.first))
			s.packet(at.Add(time.Minute)) // only the first packet counts
		}
		if s.late != c.late || s.early != c.early {
			t.Errorf("%s: late %v, early %v; want %v and %v", c.name, s.late, s.early, c.late, c.early)
		}
	}
}
