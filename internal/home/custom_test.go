package home_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/home"
	"parley/mcp"
)

// aquarium is a tool with every kind of argument.
func aquarium() home.Custom {
	return home.Custom{
		Name: "feed_fish", Description: "Feed the fish.",
		Arguments: map[string]home.Arg{
			"tank":    {Description: "Which tank.", Required: true},
			"portion": {Type: "integer", Min: new(1.0), Max: new(5.0)},
			"kind":    {Enum: []string{"flakes", "Live food"}},
			"now":     {Type: "boolean"},
		},
		Topic: "fish/{tank}/feed", Payload: `{"portion":{portion},"kind":"{kind}","now":{now},"by":{"who":"voice"}}`, Retain: true,
	}
}

func TestCustomTool(t *testing.T) {
	inHouse(t, home.Config{Tools: []home.Custom{aquarium()}}, newBus(), func(h *house) {
		tools := h.source.Tools()
		if len(tools) != 1 || tools[0].Name != "feed_fish" || tools[0].Description != "Feed the fish." {
			t.Fatalf("offered %+v", tools)
		}
		want := `{"type":"object","properties":{"kind":{"type":"string","enum":["flakes","Live food"]},"now":{"type":"boolean"},"portion":{"type":"integer","minimum":1,"maximum":5},"tank":{"type":"string","description":"Which tank."}},"required":["tank"]}`
		if got := string(tools[0].Schema); got != want {
			t.Errorf("schema %s\nwant   %s", got, want)
		}
		for args, want := range map[string]sent{
			`{"tank":"hall","portion":3,"kind":"live food","now":true}`:       {"fish/hall/feed", `{"portion":3,"kind":"Live food","now":true,"by":{"who":"voice"}}`, true},
			`{"tank":"hall","portion":"2"}`:                                   {"fish/hall/feed", `{"portion":2,"kind":"","now":null,"by":{"who":"voice"}}`, true},
			`{"tank":"living room","now":"off","portion":null,"unknown":"x"}`: {"fish/living room/feed", `{"portion":null,"kind":"","now":false,"by":{"who":"voice"}}`, true},
		} {
			h.call("feed_fish", args)
			if got := h.taken(); !slices.Equal(got, []sent{want}) {
				t.Errorf("%s published %+v, want %+v", args, got, want)
			}
		}
		for _, args := range []string{
			`{}`, `{"tank":""}`, `{"tank":"a/b"}`, `{"tank":"#"}`, `{"tank":"+"}`, `{"tank":"a\u0000"}`, `{"tank":"a\nb"}`, `{"tank":"` + strings.Repeat("x", 129) + `"}`,
			`{"tank":"a","portion":6}`, `{"tank":"a","portion":0}`, `{"tank":"a","portion":1.5}`, `{"tank":"a","portion":"many"}`, `{"tank":"a","kind":"rocks"}`, `{"tank":"a","now":"perhaps"}`, `[]`, `{`,
		} {
			if _, err := h.source.Call(h.t.Context(), "feed_fish", json.RawMessage(args)); !errors.Is(err, mcp.ErrArguments) {
				t.Errorf("%s: %v", args, err)
			}
		}
		if got := h.taken(); len(got) != 0 {
			t.Errorf("published %+v", got)
		}
	})
}

// TestArgumentsCannotBreakOut: whatever is said, the payload is the JSON that was
// configured, and the text arrives as it was.
func TestArgumentsCannotBreakOut(t *testing.T) {
	tool := home.Custom{
		Name: "say", Description: "Say.", Arguments: map[string]home.Arg{"text": {}},
		Topic: "say", Payload: `{"quoted":"<{text}>","bare":{text},"{text}":1}`,
	}
	plain := home.Custom{Name: "shout", Description: "Shout.", Arguments: map[string]home.Arg{"text": {}}, Topic: "shout", Payload: "{text}"}
	inHouse(t, home.Config{Tools: []home.Custom{tool, plain}}, newBus(), func(h *house) {
		for _, text := range []string{`"`, `\`, `","evil":"`, `{text}`, "日本語 <&>", `\u0022`} {
			args, _ := json.Marshal(map[string]string{"text": text})
			h.call("say", string(args))
			var got map[string]any
			if err := json.Unmarshal([]byte(h.taken()[0].payload), &got); err != nil || len(got) != 3 || got["quoted"] != "<"+text+">" || got["bare"] != text {
				t.Errorf("%q became %v, %v", text, got, err)
			}
			h.call("shout", string(args))
			if got := h.taken()[0].payload; got != text {
				t.Errorf("%q became %q", text, got)
			}
		}
	})
}

func TestReply(t *testing.T) {
	ask := home.Custom{
		Name: "tank", Description: "How full the tank is.", Arguments: map[string]home.Arg{"which": {Required: true}},
		Topic: "tank/{which}/ask", ReplyTopic: "tank/{which}/level", ReplyWait: 3 * time.Second, ReplyTemplate: "{{ value_json.level | round(1) }} percent",
	}
	b := newBus()
	b.send("tank/oil/level", `{"level":1}`, true) // an old one
	patient := home.Custom{Name: "patient", Description: "Wait.", Topic: "x", ReplyTopic: "tank/none/level", ReplyWait: 10 * time.Second}
	inHouse(t, home.Config{Tools: []home.Custom{ask, patient}}, b, func(h *house) {
		call := func(which string) (string, bool, time.Duration) {
			began := time.Now()
			res, err := h.source.Call(h.t.Context(), "tank", json.RawMessage(`{"which":"`+which+`"}`))
			if err != nil {
				t.Error(err)
			}
			return res.Text, res.IsError, time.Since(began)
		}
		if text, failed, took := call("oil"); !failed || took != 3*time.Second || !strings.Contains(text, "no answer came within 3s") {
			t.Errorf("silence: %q, %v after %v", text, failed, took)
		}
		h.answer("tank/oil/ask", "tank/oil/level", `{"level":42.25}`)
		if text, failed, took := call("oil"); failed || took != 0 || text != "42.2 percent" {
			t.Errorf("answered: %q, %v after %v", text, failed, took)
		}
		h.answer("tank/rain/ask", "tank/rain/level", `broken`)
		if text, failed, _ := call("rain"); !failed || !strings.Contains(text, "not what was expected") {
			t.Errorf("a broken answer: %q, %v", text, failed)
		}
		// One call a reply topic at a time: each gets its own answer.
		asked := 0
		cancel, _ := h.Subscribe("tank/gas/ask", func(home.Message) {
			asked++
			n := asked
			time.AfterFunc(time.Second, func() { h.send("tank/gas/level", fmt.Sprintf(`{"level":%d}`, n), false) })
		})
		defer cancel()
		var calls sync.WaitGroup
		var mu sync.Mutex
		var got []string
		for range 2 {
			calls.Go(func() {
				text, _, took := call("gas")
				mu.Lock()
				defer mu.Unlock()
				got = append(got, fmt.Sprint(text, " ", took))
			})
			synctest.Wait()
		}
		calls.Wait()
		if text := strings.Join(got, ", "); text != "1.0 percent 1s, 2.0 percent 2s" {
			t.Errorf("two at once: %q", got)
		}
		// One that has no time left is not sent.
		calls.Go(func() { _, _ = h.source.Call(h.t.Context(), "patient", nil) })
		synctest.Wait()
		h.taken()
		if text, failed, took := call("none"); !failed || took != 3*time.Second || !strings.Contains(text, "nothing was sent") || len(h.taken()) != 0 {
			t.Errorf("behind another: %q, %v after %v", text, failed, took)
		}
		calls.Wait()
	})
}

func TestCustomToolsAreChecked(t *testing.T) {
	for _, c := range []struct {
		change func(*home.Custom)
		part   string
	}{
		{func(c *home.Custom) { c.Name = "" }, "name"},
		{func(c *home.Custom) { c.Name = "feed fish" }, "letters"},
		{func(c *home.Custom) { c.Name = "home_turn_on" }, "taken"},
		{func(c *home.Custom) { c.Description = " " }, "description"},
		{func(c *home.Custom) { c.Topic = "" }, "topic: the topic is empty"},
		{func(c *home.Custom) { c.Topic = "a/#" }, "wildcard"},
		{func(c *home.Custom) { c.Topic = "$SYS/x" }, "$"},
		{func(c *home.Custom) { c.Topic = "a/{room}" }, "{room} is no argument"},
		{func(c *home.Custom) { c.Payload = `{"a":{portion}` }, "none"},
		{func(c *home.Custom) { c.Payload = `{"a":{x}}` }, "{x} is no argument"},
		{func(c *home.Custom) { c.ReplyTopic = "a/+" }, "reply_topic"},
		{func(c *home.Custom) { c.ReplyWait = time.Second }, "need a reply_topic"},
		{func(c *home.Custom) { c.ReplyTopic, c.ReplyWait = "a", time.Hour }, "between 100ms and 1m0s"},
		{func(c *home.Custom) { c.ReplyTopic, c.ReplyTemplate = "a", "{{ now() }}" }, "reply_template"},
		{func(c *home.Custom) { c.Arguments["x"] = home.Arg{Type: "float"} }, "string, integer"},
		{func(c *home.Custom) { c.Arguments["x y"] = home.Arg{} }, "letters"},
		{func(c *home.Custom) { c.Arguments["x"] = home.Arg{Type: "number", Min: new(2.0), Max: new(1.0)} }, "above"},
		{func(c *home.Custom) { c.Arguments["x"] = home.Arg{Min: new(2.0)} }, "numbers"},
		{func(c *home.Custom) { c.Arguments["x"] = home.Arg{Type: "integer", Enum: []string{"1"}} }, "strings"},
	} {
		tool := aquarium()
		c.change(&tool)
		if _, err := home.New(home.Config{Tools: []home.Custom{tool}}, newBus(), discard()); err == nil || !strings.Contains(err.Error(), c.part) {
			t.Errorf("want %q, got %v", c.part, err)
		}
	}
	if _, err := home.New(home.Config{Tools: []home.Custom{aquarium(), aquarium()}}, newBus(), discard()); err == nil {
		t.Error("two tools have one name")
	}
	for _, cfg := range []home.Config{{Prefix: "a/#"}, {Base: "a/b"}, {Confirm: time.Hour}, {Announce: true}} {
		if _, err := home.New(cfg, newBus(), discard()); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}
