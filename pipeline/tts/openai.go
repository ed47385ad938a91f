package tts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"

	"parley/internal/openaiapi"
	"parley/pipeline"
)

const (
	// FormatPCM asks a service for 16-bit little-endian mono samples.
	FormatPCM = "pcm"
	// FormatOpus asks a service for Ogg Opus, whose packets are passed on as they
	// are.
	FormatOpus = "opus"

	// openAIRate is the rate of OpenAI's pcm, in Hz.
	openAIRate = 24000
)

// An OpenAIConfig describes a synthesizer behind the OpenAI API's audio/speech,
// which OpenAI, Kokoro-FastAPI, openedai-speech and others speak.
type OpenAIConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "tts.openai".
	Table string
	// BaseURL is the service's address up to its version, such as
	// "http://127.0.0.1:8880/v1". Empty is OpenAI's.
	BaseURL string
	// APIKey is the bearer token; local servers need none.
	APIKey string
	// Model and Voice are names as the service knows them.
	Model, Voice string
	// Instructions say how to speak, for models that heed them.
	Instructions string
	// Speed is 0.25 to 4 times the usual; 0 leaves it to the service.
	Speed float64
	// Format is [FormatPCM] or [FormatOpus]; empty is pcm. Opus costs a twentieth
	// of the bandwidth and no encoding, and plays as the service encoded it.
	Format string
	// Rate is the sample rate of the service's pcm, in Hz; 0 is OpenAI's 24000.
	Rate int
	// HTTP is the client to use; nil makes one. Providers of the same host may
	// share one, and with it its connections.
	HTTP *http.Client
}

// NewOpenAI returns a [pipeline.Synthesizer] that yields a service's audio as it
// arrives, or an error that names the setting that is wrong. It contacts nothing
// yet.
//
// A service that answers in another format than asked for is understood if it is
// WAV or Ogg Opus.
func NewOpenAI(cfg OpenAIConfig) (pipeline.Synthesizer, error) {
	if cfg.Table == "" {
		cfg.Table = "tts.openai"
	}
	if cfg.Format == "" {
		cfg.Format = FormatPCM
	}
	if cfg.Rate == 0 {
		cfg.Rate = openAIRate
	}
	switch {
	case cfg.Model == "":
		return nil, fmt.Errorf("[%s]: model is empty; name one, such as %q", cfg.Table, "gpt-4o-mini-tts")
	case cfg.Voice == "":
		return nil, fmt.Errorf("[%s]: voice is empty; name one, such as %q", cfg.Table, "alloy")
	case cfg.Format != FormatPCM && cfg.Format != FormatOpus:
		return nil, fmt.Errorf("[%s]: format %q is not known; use %q or %q", cfg.Table, cfg.Format, FormatPCM, FormatOpus)
	case cfg.Rate < 8000 || cfg.Rate > 48000:
		return nil, fmt.Errorf("[%s]: rate is %d Hz; it must be between 8000 and 48000", cfg.Table, cfg.Rate)
	case cfg.Speed != 0 && (cfg.Speed < 0.25 || cfg.Speed > 4):
		return nil, fmt.Errorf("[%s]: speed is %v; it must be between 0.25 and 4", cfg.Table, cfg.Speed)
	}
	client, err := openaiapi.New(openaiapi.Config{
		Table: cfg.Table, BaseURL: cfg.BaseURL, APIKey: cfg.APIKey, Model: cfg.Model, HTTP: cfg.HTTP,
	})
	if err != nil {
		return nil, err
	}
	return &openAI{cfg: cfg, client: client}, nil
}

type openAI struct {
	cfg    OpenAIConfig
	client *openaiapi.Client
}

// A speechRequest is the body of a request to audio/speech.
type speechRequest struct {
	Model        string  `json:"model"`
	Input        string  `json:"input"`
	Voice        string  `json:"voice"`
	Instructions string  `json:"instructions,omitempty"`
	Format       string  `json:"response_format"`
	Speed        float64 `json:"speed,omitempty"`
}

// Synthesize implements [pipeline.Synthesizer]. All of it happens in the caller's
// goroutine; a slow caller slows the service down.
func (s *openAI) Synthesize(ctx context.Context, sentence string) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		resp, err := s.client.PostJSON(ctx, "audio/speech", speechRequest{
			s.cfg.Model, sentence, s.cfg.Voice, s.cfg.Instructions, s.cfg.Format, s.cfg.Speed,
		})
		if err != nil {
			yield(pipeline.Audio{}, err)
			return
		}
		defer resp.Close()
		heard := false
		for piece, err := range s.pieces(resp) {
			if err != nil {
				yield(pipeline.Audio{}, resp.Explain(err))
				return
			}
			heard = true
			if !yield(piece, nil) {
				return
			}
		}
		resp.Drain() // a WAV file may end before its answer does
		if !heard && strings.ContainsFunc(sentence, isSpoken) {
			yield(pipeline.Audio{}, resp.Explain(errors.New("the answer holds no audio")))
		}
	}
}

// pieces yields the audio of an answer, whose format its first bytes tell.
func (s *openAI) pieces(body io.Reader) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		buffered := bufio.NewReaderSize(body, 2*pieceSamples)
		magic, err := buffered.Peek(4)
		switch {
		case err != nil && !errors.Is(err, io.EOF):
			yield(pipeline.Audio{}, err)
		case string(magic) == "RIFF":
			wavPieces(buffered)(yield)
		case string(magic) == "OggS":
			oggPieces(buffered)(yield)
		case bytes.HasPrefix(magic, []byte("ID3")) || s.cfg.Format == FormatOpus && len(magic) > 0:
			yield(pipeline.Audio{}, fmt.Errorf("the service does not do format %q: the answer begins with %q; try the other of %q and %q",
				s.cfg.Format, magic, FormatPCM, FormatOpus))
		default:
			rawPieces(buffered, s.cfg.Rate)(yield)
		}
	}
}
