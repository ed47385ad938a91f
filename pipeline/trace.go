package pipeline

import (
	"log/slog"
	"time"
)

// A Trace is the story of one turn: when what happened. Times that were not
// reached are zero. Metrics, logs and screens are views of it.
type Trace struct {
	Turn     int  // 1 is the first of the conversation
	Mode     Mode //
	Prompted bool // nobody had asked: the text came by [Conversation.Say]

	SpeechEnd   time.Time // the user's last sound, as far as the detector knows; of a prompted turn, its beginning
	Endpoint    time.Time // the utterance was declared over
	Transcribed time.Time // the recogniser had its final text
	Answered    time.Time // no more was waited for
	FirstToken  time.Time // the model's first token, of text or call
	FirstAudio  time.Time // the voice's first packet was ready, if only of the filler
	FirstPacket time.Time // it was sent
	PlayoutEnd  time.Time // the last packet has been heard, or the reply was cut

	Heard string // what the user said
	Said  string // what the user heard
	Tools []ToolTrace
	Usage Usage

	Packets     int    // sent
	Line        Line   // how audio travelled since the turn before
	CancelledBy string // why the reply was cut; empty if it was not
	Err         error  // the provider failure that was apologised for
}

// A Line is how a device's audio travelled for a while, both ways.
type Line struct {
	Received  uint64        // packets of the device that were played to the recogniser
	Lost      uint64        // packets of the device that were concealed or skipped
	Late      uint64        // came after their place had been passed
	Reordered uint64        // came before their turn, because of one that was late or lost
	Jitter    time.Duration // of the device's packets, as RFC 3550 §6.4.1 estimates it but for pauses, at the end
	Lead      time.Duration // the most that was sent ahead of the loudspeaker
	Dry       int           // times the voice was too slow and the loudspeaker ran out
	Moves     uint64        // changes of the device's address; known to whoever has the socket
}

// Loss is the share of the device's packets that were lost, 0 to 1.
func (l Line) Loss() float64 {
	if l.Lost == 0 {
		return 0
	}
	return float64(l.Lost) / float64(l.Received+l.Lost)
}

// since is l with the counts of the uplink less what they were before.
func (l Line) since(before Line) Line {
	l.Received -= before.Received
	l.Lost -= before.Lost
	l.Late -= before.Late
	l.Reordered -= before.Reordered
	return l
}

// A ToolTrace is one tool call of a turn.
type ToolTrace struct {
	Name   string
	Args   string // JSON
	Result string // as the model got it
	Images int    // pictures that came with it
	Took   time.Duration
	Failed bool
}

func newTrace(m Mode, speechEnd, endpoint time.Time) Trace {
	return Trace{Mode: m, SpeechEnd: speechEnd, Endpoint: endpoint}
}

// A Stage is one part of a turn's latency.
type Stage struct {
	Name string
	Took time.Duration
}

// Stages splits the time from the end of speech to the first packet. Only
// stages that were reached are returned; tool calls are within "llm".
func (t *Trace) Stages() []Stage {
	var out []Stage
	from := t.SpeechEnd
	add := func(name string, to time.Time) {
		if from.IsZero() || to.IsZero() || to.Before(from) {
			return
		}
		out = append(out, Stage{name, to.Sub(from)})
		from = to
	}
	add("endpoint", t.Endpoint)
	add("asr", t.Transcribed)
	if t.Answered.Sub(t.Transcribed) >= time.Millisecond { // the words could have gone on
		add("wait", t.Answered)
	}
	add("llm", t.FirstToken)
	add("tts", t.FirstAudio)
	add("start", t.FirstPacket)
	return out
}

// VoiceToVoice is the time from the end of the user's speech to the first packet
// of the reply, or 0 if none was sent.
func (t *Trace) VoiceToVoice() time.Duration {
	if t.FirstPacket.IsZero() {
		return 0
	}
	return t.FirstPacket.Sub(t.SpeechEnd)
}

// Images is how many pictures the turn's tools answered with.
func (t *Trace) Images() int {
	n := 0
	for _, tool := range t.Tools {
		n += tool.Images
	}
	return n
}

// LogAttrs are the trace's figures for a log line. What was said is left out:
// it is private.
func (t *Trace) LogAttrs() []slog.Attr {
	attrs := []slog.Attr{slog.Int("turn", t.Turn), slog.String("mode", t.Mode.String())}
	for _, s := range t.Stages() {
		attrs = append(attrs, slog.Int64(s.Name+"_ms", s.Took.Milliseconds()))
	}
	attrs = append(attrs,
		slog.Int64("voice_to_voice_ms", t.VoiceToVoice().Milliseconds()),
		slog.Int("packets", t.Packets), slog.Int("tools", len(t.Tools)))
	if t.Prompted {
		attrs = append(attrs, slog.Bool("prompted", true))
	}
	if n := t.Images(); n > 0 {
		attrs = append(attrs, slog.Int("images", n))
	}
	attrs = append(attrs,
		slog.Uint64("uplink_lost", t.Line.Lost), slog.Uint64("uplink_late", t.Line.Late),
		slog.Uint64("uplink_reordered", t.Line.Reordered), slog.Int64("uplink_jitter_ms", t.Line.Jitter.Milliseconds()),
		slog.Int64("lead_ms", t.Line.Lead.Milliseconds()), slog.Int("ran_dry", t.Line.Dry),
		slog.Uint64("address_moves", t.Line.Moves))
	if t.CancelledBy != "" {
		attrs = append(attrs, slog.String("cancelled_by", t.CancelledBy))
	}
	if t.Err != nil {
		attrs = append(attrs, slog.String("error", t.Err.Error()))
	}
	return attrs
}
