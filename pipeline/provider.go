package pipeline

import (
	"context"
	"encoding/json"
	"iter"
	"time"
)

// SampleRate is the rate of all PCM a conversation hears, in Hz: 16 kHz mono,
// what devices send and recognisers want.
const SampleRate = 16000

// A Transcriber turns speech into text.
//
// Transcribe reads 16 kHz mono PCM from audio, in pieces of any length, until
// the channel is closed or ctx ends, and yields hypotheses as they improve; the
// last one is Final. A batch recogniser yields once, after audio is closed.
// Speech without words yields a Final transcript with an empty Text, which is
// not an error. The iterator yields an error at most once, as its last item.
// Nothing started by Transcribe may outlive its iterator. Implementations are
// safe for concurrent use.
type Transcriber interface {
	Transcribe(ctx context.Context, audio <-chan []int16) iter.Seq2[Transcript, error]
}

// A Transcript is one hypothesis about the current utterance.
type Transcript struct {
	Text      string
	Final     bool // the recogniser will not revise Text
	EndOfTurn bool // the recogniser also found that the speaker has finished
	// Rejected marks speech that was heard and is not of the recogniser's
	// language or grammar. Text is empty; the user is told so.
	Rejected bool
}

// A Model streams a chat completion.
//
// Chat yields text as it is generated and calls once complete; it assembles
// fragments itself. The iterator yields an error at most once, as its last
// item. Nothing started by Chat may outlive its iterator. Implementations are
// safe for concurrent use and do not modify the request.
type Model interface {
	Chat(ctx context.Context, req *Request) iter.Seq2[Delta, error]
}

// A Request is everything a Model needs to answer.
type Request struct {
	Messages []Message // the system prompt first, the user's words last or before calls and results
	Tools    []Tool
	// Sight says that the answer depends on the pictures in Messages. A model
	// that takes none refuses with [ErrNoSight]; without Sight it answers from
	// the text alone.
	Sight bool
}

// ErrNoSight is what a model that takes no pictures answers to a request that
// needs its pictures seen. It is a fault of the request: a chain of models asks
// the next one, and none has to rest for it.
var ErrNoSight error = noSight{}

type noSight struct{}

func (noSight) Error() string {
	return "the model takes no pictures; name one that does and set its vision"
}

// RequestFault reports that the provider is not to blame.
func (noSight) RequestFault() bool { return true }

// A Role says who a message is from.
type Role string

// The roles of chat completions.
const (
	RoleSystem    Role = "system"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// A Message is one entry of a conversation's history.
type Message struct {
	Role   Role
	Text   string
	Images []Image // of a user or tool message; nobody changes their bytes
	Calls  []Call  // of an assistant message: the tools it asked for
	CallID string  // of a tool message: the call this is the result of
	// Failed marks a tool message whose call did not succeed; Text says why.
	Failed bool
	// Interrupted marks an assistant message that was cut short; Text holds
	// what was heard of it.
	Interrupted bool
}

// A Delta is one increment of a Model's answer: text, one call, or usage.
type Delta struct {
	Text  string
	Call  *Call
	Usage *Usage // at most once, near the end, from services that count
}

// Usage counts a completion's tokens as the service reports them.
type Usage struct {
	Prompt, Completion int
}

// A Call asks for one tool to be run. Args is a JSON object.
type Call struct {
	ID, Name string
	Args     json.RawMessage
}

// A Tool describes one callable function. Schema is the JSON schema of its
// arguments.
type Tool struct {
	Name, Description string
	Schema            json.RawMessage
}

// A Toolbox lists and runs the tools of one conversation, wherever they live.
// It is safe for concurrent use.
type Toolbox interface {
	// Tools lists what can be called now, in a stable order.
	Tools() []Tool
	// Call runs one tool and returns its result for the model. An error is for
	// the model, too: its message says what went wrong.
	Call(ctx context.Context, c Call) (ToolResult, error)
}

// A ToolResult is what a tool answered: text, and pictures for models that take
// them.
type ToolResult struct {
	Text   string
	Images []Image
}

// A Voice turns text into speech.
//
// Speak reads text from the channel, in whatever pieces they arrive, until it is
// closed or ctx ends, and yields speech in speaking order. The iterator yields
// an error at most once, as its last item. Nothing started by Speak may outlive
// its iterator. Implementations are safe for concurrent use. An engine that
// speaks whole sentences implements [Synthesizer] and is adapted by
// [BySentence].
type Voice interface {
	Speak(ctx context.Context, text <-chan string) iter.Seq2[Speech, error]
}

// Speech is one Opus packet (24 kHz mono, 60 ms) or the start of a new
// sentence, never both.
type Speech struct {
	Packet   []byte
	Sentence string
}

// A Synthesizer turns one sentence into audio.
//
// Synthesize yields the audio of the sentence as it is made: chunks of PCM of
// any length at one rate, or single Opus packets of any mono frame size. The
// iterator yields an error at most once, as its last item. Nothing started by
// Synthesize may outlive its iterator. Implementations are safe for concurrent
// use.
type Synthesizer interface {
	Synthesize(ctx context.Context, sentence string) iter.Seq2[Audio, error]
}

// Audio is a piece of synthesized speech: PCM with its rate, or one Opus packet.
type Audio struct {
	PCM  []int16 // mono
	Rate int     // Hz, of PCM
	Opus []byte
}

// A Detector tells speech from everything else. One detector serves one
// conversation and is not safe for concurrent use.
type Detector interface {
	// Speech reports whether frame, DetectorFrame of 16 kHz mono PCM, holds
	// speech.
	Speech(frame []int16) bool
	// Close frees the detector.
	Close()
}

// DetectorFrame is the length of PCM a [Detector] judges at a time.
const DetectorFrame = 20 * time.Millisecond
