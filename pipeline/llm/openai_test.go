package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"parley/internal/openaiapi"
	"parley/internal/openaitest"
	"parley/pipeline"
	"parley/pipeline/llm"
)

// openAI starts service and returns a model that asks it.
func openAI(t *testing.T, service *openaitest.Service, cfg llm.OpenAIConfig) pipeline.Model {
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
	cfg.BaseURL = server.URL
	if cfg.Model == "" {
		cfg.Model = "m"
	}
	model, err := llm.NewOpenAI(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

// A reply is what a model yielded, put together.
type reply struct {
	text   string
	pieces int
	calls  []pipeline.Call
	usage  *pipeline.Usage
	err    error
}

func ask(ctx context.Context, m pipeline.Model, req *pipeline.Request) (r reply) {
	for d, err := range m.Chat(ctx, req) {
		if err != nil {
			r.err = err
			continue
		}
		r.text += d.Text
		r.pieces++
		if d.Call != nil {
			r.calls = append(r.calls, *d.Call)
		}
		if d.Usage != nil {
			r.usage = d.Usage
		}
	}
	return r
}

func user(text string) *pipeline.Request {
	return &pipeline.Request{Messages: []pipeline.Message{{Role: pipeline.RoleUser, Text: text}}}
}

func TestOpenAIStreamsTextCallsAndUsage(t *testing.T) {
	service := &openaitest.Service{Key: "sk-1", Chat: func(*openaitest.ChatRequest) openaitest.Answer {
		return openaitest.Answer{
			Reasoning: "The user wants it loud.",
			Text:      "Turning it up now.",
			Calls: []openaitest.Call{
				{ID: "call_a", Name: "set_volume", Args: `{"volume": 80, "why": "“loud” \u2764"}`},
				{ID: "call_b", Name: "ping"},
			},
		}
	}}
	r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{APIKey: "sk-1"}), user("louder"))
	if r.err != nil || r.text != "Turning it up now." || r.pieces != 4+2+1 {
		t.Errorf("%q in %d pieces, %v", r.text, r.pieces, r.err)
	}
	want := []pipeline.Call{
		{ID: "call_a", Name: "set_volume", Args: json.RawMessage(`{"volume": 80, "why": "“loud” \u2764"}`)},
		{ID: "call_b", Name: "ping", Args: json.RawMessage(`{}`)},
	}
	if fmt.Sprintf("%s", r.calls) != fmt.Sprintf("%s", want) {
		t.Errorf("calls %s, want %s", r.calls, want)
	}
	if r.usage == nil || *r.usage != (pipeline.Usage{Prompt: 1, Completion: 4}) {
		t.Errorf("usage %+v", r.usage)
	}
}

func TestOpenAIRequest(t *testing.T) {
	service := &openaitest.Service{}
	temperature := 0.0
	model := openAI(t, service, llm.OpenAIConfig{
		Model: "qwen3:4b", MaxTokens: 200, Temperature: &temperature,
		Extra: map[string]any{"enable_thinking": false, "stream_options": map[string]any{}},
	})
	r := ask(t.Context(), model, &pipeline.Request{
		Messages: []pipeline.Message{
			{Role: pipeline.RoleSystem, Text: "Be brief."},
			{Role: pipeline.RoleUser, Text: "a story"},
			{Role: pipeline.RoleAssistant, Text: "Once upon a", Interrupted: true},
			{Role: pipeline.RoleUser, Text: "stop, light on"},
			{Role: pipeline.RoleAssistant}, // cut before a word was heard: nothing to say of it
			{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{{ID: "1", Name: "light", Args: json.RawMessage(`{"on":true}`)}, {ID: "2", Name: "beep"}}},
			{Role: pipeline.RoleTool, CallID: "1", Text: ""},
			{Role: pipeline.RoleTool, CallID: "2", Text: "no beeper", Failed: true},
		},
		Tools: []pipeline.Tool{
			{Name: "light", Description: "Switch it", Schema: json.RawMessage(`{"type":"object","properties":{"on":{"type":"boolean"}},"$defs":{},"required":["on"]}`)},
			{Name: "beep"},
		},
	})
	if r.err != nil {
		t.Fatal(r.err)
	}
	const want = `{
		"model": "qwen3:4b", "stream": true, "stream_options": {}, "max_tokens": 200, "temperature": 0, "enable_thinking": false,
		"messages": [
			{"role": "system", "content": "Be brief."},
			{"role": "user", "content": "a story"},
			{"role": "assistant", "content": "Once upon a…"},
			{"role": "user", "content": "stop, light on"},
			{"role": "assistant", "content": "", "tool_calls": [
				{"id": "1", "type": "function", "function": {"name": "light", "arguments": "{\"on\":true}"}},
				{"id": "2", "type": "function", "function": {"name": "beep", "arguments": "{}"}}]},
			{"role": "tool", "tool_call_id": "1", "content": ""},
			{"role": "tool", "tool_call_id": "2", "content": "error: no beeper"}],
		"tools": [
			{"type": "function", "function": {"name": "light", "description": "Switch it",
				"parameters": {"type":"object","properties":{"on":{"type":"boolean"}},"$defs":{},"required":["on"]}}},
			{"type": "function", "function": {"name": "beep", "parameters": {"type":"object","properties":{}}}}]}`
	got := service.Requests()[0]
	if canonical(t, got.Body) != canonical(t, []byte(want)) {
		t.Errorf("sent %s\nwant %s", canonical(t, got.Body), canonical(t, []byte(want)))
	}
	if got.Authorization != "" {
		t.Errorf("without a key, Authorization is %q", got.Authorization)
	}
}

func canonical(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestOpenAIServersThatDiffer plays streams as other servers send them.
func TestOpenAIServersThatDiffer(t *testing.T) {
	const stop = `{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`
	call := func(s string) string { return `{"choices":[{"delta":{"tool_calls":[` + s + `]}}]}` }
	for name, c := range map[string]struct {
		events []string
		text   string
		calls  []string // name and args
	}{
		"Ollama: whole calls, all index 0, finish stop": {
			[]string{
				call(`{"id":"call_1","index":0,"type":"function","function":{"name":"a","arguments":"{\"x\":1}"}}`),
				call(`{"id":"call_2","index":0,"type":"function","function":{"name":"a","arguments":"{\"x\":2}"}}`),
				stop, "[DONE]",
			}, "", []string{`a {"x":1}`, `a {"x":2}`},
		},
		"no ids, index always 0": {
			[]string{
				call(`{"index":0,"function":{"name":"a","arguments":"{}"}}`), call(`{"index":0,"function":{"name":"a","arguments":"{\"x\":2}"}}`), stop,
			}, "", []string{"a {}", `a {"x":2}`},
		},
		"no index": {
			[]string{
				call(`{"id":"1","function":{"name":"a","arguments":"{\"x\""}}`), call(`{"function":{"arguments":":1}"}}`),
				call(`{"id":"2","function":{"name":"b"}}`), stop,
			}, "", []string{`a {"x":1}`, "b {}"},
		},
		"id and name with every fragment": {
			[]string{
				call(`{"index":0,"id":"1","function":{"name":"a","arguments":"{\"x\""}}`), call(`{"index":0,"id":"1","function":{"name":"a","arguments":":1}"}}`),
				call(`{"index":0,"id":"1","function":{"name":"a","arguments":""}}`), stop,
			}, "", []string{`a {"x":1}`},
		},
		"interleaved by index, the same id twice": {
			[]string{
				call(`{"index":0,"id":"1","function":{"name":"a","arguments":"{"}},{"index":1,"id":"1","function":{"name":"b","arguments":"{\"y\""}}`),
				call(`{"index":0,"function":{"arguments":"}"}}`), call(`{"index":1,"function":{"arguments":":2}"}}`), stop,
			}, "", []string{"a {}", `b {"y":2}`},
		},
		"two calls in one event": {
			[]string{call(`{"function":{"name":"a","arguments":"{}"}},{"function":{"name":"b","arguments":"{}"}}`), stop}, "", []string{"a {}", "b {}"},
		},
		"arguments as an object": {
			[]string{call(`{"id":"1","function":{"name":"a","arguments":{"x":[1]}}}`), stop}, "", []string{`a {"x":[1]}`},
		},
		"arguments null": {
			[]string{call(`{"id":"1","function":{"name":"a","arguments":null}}`), stop}, "", []string{"a {}"},
		},
		"arguments that are the string null": {
			[]string{call(`{"id":"1","function":{"name":"a","arguments":"null"}}`), stop}, "", []string{"a {}"},
		},
		"arguments encoded twice": {
			[]string{call(`{"id":"1","function":{"name":"a","arguments":"\"{\\\"x\\\":1}\""}}`), stop}, "", []string{`a {"x":1}`},
		},
		"arguments cut by the token limit": {
			[]string{call(`{"id":"1","function":{"name":"a","arguments":"{\"x\":"}}`), `{"choices":[{"delta":{},"finish_reason":"length"}]}`},
			"", []string{`a {"malformed_arguments":"{\"x\":"}`},
		},
		"arguments that are a list": {
			[]string{call(`{"id":"1","function":{"name":"a","arguments":"[1]"}}`), stop}, "", []string{`a {"malformed_arguments":"[1]"}`},
		},
		"a call without a name": {
			[]string{call(`{"id":"1","function":{"arguments":"{}"}}`), stop}, "", nil,
		},
		"a whole completion": {
			[]string{`{"choices":[{"message":{"role":"assistant","content":"Hi.","tool_calls":[{"id":"1","function":{"name":"a","arguments":"{}"}}]},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`},
			"Hi.", []string{"a {}"},
		},
		"no finish_reason but [DONE]":          {[]string{`{"choices":[{"delta":{"content":"Hi."}}]}`, "[DONE]"}, "Hi.", nil},
		"finish_reason but no [DONE]":          {[]string{`{"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}`}, "Hi.", nil},
		"Azure: first chunk without choices":   {[]string{`{"choices":[],"prompt_filter_results":[]}`, `{"choices":[{"delta":{"content":"Hi."}}]}`, stop}, "Hi.", nil},
		"content null, reasoning beside it":    {[]string{`{"choices":[{"delta":{"content":null,"reasoning_content":"x","reasoning":"y"}}]}`, stop}, "", nil},
		"a second choice":                      {[]string{`{"choices":[{"index":1,"delta":{"content":"no"}},{"index":0,"delta":{"content":"yes"}}]}`, stop}, "yes", nil},
		"a refusal":                            {[]string{`{"choices":[{"delta":{"refusal":"I can't."}}]}`, stop}, "I can't.", nil},
		"thinking aloud":                       {[]string{`{"choices":[{"delta":{"content":"<thi"}}]}`, `{"choices":[{"delta":{"content":"nk>hm</think"}}]}`, `{"choices":[{"delta":{"content":">\n\nHi."}}]}`, stop}, "Hi.", nil},
		"what looked like thinking at the end": {[]string{`{"choices":[{"delta":{"content":"1 <th"}}]}`, stop}, "1 <th", nil},
		"filtered after it began":              {[]string{`{"choices":[{"delta":{"content":"Hi."},"finish_reason":"content_filter"}]}`}, "Hi.", nil},
	} {
		t.Run(name, func(t *testing.T) {
			service := &openaitest.Service{Chat: func(*openaitest.ChatRequest) openaitest.Answer { return openaitest.Answer{Events: c.events} }}
			r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{}), user("hi"))
			if r.err != nil || r.text != c.text {
				t.Errorf("text %q, %v", r.text, r.err)
			}
			var calls []string
			ids := map[string]bool{}
			for _, call := range r.calls {
				calls = append(calls, call.Name+" "+string(call.Args))
				ids[call.ID] = true
			}
			if fmt.Sprint(calls) != fmt.Sprint(c.calls) {
				t.Errorf("calls %q, want %q", calls, c.calls)
			}
			if len(ids) != len(calls) || ids[""] {
				t.Errorf("the calls have the ids %v", ids)
			}
		})
	}
}

// TestOpenAICallIDsAreNewInTheConversation guards the matching of results to
// calls with servers that number calls from 0 in every answer.
func TestOpenAICallIDsAreNewInTheConversation(t *testing.T) {
	service := &openaitest.Service{Chat: func(*openaitest.ChatRequest) openaitest.Answer {
		return openaitest.Answer{Calls: []openaitest.Call{{ID: "call_0", Name: "a", Args: "{}"}}}
	}}
	model := openAI(t, service, llm.OpenAIConfig{})
	req := user("hi")
	for range 3 {
		r := ask(t.Context(), model, req)
		if r.err != nil || len(r.calls) != 1 {
			t.Fatalf("%v, %v", r.calls, r.err)
		}
		req.Messages = append(req.Messages,
			pipeline.Message{Role: pipeline.RoleAssistant, Calls: r.calls},
			pipeline.Message{Role: pipeline.RoleTool, CallID: r.calls[0].ID, Text: "ok"})
	}
	seen := map[string]bool{}
	for _, m := range req.Messages {
		for _, c := range m.Calls {
			seen[c.ID] = true
		}
	}
	if len(seen) != 3 || !seen["call_0"] {
		t.Errorf("three rounds have the ids %v", seen)
	}
}

func TestOpenAIFailures(t *testing.T) {
	long := strings.Repeat("word ", 50)
	for name, c := range map[string]struct {
		failure openaitest.Failure
		answer  openaitest.Answer
		says    string
		is      error
		begun   bool
	}{
		"401":               {failure: openaitest.Failure{Status: http.StatusUnauthorized}, says: "check api_key of [llm.test]"},
		"404":               {failure: openaitest.Failure{Status: http.StatusNotFound}, says: `model "m" not found`},
		"429":               {failure: openaitest.Failure{Status: http.StatusTooManyRequests, RetryAfter: 3e9}, says: "wait 3s"},
		"500":               {failure: openaitest.Failure{Status: http.StatusInternalServerError, Message: "out of memory"}, says: "out of memory"},
		"cut in mid-stream": {failure: openaitest.Failure{Cut: 9}, answer: openaitest.Answer{Text: long}, says: "broke in mid-answer", begun: true},
		"error in stream":   {failure: openaitest.Failure{StreamError: `{"error":{"message":"overloaded","code":503}}`}, says: "503 Service Unavailable: overloaded"},
		"error as text":     {failure: openaitest.Failure{StreamError: `{"error":"out of memory"}`}, says: "answered with an error: out of memory"},
		"ends too early":    {answer: openaitest.Answer{Events: []string{`{"choices":[{"delta":{"content":"Hi"}}]}`}}, is: llm.ErrCutShort, says: "[llm.test]", begun: true},
		"cut call":          {answer: openaitest.Answer{Events: []string{`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"a","arguments":"{}"}}]}}]}`}}, is: llm.ErrCutShort},
		"not JSON":          {answer: openaitest.Answer{Events: []string{"<html>"}}, says: "not the JSON expected"},
		"only thought":      {answer: openaitest.Answer{Reasoning: "hm", Finish: "length"}, is: llm.ErrNothingSaid, says: "max_tokens"},
		"filtered":          {answer: openaitest.Answer{Finish: "content_filter"}, is: llm.ErrNothingSaid, says: "content filter"},
		"too many calls":    {answer: openaitest.Answer{Calls: make([]openaitest.Call, 100)}, says: ""},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "too many calls" {
				for i := range c.answer.Calls {
					c.answer.Calls[i] = openaitest.Call{ID: fmt.Sprint(i), Name: "a"}
				}
				c.says = "more than 64 calls"
			}
			service := &openaitest.Service{Chat: func(*openaitest.ChatRequest) openaitest.Answer { return c.answer }}
			service.Fail(openaitest.PathChat, c.failure)
			r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{Table: "llm.test", APIKey: "sk-1"}), user("hi"))
			if r.err == nil || !strings.Contains(r.err.Error(), c.says) || c.is != nil && !errors.Is(r.err, c.is) {
				t.Errorf("error %v, want %q", r.err, c.says)
			}
			if len(r.calls) > 0 || (r.text != "") != c.begun {
				t.Errorf("yielded %q and calls %v", r.text, r.calls)
			}
		})
	}
}

func TestOpenAIWhatBreaksAfterTheAnswerIsNoError(t *testing.T) {
	service := &openaitest.Service{Chat: func(*openaitest.ChatRequest) openaitest.Answer { return openaitest.Answer{Text: "Hi."} }}
	service.Fail(openaitest.PathChat, openaitest.Failure{Cut: 3}) // role, text, finish_reason
	r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{}), user("hi"))
	if r.err != nil || r.text != "Hi." {
		t.Errorf("%q, %v", r.text, r.err)
	}
}

func TestOpenAIStopsWithItsCaller(t *testing.T) {
	service := &openaitest.Service{Chat: func(*openaitest.ChatRequest) openaitest.Answer { return openaitest.Answer{Text: "one two three"} }}
	model := openAI(t, service, llm.OpenAIConfig{})

	service.Fail(openaitest.PathChat, openaitest.Failure{HangAfter: 2})
	reason := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var got []string
	var last error
	for d, err := range model.Chat(ctx, user("hi")) {
		got, last = append(got, d.Text), err
		cancel(reason)
	}
	if len(got) != 2 || got[0] != "one " || last != reason {
		t.Errorf("cancelled: %q, %v", got, last)
	}

	service.Fail(openaitest.PathChat, openaitest.Failure{HangAfter: 2})
	for range model.Chat(t.Context(), user("hi")) {
		break // returns although the service says nothing more
	}
}

// TestOpenAIKeepsItsConnection counts connections: a new one for each turn would
// cost a round trip, or three with TLS, before every answer.
func TestOpenAIKeepsItsConnection(t *testing.T) {
	server, err := openaitest.Start(&openaitest.Service{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	dials := 0
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	defer transport.CloseIdleConnections()
	model, err := llm.NewOpenAI(llm.OpenAIConfig{BaseURL: server.URL, Model: "m", HTTP: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if r := ask(t.Context(), model, user("hi")); r.err != nil || r.text != "OK." {
			t.Fatalf("%q, %v", r.text, r.err)
		}
	}
	if dials != 1 {
		t.Errorf("5 turns took %d connections", dials)
	}
}

func TestOpenAIConfig(t *testing.T) {
	hot := 3.0
	for says, cfg := range map[string]llm.OpenAIConfig{
		"model is empty":         {},
		"max_tokens is -1":       {Model: "m", MaxTokens: -1},
		"temperature is 3":       {Model: "m", Temperature: &hot},
		`extra may not hold "st`: {Model: "m", Extra: map[string]any{"stream": false}},
		"extra cannot be sent":   {Model: "m", Extra: map[string]any{"f": func() {}}},
		"base_url":               {Model: "m", BaseURL: "nowhere"},
	} {
		cfg.Table = "llm.x"
		if _, err := llm.NewOpenAI(cfg); err == nil || !strings.HasPrefix(err.Error(), "[llm.x]: "+says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// FuzzOpenAIStream checks what holds for any stream: no panic, whole calls only,
// nothing of what was thought.
func FuzzOpenAIStream(f *testing.F) {
	f.Add(`{"choices":[{"delta":{"content":"<think>secret</think>a","tool_calls":[{"index":0,"id":"1","function":{"name":"n","arguments":"{\"a\""}}]}}]}` + "\n" +
		`{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},"finish_reason":"tool_calls"}]}` + "\n[DONE]")
	f.Add(`{"error":"x"}`)
	f.Fuzz(func(t *testing.T, stream string) {
		body := "data: " + strings.ReplaceAll(stream, "\n", "\n\ndata: ") + "\n\n"
		model, err := llm.NewOpenAI(llm.OpenAIConfig{Model: "m", HTTP: &http.Client{Transport: canned(body)}})
		if err != nil {
			t.Fatal(err)
		}
		r := ask(t.Context(), model, user("hi"))
		ids := map[string]bool{}
		for _, c := range r.calls {
			var args map[string]any
			if json.Unmarshal(c.Args, &args) != nil || args == nil || c.Name == "" || c.ID == "" || ids[c.ID] {
				t.Errorf("call %q %q %s", c.ID, c.Name, c.Args)
			}
			ids[c.ID] = true
		}
	})
}
