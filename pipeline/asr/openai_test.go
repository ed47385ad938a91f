package asr_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/internal/openaiapi"
	"parley/internal/openaitest"
	"parley/pipeline"
	"parley/pipeline/asr"
)

// openAI starts service and returns a transcriber that asks it.
func openAI(t *testing.T, service *openaitest.Service, cfg asr.OpenAIConfig) pipeline.Transcriber {
	t.Helper()
	goroutines := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, goroutines) })
	server, err := openaitest.Start(service)
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP = openaiapi.NewHTTPClient(0)
	t.Cleanup(func() {
		server.Close()
		cfg.HTTP.CloseIdleConnections()
	})
	cfg.BaseURL, cfg.Model = server.URL, "whisper-1"
	transcriber, err := asr.NewOpenAI(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return transcriber
}

// say returns a closed channel of n samples that count from 0, in odd pieces.
func say(n int) <-chan []int16 {
	speech := make(chan []int16, n/777+1)
	for i := 0; i < n; {
		piece := make([]int16, min(777, n-i))
		for j := range piece {
			piece[j] = int16(i + j)
		}
		speech <- piece
		i += len(piece)
	}
	close(speech)
	return speech
}

// hear returns the only item that the transcriber yields.
func hear(ctx context.Context, t *testing.T, tr pipeline.Transcriber, speech <-chan []int16) (heard pipeline.Transcript, err error) {
	t.Helper()
	items := 0
	for heard, err = range tr.Transcribe(ctx, speech) {
		items++
	}
	if items != 1 {
		t.Errorf("yielded %d items", items)
	}
	return heard, err
}

func TestOpenAISendsTheUtterance(t *testing.T) {
	service := &openaitest.Service{Key: "sk-1", Transcribe: func(tr openaitest.Transcription) string {
		if tr.Model != "whisper-1" || tr.Language != "zh" || tr.Prompt != "Parley" || tr.Rate != pipeline.SampleRate {
			t.Errorf("asked with %q, %q, %q at %d Hz", tr.Model, tr.Language, tr.Prompt, tr.Rate)
		}
		for i, s := range tr.PCM {
			if s != int16(i) {
				t.Errorf("sample %d is %d", i, s)
				break
			}
		}
		if len(tr.PCM) != 20000 {
			t.Errorf("the service heard %d samples", len(tr.PCM))
		}
		return "\n 把音量调到 50%。 \n"
	}}
	tr := openAI(t, service, asr.OpenAIConfig{APIKey: "sk-1", Language: "zh-CN", Prompt: "Parley"})
	got, err := hear(t.Context(), t, tr, say(20000))
	if err != nil || got != (pipeline.Transcript{Text: "把音量调到 50%。", Final: true}) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOpenAIBounds(t *testing.T) {
	longest := 0
	service := &openaitest.Service{Transcribe: func(tr openaitest.Transcription) string {
		longest = len(tr.PCM)
		return "  "
	}}
	tr := openAI(t, service, asr.OpenAIConfig{})
	empty := pipeline.Transcript{Final: true}
	for _, n := range []int{0, pipeline.SampleRate/10 - 1} {
		if got, err := hear(t.Context(), t, tr, say(n)); err != nil || got != empty {
			t.Errorf("%d samples: %+v, %v", n, got, err)
		}
	}
	if n := len(service.Requests()); n != 0 {
		t.Errorf("asked %d times about less than 0.1 s", n)
	}
	if got, err := hear(t.Context(), t, tr, say(61*pipeline.SampleRate)); err != nil || got != empty {
		t.Errorf("noise: %+v, %v", got, err)
	}
	if longest != 60*pipeline.SampleRate {
		t.Errorf("of 61 s, %v were sent", time.Duration(longest)*time.Second/pipeline.SampleRate)
	}
}

func TestOpenAIFailures(t *testing.T) {
	service := &openaitest.Service{}
	tr := openAI(t, service, asr.OpenAIConfig{Table: "asr.test"})
	service.Fail(openaitest.PathTranscriptions, openaitest.Failure{Status: 401}, openaitest.Failure{Status: 200})
	if _, err := hear(t.Context(), t, tr, say(8000)); err == nil || !strings.Contains(err.Error(), "check api_key of [asr.test]") {
		t.Errorf("401: %v", err)
	}
	// An error object with status 200 is no transcript, not even an empty one.
	if got, err := hear(t.Context(), t, tr, say(8000)); err == nil {
		t.Errorf("error object: %+v", got)
	}
}

func TestOpenAIStopsWithItsCaller(t *testing.T) {
	service := &openaitest.Service{}
	tr := openAI(t, service, asr.OpenAIConfig{})
	reason := errors.New("hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	if _, err := hear(ctx, t, tr, make(chan []int16)); err != reason {
		t.Errorf("while listening: %v", err)
	}
	service.Fail(openaitest.PathTranscriptions, openaitest.Failure{Hang: true})
	ctx, stop := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, reason)
	defer stop()
	if _, err := hear(ctx, t, tr, say(8000)); err != reason {
		t.Errorf("while waiting: %v", err)
	}
}

func TestOpenAIConfig(t *testing.T) {
	if _, err := asr.NewOpenAI(asr.OpenAIConfig{}); err == nil || !strings.HasPrefix(err.Error(), "[asr.openai]: model is empty") {
		t.Errorf("%v", err)
	}
	if _, err := asr.NewOpenAI(asr.OpenAIConfig{Table: "asr.x", Model: "m", BaseURL: "x"}); err == nil || !strings.HasPrefix(err.Error(), "[asr.x]: base_url") {
		t.Errorf("%v", err)
	}
}
