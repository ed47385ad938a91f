package config

import (
	"fmt"
	"strings"
	"time"
)

func (k checker) asr(p path, t ASR) {
	switch {
	case t.Pocketsphinx != nil:
		k.text(p.key("program"), t.Pocketsphinx.Program)
		k.text(p.key("model"), t.Pocketsphinx.Model)
		k.text(p.key("dictionary"), t.Pocketsphinx.Dictionary)
		k.worker(p, t.Pocketsphinx.Timeout, t.Pocketsphinx.Parallel)
	case t.Command != nil:
		c := t.Command
		k.program(p, c.Command)
		k.choice(p.key("format"), c.Format, "wav", "raw")
		k.environment(p.key("environment"), c.Environment)
		k.worker(p, c.Timeout, c.Parallel)
	case t.OpenAI != nil:
		k.text(p.key("model"), t.OpenAI.Model)
	}
}

func (k checker) llm(p path, t LLM) {
	switch {
	case t.Rules != nil:
		for i, text := range t.Rules.Unknown {
			k.text(p.key("unknown").index(i), text)
		}
		for i, r := range t.Rules.Rule {
			k.rule(p.key("rule").index(i), r)
		}
	case t.OpenAI != nil:
		k.text(p.key("model"), t.OpenAI.Model)
		if v := t.OpenAI.Temperature; v != -1 && (v < 0 || v > 2) {
			k.add(p.key("temperature"), fmt.Sprintf("is %g", v), "allowed is 0 to 2, or -1 to leave it to the service")
		}
		k.number(p.key("max_tokens"), t.OpenAI.MaxTokens, 0, 1_000_000)
		k.choice(p.key("schema"), t.OpenAI.Schema, "full", "strict")
	}
}

func (k checker) rule(p path, r Rule) {
	if len(r.Match) == 0 {
		k.add(p.key("match"), "is missing", `give the patterns this rule answers, such as match = ["hello"]`)
	}
	for i, m := range r.Match {
		k.text(p.key("match").index(i), m)
	}
	if r.Call == "" && r.Answer == "" && len(r.Answers) == 0 {
		k.add(p.key("answer"), "is missing", "say what to answer")
	}
	if r.Call == "" && len(r.Then) > 0 {
		k.add(p.key("then"), "has no call before it", "name the first tool with call")
	}
	for i, s := range r.Then {
		k.text(p.key("then").index(i).key("call"), s.Call)
	}
	if r.Call == "" && len(r.Arguments) > 0 {
		k.add(p.key("arguments"), "has no tool to go to", "name it with call")
	}
	if r.Call == "" && r.Failed != "" {
		k.add(p.key("failed"), "is never said: nothing is called", "name a tool with call, or remove it")
	}
}

func (k checker) tts(p path, t TTS) {
	switch {
	case t.Command != nil:
		c := t.Command
		k.program(p, c.Command)
		k.choice(p.key("format"), c.Format, "wav", "raw")
		if c.Format == "raw" {
			k.number(p.key("rate"), c.Rate, 8000, 48_000)
		} else {
			k.number(p.key("rate"), c.Rate, 0, 48_000)
		}
		k.environment(p.key("environment"), c.Environment)
		k.worker(p, c.Timeout, c.Parallel)
	case t.OpenAI != nil:
		k.text(p.key("model"), t.OpenAI.Model)
		k.text(p.key("voice"), t.OpenAI.Voice)
		k.choice(p.key("format"), t.OpenAI.Format, "opus", "pcm")
		k.number(p.key("rate"), t.OpenAI.Rate, 8000, 48_000)
		if v := t.OpenAI.Speed; v != 0 && (v < 0.25 || v > 4) {
			k.add(p.key("speed"), fmt.Sprintf("is %g", v), "allowed is 0.25 to 4, or 0 to leave it to the service")
		}
	}
}

// worker checks the bounds every program has.
func (k checker) worker(p path, timeout time.Duration, parallel int) {
	k.span(p.key("timeout"), timeout, 100*time.Millisecond, 5*time.Minute)
	k.number(p.key("parallel"), parallel, 0, 1024)
}

func (k checker) program(p path, command []string) {
	if len(command) == 0 || strings.TrimSpace(command[0]) == "" {
		k.add(p.key("command"), "is missing", `give a program and its arguments, such as command = ["espeak-ng", "--stdout"]`)
	}
}

// environment checks that each entry sets a variable.
func (k checker) environment(p path, list []string) {
	for i, entry := range list {
		if name, _, ok := strings.Cut(entry, "="); !ok || name == "" {
			k.add(p.index(i), "sets no variable", `write it as "NAME=value"`)
		}
	}
}

// file checks that a recogniser's command says where its file goes exactly when
