package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/pipeline"
	"parley/pipeline/llm"
)

// A listener is a device of which only what is said matters.
type listener struct{ said []string }

func (l *listener) Sentence(text string) { l.said = append(l.said, text) }
func (*listener) Transcript(string)      {}
func (*listener) Start()                 {}
func (*listener) Emotion(string, string) {}
func (*listener) Repeat() error          { return nil }
func (*listener) Play([]byte) error      { return nil }
func (*listener) Stop()                  {}
func (*listener) End(string)             {}
func (*listener) Speech([]int16) bool    { return false }
func (*listener) Close()                 {}
func (*listener) Tools() []pipeline.Tool { return deviceTools() }
func (*listener) Call(context.Context, pipeline.Call) (pipeline.ToolResult, error) {
	return pipeline.ToolResult{}, errors.New("the lens cap is on")
}

// Transcribe hears nothing.
func (*listener) Transcribe(context.Context, <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(func(pipeline.Transcript, error) bool) {}
}

// Speak says each line as one sentence of one packet.
func (*listener) Speak(_ context.Context, text <-chan string) iter.Seq2[pipeline.Speech, error] {
	return func(yield func(pipeline.Speech, error) bool) {
		var all strings.Builder
		for t := range text {
			all.WriteString(t)
		}
		for line := range strings.Lines(all.String()) {
			if line = strings.TrimSpace(line); line != "" &&
				(!yield(pipeline.Speech{Sentence: line}, nil) || !yield(pipeline.Speech{Packet: []byte{24, 1, 2, 3}}, nil)) {
				return
			}
		}
	}
}

// TestARuleWhoseToolFailsIsExplained has a whole conversation with the rules model:
// the user hears what the rule says for it, or else the model's own words.
func TestARuleWhoseToolFailsIsExplained(t *testing.T) {
	for name, c := range map[string]struct{ failed, want string }{
		"the rule's words":  {"I could not see anything.", "I could not see anything."},
		"the model's words": {"", llm.DefaultFailed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &listener{}
				model := newRules(t, llm.RulesConfig{Rules: []llm.Rule{{
					Match: []string{"what do you see"}, Call: "self.camera.take_photo",
					Arguments: map[string]any{"question": "?"}, Answer: "{result.result}", Failed: c.failed,
				}}})
				conversation, err := pipeline.New(pipeline.DefaultConfig(),
					pipeline.Providers{ASR: l, LLM: model, TTS: l, Tools: l}, l, l, nil, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { conversation.Run(ctx); close(ended) }()
				conversation.PathReady()
				conversation.ListenStart(pipeline.Auto)
				conversation.Detect("what do you see")
				time.Sleep(10 * time.Second)
				cancel()
				<-ended
				if got := strings.Join(l.said, " "); got != c.want {
					t.Errorf("the user hears %q, want %q", got, c.want)
				}
				result := conversation.History()[2]
				if !result.Failed || !json.Valid(conversation.History()[1].Calls[0].Args) {
					t.Errorf("history has %+v", result)
				}
			})
		})
	}
}
