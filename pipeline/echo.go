package pipeline

import (
	"context"
	"log/slog"
	"time"

	"parley/internal/audio"
)

// echoMax bounds a recording, in packets: a minute of 60 ms. What is said after
// that is not played back.
const echoMax = 1000

// echoGap is how long after its last packet a device has finished.
const echoGap = time.Second

// An Echo plays back what a device says: at once in realtime mode, else when it
// has finished. It is the oldest test of a line there is, and needs no provider.
// Packets are sent as they came, in the order they came; only packets of other
// lengths than PacketDuration are put together anew.
//
// It is used like a [Conversation], and the same rules hold for its methods.
type Echo struct {
	inbox
	cfg Config
	dev Device
	log *slog.Logger

	// Owned by Run.
	decoder   *audio.Decoder
	pcm       [maxFrame]int16
	ends      endpointer
	mode      Mode
	listening bool
	path      bool
	recorded  [][]byte  // since the utterance began, or a little before
	last      time.Time // when the last packet came
	lastSound time.Time // when something last happened
	playing   [][]byte  // what is still to be played back
	speaking  bool      // between Start and Stop
	startAt   time.Time // nothing is played before
	horizon   time.Time // when everything sent has been heard
	timer     *time.Timer
}

// NewEcho returns an echo ready to Run. The detector is closed by Run.
func NewEcho(cfg Config, vad Detector, dev Device, log *slog.Logger) (*Echo, error) {
	d, err := audio.NewDecoder(SampleRate)
	if err != nil {
		return nil, err
	}
	return &Echo{
		inbox: newInbox(), cfg: cfg, dev: dev, log: log, decoder: d,
		ends: endpointer{cfg: cfg.Endpointing, detector: vad},
	}, nil
}

// Say refuses: an echo has no voice of its own.
func (e *Echo) Say(string, func()) bool { return false }

// doing is the echo's phase.
func (e *Echo) doing() Phase {
	switch {
	case e.speaking:
		return Speaking
	case e.listening:
		return Listening
	}
	return Idle
}

// Remember does nothing: an echo forgets.
func (e *Echo) Remember([]Message) {}

// History is empty.
func (e *Echo) History() []Message { return nil }

// Stats must be called after Run has returned.
func (e *Echo) Stats() Stats { return Stats{Refused: e.dropped.Load()} }

// Run serves the echo until ctx ends. It starts no goroutine.
func (e *Echo) Run(ctx context.Context) {
	e.timer = time.NewTimer(time.Hour)
	e.lastSound = time.Now()
	defer e.ends.detector.Close()
	defer e.timer.Stop()
	defer e.phase.Store(uint32(Idle))
	defer e.quiet()
	for {
		e.phase.Store(uint32(e.doing()))
		e.timer.Reset(time.Until(e.wake()))
		select {
		case <-ctx.Done():
			return
		case <-e.timer.C:
			e.tick(time.Now())
		case <-e.pathReady:
			e.path = true
		case <-e.hangUp:
			e.quiet()
			e.dev.End(EndAsked)
		case p := <-e.packets:
			e.hear(p)
		case s := <-e.signals:
			for n := len(e.packets); n > 0; n-- {
				e.hear(<-e.packets)
			}
			e.handle(s)
		}
	}
}

func (e *Echo) handle(s signal) {
	now := time.Now()
	e.lastSound = now
	switch s.kind {
	case signalListenStart:
		e.quiet()
		e.ends.reset()
		e.mode, e.listening, e.recorded, e.last = s.mode, true, nil, time.Time{}
		if s.mode == Realtime {
			e.begin(now)
		}
	case signalListenStop:
		if e.mode == Realtime {
			e.quiet()
		} else {
			e.playBack(now)
		}
		e.listening = false
	case signalAbort:
		e.quiet()
	case signalDetect: // there is nobody to talk to
	}
}

// hear takes one packet of the device.
func (e *Echo) hear(p *packet) {
	defer p.free()
	if !e.listening {
		return
	}
	switch {
	case e.mode == Realtime:
		e.send(p.data)
		return
	case e.speaking || len(e.recorded) >= echoMax:
		return
	}
	e.last = p.at
	e.recorded = append(e.recorded, append([]byte(nil), p.data...))
	if e.mode != Auto {
		return
	}
	n := len(e.pcm) / 2
	clear(e.pcm[:n])
	if len(p.data) > dtxSize {
		if decoded, err := e.decoder.Decode(p.data, e.pcm[:]); err == nil {
			n = decoded
		}
	}
	e.ends.feed(e.pcm[:n])
	if keep := int(e.cfg.Endpointing.PreRoll/PacketDuration) + 3; !e.ends.speaking && len(e.recorded) > keep {
		e.recorded = e.recorded[len(e.recorded)-keep:]
	}
	if e.ends.speaking && e.ends.quiet >= e.cfg.Endpointing.MinDelay {
		e.ends.ended()
		e.playBack(p.at)
	}
}

// begin moves the device to speaking.
func (e *Echo) begin(now time.Time) {
	e.dev.Start()
	e.speaking, e.startAt, e.horizon = true, now.Add(e.cfg.StartHold), now
}

// playBack begins to play what was recorded.
func (e *Echo) playBack(now time.Time) {
	recorded := e.recorded
	e.recorded, e.last = nil, time.Time{}
	packets := audio.NewPacketizer(audio.NewEncoderPool(1))
	emit := func(p []byte) bool { e.playing = append(e.playing, p); return true }
	for _, p := range recorded {
		if len(p) <= dtxSize {
			continue // silence; firmware below 2.4 would drop so short a packet
		}
		if err := packets.Opus(context.Background(), p, emit); err != nil {
			e.log.Debug("packet not echoed", "error", err)
		}
	}
	if err := packets.Flush(context.Background(), emit); err != nil {
		e.log.Debug("packet not echoed", "error", err)
	}
	if len(e.playing) > 0 {
		e.begin(now)
	}
}

// quiet ends what is being played.
func (e *Echo) quiet() {
	e.playing = nil
	if e.speaking {
		e.speaking = false
		e.dev.Stop()
	}
}

func (e *Echo) send(packet []byte) {
	if err := e.dev.Play(packet); err != nil {
		e.log.Debug("packet not echoed", "error", err)
	}
}

// wake is the next moment at which something happens by itself.
func (e *Echo) wake() time.Time {
	switch {
	case e.speaking && e.mode != Realtime && len(e.playing) == 0:
		return e.horizon.Add(e.cfg.StopMargin)
	case e.speaking && e.mode != Realtime && !e.path:
		return e.startAt.Add(e.cfg.NoPath)
	case e.speaking && e.mode != Realtime:
		at := e.horizon.Add(PacketDuration - e.cfg.Lead)
		if at.Before(e.startAt) {
			at = e.startAt
		}
		return at
	}
	at := e.lastSound.Add(e.cfg.Silence)
	if gap := e.last.Add(echoGap); !e.last.IsZero() && gap.Before(at) && e.mode != Realtime {
		at = gap
	}
	return at
}

// tick does what has come due.
func (e *Echo) tick(now time.Time) {
	if now.Before(e.wake()) {
		return
	}
	switch {
	case e.speaking && e.mode != Realtime && len(e.playing) > 0 && e.path:
		if e.horizon.Before(now) {
			e.horizon = now
		}
		e.send(e.playing[0])
		e.playing, e.horizon = e.playing[1:], e.horizon.Add(PacketDuration)
	case e.speaking && e.mode != Realtime:
		e.quiet()
		e.lastSound = now
	case !e.last.IsZero() && e.mode != Realtime && !now.Before(e.last.Add(echoGap)):
		e.last = time.Time{}
		if e.mode == Manual || e.ends.speaking {
			e.ends.ended()
			e.playBack(now)
		}
	default:
		e.lastSound = now
		e.dev.End(EndSilence)
	}
}
