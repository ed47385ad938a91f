package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"parley/internal/device"
	"parley/pipeline"
)

// A screen shows a conversation as the device meets it.
type screen struct {
	mu    sync.Mutex // events come from the device, results from the command
	out   io.Writer
	start time.Time
}

func newScreen(out io.Writer) *screen { return &screen{out: out, start: time.Now()} }

// line writes one line: when, who, what.
func (s *screen) line(who, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.out, "%6.2f s  %-8s %s\n", time.Since(s.start).Seconds(), who, fmt.Sprintf(format, args...))
}

// event shows what a person beside the device would notice.
func (s *screen) event(e device.Event) {
	switch e.Kind {
	case device.Opened:
		s.line("device", "audio channel open, listening")
	case device.Closed:
		s.line("device", "audio channel closed")
	case device.ToolCalled:
		s.line("tool", "%s %s -> %s", e.Tool, e.Text, e.Result)
	case device.Failed, device.Crashed:
		s.line("device", "%s: %v", e.Kind, e.Err)
	case device.Message:
		s.message(e)
	}
}

func (s *screen) message(e device.Event) {
	switch {
	case e.Type == "stt":
		s.line("heard", "%q", e.Text)
	case e.Type == "llm":
		s.line("face", "%s", e.Detail)
	case e.Type == "alert":
		s.line("alert", "%s", e.Text)
	case e.Type == "tts" && e.Detail == "sentence_start":
		s.line("parley", "%q", e.Text)
	}
}

// trace shows where the time of a turn went.
func (s *screen) trace(t pipeline.Trace) {
	stages := ""
	for i, stage := range t.Stages() {
		if i > 0 {
			stages += " + "
		}
		stages += fmt.Sprintf("%s %v", stage.Name, round(stage.Took))
	}
	s.line("latency", "%s = %v from the end of speech to the first packet", stages, round(t.VoiceToVoice()))
	for _, tool := range t.Tools {
		s.line("", "of this, tool %s %v", tool.Name, round(tool.Took))
	}
}

// report shows what a listener lost. Audio clipped is a failure of the server.
func (s *screen) report(r device.Report) error {
	s.line("device", "played %d frames; clipped %d, lost %d, late %d, duplicate %d, underruns %d",
		r.Played, r.Clipped(), r.Lost, r.Late, r.Duplicate, r.Underruns)
	if n := r.Clipped(); n > 0 {
		return fmt.Errorf("%d frames arrived and were never heard", n)
	}
	return nil
}

func round(d time.Duration) time.Duration { return d.Round(time.Millisecond) }
