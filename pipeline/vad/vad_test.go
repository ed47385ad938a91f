package vad

import (
	"math"
	"runtime"
	"testing"

	"parley/pipeline"
)

// The bounds are those of docs/vad.md with a little room for other versions of
// libopus. In each, no utterance may be lost, cut short or without an end.
func TestDetector(t *testing.T) {
	clean, kinds := recording(t, "testdata/speech.opus"), noises(t)
	for _, tt := range []struct {
		condition
		missed, alarmed, starts float64
	}{
		{condition{"none", math.Inf(1), -26}, 0.02, 0.01, 0},
		{condition{"none", math.Inf(1), -46}, 0.04, 0.01, 0},
		{condition{"white", 20, -26}, 0.06, 0.01, 0},
		{condition{"white", 5, -26}, 0.25, 0.01, 0},
		{condition{"pink", 10, -26}, 0.18, 0.02, 2},
		{condition{"pink", 20, -46}, 0.10, 0.02, 2},
		{condition{"hum", 5, -26}, 0.15, 0.05, 4},
	} {
		t.Run(tt.String(), func(t *testing.T) {
			d, err := New()
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			s := newScene(t, clean, kinds[tt.noise], tt.snr, tt.level)
			sc := evaluate(s, func(i int) bool { return d.Speech(s.frame(i)) })
			if sc.said != 12 || sc.quiet.Seconds() < 20 {
				t.Fatalf("the scene has %d utterances and %v of quiet", sc.said, sc.quiet)
			}
			if m := sc.missed(); m > tt.missed {
				t.Errorf("%.1f %% of speech missed, want at most %.1f %%", 100*m, 100*tt.missed)
			}
			if a := sc.alarmed(); a > tt.alarmed {
				t.Errorf("%.1f %% of quiet taken for speech, want at most %.1f %%", 100*a, 100*tt.alarmed)
			}
			if n := sc.startsPerMinute(); n > tt.starts {
				t.Errorf("speech begins %.1f times a minute in quiet, want at most %.1f", n, tt.starts)
			}
			if sc.lost+sc.cut+sc.endless > 0 {
				t.Errorf("of %d utterances %d lost, %d cut, %d without an end", sc.said, sc.lost, sc.cut, sc.endless)
			}
			if p := sc.onsetQuantile(0.9); p > 6*pipeline.DetectorFrame {
				t.Errorf("a tenth of the utterances is noticed later than %v", p)
			}
		})
	}
}

// The measure tells a good detector from a deaf one and one that never stops.
func TestMeasureCanFail(t *testing.T) {
	s := newScene(t, recording(t, "testdata/speech.opus"), nil, math.Inf(1), -26)
	deaf := evaluate(s, func(int) bool { return false })
	if deaf.missed() != 1 || deaf.lost != 12 || deaf.alarmed() != 0 {
		t.Errorf("a deaf detector scores %+v", deaf)
	}
	mad := evaluate(s, func(int) bool { return true })
	if mad.missed() != 0 || mad.alarmed() != 1 || mad.endless != 12 {
		t.Errorf("one that always hears speech scores %+v", mad)
	}
	stutter := evaluate(s, func(i int) bool { return i%60 < 20 })
	if stutter.cut == 0 {
		t.Errorf("one that hears speech a third of the time scores %+v", stutter)
	}
}

// Who is speaking already when the microphone opens, at the top of a vowel, is
// heard: the first sound is not taken for the noise.
func TestDetectorHearsAnImpatientTalker(t *testing.T) {
	s := newScene(t, recording(t, "testdata/speech.opus"), nil, math.Inf(1), -26)
	for n, u := range s.utterances() {
		d, err := New()
		if err != nil {
			t.Fatal(err)
		}
		heard := 0
		for i := loudest(s, u[0], u[0]+25); i < u[0]+50 && i <= u[1]; i++ {
			if s.speech[i] && d.Speech(s.frame(i)) {
				heard++
			}
		}
		d.Close()
		if heard < startFrames {
			t.Errorf("of the first second of utterance %d only %d frames are heard", n, heard)
		}
	}
}

// loudest is the loudest of frames from up to to.
func loudest(s *scene, from, to int) (frame int) {
	most := 0.0
	for i := from; i < to; i++ {
		sum := 0.0
		for _, x := range s.frame(i) {
			sum += float64(x) * float64(x)
		}
		if sum > most {
			frame, most = i, sum
		}
	}
	return frame
}

// Minutes of DTX, with the device's comfort noise now and then, do not make the
// detector take that for speech, nor deaf to speech.
func TestDetectorIsNotSpoiltByDTX(t *testing.T) {
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	noise := noises(t)["pink"](20 * frameSamples)
	gain := 300 / rms(noise)
	frames := make([][]int16, 20)
	for i := range frames {
		frames[i] = make([]int16, frameSamples)
		for k := range frames[i] {
			frames[i][k] = int16(noise[i*frameSamples+k] * gain)
		}
	}
	silence := make([]int16, frameSamples)
	for i := range 100 { // to get used to the noise
		d.Speech(frames[i%20])
	}
	alarms := 0
	for i := range 3000 { // a minute
		frame := silence
		if i%20 < 3 { // one packet in 400 ms
			frame = frames[i/20%6*3+i%20]
		}
		if d.Speech(frame) {
			alarms++
		}
	}
	if alarms > 0 {
		t.Errorf("%d frames of a minute of DTX taken for speech", alarms)
	}
}

func TestDetectorRefusesOtherFrames(t *testing.T) {
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	loud := make([]int16, 960)
	for i := range loud {
		loud[i] = int16(8000 * math.Sin(float64(i)))
	}
	for _, n := range []int{0, 1, 319, 321, 960} {
		if d.Speech(loud[:n]) {
			t.Errorf("%d samples taken for speech", n)
		}
	}
	d.Close()
	if d.Speech(loud[:320]) {
		t.Error("a closed detector heard speech")
	}
	d.Close()
}

func TestNewRefusesModes(t *testing.T) {
	for _, mode := range []int{-1, 4} {
		if _, err := newDetector(mode, gateAbove); err == nil {
			t.Errorf("mode %d accepted", mode)
		}
	}
}

// Detectors nobody closed do not crash when they are collected, nor do closed
// ones.
func TestDetectorsAreCollected(t *testing.T) {
	freed := make(chan struct{}, 1)
	frame := make([]int16, frameSamples)
	frame[0] = 1
	for i := range 1000 {
		d, err := New()
		if err != nil {
			t.Fatal(err)
		}
		d.Speech(frame)
		if i%2 == 0 {
			d.Close()
		}
		if i == 999 {
			runtime.AddCleanup(d, func(c chan struct{}) { c <- struct{}{} }, freed)
		}
	}
	runtime.GC()
	<-freed // hangs if something keeps detectors alive
}

func TestDetectorDoesNotAllocate(t *testing.T) {
	d, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	frame := make([]int16, frameSamples)
	frame[7] = 1000
	if n := testing.AllocsPerRun(100, func() { d.Speech(frame) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkDetector is one frame of 20 ms.
func BenchmarkDetector(b *testing.B) {
	s := newScene(b, recording(b, "testdata/speech.opus"), noises(b)["pink"], 20, -26)
	d, err := New()
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		d.Speech(s.frame(i % s.frames()))
	}
}
