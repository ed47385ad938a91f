package pipeline

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// PacketDuration is the playing time of every packet a conversation sends. The
// only frame duration all clients in the field play is 60 ms.
const PacketDuration = 60 * time.Millisecond

// A Mode is how the end of the user's speech is known.
type Mode uint8

// The listening modes of devices.
const (
	Auto     Mode = iota // endpointing; the microphone rests while the device speaks
	Manual               // the user says when, with a button
	Realtime             // endpointing; the microphone is always on and the echo cancelled
)

// String is the mode's name on the wire.
func (m Mode) String() string { return [...]string{"auto", "manual", "realtime"}[m] }

// Config is the policy of a conversation. [DefaultConfig] has the reasons.
type Config struct {
	Prompt        string        // system prompt
	NotUnderstood string        // spoken when the recogniser rejects what it heard
	Apology       Clip          // spoken when a provider fails; needs none itself
	Endpointing   Endpointing   //
	Lead          time.Duration // how far ahead of the speaker packets are sent
	LeadMost      time.Duration // how far where the network asks for more
	StartHold     time.Duration // from Start to the first packet
	Spacing       time.Duration // between two packets at least, also where the lead is yet to be made
	Repeat        time.Duration // on a path that loses packets, each is repeated after this; 0 never
	StopMargin    time.Duration // from the end of playout to Stop
	ManualTail    time.Duration // how long audio may still arrive after a manual stop
	BargeIn       time.Duration // speech that interrupts a reply in realtime mode
	FalseAlarm    time.Duration // silence after which an interruption was none
	Silence       time.Duration // without anything said by anyone, the session ends
	NoPath        time.Duration // how long a reply waits for somewhere to send it
	ToolTimeout   time.Duration // the longest any tool may take
	ToolRounds    int           // how often the model may call tools for one reply
	Filler        string        // spoken once in a reply when tools take long and nothing was said; "" for never
	FillAfter     time.Duration // how long tools may take before that, all rounds together
	History       int           // messages kept for the model
	MaxReplyRunes int           // of one reply's text; a model that never ends is cut here
}

// A Clip is prepared speech.
type Clip struct {
	Text    string
	Packets [][]byte // Opus, 24 kHz mono, PacketDuration each
}

// DefaultConfig returns the policy that firmware's buffers and people's turn-taking
// suggest.
//
// Lead is three packets: devices play the first at once, so less means gaps,
// and the smallest queue in the field (firmware 1.6.0) holds five, of which
// LeadMost leaves one free. Spacing keeps the packets that make the lead from
// overtaking each other on Wi-Fi, where a device drops those overtaken: of a
// burst of three, the first syllable. StartHold
// covers a device's way into speaking, on which it discards what has arrived
// (docs/protocol.md). StopMargin is two packets for the network. A manual stop
// goes by MQTT and may overtake the last audio, hence ManualTail.
func DefaultConfig() Config {
	return Config{
		Prompt:        "You are a helpful voice assistant. Answer in one or two short spoken sentences.",
		NotUnderstood: "Sorry, I did not understand that.",
		Endpointing:   DefaultEndpointing(),
		Lead:          3 * PacketDuration,
		LeadMost:      4 * PacketDuration,
		StartHold:     150 * time.Millisecond,
		Spacing:       40 * time.Millisecond,
		StopMargin:    2 * PacketDuration,
		ManualTail:    100 * time.Millisecond,
		BargeIn:       500 * time.Millisecond,
		FalseAlarm:    2 * time.Second,
		Silence:       60 * time.Second,
		NoPath:        5 * time.Second,
		ToolTimeout:   35 * time.Second,
		ToolRounds:    5,
		Filler:        "One moment, please.",
		FillAfter:     2500 * time.Millisecond,
		History:       40,
		MaxReplyRunes: 8000,
	}
}

// Providers are what a conversation listens, thinks and speaks with. All are
// required.
type Providers struct {
	ASR   Transcriber
	LLM   Model
	TTS   Voice
	Tools Toolbox
}

// A Device is the far end of a conversation. Its methods are called from the
// conversation's goroutine only and never block.
type Device interface {
	Transcript(text string)     // what the user was heard to say
	Start()                     // a reply is certain: go to speaking
	Sentence(text string)       // the audio of this sentence follows
	Emotion(name, emoji string) // change the face
	Repeat() error              // the last packet once more
	Play(packet []byte) error   // one Opus packet of PacketDuration, valid during the call
	Stop()                      // the reply has been heard, or cut
	End(reason string)          // end the session, for [EndSilence] or [EndAsked]
}

// Why a conversation ends its session.
const (
	EndSilence = "silence" // nobody has said anything for long
	EndAsked   = "asked"   // by HangUp
)

// A Conversation is one device's open audio channel: it owns all that is said
// on it. Only Run touches its state; Hear and the signals may be called from any
// goroutine and never block.
type Conversation struct {
	inbox

	cfg    Config
	p      Providers
	dev    Device
	log    *slog.Logger
	onTurn func(Trace)

	late  chan []Message  // results of tools whose reply was cut; senders wait, bounded by ToolTimeout
	words chan hypothesis // from every recogniser run; senders wait for Run
	work  sync.WaitGroup  // every goroutine this conversation has started

	// Owned by Run.
	up         uplink
	ends       endpointer
	mode       Mode
	listening  bool
	listened   bool      // a listen start has come
	pathBy     time.Time // when the device's address ought to be known; set with listened
	held       held      // audio that came while not listening
	deaf       uint64    // pieces of audio the recogniser did not take
	woken      bool      // a wake word was reported since the last listen start
	ear        *ear      // the recogniser run that is being fed
	asked      []*ear    // recogniser runs that are closed and not answered yet, oldest first
	turn       *turn
	path       bool
	released   time.Time // when the user said to have finished
	tailUntil  time.Time // after that, audio is accepted until then
	endpoint   time.Time // when the utterance ends unless speech resumes
	answerAt   time.Time // when pending text is answered unless speech resumes
	paused     time.Time // zero unless a possible interruption is pending
	repeatAt   time.Time // when the last packet is repeated; zero for not
	skew       skew      // between audio and messages
	lineBefore Line      // at the end of the turn before
	horizon    time.Time // when everything sent will have been heard
	lastSound  time.Time // when somebody last said something, or pressed a button
	floor      time.Time // until then the user has the word, and nothing is said unasked
	resumes    time.Time // until then the device's listen start after a reply is waited for
	leaving    bool      // the session ends when everything has been said
	history    []Message
	turns      int
	timer      *time.Timer
}

// New returns a conversation ready to Run. The detector is closed by Run.
// onTurn, which may be nil, receives the trace of every finished turn on the
// conversation's goroutine.
func New(cfg Config, p Providers, vad Detector, dev Device, onTurn func(Trace), log *slog.Logger) (*Conversation, error) {
	c := &Conversation{
		cfg: cfg, p: p, dev: dev, log: log, onTurn: onTurn,
		inbox: newInbox(),
		late:  make(chan []Message),
		words: make(chan hypothesis),
		ends:  endpointer{cfg: cfg.Endpointing, detector: vad},
	}
	if onTurn == nil {
		c.onTurn = func(Trace) {}
	}
	return c, c.up.init()
}

// Remember gives the conversation what was said in an earlier one. It must be
// called before Run.
func (c *Conversation) Remember(history []Message) { c.history = slices.Clone(history) }

// Stats are what became of a device's packets.
type Stats struct {
	Refused  uint64 // the conversation had fallen behind
	Late     uint64 // came after their place had been passed
	Lost     uint64 // concealed or skipped
	Unheard  uint64 // pieces of audio that a stuck recogniser did not take
	Expired  uint64 // pieces of audio that waited too long for a listen start
	Unspoken uint64 // texts that Say refused
}

// Stats must be called after Run has returned.
func (c *Conversation) Stats() Stats {
	return Stats{c.dropped.Load(), c.up.late, c.up.lost, c.deaf, c.held.expired, c.refused.Load()}
}

// History is what was said, as the user heard it, without pictures: nobody can
// say how long it will be kept. It must be called after Run has returned.
func (c *Conversation) History() []Message {
	for i, m := range c.history {
		c.history[i] = m.WithoutImages()
	}
	return c.history
}

// Run serves the conversation until ctx ends. When it returns, every goroutine
// it started has returned, too.
func (c *Conversation) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	c.timer = time.NewTimer(time.Hour)
	c.lastSound = time.Now()
	defer c.ends.detector.Close()
	defer c.work.Wait()
	defer cancel()
	defer c.timer.Stop()
	defer c.phase.Store(uint32(Idle))
	defer c.silence()
	defer c.interrupt(endOfSession)
	for {
		c.leave()
		// One reading of the clock decides what may be taken and when to look
		// again: between two, a deadline could pass unseen.
		now := time.Now()
		out, notes := c.downlink(now)
		prompts := c.mayPrompt(now)
		c.phase.Store(uint32(c.doing()))
		c.timer.Reset(c.wake(now).Sub(now))
		select {
		case <-ctx.Done():
			return
		case <-c.timer.C:
			c.catchUp(ctx) // after a stall, what was heard comes before what is late
			c.tick(ctx, time.Now())
		case p := <-c.packets:
			c.hear(ctx, p)
		case s := <-c.signals:
			c.catchUp(ctx) // packets that came before a signal belong before it
			c.handle(ctx, s)
		case <-c.pathReady:
			c.path = true
		case h := <-c.words:
			c.hypothesis(ctx, h)
		case n := <-notes:
			c.note(n)
		case m := <-c.late:
			c.remember(m...)
		case n := <-prompts:
			c.prompt(ctx, n)
		case <-c.hangUp:
			c.leaving = true
		case s, ok := <-out:
			c.say(s, ok, time.Now())
		}
	}
}

// catchUp takes the packets that are there.
func (c *Conversation) catchUp(ctx context.Context) {
	for n := len(c.packets); n > 0; n-- {
		c.hear(ctx, <-c.packets)
	}
}

func (c *Conversation) handle(ctx context.Context, s signal) {
	now := time.Now()
	switch s.kind {
	case signalListenStart:
		c.lastSound = now
		if c.turn != nil || now.Before(c.floor) {
			c.yieldFloor(now)
		}
		c.interrupt("listen start")
		c.listen(ctx, s.mode)
	case signalListenStop:
		c.lastSound = now
		if c.listening {
			c.released = now
			c.tailUntil = now.Add(c.cfg.ManualTail)
			if c.mode != Manual || c.cfg.ManualTail == 0 {
				c.stopListening(ctx, now)
			}
		}
	case signalDetect:
		c.lastSound = now
		switch {
		case !c.listening:
			c.woken = true
			c.yieldFloor(now)
		case hasWords(s.text):
			c.interrupt("typed text")
			c.deafen()
			c.answer(ctx, s.text, newTrace(c.mode, now, now))
		}
	case signalReady:
		c.lastSound = now
		c.listens(now)
	case signalAbort:
		c.lastSound = now
		c.yieldFloor(now)
		c.interrupt("abort")
		c.forgetAsked() // a device that has aborted must not be sent back to speaking
	}
}

// listen opens the ears. Audio that overtook the listen start is heard first.
func (c *Conversation) listen(ctx context.Context, m Mode) {
	c.deafen()
	c.mode, c.listening, c.tailUntil = m, true, time.Time{}
	now := time.Now()
	c.listens(now)
	early, first := c.held.take(now, c.woken)
	c.up.restart()
	c.skew.listenStart(now, first)
	c.woken, c.resumes = false, time.Time{}
	if m == Manual {
		c.openEar(ctx, nil)
	}
	for _, pcm := range early {
		c.attend(ctx, pcm, now)
	}
}

// listens notes that the device can be spoken to, as soon as its address is known.
func (c *Conversation) listens(now time.Time) {
	if !c.listened {
		c.listened, c.pathBy = true, now.Add(c.cfg.NoPath)
	}
}

func (c *Conversation) stopListening(ctx context.Context, now time.Time) {
	c.listening, c.tailUntil = false, time.Time{}
	if c.ear != nil {
		c.closeEar(ctx, c.released, now)
		return
	}
	c.settle(ctx, now)
}

// deafen forgets everything heard and not yet answered.
func (c *Conversation) deafen() {
	if c.ear != nil {
		c.ear.cancel()
		c.ear = nil
	}
	c.forgetAsked()
	c.endpoint = time.Time{}
	c.ends.reset()
}

// forgetAsked gives up the utterances that wait for their answer.
func (c *Conversation) forgetAsked() {
	for _, e := range c.asked {
		e.cancel()
	}
	c.asked, c.answerAt = nil, time.Time{}
}

// wake is the next moment at which something happens by itself.
func (c *Conversation) wake(now time.Time) time.Time {
	at := now.Add(time.Hour)
	soonest := func(t time.Time) {
		if !t.IsZero() && t.Before(at) {
			at = t
		}
	}
	soonest(c.tailUntil)
	soonest(c.endpoint)
	soonest(c.answerAt)
	soonest(c.up.deadline)
	free := later(c.floor, c.resumes)
	if !c.path {
		free = later(free, c.pathBy)
	}
	if free.After(now) {
		soonest(free) // a text to say may have come by then
	}
	if t := c.turn; t != nil {
		soonest(c.turnWake(t, now))
		soonest(c.repeatAt)
	} else if c.idle() {
		soonest(c.lastSound.Add(c.cfg.Silence))
	}
	return at
}

// idle reports whether nobody is being listened to or answered. A button that is
// held does not count: one that is stuck must not keep the session for ever.
func (c *Conversation) idle() bool {
	return len(c.asked) == 0 && (c.ear == nil || c.mode == Manual)
}

// tick does what has come due.
func (c *Conversation) tick(ctx context.Context, now time.Time) {
	due := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	if due(c.up.deadline) {
		c.up.skip(now, func(pcm []int16) { c.sound(ctx, pcm, now) })
	}
	if due(c.tailUntil) {
		c.stopListening(ctx, now)
	}
	if due(c.endpoint) {
		c.endUtterance(ctx, now)
	}
	if due(c.answerAt) {
		c.answerPending(ctx)
	}
	if t := c.turn; t != nil {
		if due(c.repeatAt) {
			c.repeatAt = time.Time{}
			if err := c.dev.Repeat(); err != nil {
				c.log.Debug("packet not repeated", "error", err)
			}
		}
		c.turnTick(t, now)
	} else if c.idle() && due(c.lastSound.Add(c.cfg.Silence)) {
		c.lastSound = now // once a period, should the session not end
		c.dev.End(EndSilence)
	}
}
