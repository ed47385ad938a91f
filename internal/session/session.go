package session

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"parley/internal/protocol"
	"parley/internal/record"
	"parley/pipeline"
	"parley/udpaudio"
)

// Why a session ended.
const (
	endGoodbye      = "the device said goodbye"
	endReplaced     = "replaced by another hello"
	endDisconnected = "the connection ended"
	endSilence      = "silence"
	endShutdown     = "shutdown"
)

// An engine is what is at the other end of the line: a *pipeline.Conversation or
// a *pipeline.Echo.
type engine interface {
	Run(ctx context.Context)
	Hear(seq uint32, opus []byte) bool
	PathReady()
	ListenStart(pipeline.Mode) bool
	ListenStop() bool
	Detect(text string) bool
	Abort() bool
	Remember([]pipeline.Message)
	History() []pipeline.Message
	Stats() pipeline.Stats
	Say(text string, unsaid func()) bool
	HangUp()
	Ready() bool
	Phase() pipeline.Phase
}

// A session is one open audio channel and its conversation. It is the
// conversation's device and the channel's receiver.
type session struct {
	id           string
	role         string
	peer         *peer
	channel      *udpaudio.Channel
	conversation engine
	tap          *record.Tap // nil if nobody listens in
	number       uint64      // of all sessions, from 1
	opened       time.Time
	moves        uint64 // changes of address up to the last turn; of the conversation's goroutine
	cancel       context.CancelFunc
	done         chan struct{} // closed when run has returned
	log          *slog.Logger

	summoned bool // the device was asked to come, and there is something to tell; of the connection's goroutine

	heard   atomic.Bool // a packet has come
	mu      sync.Mutex  // also held while a message is sent, so that none follows the end
	ended   bool        // nothing of the conversation is sent any more
	follows bool        // another session is about to replace this one
	waiting *time.Timer // for the first packet
	talking bool        // between Start and Stop
	leaving bool        // ends at the next Stop
}

// handOver is how long a session waits for the one before it, to hear what was
// said there. Providers that heed their context end in microseconds.
const handOver = 500 * time.Millisecond

// run is the session's goroutine. before is closed when the device's session
// before it has ended; nil means that there is none.
func (c *session) run(ctx context.Context, before <-chan struct{}) {
	defer close(c.done)
	defer c.tap.Close()
	defer c.peer.server.stats.sessions.Add(^uint64(0))
	if before != nil {
		patience := time.NewTimer(handOver)
		select {
		case <-before:
		case <-patience.C:
			c.log.Warn("the session before takes long to end; what was said in it is forgotten")
		}
		patience.Stop()
	}
	memories := &c.peer.server.memories
	c.conversation.Remember(memories.recall(c.peer.id))
	c.conversation.Run(ctx)
	memories.put(c.peer.id, c.number, c.conversation.History())
	stats, heard := c.channel.Stats(), c.conversation.Stats()
	c.log.Info("session closed", "packets_in", stats.Delivered, "packets_out", stats.Sent, "packets_repeated", stats.Repeated, "packets_lost", stats.Lost,
		"packets_refused", heard.Refused, "packets_late", heard.Late, "packets_concealed", heard.Lost,
		"audio_unheard", heard.Unheard)
}

// close ends the session for the reason given; only the first call counts. It
// waits for nobody.
func (c *session) close(reason string) {
	c.mu.Lock()
	again := c.ended
	c.ended = true
	if !again {
		c.follows = reason == endReplaced
		c.peer.note(EventClosed, c.id, reason)
	}
	if c.waiting != nil {
		c.waiting.Stop()
	}
	c.mu.Unlock()
	if again {
		return
	}
	c.peer.closed(c)
	if reason != endGoodbye && reason != endReplaced && reason != endDisconnected {
		c.send(protocol.Goodbye(c.id)) // it is our idea
	}
	c.channel.Close()
	c.cancel()
	c.log.Info("session ends", "reason", reason)
	c.peer.publish()
}

// endWhenSilent closes the session as soon as the device is not speaking.
func (c *session) endWhenSilent() {
	c.mu.Lock()
	talking := c.talking
	c.leaving = true
	c.mu.Unlock()
	if !talking {
		c.close(endShutdown)
	}
}

// control takes a message that belongs to the session.
func (c *session) control(m protocol.Uplink) {
	// What a speak_ready carries is the id of the request, from before the session.
	if m.SessionID != "" && m.SessionID != c.id && m.Type != protocol.TypeSpeakReady {
		// Stale, from before the last hello. py-xiaozhi and old firmware send
		// an empty id.
		c.log.Debug("message of another session ignored", "type", m.Type)
		return
	}
	accepted := true
	switch {
	case m.Type == protocol.TypeGoodbye:
		c.close(endGoodbye)
	case m.Type == protocol.TypeSpeakReady:
		accepted = c.conversation.Ready()
		if !c.summoned {
			c.conversation.HangUp() // it took too long, and would wait for words in vain
		}
	case m.Type == protocol.TypeAbort:
		accepted = c.conversation.Abort()
	case m.State == protocol.ListenStart:
		accepted = c.conversation.ListenStart(listenMode(m.Mode))
		c.expectAudio()
		c.emit(EventListening, listenMode(m.Mode).String())
	case m.State == protocol.ListenStop:
		accepted = c.conversation.ListenStop()
	case m.State == protocol.ListenDetect:
		accepted = c.conversation.Detect(m.Text)
	default:
		c.peer.server.stats.unknownMessages.Add(1)
		c.log.Debug("listen message of unknown state", "state", m.State)
	}
	if !accepted {
		c.peer.server.stats.signalsDropped.Add(1)
		c.log.Error("message dropped: the conversation has fallen behind", "type", m.Type, "state", m.State)
	}
}

// listenMode is the conversation's name of a mode. A client that names none, or
// one nobody knows, gets auto, the only mode that needs nothing of it.
func listenMode(m protocol.Mode) pipeline.Mode {
	switch m {
	case protocol.ModeManual:
		return pipeline.Manual
	case protocol.ModeRealtime:
		return pipeline.Realtime
	}
	return pipeline.Auto
}

// expectAudio reports a device that listens and is not heard: its datagrams go
// to the wrong address, or are lost on the way. Nothing else tells its owner.
func (c *session) expectAudio() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard.Load() || c.waiting != nil || c.ended {
		return
	}
	c.waiting = time.AfterFunc(c.peer.server.cfg.AudioWithin, func() {
		if c.heard.Load() {
			return
		}
		c.peer.server.stats.noAudio.Add(1)
		server := c.peer.server
		c.log.Warn("no audio from the device", "within", server.cfg.AudioWithin,
			"udp_server", server.udpHost(c.peer.link.Device()), "udp_port", server.cfg.UDPPort,
			"likely_cause", noAudioCause)
		c.tell(protocol.Alert("No audio", "The server receives no sound (UDP)", "sad"))
		c.emit(EventNoAudio, noAudioCause)
	})
}

// noAudioCause is why nothing comes, as far as can be told from here.
const noAudioCause = "UDP to this address and port does not reach Parley: set [udp] address, open the port in firewall and router, publish it as /udp from a container"

func (c *session) send(payload []byte) {
	if err := c.peer.link.Send(payload); err != nil {
		c.log.Debug("message not sent", "error", err)
	}
}

// emit tells of something in the session, unless it has ended.
func (c *session) emit(kind EventKind, detail string) {
	c.mu.Lock()
	if !c.ended {
		c.peer.note(kind, c.id, detail)
	}
	c.mu.Unlock()
	c.peer.publish()
}

// tell sends a message of the session, unless it has ended.
func (c *session) tell(payload []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.send(payload)
	}
}

// Audio implements udpaudio.Receiver.
func (c *session) Audio(seq, _ uint32, opus []byte) {
	c.heard.Store(true)
	c.tap.Up(seq, opus)
	c.conversation.Hear(seq, opus)
}

// PathReady implements udpaudio.Receiver.
func (c *session) PathReady() { c.conversation.PathReady() }

// Transcript implements pipeline.Device, as do the methods after it.
func (c *session) Transcript(text string) { c.tell(protocol.STT(c.id, text)) }

// Start tells the device to speak.
func (c *session) Start() {
	c.mu.Lock()
	c.talking = true
	c.mu.Unlock()
	c.tell(protocol.TTSStart(c.id))
	c.emit(EventSpeaking, "")
}

// Sentence shows what is spoken next.
func (c *session) Sentence(text string) { c.tell(protocol.TTSSentence(c.id, text)) }

// Emotion changes the device's face.
func (c *session) Emotion(name, emoji string) { c.tell(protocol.Emotion(c.id, name, emoji)) }

// Play sends one packet.
func (c *session) Play(packet []byte) error {
	if _, err := c.channel.Send(packet); err != nil {
		return err
	}
	c.tap.Down(packet)
	return nil
}

// Repeat sends the last packet once more.
func (c *session) Repeat() error { return c.channel.Repeat() }

// Stop tells the device that there is no more to hear.
func (c *session) Stop() {
	c.tell(protocol.TTSStop(c.id))
	c.emit(EventSilent, "")
	c.mu.Lock()
	c.talking = false
	leaving := c.leaving
	c.mu.Unlock()
	if leaving {
		c.close(endShutdown)
	}
}

// End ends the session: nobody has said anything for long, or it was asked for.
func (c *session) End(reason string) { c.close(reason) }

// turn takes a finished turn.
func (c *session) turn(t pipeline.Trace) {
	moves := c.channel.Stats().Moves
	t.Line.Moves, c.moves = moves-c.moves, moves
	s := &c.peer.server.stats
	s.turns.Add(1)
	if t.CancelledBy != "" {
		s.cancelled.Add(1)
	}
	if t.Err != nil {
		s.failed.Add(1)
	}
	c.log.LogAttrs(context.Background(), slog.LevelInfo, "turn", t.LogAttrs()...)
	if f := c.peer.server.cfg.OnTurn; f != nil {
		f(c.peer.id, t)
	}
}
