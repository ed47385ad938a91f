//go:build linux

package main

import (
	"context"
	"fmt"
	"math"
	"time"
)

// endless is how a house replies that is watched while it speaks: at once, and
// for longer than anybody looks.
func endless(pcm bool) houseConfig {
	return houseConfig{Sentences: 60, Sentence: 3 * time.Second, PCM: pcm}
}

// speaking hires a staff whose devices all listen to a reply. The replies begin
// spread over a time, so that sentences do not all end together; it
// returns when the server no longer does what begins a reply.
func speaking(ctx context.Context, serverCPU, loadCPU, devices int, pcm bool, over time.Duration) (*staff, error) {
	s, err := hireStaff(ctx, serverCPU, loadCPU)
	if err != nil {
		return nil, err
	}
	var addr string
	err = s.server.call("house", endless(pcm), &addr)
	if err == nil {
		err = s.load.call("connect", boarding{MQTT: addr, Devices: devices, Hello: true}, nil)
	}
	if err == nil {
		err = s.load.call("ask", over, nil)
	}
	if err != nil {
		s.dismiss()
		return nil, err
	}
	time.Sleep(time.Second)
	return s, nil
}

// watch returns what came to all devices in p.samples windows.
func (s *staff) watch(p plan) ([]window, error) {
	var w []window
	err := s.load.call("watch", span{p.samples, p.window}, &w)
	return w, err
}

func lates(w []window) []quantiles {
	out := make([]quantiles, len(w))
	for i := range w {
		out[i] = w[i].Late
	}
	return out
}

func missing(w []window) figure {
	return figure{"packets missing", "in a window", column(w, func(w window) float64 { return float64(w.Missing) }), limit{}}
}

// lateLimit is the p99 of lateness, in ms, that makes a number of conversations
// count as possible.
const lateLimit = 2

// punctual reports whether the median window was on time, with nothing missing.
func punctual(w []window) bool {
	p99 := median(column(lates(w), func(q quantiles) float64 { return q.P99 }))
	return p99 <= lateLimit && median(missing(w).Samples) == 0
}

// measureCapacity finds how many conversations can speak at once on one core.
// The server has one processor to itself and the load the other.
func measureCapacity(pcm bool, least int) measurement {
	voice := "Opus"
	if pcm {
		voice = "PCM"
	}
	return measurement{"capacity " + voice, func(ctx context.Context, p plan) (table, error) {
		t := table{Title: fmt.Sprintf("Conversations speaking at once on one core; the synthesizer gives %s", voice)}
		if err := twoCores(); err != nil {
			return t, err
		}
		over := 2 * time.Second
		if pcm {
			over = p.encodeStart
		}
		best, n := 0, least
		var at []window
		for step := 0; step < p.steps; step++ {
			s, err := speaking(ctx, 0, 1, n, pcm, over)
			if err != nil {
				return t, err
			}
			w, err := s.watch(p)
			s.dismiss()
			if err != nil {
				return t, err
			}
			if !punctual(w) {
				if best > 0 {
					break
				}
				if at == nil {
					at = w
				}
				n = n * 3 / 4
				continue
			}
			best, at = n, w
			if n < least {
				break
			}
			n = n * 5 / 4
		}
		t.Figures = append(t.Figures, figure{fmt.Sprintf("conversations with p99 of lateness ≤ %d ms", lateLimit), "the highest tried", []float64{float64(best)}, atLeast(float64(least))})
		shown := best
		if best == 0 {
			shown = least
		}
		t.Figures = append(t.Figures, timings(fmt.Sprintf("lateness with %s conversations", number(float64(shown))), lates(at), limit{}, limit{}, limit{})...)
		t.Figures = append(t.Figures, missing(at))
		return t, nil
	}}
}

// measureLateness looks at the pace of replies on both cores.
func measureLateness(ctx context.Context, p plan) (table, error) {
	t := table{Title: "Lateness of downlink frames; both cores, load included"}
	for _, devices := range []int{100, 500, 1000} {
		s, err := speaking(ctx, anyCPU, anyCPU, devices, false, 2*time.Second)
		if err != nil {
			return t, err
		}
		w, err := s.watch(p)
		s.dismiss()
		if err != nil {
			return t, err
		}
		p99, p999 := limit{}, limit{}
		if devices == 500 {
			p99, p999 = atMost(2), atMost(5)
		}
		t.Figures = append(t.Figures, timings(fmt.Sprintf("%d conversations", devices), lates(w), limit{}, p99, p999)...)
		t.Figures = append(t.Figures, missing(w))
	}
	return t, nil
}

// measureTurns looks at what the server adds to its providers' time.
func measureTurns(ctx context.Context, p plan) (table, error) {
	t := table{Title: "From the end of speech to the first packet, less the providers' time; 200 devices talking"}
	s, err := hireStaff(ctx, anyCPU, anyCPU)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	// The model takes longer than the hold before a first packet, which is for
	// the device's sake and would hide what the server needs. The voice could
	// not say how long it took.
	c := houseConfig{Recogniser: 100 * time.Millisecond, Model: 250 * time.Millisecond, Sentences: 1, Sentence: time.Second}
	var addr string
	if err := s.server.call("house", c, &addr); err != nil {
		return t, err
	}
	if err := s.load.call("connect", boarding{MQTT: addr, Devices: 200, Hello: true}, nil); err != nil {
		return t, err
	}
	var q []quantiles
	if err := s.load.call("turns", span{p.samples, 2 * p.window}, &q); err != nil {
		return t, err
	}
	t.Figures = append(t.Figures, figure{"turns", "in a window", column(q, func(q quantiles) float64 { return float64(q.Count) }), limit{}})
	t.Figures = append(t.Figures, timings("added by the server", q, atMost(1), atMost(10), limit{})...)
	return t, nil
}

// measureAborts looks at how soon an interrupted reply ends.
func measureAborts(ctx context.Context, p plan) (table, error) {
	t := table{Title: "From an abort to the end of the reply; 200 devices spoken to"}
	s, err := speaking(ctx, anyCPU, anyCPU, 200, false, time.Second)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	var all []interrupted
	if err := s.load.call("aborts", interruptions{p.samples, 100}, &all); err != nil {
		return t, err
	}
	var tails, stops []quantiles
	for _, i := range all {
		tails, stops = append(tails, i.Tail), append(stops, i.Stop)
	}
	t.Figures = append(timings("abort sent to the last packet after it", tails, limit{}, atMost(2), limit{}),
		timings("abort sent to tts stop received", stops, limit{}, limit{}, limit{})...)
	return t, nil
}

// measureHostile floods the server while it speaks.
func measureHostile(ctx context.Context, p plan) (table, error) {
	t := table{Title: "Forged and replayed packets at line rate, while 50 devices are spoken to"}
	s, err := speaking(ctx, anyCPU, anyCPU, 50, false, time.Second)
	if err != nil {
		return t, err
	}
	defer s.dismiss()
	attacker, err := hire(ctx, anyCPU)
	if err != nil {
		return t, err
	}
	defer attacker.dismiss()
	var calm, flooded []window
	if calm, err = s.watch(p); err != nil {
		return t, err
	}
	var h hostility
	if err := s.load.call("captured", nil, &h); err != nil {
		return t, err
	}
	h.For = time.Duration(p.samples)*p.window + time.Second
	var before, after houseCounts
	if err := s.server.call("house counts", nil, &before); err != nil {
		return t, err
	}
	var sent uint64
	failed := make(chan error, 1)
	go func() { failed <- attacker.call("flood", h, &sent) }()
	time.Sleep(500 * time.Millisecond)
	flooded, err = s.watch(p)
	if floodErr := <-failed; err == nil {
		err = floodErr
	}
	if err == nil {
		err = s.server.call("house counts", nil, &after)
	}
	if err != nil {
		return t, err
	}
	seconds := h.For.Seconds()
	refused := float64(after.Refused - before.Refused)
	t.Figures = []figure{
		{"hostile packets sent", "in all", []float64{float64(sent)}, atLeast(p.hostile)},
		{"hostile packets refused by the server; the kernel dropped the rest", "packets/s", []float64{refused / seconds}, limit{}},
		{"hostile packets accepted", "in all", []float64{float64(after.Delivered - before.Delivered)}, atMost(0)},
		{"server", "CPU-s per million hostile packets", []float64{(after.CPU - before.CPU) / math.Max(refused, 1) * 1e6}, limit{}},
	}
	t.Figures = append(t.Figures, timings("lateness before the flood", lates(calm), limit{}, limit{}, limit{})...)
	t.Figures = append(t.Figures, timings("lateness in the flood", lates(flooded), limit{}, atMost(lateLimit), limit{})...)
	t.Figures = append(t.Figures, missing(flooded))
	return t, nil
}
