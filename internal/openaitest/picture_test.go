package openaitest_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	openai "github.com/sashabaranov/go-openai"

	"parley/internal/openaitest"
)

// TestPicturesAsAnotherClientSendsThem has another client's content in parts read,
// and what OpenAI refuses refused.
func TestPicturesAsAnotherClientSendsThem(t *testing.T) {
	data := "\x89PNG\r\n\x1a\n and so on"
	url := func(mime string) string {
		return "data:" + mime + ";base64," + base64.StdEncoding.EncodeToString([]byte(data))
	}
	for name, c := range map[string]struct {
		role, url string
		fault     string
	}{
		"a picture":               {"user", url("image/png"), ""},
		"of another type":         {"user", url("image/jpeg"), "said to be image/jpeg"},
		"of no known type":        {"user", url("image/tiff"), "is not one of"},
		"at an address":           {"user", "https://example.com/cat.png", "data URLs"},
		"not base64":              {"user", "data:image/png;base64,%%", "not base64"},
		"in a system message":     {"system", url("image/png"), "only allowed"},
		"in the model's own turn": {"assistant", url("image/png"), "only allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			var got *openaitest.ChatRequest
			client := start(t, &openaitest.Service{Chat: func(r *openaitest.ChatRequest) openaitest.Answer {
				got = r
				return openaitest.Answer{}
			}})
			stream, err := client.CreateChatCompletionStream(t.Context(), openai.ChatCompletionRequest{
				Model: "m", Messages: []openai.ChatCompletionMessage{{Role: c.role, MultiContent: []openai.ChatMessagePart{
					{Type: openai.ChatMessagePartTypeText, Text: "What"},
					{Type: openai.ChatMessagePartTypeImageURL, ImageURL: &openai.ChatMessageImageURL{URL: c.url}},
					{Type: openai.ChatMessagePartTypeText, Text: "is it?"},
				}}},
			})
			if c.fault != "" {
				api, ok := errors.AsType[*openai.APIError](err)
				if !ok || api.HTTPStatusCode != 400 || !strings.Contains(api.Message, c.fault) {
					t.Errorf("answered %v, want 400 with %q", err, c.fault)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			stream.Close()
			m := got.Messages[0]
			if *m.Content != "What\nis it?" || len(m.Images) != 1 || m.Images[0].MIMEType != "image/png" || string(m.Images[0].Data) != data {
				t.Errorf("understood %+v", m)
			}
		})
	}
}
