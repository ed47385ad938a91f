package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Line is how one device's audio travelled during a turn. Devices are not told
// apart in metrics, ten thousand names would be too many: the figures are
// distributions over turns, and the log line of a turn has its own.
type Line struct {
	Received, Lost, Late, Reordered uint64        // packets of the device
	Jitter                          time.Duration // of its packets' arrival
	Lead                            time.Duration // sent ahead of its loudspeaker; 0 if nothing was sent
	Dry                             int           // times its loudspeaker ran out
}

type line struct {
	loss, jitter, lead prometheus.Histogram
	uplink             map[string]prometheus.Counter
	dry                prometheus.Counter
}

func newLine(r *prometheus.Registry) line {
	histogram := func(name, help string, buckets ...float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets})
		r.MustRegister(h) // the names are constant and distinct
		return h
	}
	packets := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: Namespace, Name: "uplink_packets_total",
		Help: "Audio packets of devices, by what became of them; a late one is also lost.",
	}, []string{"outcome"})
	l := line{
		loss:   histogram("uplink_loss_ratio", "Share of a device's packets that were lost, of each turn.", 0, .001, .005, .01, .02, .05, .1, .2, .5),
		jitter: histogram("uplink_jitter_seconds", "Jitter of a device's packets (RFC 3550), of each turn.", .001, .002, .005, .01, .02, .04, .06, .1, .2),
		lead:   histogram("downlink_lead_seconds", "Audio sent ahead of a device's loudspeaker at most, of each turn.", .06, .12, .18, .24, .3, .36, .6, 1.2),
		uplink: map[string]prometheus.Counter{},
		dry: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: Namespace, Name: "downlink_dry_total", Help: "Times a loudspeaker ran out because its voice was too slow.",
		}),
	}
	for _, o := range []string{"received", "lost", "late", "reordered"} {
		l.uplink[o] = packets.WithLabelValues(o)
	}
	r.MustRegister(packets, l.dry)
	return l
}

// ObserveLine records how a device's audio travelled during one turn.
func (m *Metrics) ObserveLine(l Line) {
	for outcome, n := range map[string]uint64{"received": l.Received, "lost": l.Lost, "late": l.Late, "reordered": l.Reordered} {
		m.line.uplink[outcome].Add(float64(n))
	}
	m.line.dry.Add(float64(l.Dry))
	if all := l.Received + l.Lost; all > 0 {
		m.line.loss.Observe(float64(l.Lost) / float64(all))
		m.line.jitter.Observe(l.Jitter.Seconds())
	}
	if l.Lead > 0 {
		m.line.lead.Observe(l.Lead.Seconds())
	}
}
