package metrics

import (
	"io"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	body, err := io.ReadAll(w.Body)
	if err != nil || w.Code != 200 {
		t.Fatalf("scrape: status %d, %v", w.Code, err)
	}
	return string(body)
}

func wantLine(t *testing.T, text, line string) {
	t.Helper()
	if !strings.Contains("\n"+text, "\n"+line+"\n") {
		t.Errorf("no line %q", line)
	}
}

func TestTurns(t *testing.T) {
	m := New("1.2.3")
	m.ObserveTurn(FirstPacket, 300*time.Millisecond)
	m.ObserveTurn(FirstPacket, -time.Second)
	m.ObserveTurn("invented", time.Second)
	m.CountTurn(Interrupted)
	m.CountTurn("invented")
	text := scrape(t, m)
	wantLine(t, text, `parley_turn_duration_seconds_sum{stage="first_packet"} 0.3`)
	wantLine(t, text, `parley_turn_duration_seconds_count{stage="first_packet"} 2`)
	wantLine(t, text, `parley_turn_duration_seconds_bucket{stage="first_packet",le="0.2"} 1`)
	wantLine(t, text, `parley_turn_duration_seconds_count{stage="other"} 1`)
	wantLine(t, text, `parley_turn_duration_seconds_count{stage="endpoint"} 0`)
	wantLine(t, text, `parley_turns_total{outcome="interrupted"} 1`)
	wantLine(t, text, `parley_turns_total{outcome="other"} 1`)
	if !strings.Contains(text, `version="1.2.3"`) || strings.Contains(text, "invented") {
		t.Error("no version, or a label nobody declared")
	}
}

func TestFiguresAreOfOneMoment(t *testing.T) {
	m := New("test")
	reads := 0
	err := m.Register([]Figure{
		{Gauge, "devices", "Devices connected.", ""},
		{Counter, "udp_packets_received_total", "Datagrams taken.", ""},
		{Counter, "udp_packets_dropped_total", "Datagrams dropped, by reason.", "reason"},
	}, func() []Sample {
		reads++
		return []Sample{
			{"devices", "", 7},
			{"udp_packets_received_total", "", float64(reads)},
			{"udp_packets_dropped_total", "replay", 2},
			{"udp_packets_dropped_total", "short", 1},
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	text := scrape(t, m)
	wantLine(t, text, "parley_devices 7")
	wantLine(t, text, "parley_udp_packets_received_total 1")
	wantLine(t, text, `parley_udp_packets_dropped_total{reason="replay"} 2`)
	wantLine(t, text, `parley_udp_packets_dropped_total{reason="short"} 1`)
	wantLine(t, text, "# TYPE parley_devices gauge")
	wantLine(t, text, "# TYPE parley_udp_packets_received_total counter")
	if reads != 1 {
		t.Errorf("one scrape read the figures %d times", reads)
	}
}

func TestRegisterRefuses(t *testing.T) {
	none := func() []Sample { return nil }
	tests := map[string][]Figure{
		"a bad name":                   {{Gauge, "no spaces", "Help.", ""}},
		"a taken name":                 {{Counter, "turns_total", "Help.", ""}},
		"no help":                      {{Gauge, "x", "", ""}},
		"the same name":                {{Gauge, "x", "Help.", ""}, {Gauge, "x", "Help.", "label"}},
		"a bad label":                  {{Gauge, "x", "Help.", "\xff"}},
		"a gauge named like a counter": {{Gauge, "x_total", "Help.", ""}},
		"a counter named like a gauge": {{Counter, "x", "Help.", ""}},
		"one bad of two":               {{Gauge, "x", "Help.", ""}, {Gauge, "", "Help.", ""}},
	}
	for name, figures := range tests {
		m := New("test")
		if err := m.Register(figures, none); err == nil {
			t.Errorf("%s is accepted", name)
		}
		if err := m.Register([]Figure{{Gauge, "x", "Help.", ""}}, none); err != nil {
			t.Errorf("after %s: %v", name, err)
		}
	}
}

// TestBadSamplesSpareTheOthers: one package's mistake must not blind an operator
// to all others.
func TestBadSamplesSpareTheOthers(t *testing.T) {
	m := New("test")
	err := m.Register([]Figure{{Gauge, "good", "Help.", ""}, {Gauge, "labelled", "Help.", "l"}}, func() []Sample {
		return []Sample{{"undeclared", "", 1}, {"labelled", "\xff", 1}, {"good", "", 1}}
	})
	if err != nil {
		t.Fatal(err)
	}
	wantLine(t, scrape(t, m), "parley_good 1")
}

func TestNamesFollowConventions(t *testing.T) {
	m := New("test")
	m.ObserveTurn(FirstToken, time.Second)
	problems, err := testutil.GatherAndLint(m.registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestConcurrentUse(t *testing.T) {
	m := New("test")
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				m.ObserveTurn(Endpoint, time.Millisecond)
				m.CountTurn(Completed)
			}
		})
	}
	for range 4 {
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	}
	wg.Wait()
	wantLine(t, scrape(t, m), `parley_turns_total{outcome="completed"} 400`)
}

func BenchmarkObserveTurn(b *testing.B) {
	m := New("test")
	b.ReportAllocs()
	for b.Loop() {
		m.ObserveTurn(FirstPacket, 250*time.Millisecond)
	}
}

func TestLines(t *testing.T) {
	m := New("test")
	m.ObserveLine(Line{Received: 95, Lost: 5, Late: 2, Reordered: 3, Jitter: 15 * time.Millisecond, Lead: 180 * time.Millisecond, Dry: 1})
	m.ObserveLine(Line{}) // a reply that was cut before anything was sent, to typed text
	page := scrape(t, m)
	for _, want := range []string{
		`parley_uplink_packets_total{outcome="lost"} 5`,
		`parley_uplink_packets_total{outcome="received"} 95`,
		`parley_uplink_packets_total{outcome="late"} 2`,
		`parley_uplink_packets_total{outcome="reordered"} 3`,
		`parley_uplink_loss_ratio_bucket{le="0.02"} 0`,
		`parley_uplink_loss_ratio_bucket{le="0.05"} 1`,
		`parley_uplink_loss_ratio_count 1`,
		`parley_uplink_jitter_seconds_bucket{le="0.01"} 0`,
		`parley_uplink_jitter_seconds_bucket{le="0.02"} 1`,
		`parley_downlink_lead_seconds_count 1`,
		`parley_downlink_dry_total 1`,
	} {
		wantLine(t, page, want)
	}
}
