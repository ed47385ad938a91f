package llm_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"parley/pipeline/llm"
)

// canned is an [http.RoundTripper] that answers everything with one stream.
type canned string

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK,
		Header:     http.Header{"Content-Type": {"text/event-stream"}},
		Body:       io.NopCloser(strings.NewReader(string(c))),
		Request:    r,
	}, nil
}

// BenchmarkOpenAIStream reports the cost of an answer of 100 tokens.
func BenchmarkOpenAIStream(b *testing.B) {
	event := `data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n"
	stream := strings.Repeat(event, 100) + "data: [DONE]\n\n"
	model, err := llm.NewOpenAI(llm.OpenAIConfig{Model: "m", HTTP: &http.Client{Transport: canned(stream)}})
	if err != nil {
		b.Fatal(err)
	}
	req := user("hi")
	b.ReportAllocs()
	for b.Loop() {
		if r := ask(b.Context(), model, req); r.err != nil || r.pieces != 100 {
			b.Fatal(r.pieces, r.err)
		}
	}
}
