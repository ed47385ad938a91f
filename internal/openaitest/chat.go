package openaitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// A ChatRequest is the body of a request to chat/completions.
type ChatRequest struct {
	Model               string          `json:"model"`
	Messages            []ChatMessage   `json:"messages"`
	Tools               []ChatTool      `json:"tools"`
	Stream              bool            `json:"stream"`
	StreamOptions       StreamOptions   `json:"stream_options"`
	MaxTokens           int             `json:"max_tokens"`
	MaxCompletionTokens int             `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	Raw                 json.RawMessage `json:"-"` // the body as received
}

// StreamOptions are the options of a streamed completion.
type StreamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

// A ChatMessage is one message of a [ChatRequest].
type ChatMessage struct {
	Role       string
	Content    *string // of content in parts, their texts, one a line
	Images     []Image // of content in parts, the pictures
	ToolCalls  []ToolCall
	ToolCallID string
}

// An Image is a picture in a [ChatMessage], as its data URL holds it.
type Image struct {
	MIMEType string
	Data     []byte
}

// A ToolCall is a call in a [ChatMessage].
type ToolCall struct {
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

// A ChatTool is a tool of a [ChatRequest].
type ChatTool struct {
	Type     string `json:"type"`
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

// An Answer is what the model answers: first what it thinks, then text, then
// calls.
type Answer struct {
	Reasoning string // sent as reasoning_content
	Text      string // sent word by word
	Calls     []Call
	// Finish is the finish_reason; empty is "stop", or "tool_calls" with calls.
	Finish string
	// Events, if set, are sent as they are, as the data of one event each, in
	// place of all the above, for services that differ. [DONE] is not added.
	Events []string
}

// A Call is a tool call of an [Answer].
type Call struct {
	ID, Name, Args string
}

// argsPiece is how many characters of a call's arguments are sent at a time: few, so
// that they are split at places that hurt.
const argsPiece = 5

// chat answers a request to chat/completions as OpenAI does: only streamed, and
// only if the messages make a conversation.
func (s *Service) chat(a *answering) {
	req := ChatRequest{Raw: a.body}
	if err := json.Unmarshal(a.body, &req); err != nil {
		refuse(a.w, http.StatusBadRequest, "we could not parse the JSON body of your request: "+err.Error())
		return
	}
	if !s.known(a.w, req.Model) {
		return
	}
	if fault := req.fault(); fault != "" {
		refuse(a.w, http.StatusBadRequest, fault)
		return
	}
	answer := Answer{Text: "OK."}
	if s.Chat != nil {
		answer = s.Chat(&req)
	}
	events := answer.Events
	if events == nil {
		events = answer.events(&req)
	}
	a.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	a.w.WriteHeader(http.StatusOK)
	for i, data := range events {
		if i == 1 && a.failure.StreamError != "" {
			data, events = a.failure.StreamError, nil
		}
		if !a.sendEvent(data) || events == nil {
			return
		}
	}
}

// sendEvent sends an event in two writes, so that its lines arrive in pieces.
func (a *answering) sendEvent(data string) bool {
	line := "data: " + data + "\n\n"
	half := len(line) / 2
	return a.send([]byte(line[:half])) && a.send([]byte(line[half:])) && a.sentOne()
}

// fault returns what OpenAI would refuse about a request, or "".
func (r *ChatRequest) fault() string {
	if !r.Stream {
		return "this service only streams; set stream"
	}
	if len(r.Messages) == 0 {
		return "[] is too short - 'messages'"
	}
	open := map[string]bool{} // calls without a result
	for i, m := range r.Messages {
		at := fmt.Sprintf("messages[%d]", i)
		if m.Role != "tool" && len(open) > 0 {
			return at + ": an assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'"
		}
		switch {
		case len(m.Images) > 0 && m.Role != "user":
			return at + ": image_url is only allowed in messages with role 'user'"
		case m.Role == "tool" && !open[m.ToolCallID]:
			return at + ": messages with role 'tool' must be a response to a preceding message with 'tool_calls'"
		case m.Content == nil && len(m.ToolCalls) == 0:
			return at + ": missing content"
		case m.Role == "tool":
			delete(open, m.ToolCallID)
		case m.Role != "system" && m.Role != "user" && m.Role != "assistant":
			return at + ": invalid role"
		}
		for _, c := range m.ToolCalls {
			if c.ID == "" || c.Type != "function" || c.Function.Name == "" || !json.Valid([]byte(c.Function.Arguments)) {
				return at + ": invalid tool call"
			}
			open[c.ID] = true
		}
	}
	for i, t := range r.Tools {
		var schema struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(t.Function.Parameters, &schema); err != nil || schema.Type != "object" || t.Type != "function" {
			return fmt.Sprintf("tools[%d]: invalid schema for function '%s'", i, t.Function.Name)
		}
	}
	return ""
}

// events returns the events of an answer in OpenAI's manner: the role alone
// first, arguments in fragments of which the first carries id and name, the
// finish_reason in an event of its own, usage with no choices, [DONE].
func (a *Answer) events(req *ChatRequest) []string {
	var events []string
	delta := func(delta map[string]any, finish any) {
		events = append(events, chunk(req, []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}, nil))
	}
	delta(map[string]any{"role": "assistant", "content": ""}, nil)
	for _, word := range strings.SplitAfter(a.Reasoning, " ") {
		if word != "" {
			delta(map[string]any{"reasoning_content": word}, nil)
		}
	}
	words := strings.SplitAfter(a.Text, " ")
	for _, word := range words {
		if word != "" {
			delta(map[string]any{"content": word}, nil)
		}
	}
	for i, c := range a.Calls {
		delta(toolCall(map[string]any{
			"index": i, "id": c.ID, "type": "function",
			"function": map[string]any{"name": c.Name, "arguments": ""},
		}), nil)
		for piece := range slices.Chunk([]rune(c.Args), argsPiece) {
			delta(toolCall(map[string]any{"index": i, "function": map[string]any{"arguments": string(piece)}}), nil)
		}
	}
	finish := a.Finish
	switch {
	case finish != "":
	case len(a.Calls) > 0:
		finish = "tool_calls"
	default:
		finish = "stop"
	}
	delta(map[string]any{}, finish)
	if req.StreamOptions.IncludeUsage {
		usage := map[string]any{
			"prompt_tokens": len(req.Messages), "completion_tokens": len(words), "total_tokens": len(req.Messages) + len(words),
		}
		events = append(events, chunk(req, []any{}, usage))
	}
	return append(events, "[DONE]")
}

func toolCall(call map[string]any) map[string]any {
	return map[string]any{"tool_calls": []any{call}}
}

// chunk returns the JSON of one chat.completion.chunk.
func chunk(req *ChatRequest, choices []any, usage any) string {
	data, err := json.Marshal(map[string]any{
		"id": "chatcmpl-test", "object": "chat.completion.chunk", "created": 1700000000,
		"model": req.Model, "choices": choices, "usage": usage,
	})
	if err != nil {
		return `{"error":{"message":"the answer is not JSON"}}`
	}
	return string(data)
}
