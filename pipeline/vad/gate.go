package vad

import (
	"math"
	"slices"
)

const (
	// gateBlock is how many frames share one minimum: 200 ms.
	gateBlock = 10
	// gateBlocks is how many minima make the noise floor: 3 s of them, longer
	// than anybody speaks without a gap between two sounds.
	gateBlocks = 15
	// gateHold is for how many frames a loud one holds the gate open: 140 ms,
	// over the closures inside words.
	gateHold = 7
	// gateBlind is how many frames the gate is open at first, 1 s. Who talks
	// as soon as the microphone opens must not be taken for the noise.
	gateBlind = 50
)

// A gate is open while sound is well above the noise floor, the lowest short-
// term power of the last seconds. It keeps loud even noise and distant talkers
// from being taken for the speaker.
type gate struct {
	ratio  float64             // of the power of speech and that of noise
	frames int                 // heard so far
	smooth float64             // power over about 60 ms
	minima [gateBlocks]float64 // of smooth, a ring
	recent [gateHold]float64   // powers, a ring
}

// newGate returns a gate that opens for sound that many dB above the floor.
func newGate(above float64) gate {
	g := gate{ratio: math.Pow(10, above/10)}
	for i := range g.minima {
		g.minima[i] = math.Inf(1)
	}
	return g
}

// open hears a frame and reports whether the gate is open.
func (g *gate) open(frame []int16) bool {
	sum := 0.0
	for _, s := range frame {
		sum += float64(s) * float64(s)
	}
	power := sum / float64(len(frame))
	if g.frames == 0 {
		g.smooth = power
	}
	g.smooth += (power - g.smooth) / 3
	block := g.frames / gateBlock % gateBlocks
	if g.frames%gateBlock == 0 || g.smooth < g.minima[block] {
		g.minima[block] = g.smooth
	}
	g.recent[g.frames%gateHold] = power
	g.frames++
	if g.frames <= gateBlind {
		return true
	}
	return slices.Max(g.recent[:]) > g.ratio*slices.Min(g.minima[:])
}
