package asr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"mime/multipart"
	"net/http"
	"strings"
	"time"

	"parley/internal/audio"
	"parley/internal/openaiapi"
	"parley/pipeline"
)

const (
	// MaxUtterance is how much of one utterance [NewOpenAI] sends; what is said
	// after that is not heard. At 16 kHz it is 1.9 MB, well below the 25 MB that
	// OpenAI accepts, and whoever speaks for a minute without a pause is not
	// speaking to a device.
	MaxUtterance = time.Minute

	// minUtterance is the shortest audio worth sending: OpenAI refuses less than
	// 0.1 s with an error, and it holds no word.
	minUtterance = 100 * time.Millisecond
)

// An OpenAIConfig describes a recogniser behind the OpenAI API's
// audio/transcriptions, which OpenAI, Groq, faster-whisper servers, vLLM and
// whisper.cpp speak.
type OpenAIConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "asr.openai".
	Table string
	// BaseURL is the service's address up to its version, such as
	// "http://127.0.0.1:8000/v1". Empty is OpenAI's.
	BaseURL string
	// APIKey is the bearer token; local servers need none.
	APIKey string
	// Model is the model's name as the service knows it.
	Model string
	// Language is the speaker's, such as "zh". Services want ISO 639-1 and refuse
	// a region, so of "zh-CN" only "zh" is sent. Empty lets the service guess,
	// which costs time and, for a short command, often certainty.
	Language string
	// Prompt holds names and words the recogniser should expect.
	Prompt string
	// HTTP is the client to use; nil makes one. Providers of the same host may
	// share one, and with it its connections.
	HTTP *http.Client
}

// NewOpenAI returns a [pipeline.Transcriber] that sends each utterance as a WAV
// file once it is over, or an error that names the setting that is wrong. It
// contacts nothing yet.
//
// It yields one transcript, the text as the service wrote it but for white space
// around it. An utterance shorter than 0.1 s is an empty transcript without
// asking; one longer than [MaxUtterance] is cut there.
func NewOpenAI(cfg OpenAIConfig) (pipeline.Transcriber, error) {
	if cfg.Table == "" {
		cfg.Table = "asr.openai"
	}
	cfg.Language, _, _ = strings.Cut(strings.ReplaceAll(cfg.Language, "_", "-"), "-")
	if cfg.Model == "" {
		return nil, fmt.Errorf("[%s]: model is empty; name one, such as %q", cfg.Table, "whisper-1")
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

// Transcribe implements [pipeline.Transcriber]. All of it happens in the
// caller's goroutine.
func (t *openAI) Transcribe(ctx context.Context, speech <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) {
		pcm, err := collect(ctx, speech)
		if err != nil {
			yield(pipeline.Transcript{}, err)
			return
		}
		if len(pcm) < samplesIn(minUtterance) {
			yield(pipeline.Transcript{Final: true}, nil)
			return
		}
		text, err := t.recognise(ctx, pcm)
		if err != nil {
			yield(pipeline.Transcript{}, err)
			return
		}
		yield(pipeline.Transcript{Text: text, Final: true}, nil)
	}
}

// recognise asks the service what was said.
func (t *openAI) recognise(ctx context.Context, pcm []int16) (string, error) {
	var body bytes.Buffer
	body.Grow(2*len(pcm) + 1024)
	form := multipart.NewWriter(&body)
	// Writing to a buffer does not fail.
	fields := [][2]string{
		{"model", t.cfg.Model}, {"response_format", "json"}, {"language", t.cfg.Language}, {"prompt", t.cfg.Prompt},
	}
	for _, f := range fields {
		if f[1] != "" {
			_ = form.WriteField(f[0], f[1])
		}
	}
	// Services tell the format by the file's name.
	if file, err := form.CreateFormFile("file", "utterance.wav"); err == nil {
		_ = audio.WriteWAV(file, pipeline.SampleRate, pcm)
	}
	_ = form.Close()

	resp, err := t.client.Post(ctx, "audio/transcriptions", form.FormDataContentType(), body.Bytes())
	if err != nil {
		return "", err
	}
	defer resp.Close()
	var transcription struct {
		Text *string `json:"text"`
	}
	if err := resp.JSON(&transcription); err != nil {
		return "", err
	}
	if transcription.Text == nil {
		return "", resp.Explain(errors.New("the answer holds no text; is base_url an OpenAI-compatible service?"))
	}
	return strings.TrimSpace(*transcription.Text), nil
}

// collect reads audio until it is closed, and returns as much as is sent.
func collect(ctx context.Context, speech <-chan []int16) ([]int16, error) {
	var pcm []int16
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case piece, ok := <-speech:
			if !ok {
				return pcm, nil
			}
			room := samplesIn(MaxUtterance) - len(pcm)
			pcm = append(pcm, piece[:min(len(piece), room)]...)
		}
	}
}

// samplesIn returns how many samples d has at [pipeline.SampleRate].
func samplesIn(d time.Duration) int {
	return int(d * pipeline.SampleRate / time.Second)
}
