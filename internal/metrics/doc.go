// Package metrics exposes what Parley counts and measures to Prometheus.
//
// Most figures live where they arise, as plain counters read through a Stats
// method; this package reads them when it is scraped, so the packages that count
// know nothing of Prometheus and pay nothing for it. Only the durations of turns
// are handed over as they happen.
//
// Every name begins with parley_ and has base units: seconds and bytes.
package metrics
