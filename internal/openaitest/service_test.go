package openaitest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pion/webrtc/v4/pkg/media/oggreader"
	openai "github.com/sashabaranov/go-openai"
	"go.uber.org/goleak"

	"parley/internal/openaitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start serves s and returns a client of it that others wrote, whose
// understanding of the API is therefore not ours.
func start(t *testing.T, s *openaitest.Service) *openai.Client {
	t.Helper()
	server, err := openaitest.Start(s)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	cfg := openai.DefaultConfig("sk-test")
	cfg.BaseURL = server.URL
	cfg.HTTPClient = &http.Client{Transport: transport}
	return openai.NewClientWithConfig(cfg)
}

func tone(n int) []int16 {
	pcm := make([]int16, n)
	for i := range pcm {
		pcm[i] = int16(8000 * math.Sin(2*math.Pi*440*float64(i)/openaitest.SpeechRate))
	}
	return pcm
}

func TestChatAsAnotherClientReadsIt(t *testing.T) {
	client := start(t, &openaitest.Service{Chat: func(r *openaitest.ChatRequest) openaitest.Answer {
		if *r.Messages[0].Content != "turn it up" || r.Tools[0].Function.Name != "set_volume" {
			t.Errorf("the service understood %+v", r)
		}
		return openaitest.Answer{
			Reasoning: "hm, loud", Text: "Turning it up.",
			Calls: []openaitest.Call{{ID: "a", Name: "set_volume", Args: `{"volume":80}`}, {ID: "b", Name: "ping", Args: "{}"}},
		}
	}})
	stream, err := client.CreateChatCompletionStream(t.Context(), openai.ChatCompletionRequest{
		Model:         "m",
		Messages:      []openai.ChatCompletionMessage{{Role: "user", Content: "turn it up"}},
		StreamOptions: &openai.StreamOptions{IncludeUsage: true},
		Tools: []openai.Tool{{Type: "function", Function: &openai.FunctionDefinition{
			Name: "set_volume", Parameters: map[string]any{"type": "object"},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var text, thought, finish string
	args, names, usage, deltas := map[int]string{}, map[int]string{}, 0, 0
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Usage != nil {
			usage = chunk.Usage.CompletionTokens
		}
		for _, c := range chunk.Choices {
			text += c.Delta.Content
			thought += c.Delta.ReasoningContent
			finish += string(c.FinishReason)
			for _, call := range c.Delta.ToolCalls {
				args[*call.Index] += call.Function.Arguments
				names[*call.Index] += call.Function.Name
				deltas++
			}
		}
	}
	if text != "Turning it up." || thought != "hm, loud" || finish != "tool_calls" || usage != 3 {
		t.Errorf("text %q, thought %q, finish %q, usage %d", text, thought, finish, usage)
	}
	if names[0] != "set_volume" || args[0] != `{"volume":80}` || names[1] != "ping" || args[1] != "{}" || deltas < 5 {
		t.Errorf("names %v, args %v in %d deltas", names, args, deltas)
	}
}

func TestTranscriptionAsAnotherClientAsksForIt(t *testing.T) {
	service := &openaitest.Service{Transcribe: func(tr openaitest.Transcription) string {
		if tr.Rate != openaitest.SpeechRate || len(tr.PCM) != 4800 || tr.PCM[100] != tone(4800)[100] || tr.Language != "en" {
			t.Errorf("the service heard %d samples at %d Hz in %q", len(tr.PCM), tr.Rate, tr.Language)
		}
		return "hello"
	}}
	client := start(t, service)
	wav, err := speech(t.Context(), client, "wav", service, tone(4800))
	if err != nil {
		t.Fatal(err)
	}
	// The lengths of a streamed WAV are not known: put them right, as a file has them.
	le(wav[4:], len(wav)-8)
	le(wav[40:], len(wav)-44)
	got, err := client.CreateTranscription(t.Context(), openai.AudioRequest{
		Model: "m", Language: "en", FilePath: "a.wav", Reader: bytes.NewReader(wav),
	})
	if err != nil || got.Text != "hello" {
		t.Errorf("got %q, %v", got.Text, err)
	}
}

func le(b []byte, n int) { b[0], b[1], b[2], b[3] = byte(n), byte(n>>8), byte(n>>16), byte(n>>24) }

func speech(ctx context.Context, client *openai.Client, format string, service *openaitest.Service, pcm []int16) ([]byte, error) {
	service.Speak = func(string) []int16 { return pcm }
	resp, err := client.CreateSpeech(ctx, openai.CreateSpeechRequest{
		Model: "m", Input: "hi", Voice: "v", ResponseFormat: openai.SpeechResponseFormat(format),
	})
	if err != nil {
		return nil, err
	}
	defer resp.Close()
	return io.ReadAll(resp)
}

func TestSpeech(t *testing.T) {
	service := &openaitest.Service{}
	client := start(t, service)
	pcm, err := speech(t.Context(), client, "pcm", service, []int16{1, -2, 300})
	if err != nil || !bytes.Equal(pcm, []byte{1, 0, 0xfe, 0xff, 0x2c, 1}) {
		t.Errorf("pcm: % x, %v", pcm, err)
	}
	file, err := speech(t.Context(), client, "opus", service, tone(24000))
	if err != nil {
		t.Fatal(err)
	}
	ogg, header, err := oggreader.NewWith(bytes.NewReader(file))
	if err != nil || header.Channels != 1 {
		t.Fatalf("header %+v, %v", header, err)
	}
	packets := 0
	for {
		page, _, err := ogg.ParseNextPage()
		if err != nil {
			break
		}
		if len(page) > 0 && !bytes.HasPrefix(page, []byte("OpusTags")) {
			packets++
		}
	}
	if packets != 50 {
		t.Errorf("one second has %d packets of 20 ms", packets)
	}
}

func TestRefusals(t *testing.T) {
	service := &openaitest.Service{Key: "sk-test", Models: []string{"m"}}
	client := start(t, service)
	user := openai.ChatCompletionMessage{Role: "user", Content: "hi"}
	call := openai.ChatCompletionMessage{Role: "assistant", ToolCalls: []openai.ToolCall{
		{ID: "x", Type: "function", Function: openai.FunctionCall{Name: "f", Arguments: "{}"}},
	}}
	for name, c := range map[string]struct {
		model    string
		messages []openai.ChatCompletionMessage
		status   int
		says     string
	}{
		"fine":             {"m", []openai.ChatCompletionMessage{user}, 200, ""},
		"unknown model":    {"n", []openai.ChatCompletionMessage{user}, 404, "does not exist"},
		"no messages":      {"m", nil, 400, "too short"},
		"unanswered call":  {"m", []openai.ChatCompletionMessage{call, user}, 400, "must be followed"},
		"result of no one": {"m", []openai.ChatCompletionMessage{{Role: "tool", Content: "1", ToolCallID: "y"}}, 400, "preceding"},
	} {
		stream, err := client.CreateChatCompletionStream(t.Context(), openai.ChatCompletionRequest{Model: c.model, Messages: c.messages})
		if c.status == 200 {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			} else {
				stream.Close()
			}
			continue
		}
		var api *openai.APIError
		if !errors.As(err, &api) || api.HTTPStatusCode != c.status || !strings.Contains(api.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	models, err := client.ListModels(t.Context())
	if err != nil || len(models.Models) != 1 || models.Models[0].ID != "m" {
		t.Errorf("models: %+v, %v", models, err)
	}
	if n := len(service.Requests()); n != 6 {
		t.Errorf("the service noted %d requests", n)
	}
}

func TestFailuresComeInOrderAndOnce(t *testing.T) {
	service := &openaitest.Service{}
	client := start(t, service)
	service.Fail(openaitest.PathSpeech,
		openaitest.Failure{Status: 500}, openaitest.Failure{Cut: 1}, openaitest.Failure{Hang: true})
	var api *openai.APIError
	if _, err := speech(t.Context(), client, "pcm", service, tone(2400)); !errors.As(err, &api) || api.HTTPStatusCode != 500 {
		t.Errorf("status: %v", err)
	}
	if got, err := speech(t.Context(), client, "pcm", service, tone(2400)); err == nil || len(got) == 0 || len(got) >= 4800 {
		t.Errorf("cut: %d bytes, %v", len(got), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := speech(ctx, client, "pcm", service, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("hang: %v", err)
	}
	if got, err := speech(t.Context(), client, "pcm", service, tone(2400)); err != nil || len(got) != 4800 {
		t.Errorf("after the failures: %d bytes, %v", len(got), err)
	}
}
