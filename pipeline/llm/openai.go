package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/http"

	"parley/internal/openaiapi"
	"parley/pipeline"
)

// An OpenAIConfig describes a chat model behind the OpenAI API, which OpenAI,
// DeepSeek, Qwen, Mistral, Ollama, vLLM, llama.cpp and many others speak.
type OpenAIConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "llm.openai".
	Table string
	// BaseURL is the service's address up to its version, such as
	// "http://127.0.0.1:11434/v1". Empty is OpenAI's.
	BaseURL string
	// APIKey is the bearer token; local servers need none.
	APIKey string
	// Model is the model's name as the service knows it.
	Model string
	// MaxTokens bounds the completion; 0 leaves it to the service. It is sent as
	// max_completion_tokens to api.openai.com, whose newer models refuse the
	// older name, and as max_tokens to everyone else, some of whom know no other.
	MaxTokens int
	// Temperature is the sampling temperature, 0 to 2; nil leaves it to the
	// service.
	Temperature *float64
	// Vision says that the model takes pictures. Without it a picture is no more
	// than the mark "[picture]" in a text, and a request that needs it seen is
	// refused with [pipeline.ErrNoSight].
	Vision bool
	// Extra holds further members of the request, such as
	// {"enable_thinking": false} for Qwen or {"reasoning_effort": "low"}. It
	// overrides what the provider sets, except model, messages, tools and stream.
	Extra map[string]any
	// HTTP is the client to use; nil makes one. Providers of the same host may
	// share one, and with it its connections.
	HTTP *http.Client
}

// NewOpenAI returns a [pipeline.Model] that streams chat completions, or an error
// that names the setting that is wrong. It contacts nothing yet.
//
// What the model thinks, in reasoning_content or between <think> and </think>,
// is never text. An assistant message that was interrupted is sent with "…"
// after what was heard of it, and a failed tool result with "error: " before it.
// A call whose arguments are not a JSON object is yielded with the arguments
// described at [MalformedArgs].
func NewOpenAI(cfg OpenAIConfig) (pipeline.Model, error) {
	if cfg.Table == "" {
		cfg.Table = "llm.openai"
	}
	switch {
	case cfg.Model == "":
		return nil, fmt.Errorf("[%s]: model is empty; name one, such as %q or %q", cfg.Table, "gpt-4.1-mini", "qwen3:4b")
	case cfg.MaxTokens < 0:
		return nil, fmt.Errorf("[%s]: max_tokens is %d; it must not be negative", cfg.Table, cfg.MaxTokens)
	case cfg.Temperature != nil && (*cfg.Temperature < 0 || *cfg.Temperature > 2):
		return nil, fmt.Errorf("[%s]: temperature is %v; it must be between 0 and 2", cfg.Table, *cfg.Temperature)
	}
	for _, key := range []string{"model", "messages", "tools", "stream"} {
		if _, ok := cfg.Extra[key]; ok {
			return nil, fmt.Errorf("[%s]: extra may not hold %q, which the conversation sets; remove it", cfg.Table, key)
		}
	}
	cfg.Extra = maps.Clone(cfg.Extra)
	if _, err := json.Marshal(cfg.Extra); err != nil {
		return nil, fmt.Errorf("[%s]: extra cannot be sent as JSON: %w", cfg.Table, err)
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

// Chat implements [pipeline.Model]. All of it happens in the caller's goroutine.
func (m *openAI) Chat(ctx context.Context, req *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return func(yield func(pipeline.Delta, error) bool) {
		if req.Sight && !m.cfg.Vision {
			yield(pipeline.Delta{}, fmt.Errorf("[%s]: %w", m.cfg.Table, pipeline.ErrNoSight))
			return
		}
		resp, err := m.client.PostJSON(ctx, "chat/completions", m.request(req))
		if err != nil {
			yield(pipeline.Delta{}, err)
			return
		}
		defer resp.Close()
		a := newAnswer(req.Messages)
		for event, err := range resp.Events() {
			if err != nil && a.finish != "" && ctx.Err() == nil {
				break // the answer is complete, whatever broke after it
			}
			if err == nil {
				err = a.add(event)
			}
			if err != nil {
				yield(pipeline.Delta{}, m.explain(resp, err))
				return
			}
			for _, d := range a.take() {
				if !yield(d, nil) {
					return
				}
			}
			if a.done {
				resp.Drain()
				break
			}
		}
		err = a.end()
		for _, d := range a.take() {
			if !yield(d, nil) {
				return
			}
		}
		if err != nil {
			yield(pipeline.Delta{}, m.explain(resp, err))
		}
	}
}

// explain returns the error to report for one found while reading resp.
func (m *openAI) explain(resp *openaiapi.Response, err error) error {
	if failure, ok := errors.AsType[*errorObject](err); ok {
		return m.client.InStream(failure.raw)
	}
	return resp.Explain(err)
}

// request returns the JSON body for req.
func (m *openAI) request(req *pipeline.Request) map[string]any {
	body := map[string]any{
		"model":          m.cfg.Model,
		"messages":       chatMessages(req.Messages, m.cfg.Vision),
		"stream":         true,
		"stream_options": map[string]any{"include_usage": true},
	}
	if len(req.Tools) > 0 {
		body["tools"] = chatTools(req.Tools)
	}
	if m.cfg.MaxTokens > 0 {
		name := "max_tokens"
		if m.client.Host() == "api.openai.com" {
			name = "max_completion_tokens"
		}
		body[name] = m.cfg.MaxTokens
	}
	if m.cfg.Temperature != nil {
		body["temperature"] = *m.cfg.Temperature
	}
	maps.Copy(body, m.cfg.Extra)
	return body
}

// A chatTool is a tool as the service wants it.
type chatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// chatTools maps tools, their schemas as they are. A schema that is missing or is
// not JSON, which would fail the whole request, becomes that of no arguments.
func chatTools(tools []pipeline.Tool) []chatTool {
	mapped := make([]chatTool, len(tools))
	for i, t := range tools {
		mapped[i].Type = "function"
		f := &mapped[i].Function
		f.Name, f.Description, f.Parameters = t.Name, t.Description, t.Schema
		if !json.Valid(t.Schema) {
			f.Parameters = json.RawMessage(`{"type":"object","properties":{}}`)
		}
	}
	return mapped
}
