//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMedianAndLimits(t *testing.T) {
	for _, c := range []struct {
		samples []float64
		want    float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{4, 1, 3, 2}, 2.5}} {
		if got := median(c.samples); got != c.want {
			t.Errorf("median(%v) = %v, want %v", c.samples, got, c.want)
		}
	}
	for _, c := range []struct {
		l    limit
		v    float64
		want bool
	}{
		{atMost(2), 2, true}, {atMost(2), 2.01, false}, {atLeast(2), 2, true}, {atLeast(2), 1.99, false},
		{limit{}, 1e9, true}, {atMost(0), 0, true}, {atMost(2), math.NaN(), false}, {atLeast(2), math.NaN(), false},
	} {
		if got := c.l.met(c.v); got != c.want {
			t.Errorf("%v %v met by %v: %v", c.l.kind, c.l.value, c.v, got)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var d []time.Duration
	for i := 1000; i > 0; i-- {
		d = append(d, time.Duration(i)*time.Millisecond)
	}
	if got, want := quantilesOf(d), (quantiles{1000, 500, 990, 999, 1000}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := quantilesOf(nil); got.Count != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// One packet that is late is late by as much, wherever in the reply it is and
// whatever became of the others; the grid is that of the punctual ones.
func TestLatenessIsFoundAndNotInvented(t *testing.T) {
	const start = 1_700_000_000 * time.Second
	for late := range 20 {
		var a []arrival
		for i := range 20 {
			if i == 7 && late != 7 {
				continue // lost
			}
			at := start + time.Duration(i)*frame
			if i == late {
				at += 5 * time.Millisecond
			}
			a = append(a, arrival{uint32(100 + i), at})
		}
		for i, got := range lateness(a, origin(a)) {
			want := time.Duration(0)
			if a[i].sequence == uint32(100+late) {
				want = 5 * time.Millisecond
			}
			if got != want {
				t.Fatalf("packet %d of a reply in which %d is late: %v, want %v", i, late, got, want)
			}
		}
		if missing := 1; late != 7 && gaps(a) != missing {
			t.Fatalf("%d packets missing, want %d", gaps(a), missing)
		}
	}
}

func TestFiguresGoBetweenTheMarks(t *testing.T) {
	doc := "before\n" + markBegin + "old\n" + markEnd + "after\n"
	got, err := place(doc, "new\n")
	if want := "before\n" + markBegin + "new\n" + markEnd + "after\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	for _, broken := range []string{"", markBegin, markEnd + markBegin} {
		if _, err := place(broken, "new"); !errors.Is(err, errMarks) {
			t.Errorf("%q: %v", broken, err)
		}
	}
	text, err := os.ReadFile(filepath.Join("../..", document))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := place(string(text), ""); err != nil {
		t.Errorf("%s: %v", document, err)
	}
}

func TestTableSaysWhatIsMissed(t *testing.T) {
	table := table{"T", []figure{
		{"a", "ms", []float64{1, 3, 2}, atMost(2)},
		{"b", "packets/s", []float64{44_999}, atLeast(45_000)},
		{"c", "ms", nil, atMost(1)},
	}}
	got := table.markdown()
	for _, line := range []string{
		"| a, ms | 2.00 | 1.00 – 3.00 | ≤ 2.00 | met |",
		"| b, packets/s | 44,999 | 44,999 – 44,999 | ≥ 45,000 | **missed** |",
		"| c, ms | none | none – none | ≤ 1.00 | **missed** |",
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("%q is not in\n%s", line, got)
		}
	}
}

func TestWorkerAnswersEveryRequest(t *testing.T) {
	requests, in := io.Pipe()
	out, answers := io.Pipe()
	done := make(chan error)
	go func() {
		done <- work(requests, answers, map[string]action{
			"double": does(func(n int) (int, error) { return 2 * n, nil }),
			"fail":   does(func(struct{}) (int, error) { return 0, errors.New("no") }),
		})
	}()
	w := &worker{in: in, out: json.NewDecoder(out)}
	var n int
	if err := w.call("double", 21, &n); err != nil || n != 42 {
		t.Errorf("%d, %v", n, err)
	}
	for _, do := range []string{"fail", "unknown"} {
		if err := w.call(do, nil, &n); err == nil || !strings.HasPrefix(err.Error(), do+": ") {
			t.Errorf("%s: %v", do, err)
		}
	}
	if err := w.call("double", "x", &n); err == nil {
		t.Error("arguments of the wrong type were taken")
	}
	in.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The load and the server, small and in one process: every figure comes from a
// conversation that really takes place.
func TestFleetMeasuresAHouse(t *testing.T) {
	h, err := openHouse(houseConfig{
		Recogniser: 20 * time.Millisecond, Model: 160 * time.Millisecond, Voice: 20 * time.Millisecond,
		Sentences: 20, Sentence: 600 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	f, err := newFleet()
	if err != nil {
		t.Fatal(err)
	}
	defer f.sink.close()
	if _, err := f.connect(boarding{MQTT: h.mqtt.String(), Devices: 3, Hello: true}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := f.disconnect(struct{}{}); err != nil {
			t.Error(err)
		}
	}()
	if _, err := f.ask(30 * time.Millisecond); err != nil {
		t.Fatal(err)
	}
	for _, p := range f.phones {
		if _, err := await(p.track.next(), p.closed); err != nil {
			t.Fatal(err)
		}
	}
	w, err := f.watch(span{2, 600 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range w {
		if w.Frames == 0 || w.Late.Count != w.Frames {
			t.Errorf("of 3 devices in 600 ms: %+v", w)
		}
	}
	cut, err := f.aborts(interruptions{1, 3})
	if err != nil {
		t.Fatal(err)
	}
	if cut[0].Tail.Count != 3 || cut[0].Stop.Max <= 0 {
		t.Errorf("%+v", cut)
	}
	q, err := f.hellos(1)
	if err != nil || q[0].Count != 3 || q[0].P50 <= 0 {
		t.Errorf("%+v, %v", q, err)
	}
}

// A turn ends where its silence says, on a real server: the packet before does
// not end it, and what is added to the providers' time is not negative.
func TestTurnIsTimedFromItsEnd(t *testing.T) {
	h, err := openHouse(houseConfig{
		Recogniser: 20 * time.Millisecond, Model: 180 * time.Millisecond, Sentences: 1, Sentence: 120 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	f, err := newFleet()
	if err != nil {
		t.Fatal(err)
	}
	defer f.sink.close()
	if _, err := f.connect(boarding{MQTT: h.mqtt.String(), Devices: 1, Hello: true}); err != nil {
		t.Fatal(err)
	}
	p := f.phones[0]
	defer p.close()
	for range 2 {
		added, err := p.converse(f.speech)
		if err != nil {
			t.Fatal(err)
		}
		if added < 0 {
			t.Errorf("the reply came %v before its time", -added)
		}
	}
}

func TestFloodIsRefused(t *testing.T) {
	h, err := openHouse(houseConfig{Sentences: 1, Sentence: 120 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	f, err := newFleet()
	if err != nil {
		t.Fatal(err)
	}
	defer f.sink.close()
	if _, err := f.connect(boarding{MQTT: h.mqtt.String(), Devices: 5, Hello: true}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := f.disconnect(struct{}{}); err != nil {
			t.Error(err)
		}
	}()
	if _, err := f.ask(0); err != nil {
		t.Fatal(err)
	}
	for h.audio.Stats().Delivered < 5 { // the first packets of all have arrived
		time.Sleep(time.Millisecond)
	}
	what, err := f.captured(struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	what.For = 20 * time.Millisecond
	sent, err := flood(what)
	if err != nil || sent == 0 {
		t.Fatalf("%d sent, %v", sent, err)
	}
	var d = h.audio.Stats().Dropped
	for d.UnknownSSRC == 0 || d.Replayed == 0 || d.Reflected == 0 || d.Ahead == 0 || d.Short == 0 {
		time.Sleep(time.Millisecond)
		d = h.audio.Stats().Dropped
	}
	if got := h.audio.Stats().Delivered; got != 5 {
		t.Errorf("%d packets were accepted", got-5)
	}
}

// A machine whose neighbours are at work is a busy one, whatever its load.
func TestPaces(t *testing.T) {
	for _, tt := range []struct {
		speeds paces
		steady bool
	}{
		{paces{13_000, 13_400, 16_000}, true},
		{paces{13_000, 27_000, 13_000}, false},
	} {
		if tt.speeds.steady() != tt.steady {
			t.Errorf("%v: steady %t", tt.speeds, tt.speeds.steady())
		}
	}
	if got, want := (paces{13_260, 14_000}).String(), "an AES block took 13.3 to 14.0 ns"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	speed, err := pace()
	if err != nil || speed <= 0 {
		t.Errorf("%v, %v", speed, err)
	}
}
