package tts_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"

	"parley/internal/audio"
	"parley/internal/openaiapi"
	"parley/internal/openaitest"
	"parley/pipeline"
	"parley/pipeline/tts"
)

// tone is what the service says: a second of 440 Hz, and a bit.
func tone(string) []int16 {
	pcm := make([]int16, openaitest.SpeechRate+17)
	for i := range pcm {
		pcm[i] = int16(8000 * math.Sin(2*math.Pi*440*float64(i)/openaitest.SpeechRate))
	}
	return pcm
}

// openAI starts service and returns a synthesizer that asks it.
func openAI(t *testing.T, service *openaitest.Service, cfg tts.OpenAIConfig) pipeline.Synthesizer {
	t.Helper()
	server, err := openaitest.Start(service)
	if err != nil {
		t.Fatal(err)
	}
	cfg.HTTP = openaiapi.NewHTTPClient(0)
	t.Cleanup(func() {
		server.Close()
		cfg.HTTP.CloseIdleConnections()
	})
	cfg.BaseURL, cfg.Model, cfg.Voice = server.URL, "tts-1", "alloy"
	s, err := tts.NewOpenAI(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestOpenAIPCM(t *testing.T) {
	service := &openaitest.Service{Key: "sk-1", Speak: tone}
	s := openAI(t, service, tts.OpenAIConfig{APIKey: "sk-1", Instructions: "Whisper.", Speed: 1.5})
	pieces := 0
	var got []int16
	for a, err := range s.Synthesize(t.Context(), "你好。") {
		if err != nil || a.Rate != 24000 || a.Opus != nil {
			t.Fatalf("%d Hz, %d bytes of Opus, %v", a.Rate, len(a.Opus), err)
		}
		got = append(got, a.PCM...)
		pieces++
	}
	if !slices.Equal(got, tone("")) || pieces < 10 {
		t.Errorf("%d samples in %d pieces", len(got), pieces)
	}
	var sent map[string]any
	if err := json.Unmarshal(service.Requests()[0].Body, &sent); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"model": "tts-1", "voice": "alloy", "input": "你好。", "instructions": "Whisper.", "speed": 1.5, "response_format": "pcm"}
	for k, v := range want {
		if sent[k] != v || len(sent) != len(want) {
			t.Errorf("sent %v, want %v", sent, want)
			break
		}
	}
}

func TestOpenAIOpus(t *testing.T) {
	s := openAI(t, &openaitest.Service{Speak: tone}, tts.OpenAIConfig{Format: tts.FormatOpus})
	decoder, err := audio.NewDecoder(24000)
	if err != nil {
		t.Fatal(err)
	}
	var got []int16
	packets := 0
	for a, err := range s.Synthesize(t.Context(), "hi") {
		if err != nil || a.PCM != nil {
			t.Fatalf("%d samples, %v", len(a.PCM), err)
		}
		frame := make([]int16, 2880)
		n, err := decoder.Decode(a.Opus, frame)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, frame[:n]...)
		packets++
	}
	var energy float64
	for _, v := range got {
		energy += float64(v) * float64(v)
	}
	// 51 packets of 20 ms, and an RMS near 8000/√2.
	if rms := math.Sqrt(energy / float64(len(got))); packets != 51 || len(got) != 51*480 || rms < 5000 || rms > 6000 {
		t.Errorf("%d packets, %d samples, RMS %.0f", packets, len(got), rms)
	}
}

// canned is an [http.RoundTripper] that answers everything with the same bytes.
type canned []byte

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(c)), Request: r}, nil
}

// TestOpenAIOtherFormatThanAskedFor has services answer in the format they like.
func TestOpenAIOtherFormatThanAskedFor(t *testing.T) {
	for name, c := range map[string]struct {
		format string
		answer []byte
		says   string
	}{
		"wav for pcm":  {tts.FormatPCM, audio.AppendWAV(nil, 16000, tone("")), ""},
		"wav for opus": {tts.FormatOpus, audio.AppendWAV(nil, 16000, tone("")), ""},
		"mp3 for pcm":  {tts.FormatPCM, []byte("ID3\x04\x00\x00"), "does not do format \"pcm\""},
		"mp3 for opus": {tts.FormatOpus, []byte("\xff\xfb\x90\x64"), "does not do format \"opus\""},
		"nothing":      {tts.FormatOpus, nil, "no audio"},
		"torn ogg":     {tts.FormatPCM, []byte("OggS\x00"), "[tts.openai]: "},
		"torn wav":     {tts.FormatPCM, []byte("RIFF\x00"), "[tts.openai]: "},
	} {
		s, err := tts.NewOpenAI(tts.OpenAIConfig{Model: "m", Voice: "v", Format: c.format, HTTP: &http.Client{Transport: canned(c.answer)}})
		if err != nil {
			t.Fatal(err)
		}
		pcm, rate, err := speak(t.Context(), s, "hi")
		if c.says == "" && (err != nil || rate != 16000 || !slices.Equal(pcm, tone(""))) {
			t.Errorf("%s: %d samples at %d Hz, %v", name, len(pcm), rate, err)
		}
		if c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
}

func TestOpenAIFailures(t *testing.T) {
	service := &openaitest.Service{Speak: tone}
	s := openAI(t, service, tts.OpenAIConfig{Table: "tts.test"})
	for says, failure := range map[string]openaitest.Failure{
		"check api_key of [tts.test]":         {Status: 403},
		`[tts.test]: the connection to 127.`:  {Cut: 5},
		"the service answered 500 Internal S": {Status: 500},
	} {
		service.Fail(openaitest.PathSpeech, failure)
		if _, _, err := speak(t.Context(), s, "hi"); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	service.Speak = func(string) []int16 { return nil }
	if _, _, err := speak(t.Context(), s, "hi"); err == nil || !strings.Contains(err.Error(), "no audio") {
		t.Errorf("nothing said: %v", err)
	}
}

func TestOpenAIStopsWithItsCaller(t *testing.T) {
	service := &openaitest.Service{Speak: tone}
	for _, format := range []string{tts.FormatPCM, tts.FormatOpus} {
		s := openAI(t, service, tts.OpenAIConfig{Format: format})
		reason := errors.New("interrupted")
		service.Fail(openaitest.PathSpeech, openaitest.Failure{HangAfter: 4})
		ctx, cancel := context.WithCancelCause(t.Context())
		var last error
		for _, err := range s.Synthesize(ctx, "hi") {
			last = err
			cancel(reason)
		}
		cancel(nil)
		if last != reason {
			t.Errorf("%s: %v", format, last)
		}
	}
}

func TestOpenAIConfig(t *testing.T) {
	for says, cfg := range map[string]tts.OpenAIConfig{
		"model is empty":            {},
		"voice is empty":            {Model: "m"},
		`format "mp3" is not known`: {Model: "m", Voice: "v", Format: "mp3"},
		"rate is 1 Hz":              {Model: "m", Voice: "v", Rate: 1},
		"speed is 9":                {Model: "m", Voice: "v", Speed: 9},
		"base_url":                  {Model: "m", Voice: "v", BaseURL: "x"},
	} {
		if _, err := tts.NewOpenAI(cfg); err == nil || !strings.HasPrefix(err.Error(), "[tts.openai]: "+says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}
