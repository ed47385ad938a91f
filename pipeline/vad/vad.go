// Package vad tells speech from everything else.
//
// Its detector is WebRTC's, kept from two mistakes it makes with what devices
// send. docs/vad.md has the measurements behind the choice.
package vad

import (
	"time"

	"parley/pipeline"
)

const (
	// mode is how WebRTC's detector weighs its two errors, 0 to 3. Mode 3, the
	// strictest, hears talkers far from the microphone too late and in pieces;
	// 0 and 1 call too much noise speech.
	mode = 2
	// gateAbove is how far above the noise floor speech has to be, in dB.
	gateAbove = 5
	// frameSamples is the length of a frame.
	frameSamples = pipeline.SampleRate * int(pipeline.DetectorFrame/time.Millisecond) / 1000
)

// A Detector tells speech from everything else in one conversation. It
// implements [pipeline.Detector] and is not safe for concurrent use.
//
// Digital silence is not speech, and the detector learns nothing from it: it is
// what becomes of DTX packets, which devices send for minutes while it is
// quiet. Fed to the detector, it would make it expect silence, and take the
// faintest noise for speech.
type Detector struct {
	webrtc *webRTC
	gate   gate
}

var _ pipeline.Detector = (*Detector)(nil)

// New returns a detector that has heard nothing yet. It fails only for want of
// memory.
func New() (*Detector, error) {
	return newDetector(mode, gateAbove)
}

func newDetector(mode int, above float64) (*Detector, error) {
	w, err := newWebRTC(mode)
	if err != nil {
		return nil, err
	}
	return &Detector{webrtc: w, gate: newGate(above)}, nil
}

// Speech reports whether frame, 320 samples, holds speech. A frame of another
// length does not, nor does any after Close.
func (d *Detector) Speech(frame []int16) bool {
	if len(frame) != frameSamples || silent(frame) {
		return false
	}
	loud := d.gate.open(frame)
	return d.webrtc.speech(frame) && loud // both hear every frame
}

// silent reports whether frame is digital silence.
func silent(frame []int16) bool {
	for _, s := range frame {
		if s != 0 {
			return false
		}
	}
	return true
}

// Close frees the detector. Closing it again does nothing. One that is not
// closed is freed when it is garbage.
func (d *Detector) Close() {
	d.webrtc.close()
}
