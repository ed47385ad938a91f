package llm_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"log/slog"
	"strings"
	"testing"

	"parley/internal/openaitest"
	"parley/pipeline"
	"parley/pipeline/llm"
	"parley/pipeline/resilient"
)

// pictures are one of each kind that services know, and one that they do not.
func pictures(t *testing.T) map[string][]byte {
	t.Helper()
	img := image.NewGray(image.Rect(0, 0, 8, 8))
	var j, p, g bytes.Buffer
	if err := errors.Join(jpeg.Encode(&j, img, nil), png.Encode(&p, img), gif.Encode(&g, img, nil)); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{
		"image/jpeg": j.Bytes(), "image/png": p.Bytes(), "image/gif": g.Bytes(),
		"image/webp":    []byte("RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00\x2f\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00"),
		"image/svg+xml": []byte("<svg xmlns='http://www.w3.org/2000/svg'/>"),
	}
}

// looked is a conversation in which two tools answered with pictures.
func looked(t *testing.T) *pipeline.Request {
	all := pictures(t)
	img := func(kind string) pipeline.Image {
		return pipeline.Image{MIMEType: "application/x-odd", Data: all[kind]}
	}
	return &pipeline.Request{Messages: []pipeline.Message{
		{Role: pipeline.RoleUser, Text: "what do you see"},
		{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{
			{ID: "a", Name: "door_camera", Args: json.RawMessage(`{}`)}, {ID: "b", Name: "chart", Args: json.RawMessage(`{}`)},
		}},
		{Role: pipeline.RoleTool, CallID: "a", Text: "two views", Images: []pipeline.Image{img("image/jpeg"), img("image/png")}},
		{Role: pipeline.RoleTool, CallID: "b", Images: []pipeline.Image{img("image/webp"), img("image/svg+xml")}},
		{Role: pipeline.RoleAssistant, Text: "A cat."},
		{Role: pipeline.RoleUser, Text: "And this?", Images: []pipeline.Image{img("image/gif")}},
	}}
}

// TestPicturesAreSentToAModelThatTakesThem has the service read them: bytes and
// types must be right, and the order one that OpenAI accepts.
func TestPicturesAreSentToAModelThatTakesThem(t *testing.T) {
	var got []openaitest.ChatMessage
	service := &openaitest.Service{Chat: func(r *openaitest.ChatRequest) openaitest.Answer {
		got = r.Messages
		return openaitest.Answer{Text: "Yes."}
	}}
	if r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{Vision: true}), looked(t)); r.err != nil {
		t.Fatal(r.err)
	}
	type want struct {
		role, text string
		images     []string
	}
	wants := []want{
		{"user", "what do you see", nil},
		{"assistant", "", nil},
		{"tool", "two views", nil},
		{"tool", "[picture]", nil}, // of the drawing, which services do not know
		{"user", "What the tool door_camera answered to call a, as a picture:\nWhat the tool chart answered to call b, as a picture:",
			[]string{"image/jpeg", "image/png", "image/webp"}},
		{"assistant", "A cat.", nil},
		{"user", "And this?", []string{"image/gif"}},
	}
	if len(got) != len(wants) {
		t.Fatalf("%d messages, want %d", len(got), len(wants))
	}
	all := pictures(t)
	for i, w := range wants {
		m := got[i]
		if m.Role != w.role || *m.Content != w.text || len(m.Images) != len(w.images) {
			t.Errorf("message %d: %s %q with %d pictures, want %+v", i, m.Role, *m.Content, len(m.Images), w)
			continue
		}
		for n, kind := range w.images {
			if m.Images[n].MIMEType != kind || !bytes.Equal(m.Images[n].Data, all[kind]) {
				t.Errorf("message %d: picture %d is %s of %d bytes, want %s", i, n, m.Images[n].MIMEType, len(m.Images[n].Data), kind)
			}
		}
	}
}

// TestAResultThatIsOnlyAPicture is named as such: some models take an empty result
// for a failure.
func TestAResultThatIsOnlyAPicture(t *testing.T) {
	service := &openaitest.Service{}
	req := looked(t)
	req.Messages = req.Messages[:4]
	req.Messages[2].Text = ""
	req.Messages[3].Failed = true
	if r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{Vision: true}), req); r.err != nil {
		t.Fatal(r.err)
	}
	body := string(service.Requests()[0].Body)
	for _, want := range []string{`"content":"The result is a picture. It follows."`, `"content":"error: [picture]"`} {
		if !strings.Contains(body, want) {
			t.Errorf("%s is not in the request", want)
		}
	}
}

func TestAModelWithoutVisionGetsAMark(t *testing.T) {
	service := &openaitest.Service{}
	if r := ask(t.Context(), openAI(t, service, llm.OpenAIConfig{}), looked(t)); r.err != nil {
		t.Fatal(r.err)
	}
	const want = `[{"role":"user","content":"what do you see"},
		{"role":"assistant","content":"","tool_calls":[
			{"id":"a","type":"function","function":{"name":"door_camera","arguments":"{}"}},
			{"id":"b","type":"function","function":{"name":"chart","arguments":"{}"}}]},
		{"role":"tool","tool_call_id":"a","content":"two views [picture]"},
		{"role":"tool","tool_call_id":"b","content":"[picture]"},
		{"role":"assistant","content":"A cat."},
		{"role":"user","content":"And this? [picture]"}]`
	var body struct {
		Messages json.RawMessage `json:"messages"`
	}
	if err := json.Unmarshal(service.Requests()[0].Body, &body); err != nil {
		t.Fatal(err)
	}
	if canonical(t, body.Messages) != canonical(t, []byte(want)) {
		t.Errorf("sent %s", body.Messages)
	}
}

// TestOnlyAModelThatSeesDescribes has a chain whose first models cannot: they are
// passed over, and none has to rest for it.
func TestOnlyAModelThatSeesDescribes(t *testing.T) {
	blind, seeing := &openaitest.Service{}, &openaitest.Service{Chat: func(r *openaitest.ChatRequest) openaitest.Answer {
		if len(r.Messages[1].Images) != 1 || *r.Messages[1].Content != "What is it?" || *r.Messages[0].Content != "Be brief." {
			t.Errorf("asked %+v", r.Messages)
		}
		return openaitest.Answer{Text: "A cat."}
	}}
	rules := newRules(t, llm.RulesConfig{Rules: []llm.Rule{{Match: []string{"hello"}, Answer: "Hello."}}})
	named := func(list ...pipeline.Model) (out []resilient.Named[pipeline.Model]) {
		for _, m := range list {
			out = append(out, resilient.Named[pipeline.Model]{Name: "m", Provider: m})
		}
		return out
	}
	log := slog.New(slog.DiscardHandler)
	without := openAI(t, blind, llm.OpenAIConfig{})
	chain := resilient.Models(named(rules, without, openAI(t, seeing, llm.OpenAIConfig{Vision: true})), resilient.Limits{}, log)
	photo := pipeline.Image{Data: pictures(t)["image/jpeg"]}
	for range 5 { // more often than failures would be forgiven
		text, err := pipeline.Describe(t.Context(), chain, "Be brief.", "What is it?", photo)
		if err != nil || text != "A cat." {
			t.Fatalf("%q, %v", text, err)
		}
	}
	if n := len(blind.Requests()); n != 0 {
		t.Errorf("the model without vision was asked %d times", n)
	}
	for name, m := range map[string]pipeline.Model{"rules": rules, "no vision": without, "chain of both": resilient.Models(named(rules, without), resilient.Limits{}, log)} {
		for range 5 { // nor does one rest that was not passed over
			if _, err := pipeline.Describe(t.Context(), m, "", "What is it?", photo); !errors.Is(err, pipeline.ErrNoSight) || errors.Is(err, resilient.ErrResting) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}
