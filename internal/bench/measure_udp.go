//go:build linux

package main

import (
	"context"
	"fmt"
	"time"
)

// measureRelay compares the audio server with a bare socket loop, alternating
// between the two in the same processes.
func measureRelay(ctx context.Context, p plan) (table, error) {
	t := table{Title: "UDP: an echo through the audio server, and through a bare socket"}
	s, err := hireStaff(ctx, anyCPU, anyCPU)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	var o relayOffer
	if err := s.server.call("relay", 100, &o); err != nil {
		return t, err
	}
	if err := s.load.call("saturator", o, nil); err != nil {
		return t, err
	}
	var audio, bare []speed
	for i := range p.samples + 1 {
		a, b, err := s.compare(p.short / 2)
		if err != nil {
			return t, err
		}
		if i > 0 { // the first warms up
			audio, bare = append(audio, a), append(bare, b)
		}
	}
	var rate, cost []float64
	for i := range audio {
		rate = append(rate, audio[i].rate/bare[i].rate)
		cost = append(cost, bare[i].cpu/audio[i].cpu)
	}
	rateOf, cpuOf := func(s speed) float64 { return s.rate }, func(s speed) float64 { return s.cpu }
	t.Figures = []figure{
		{"audio server", "echoed packets/s", column(audio, rateOf), limit{}},
		{"bare socket", "echoed packets/s", column(bare, rateOf), limit{}},
		{"audio server ÷ bare socket", "of packets/s", rate, atLeast(0.85)},
		{"audio server ÷ bare socket", "of packets per processor second", cost, atLeast(0.85)},
		{"audio server", "CPU-s per million packets in and out", column(audio, cpuOf), atMost(5)},
		{"bare socket", "CPU-s per million packets in and out", column(bare, cpuOf), limit{}},
	}
	return t, nil
}

// A speed is what one side of the comparison reached.
type speed struct {
	rate float64 // echoed packets a second
	cpu  float64 // seconds of the server's process for a million of them
}

// turns is the order in which the two sides of a comparison run, true for the bare
// socket. A virtual machine's speed drifts by a third within seconds; in short
// turns, mirrored, both sides get the same share of every drift that is straight.
var turns = []bool{false, true, true, false, true, false, false, true}

// compare lets both sides run in turns of d and returns what each reached in all
// of its turns together.
func (s *staff) compare(d time.Duration) (audio, bare speed, err error) {
	var sum [2]effort
	for _, isBare := range turns {
		e, err := s.saturate(isBare, d)
		if err != nil {
			return audio, bare, err
		}
		side := &sum[0]
		if isBare {
			side = &sum[1]
		}
		side.packets += e.packets
		side.took += e.took
		side.cpu += e.cpu
	}
	return sum[0].speed(), sum[1].speed(), nil
}

// An effort is what one side did in some time.
type effort struct {
	packets float64
	took    time.Duration
	cpu     float64 // seconds of the server's process
}

func (e effort) speed() speed {
	return speed{rate: e.packets / e.took.Seconds(), cpu: e.cpu / e.packets * 1e6}
}

// saturate has one side echo as much as it can for d.
func (s *staff) saturate(bare bool, d time.Duration) (effort, error) {
	var before, after relayCounts
	if err := s.server.call("relay counts", nil, &before); err != nil {
		return effort{}, err
	}
	start := time.Now()
	if err := s.load.call("saturate", saturation{Bare: bare, For: d}, nil); err != nil {
		return effort{}, err
	}
	if err := s.server.call("relay counts", nil, &after); err != nil {
		return effort{}, err
	}
	e := effort{took: time.Since(start), cpu: after.CPU - before.CPU}
	e.packets = float64(after.Echoed - before.Echoed)
	if bare {
		e.packets = float64(after.Bare - before.Bare)
	}
	if e.packets == 0 || after.Refused != before.Refused {
		return effort{}, fmt.Errorf("%.0f packets echoed, %d refused", e.packets, after.Refused-before.Refused)
	}
	// Let what is still in the socket's queue not count for the other side.
	time.Sleep(50 * time.Millisecond)
	return e, nil
}

// measureLossless finds how much can be echoed.
func measureLossless(ctx context.Context, p plan) (table, error) {
	t := table{Title: "UDP: 100 devices, echoed before one packet in a thousand is lost"}
	s, err := hireStaff(ctx, anyCPU, anyCPU)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	var o relayOffer
	if err := s.server.call("relay", 100, &o); err != nil {
		return t, err
	}
	if err := s.load.call("generator", o, nil); err != nil {
		return t, err
	}
	var rates []float64
	for range p.samples {
		var rate float64
		if err := s.load.call("lossless", p.short*3/4, &rate); err != nil {
			return t, err
		}
		rates = append(rates, rate)
	}
	t.Figures = []figure{{"audio server", "packets/s", rates, atLeast(45_000)}}
	return t, nil
}

// measureStages measures every part of the way of a packet alone.
func measureStages(ctx context.Context, p plan) (table, error) {
	t := table{Title: "Stages of a packet's way, each alone"}
	w, err := hire(ctx, anyCPU)
	if err != nil {
		return t, err
	}
	defer w.dismiss()
	var order []string
	nanos, allocs := map[string][]float64{}, map[string][]float64{}
	for i := range p.samples {
		var stages []stage
		if err := w.call("stages", p.short/3, &stages); err != nil {
			return t, err
		}
		for _, s := range stages {
			if i == 0 {
				order = append(order, s.Name)
			}
			nanos[s.Name] = append(nanos[s.Name], s.Nanos)
			allocs[s.Name] = append(allocs[s.Name], s.Allocs)
		}
	}
	for i, made := range nanos[stageMade] {
		nanos[stageUp][i] -= made
	}
	for _, name := range order {
		if name == stageMade {
			continue
		}
		t.Figures = append(t.Figures, figure{name, "ns", nanos[name], limit{}})
		bound := limit{}
		if name == stageUp || name == stageDown {
			bound = atMost(0)
		}
		t.Figures = append(t.Figures, figure{name, "allocations", allocs[name], bound})
	}
	return t, nil
}
