package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/BurntSushi/toml"

	"parley/pipeline"
	"parley/pipeline/llm"
)

// defaultRules are the rules the default configuration has.
func defaultRules(t *testing.T) []llm.Rule {
	t.Helper()
	var file struct {
		LLM struct {
			Rules struct{ Rule []llm.Rule }
		}
	}
	meta, err := toml.DecodeFile("../../internal/config/rules.toml", &file)
	if err != nil {
		t.Fatal(err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		t.Fatalf("rules.toml has keys a rule does not: %v", unknown)
	}
	return file.LLM.Rules.Rule
}

// deviceTools are the tools of a device with screen and camera, as its firmware
// describes them.
func deviceTools() []pipeline.Tool {
	schema := func(s string) json.RawMessage { return json.RawMessage(s) }
	percent := func(name string) json.RawMessage {
		return schema(`{"type":"object","properties":{"` + name + `":{"type":"integer","minimum":0,"maximum":100}},"required":["` + name + `"]}`)
	}
	return []pipeline.Tool{
		{Name: "self_get_device_status", Schema: schema(`{"type":"object","properties":{}}`)},
		{Name: "self_audio_speaker_set_volume", Schema: percent("volume")},
		{Name: "self_screen_set_brightness", Schema: percent("brightness")},
		{Name: "self_screen_set_theme", Schema: schema(`{"type":"object","properties":{"theme":{"type":"string"}},"required":["theme"]}`)},
		{Name: "self.camera.take_photo", Schema: schema(`{"type":"object","properties":{"question":{"type":"string"}}}`)},
	}
}

const deviceStatus = `{"audio_speaker":{"volume":50},"screen":{"brightness":95,"theme":"light"},` +
	`"battery":{"level":80,"charging":false},"network":{"type":"wifi","ssid":"x","signal":"strong"}}`

// A conversation plays the engine: it keeps the history and runs the calls.
type conversation struct {
	t       *testing.T
	model   pipeline.Model
	tools   []pipeline.Tool
	results map[string]pipeline.Message // of a tool, by its name
	history []pipeline.Message
	calls   []string // name and arguments of each call
}

func converse(t *testing.T, model pipeline.Model) *conversation {
	return &conversation{t: t, model: model, tools: deviceTools(), results: map[string]pipeline.Message{
		"self_get_device_status": {Text: deviceStatus},
		"self.camera.take_photo": {Text: `{"success":true,"result":"A cat on a chair."}`},
	}}
}

func (c *conversation) say(text string) string {
	c.t.Helper()
	c.history = append(c.history, pipeline.Message{Role: pipeline.RoleUser, Text: text})
	c.calls = nil
	for range 5 {
		var answer string
		var call *pipeline.Call
		for d, err := range c.model.Chat(c.t.Context(), &pipeline.Request{Messages: c.history, Tools: c.tools}) {
			if err != nil {
				c.t.Fatal(err)
			}
			answer += d.Text
			if d.Call != nil {
				call = d.Call
			}
		}
		if call == nil {
			c.history = append(c.history, pipeline.Message{Role: pipeline.RoleAssistant, Text: answer})
			return answer
		}
		if !json.Valid(call.Args) || call.ID == "" {
			c.t.Fatalf("call %+v: want an id and arguments in JSON", call)
		}
		c.calls = append(c.calls, call.Name+string(call.Args))
		result, ok := c.results[call.Name]
		if !ok {
			result.Text = "true"
		}
		result.Role, result.CallID = pipeline.RoleTool, call.ID
		c.history = append(c.history,
			pipeline.Message{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{*call}}, result)
	}
	c.t.Fatalf("%q: more than five rounds of calls", text)
	return ""
}

func newRules(t *testing.T, cfg llm.RulesConfig) pipeline.Model {
	t.Helper()
	m, err := llm.NewRules(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDefaultRules(t *testing.T) {
	c := converse(t, newRules(t, llm.RulesConfig{Rules: defaultRules(t)}))
	for _, test := range []struct{ say, calls, answer string }{
		{"Set the volume to fifty.", `self_audio_speaker_set_volume{"volume":50}`, "The volume is now 50."},
		{"could you please turn volume to 30%?", `self_audio_speaker_set_volume{"volume":30}`, "The volume is now 30."},
		{"turn it up", `self_get_device_status{} self_audio_speaker_set_volume{"volume":60}`, "The volume is now 60."},
		{"make it quieter please", `self_get_device_status{} self_audio_speaker_set_volume{"volume":40}`, "The volume is now 40."},
		{"make it brighter", `self_get_device_status{} self_screen_set_brightness{"brightness":100}`, "The brightness is now 100."},
		{"mute", `self_audio_speaker_set_volume{"volume":0}`, "I am silent now."},
		{"switch to the dark theme", `self_screen_set_theme{"theme":"dark"}`, "The screen is dark now."},
		{"how is the battery", `self_get_device_status{}`, "The battery is at 80 percent."},
		{"how is the network", `self_get_device_status{}`, "The wifi signal is strong."},
		{"what do you see", `self.camera.take_photo{"question":"Describe in one or two short sentences what you see."}`, "A cat on a chair."},
		{"thank you", ``, "🙂 You are welcome."},
		{"goodbye", ``, "Goodbye."},
		{"what is your status", `self_get_device_status{}`, "All is well. The volume is 50, and the wifi signal is strong."},
		{"sing the national anthem", ``, "Sorry, I did not understand that."},
	} {
		if got := c.say(test.say); got != test.answer {
			t.Errorf("%q: answer %q, want %q", test.say, got, test.answer)
		}
		if got := strings.Join(c.calls, " "); got != test.calls {
			t.Errorf("%q: calls %s, want %s", test.say, got, test.calls)
		}
	}
}

func TestRulesTellTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(90 * time.Minute) // of midnight of 1 January 2000, a Saturday
		c := converse(t, newRules(t, llm.RulesConfig{Rules: defaultRules(t), Location: time.UTC}))
		if got, want := c.say("what time is it"), "It is 1:30 AM."; got != want {
			t.Errorf("answer %q, want %q", got, want)
		}
		if got, want := c.say("what day is it"), "Today is Saturday, January 1."; got != want {
			t.Errorf("answer %q, want %q", got, want)
		}
		shanghai := time.FixedZone("CST", 8*3600)
		c = converse(t, newRules(t, llm.RulesConfig{Rules: defaultRules(t), Location: shanghai, TimeLayout: "15:04"}))
		if got, want := c.say("what time is it"), "It is 09:30."; got != want {
			t.Errorf("answer %q, want %q", got, want)
		}
	})
}

func TestRulesFail(t *testing.T) {
	model := newRules(t, llm.RulesConfig{Rules: defaultRules(t)})
	c := converse(t, model)
	c.results["self_audio_speaker_set_volume"] = pipeline.Message{Text: "Value exceeds maximum allowed: 100", Failed: true}
	want := "I could not set the volume to 50."
	if got := c.say("set the volume to 50"); got != want {
		t.Errorf("a failed call: answer %q, want %q", got, want)
	}
	if got, want := c.say("turn it up"), llm.DefaultFailed; got != want {
		t.Errorf("a failed second call: answer %q, want %q", got, want)
	}
	c.results["self_get_device_status"] = pipeline.Message{Text: `{"audio_speaker":{"volume":"loud"}}`}
	if got, want := c.say("how is the battery"), "I have no battery that I know of."; got != want {
		t.Errorf("a result without the member: answer %q, want %q", got, want)
	}
	if got, want := c.say("turn it down"), llm.DefaultFailed; got != want || len(c.calls) != 1 {
		t.Errorf("a member that is no number: answer %q after %q, want %q after one call", got, c.calls, want)
	}
	c.results["self_get_device_status"] = pipeline.Message{Text: "not JSON"}
	if got, want := c.say("what is the volume"), llm.DefaultFailed; got != want {
		t.Errorf("a result that is not JSON: answer %q, want %q", got, want)
	}
	c.tools = nil
	if got, want := c.say("turn it up"), llm.DefaultCannotDo; got != want {
		t.Errorf("no tools: answer %q, want %q", got, want)
	}
}

func TestRulesAnswerInTurn(t *testing.T) {
	c := converse(t, newRules(t, llm.RulesConfig{
		Rules:   []llm.Rule{{Match: []string{"joke"}, Answer: "One.", Answers: []string{"Two."}}},
		Unknown: []string{"Pardon?", "What?"},
	}))
	var got []string
	for range 3 {
		got = append(got, c.say("joke"), c.say("nonsense"))
	}
	want := []string{"One.", "Pardon?", "Two.", "What?", "One.", "Pardon?"}
	if !slices.Equal(got, want) {
		t.Errorf("answers %q, want %q", got, want)
	}
}

func TestRulesFillArguments(t *testing.T) {
	c := converse(t, newRules(t, llm.RulesConfig{Rules: []llm.Rule{{
		Match: []string{"lamp {room} [at {level:number}] [{colour:red|blue}]"},
		Call:  "lamp.set",
		Arguments: map[string]any{
			"level": "{level}", "colour": "{colour}", "room": "the {room}",
			"options": map[string]any{"list": []any{"{level}", int64(3), true, "{colour}"}},
		},
		Answer: "Lamp {level} {arguments.room}{arguments.options.list.0} <{result}>",
	}}}))
	c.tools = []pipeline.Tool{{Name: "lamp_set"}}
	c.results["lamp_set"] = pipeline.Message{Text: "lit & warm"}
	got := c.say("Lamp Living Room at 20 red")
	if want := "Lamp 20 the Living Room20 <lit & warm>"; got != want {
		t.Errorf("answer %q, want %q", got, want)
	}
	want := `lamp_set{"colour":"red","level":20,"options":{"list":[20,3,true,"red"]},"room":"the Living Room"}`
	if c.calls[0] != want {
		t.Errorf("call %s, want %s", c.calls[0], want)
	}
	c.say("lamp kitchen")
	if want := `lamp_set{"options":{"list":[3,true]},"room":"the kitchen"}`; c.calls[0] != want {
		t.Errorf("captures that took nothing: call %s, want %s", c.calls[0], want)
	}
}

func TestRulesCalculateWithCaptures(t *testing.T) {
	c := converse(t, newRules(t, llm.RulesConfig{Rules: []llm.Rule{{
		Match:  []string{"turn it down [by {n:0-100}]"},
		Call:   "self.get_device_status",
		Then:   []llm.Step{{Call: "self.audio_speaker.set_volume", Arguments: map[string]any{"volume": "{result.audio_speaker.volume - n}"}}},
		Answer: "{arguments.volume}",
	}}}))
	for say, want := range map[string]string{"turn it down by twenty": "30", "turn it down by a hundred": "0", "turn it down": llm.DefaultFailed} {
		if got := c.say(say); got != want {
			t.Errorf("%q: answer %q, want %q", say, got, want)
		}
	}
}

func TestRulesLookOnlyAtTheLastTurn(t *testing.T) {
	model := newRules(t, llm.RulesConfig{Rules: defaultRules(t), Greeting: "Welcome."})
	chat := func(messages ...pipeline.Message) string {
		for d, err := range model.Chat(t.Context(), &pipeline.Request{Messages: messages, Tools: deviceTools()}) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Call != nil {
				return d.Call.Name
			}
			return d.Text
		}
		return ""
	}
	if got, want := chat(pipeline.Message{Role: pipeline.RoleSystem, Text: "You are kind."}), "Welcome."; got != want {
		t.Errorf("no user: %q, want %q", got, want)
	}
	got := chat(
		pipeline.Message{Role: pipeline.RoleUser, Text: "turn it up"},
		pipeline.Message{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{{ID: "1", Name: "self_get_device_status"}}},
		pipeline.Message{Role: pipeline.RoleTool, CallID: "1", Text: deviceStatus},
		pipeline.Message{Role: pipeline.RoleUser, Text: "what is the volume"},
	)
	if want := "self_get_device_status"; got != want {
		t.Errorf("after an older turn's result: %q, want a new call of %q", got, want)
	}
}

func TestRulesEndWithTheContext(t *testing.T) {
	model := newRules(t, llm.RulesConfig{Rules: defaultRules(t)})
	cause := errors.New("hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for d, err := range model.Chat(ctx, &pipeline.Request{}) {
		if !errors.Is(err, cause) {
			t.Errorf("Chat yielded %+v, %v, want the cause", d, err)
		}
	}
}

func TestRulesRefuseWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		name string
		rule llm.Rule
		want string
	}{
		{"no match", llm.Rule{Answer: "Hi."}, "match is empty"},
		{"pattern", llm.Rule{Match: []string{"set (volume"}, Answer: "x"}, "at character 5: '(' is never closed"},
		{"nothing to do", llm.Rule{Match: []string{"hi"}}, "neither call nor answer"},
		{"unknown capture", llm.Rule{Match: []string{"to {volume:number}"}, Answer: "{volum}"}, "{volum} is not known here; there are {volume}, {now.time}"},
		{"result without call", llm.Rule{Match: []string{"hi"}, Answer: "{result}"}, "{result} is not known here"},
		{"result in the first call", llm.Rule{Match: []string{"hi"}, Call: "x", Arguments: map[string]any{"a": "{result}"}}, "arguments of x: a: {result}"},
		{"now", llm.Rule{Match: []string{"hi"}, Answer: "{now.year}"}, "there are {now.time}"},
		{"member of a capture", llm.Rule{Match: []string{"{a}"}, Answer: "{a.b}"}, "a capture has no members"},
		{"open brace", llm.Rule{Match: []string{"hi"}, Answer: "a {b"}, "is never closed"},
		{"operator", llm.Rule{Match: []string{"{a:number}"}, Answer: "{a * 2}"}, `"*" is not + or -`},
		{"operand", llm.Rule{Match: []string{"{a:number}"}, Answer: "{a + much}"}, `"much" is neither`},
		{"operand of words", llm.Rule{Match: []string{"{a:number} {b}"}, Answer: "{a + b}"}, `"b" is neither`},
		{"reserved name", llm.Rule{Match: []string{"{result}"}, Answer: "x"}, "cannot be called result"},
		{"arguments without call", llm.Rule{Match: []string{"hi"}, Answer: "x", Arguments: map[string]any{"a": 1}}, "without call"},
		{"then without call", llm.Rule{Match: []string{"hi"}, Answer: "x", Then: []llm.Step{{Call: "a"}}}, "without call"},
		{"empty step", llm.Rule{Match: []string{"hi"}, Call: "x", Then: []llm.Step{{}}}, "call 2: call is empty"},
		{"emotion", llm.Rule{Match: []string{"hi"}, Answer: "x", Emotion: "hapy"}, `emotion "hapy" is not known; devices know angry`},
		{"failed", llm.Rule{Match: []string{"hi"}, Answer: "x", Failed: "{result}"}, "failed: {result}"},
	} {
		_, err := llm.NewRules(llm.RulesConfig{Rules: []llm.Rule{test.rule}})
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "[llm.rules]: rule 1: ") {
			t.Errorf("%s: error %v, want one with %q", test.name, err, test.want)
		}
	}
	if _, err := llm.NewRules(llm.RulesConfig{}); err == nil {
		t.Error("no rules: no error")
	}
}

func TestRulePhrases(t *testing.T) {
	list, err := llm.RulePhrases([]llm.Rule{{Match: []string{"a", "b"}}, {Match: []string{"c"}}})
	if err != nil || len(list) != 3 || list[2].String() != "c" {
		t.Errorf("RulePhrases = %v, %v", list, err)
	}
	if _, err := llm.RulePhrases([]llm.Rule{{Match: []string{"a"}}, {Match: []string{"("}}}); err == nil || !strings.Contains(err.Error(), "rule 2") {
		t.Errorf("error %v, want one that names rule 2", err)
	}
}

func FuzzRulesChat(f *testing.F) {
	f.Add("set the volume to fifty", deviceStatus, `{"volume":1}`)
	f.Add("turn it up", `{"audio_speaker":{"volume":1e99}}`, `[]`)
	f.Add("what do you see", `{"result":[{"a":null}]}`, ``)
	var file struct {
		LLM struct {
			Rules struct{ Rule []llm.Rule }
		}
	}
	if _, err := toml.DecodeFile("../../internal/config/rules.toml", &file); err != nil {
		f.Fatal(err)
	}
	model, err := llm.NewRules(llm.RulesConfig{Rules: file.LLM.Rules.Rule})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text, result, arguments string) {
		req := &pipeline.Request{Tools: deviceTools(), Messages: []pipeline.Message{
			{Role: pipeline.RoleUser, Text: text},
			{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{{Args: json.RawMessage(arguments)}}},
			{Role: pipeline.RoleTool, Text: result},
		}}
		for d, err := range model.Chat(t.Context(), req) {
			if err != nil || d.Text == "" && d.Call == nil || d.Call != nil && !json.Valid(d.Call.Args) {
				t.Errorf("Chat yielded %+v, %v", d, err)
			}
		}
	})
}

func TestARuleWhoseToolTheDeviceLacksSaysSo(t *testing.T) {
	c := converse(t, newRules(t, llm.RulesConfig{Rules: []llm.Rule{{
		Match: []string{"把水烧开", "boil water"}, Call: "self.kettle.boil", Answer: "It boils.",
	}}}))
	for _, say := range []string{"boil water", "把水烧开"} {
		if got := c.say(say); got != llm.DefaultCannotDo {
			t.Errorf("%q: answer %q, want %q", say, got, llm.DefaultCannotDo)
		}
	}
}

// A rule that takes any words is for those who have its tool. Without it the words
// are tried on the rules after it, and in the end are not understood.
func TestWordsForAToolThatIsNotThere(t *testing.T) {
	m, err := llm.NewRules(llm.RulesConfig{Unknown: []string{"What?"}, Rules: []llm.Rule{
		{Match: []string{"what is {name}"}, Call: "home_read", Arguments: map[string]any{"name": "{name}"}, Answer: "{result}"},
		{Match: []string{"what is the time"}, Answer: "Late."},
		{Match: []string{"make it brighter"}, Call: "dim", Answer: "Done."},
	}})
	if err != nil {
		t.Fatal(err)
	}
	reader := pipeline.Tool{Name: "home_read", Schema: []byte(`{"type":"object"}`)}
	ask := func(text string, tools []pipeline.Tool, more ...pipeline.Message) pipeline.Delta {
		t.Helper()
		req := &pipeline.Request{Messages: append([]pipeline.Message{{Role: pipeline.RoleUser, Text: text}}, more...), Tools: tools}
		for d, err := range m.Chat(t.Context(), req) {
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		t.Fatal("no answer")
		return pipeline.Delta{}
	}
	for _, tt := range []struct{ text, want string }{
		{"what is the capital of France", "What?"},
		{"what is the time", "Late."},
		{"make it brighter", llm.DefaultCannotDo},
	} {
		if got := ask(tt.text, nil).Text; got != tt.want {
			t.Errorf("without the tool %q is answered %q, want %q", tt.text, got, tt.want)
		}
	}
	d := ask("what is the time", []pipeline.Tool{reader})
	if d.Call == nil || d.Call.Name != "home_read" {
		t.Fatalf("with the tool the first rule is not taken: %+v", d)
	}
	// The last round has no tools: the rule that called has the word.
	done := []pipeline.Message{
		{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{*d.Call}},
		{Role: pipeline.RoleTool, CallID: d.Call.ID, Text: "21 degrees"},
	}
	if got := ask("what is the time", nil, done...).Text; got != "21 degrees" {
		t.Errorf("after its call the rule answers %q", got)
	}
}
