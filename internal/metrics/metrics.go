package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Namespace begins the name of every metric.
const Namespace = "parley"

// maxScrapes bounds scrapes served at once; Prometheus sends one at a time.
const maxScrapes = 4

// A Stage is a span of one turn of a conversation. All begin where the user
// stopped speaking, except where said otherwise.
type Stage string

// The stages of a turn, in their order.
const (
	Endpoint    Stage = "endpoint"     // until the end of the turn was certain
	Transcript  Stage = "transcript"   // until the words were final
	FirstToken  Stage = "first_token"  // until the model's first word or call
	FirstAudio  Stage = "first_audio"  // until the synthesizer's first audio
	FirstPacket Stage = "first_packet" // until the first audio went to the device: what the user waits for
	Playout     Stage = "playout"      // from the first to the last audio heard
	Tool        Stage = "tool"         // one tool call, from its request to its result
)

// An Outcome is how a turn ended.
type Outcome string

// The outcomes of a turn.
const (
	Completed   Outcome = "completed"
	Interrupted Outcome = "interrupted" // by the user
	Unheard     Outcome = "unheard"     // speech without words
	Failed      Outcome = "failed"      // no provider could answer
)

const other = "other" // stands for labels nobody has declared, so that their number stays bounded

// Metrics is one registry and what is recorded in it. It is safe for concurrent
// use, holds no goroutine and needs no closing.
type Metrics struct {
	registry *prometheus.Registry
	stages   map[Stage]prometheus.Observer
	outcomes map[Outcome]prometheus.Counter
	line     line
}

// New returns a registry with the metrics of turns, the Go runtime and the
// process. version is that of the program, for parley_build_info.
func New(version string) *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		stages:   map[Stage]prometheus.Observer{},
		outcomes: map[Outcome]prometheus.Counter{},
	}
	durations := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: Namespace, Name: "turn_duration_seconds",
		Help: "Durations of the stages of a turn; first_packet is what the user waits for.",
		// From what a fast machine adds by itself to where people give up.
		Buckets: []float64{.005, .01, .025, .05, .1, .2, .3, .5, .75, 1, 1.5, 2, 3, 5, 10, 30},
	}, []string{"stage"})
	for _, s := range []Stage{Endpoint, Transcript, FirstToken, FirstAudio, FirstPacket, Playout, Tool, other} {
		m.stages[s] = durations.WithLabelValues(string(s))
	}
	turns := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "turns_total", Help: "Turns of conversations, by how they ended.",
	}, []string{"outcome"})
	for _, o := range []Outcome{Completed, Interrupted, Unheard, Failed, other} {
		m.outcomes[o] = turns.WithLabelValues(string(o))
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: Namespace, Name: "build_info", Help: "Always 1; the labels say what is running.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	})
	build.Set(1)
	m.line = newLine(m.registry)
	m.registry.MustRegister(durations, turns, build, // their names are constant and distinct
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// ObserveTurn records how long one stage of a turn took. Stages that are not
// declared here are counted as "other"; a negative duration, from a clock that
// was set back, as none.
func (m *Metrics) ObserveTurn(s Stage, d time.Duration) {
	o, ok := m.stages[s]
	if !ok {
		o = m.stages[other]
	}
	o.Observe(max(d, 0).Seconds())
}

// CountTurn counts one turn by how it ended.
func (m *Metrics) CountTurn(o Outcome) {
	c, ok := m.outcomes[o]
	if !ok {
		c = m.outcomes[other]
	}
	c.Inc()
}

// A Kind says how a figure moves.
type Kind int

// The kinds of figures.
const (
	Gauge   Kind = iota // up and down, such as open sessions
	Counter             // only up, such as packets received; its name ends in _total
)

// A Figure is one metric read from elsewhere.
type Figure struct {
	Kind Kind
	Name string // without the namespace, such as "udp_packets_received_total"
	Help string // one sentence
	// Label names the label that tells the values apart, "" when there is one.
	Label string
}

// A Sample is the value of one figure at the time of a scrape.
type Sample struct {
	Name  string // of the figure
	Label string // the label's value, "" for a figure without one
	Value float64
}

// Register adds figures that read supplies at every scrape: one call for all of
// them, so that they are of one moment. A sample of a name that is not among
// figures fails the scrape of that sample alone. read may run on several
// goroutines at once and must not block.
//
// The error names a figure that is malformed or taken already; then none of them
// is added.
func (m *Metrics) Register(figures []Figure, read func() []Sample) error {
	c := &collector{read: read, figures: make(map[string]figure, len(figures))}
	for _, f := range figures {
		if err := f.check(); err != nil {
			return err
		}
		if _, twice := c.figures[f.Name]; twice {
			return fmt.Errorf("metric %q is given twice", f.Name)
		}
		var labels []string
		if f.Label != "" {
			labels = []string{f.Label}
		}
		kind := prometheus.GaugeValue
		if f.Kind == Counter {
			kind = prometheus.CounterValue
		}
		name := prometheus.BuildFQName(Namespace, "", f.Name)
		c.figures[f.Name] = figure{prometheus.NewDesc(name, f.Help, labels, nil), kind, len(labels)}
	}
	if err := m.registry.Register(c); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

// check refuses what Prometheus would take and its conventions do not.
func (f Figure) check() error {
	switch {
	case !isSnake(f.Name):
		return fmt.Errorf("metric %q: use a-z, 0-9 and _, beginning with a letter", f.Name)
	case f.Label != "" && !isSnake(f.Label):
		return fmt.Errorf("metric %q: label %q: use a-z, 0-9 and _, beginning with a letter", f.Name, f.Label)
	case f.Help == "":
		return fmt.Errorf("metric %q has no help", f.Name)
	case (f.Kind == Counter) != strings.HasSuffix(f.Name, "_total"):
		return fmt.Errorf("metric %q: the names of counters, and of no others, end in _total", f.Name)
	}
	return nil
}

func isSnake(s string) bool {
	return s != "" && s[0] >= 'a' && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

type figure struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	labels int
}

// A collector reads figures when Prometheus asks.
type collector struct {
	figures map[string]figure
	read    func() []Sample
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range c.figures {
		out <- f.desc
	}
}

// errUndeclared marks a sample whose figure was never registered.
var errUndeclared = errors.New("sample of an undeclared metric")

// Collect implements prometheus.Collector.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	for _, s := range c.read() {
		f, ok := c.figures[s.Name]
		if !ok {
			undeclared := prometheus.NewDesc(prometheus.BuildFQName(Namespace, "", "undeclared"), s.Name, nil, nil)
			out <- prometheus.NewInvalidMetric(undeclared, fmt.Errorf("%w: %q", errUndeclared, s.Name))
			continue
		}
		labels := []string{s.Label}[:f.labels]
		metric, err := prometheus.NewConstMetric(f.desc, f.kind, s.Value, labels...)
		if err != nil { // a label value that is not UTF-8
			metric = prometheus.NewInvalidMetric(f.desc, err)
		}
		out <- metric
	}
}

// Handler serves the metrics in Prometheus' text format. A figure that cannot be
// read leaves the others in place. It asks for no password: let only those reach
// it who may see how many devices there are.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Registry:            m.registry,
	})
}
