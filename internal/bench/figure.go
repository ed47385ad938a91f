//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// A figure is one measured quantity: its samples, and what it is to reach.
type figure struct {
	What    string
	Unit    string
	Samples []float64
	Limit   limit
}

// A limit is what a median is to reach; the zero limit is none.
type limit struct {
	kind  string // atLeast, atMost or ""
	value float64
}

func atLeast(v float64) limit { return limit{"≥", v} }
func atMost(v float64) limit  { return limit{"≤", v} }

// met reports whether v is within the limit. What is not a number never is.
func (l limit) met(v float64) bool {
	switch l.kind {
	case "≥":
		return v >= l.value
	case "≤":
		return v <= l.value
	}
	return true
}

// median is the middle sample, or NaN if there is none.
func (f figure) median() float64 { return median(f.Samples) }

func median(samples []float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(samples))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// A table is the figures of one measurement.
type table struct {
	Title   string
	Figures []figure
}

// markdown writes the table for people and for docs/performance.md.
func (t table) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n| what | median | lowest – highest | limit | |\n|---|---:|---:|---:|---|\n", t.Title)
	for _, f := range t.Figures {
		lowest, highest := math.NaN(), math.NaN()
		if len(f.Samples) > 0 {
			lowest, highest = slices.Min(f.Samples), slices.Max(f.Samples)
		}
		bound, verdict := "", ""
		if f.Limit.kind != "" {
			bound = f.Limit.kind + " " + number(f.Limit.value)
			verdict = "met"
			if !f.Limit.met(f.median()) {
				verdict = "**missed**"
			}
		}
		fmt.Fprintf(&b, "| %s, %s | %s | %s – %s | %s | %s |\n",
			f.What, f.Unit, number(f.median()), number(lowest), number(highest), bound, verdict)
	}
	return b.String()
}

// number writes v with three digits that count and thousands apart.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "none"
	case a == 0:
		return "0"
	case a < 1:
		return fmt.Sprintf("%.3f", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	s := fmt.Sprintf("%.0f", v)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Quantiles sum up many durations, in ms. NaN cannot travel in JSON, so a
// reader looks at Count first.
type quantiles struct {
	Count               int
	P50, P99, P999, Max float64
}

// quantilesOf sorts d.
func quantilesOf(d []time.Duration) quantiles {
	if len(d) == 0 {
		return quantiles{}
	}
	slices.Sort(d)
	at := func(q float64) float64 {
		i := min(int(math.Ceil(q*float64(len(d))))-1, len(d)-1)
		return milliseconds(d[max(i, 0)])
	}
	return quantiles{len(d), at(0.5), at(0.99), at(0.999), milliseconds(d[len(d)-1])}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// column takes one number out of each item.
func column[T any](items []T, of func(T) float64) []float64 {
	out := make([]float64, len(items))
	for i, item := range items {
		out[i] = of(item)
	}
	return out
}

// timings are the figures of some quantiles; limits of kind "" are none.
func timings(what string, q []quantiles, p50, p99, p999 limit) []figure {
	all := []figure{
		{what + ", p50", "ms", column(q, func(q quantiles) float64 { return q.P50 }), p50},
		{what + ", p99", "ms", column(q, func(q quantiles) float64 { return q.P99 }), p99},
		{what + ", p99.9", "ms", column(q, func(q quantiles) float64 { return q.P999 }), p999},
		{what + ", worst", "ms", column(q, func(q quantiles) float64 { return q.Max }), limit{}},
	}
	return all
}
