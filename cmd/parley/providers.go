package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"parley/internal/config"
	"parley/pipeline"
	"parley/pipeline/asr"
	"parley/pipeline/llm"
	"parley/pipeline/resilient"
	"parley/pipeline/tts"
)

// providers are what the tables in use describe.
type providers struct {
	asr map[string]resilient.Named[pipeline.Transcriber]
	llm map[string]resilient.Named[pipeline.Model]
	tts map[string]resilient.Named[pipeline.Synthesizer]
}

// makeProviders makes the providers that some role uses.
func makeProviders(cfg *config.Config, path string, log *slog.Logger, r *roles) (providers, error) {
	p := providers{
		map[string]resilient.Named[pipeline.Transcriber]{},
		map[string]resilient.Named[pipeline.Model]{},
		map[string]resilient.Named[pipeline.Synthesizer]{},
	}
	client := httpClient(cfg)
	used := cfg.Used()
	// Models first: a bad pattern is theirs, though the recogniser trips over it,
	// too.
	for _, name := range used.LLM {
		m, err := newModel(cfg, name, client)
		if err != nil {
			return p, tableFault(path, "llm."+name, err)
		}
		p.llm[name] = named("llm."+name, m)
	}
	for _, role := range cfg.Role {
		for _, name := range role.ASR {
			key := hearing(cfg, name, role)
			if _, made := p.asr[key]; made {
				continue
			}
			t, err := newTranscriber(cfg, path, name, role.Language, client, log, r)
			if err != nil {
				return p, tableFault(path, "asr."+name, err)
			}
			p.asr[key] = named("asr."+name, t)
		}
	}
	for _, name := range used.TTS {
		s, err := newSynthesizer(cfg, name, client)
		if err != nil {
			return p, tableFault(path, "tts."+name, err)
		}
		p.tts[name] = named("tts."+name, s)
	}
	return p, nil
}

// hearing is what a recogniser is kept under: its table, and the language of the
// role where the table leaves that to it.
func hearing(cfg *config.Config, name string, role config.Role) string {
	if o := cfg.ASR[name].OpenAI; o != nil && o.Language == "" {
		return name + " " + role.Language
	}
	return name
}

// named gives a provider its breaker, which all roles that use it share.
func named[P any](table string, p P) resilient.Named[P] {
	return resilient.Named[P]{Name: table, Provider: p, Breaker: new(resilient.Breaker)}
}

// tableFault is the error of a provider that cannot be made, at its table.
func tableFault(path, table string, err error) error {
	problem := strings.TrimPrefix(err.Error(), "["+table+"]: ")
	return &usageError{config.Fault(path, table, problem, "config.toml documents the keys of such a table")}
}

func newTranscriber(cfg *config.Config, path, name, language string, client *http.Client, log *slog.Logger, r *roles) (pipeline.Transcriber, error) {
	table := "asr." + name
	switch t := cfg.ASR[name]; {
	case t.Pocketsphinx != nil:
		phrases, err := llm.RulePhrases(rulesOf(cfg))
		if err != nil {
			return nil, err
		}
		p, err := asr.NewPocketsphinx(asr.PocketsphinxConfig{
			Table: table, Patterns: phrases, Program: t.Pocketsphinx.Program, Model: t.Pocketsphinx.Model,
			Dictionary: t.Pocketsphinx.Dictionary, Pronounce: t.Pocketsphinx.Pronounce,
			Timeout: t.Pocketsphinx.Timeout, Concurrent: t.Pocketsphinx.Parallel, Logger: log,
		})
		if err != nil {
			return nil, err
		}
		r.tries = append(r.tries, func(ctx context.Context) error {
			if err := p.Try(ctx); err != nil {
				return tableFault(path, table, err)
			}
			return nil
		})
		r.closes = append(r.closes, func() {
			if err := p.Close(); err != nil {
				log.Warn("recogniser not cleaned up", "error", err)
			}
		})
		return p, nil
	case t.Command != nil:
		c := t.Command
		return asr.NewCommand(asr.CommandConfig{
			Table: table, Command: c.Command, Format: c.Format, Env: c.Environment, Timeout: c.Timeout, Concurrent: c.Parallel,
		})
	case t.OpenAI != nil:
		o := t.OpenAI
		return asr.NewOpenAI(asr.OpenAIConfig{
			Table: table, BaseURL: o.BaseURL, APIKey: o.APIKey.Reveal(), Model: o.Model, Language: cmp.Or(o.Language, language), Prompt: o.Prompt, HTTP: client,
		})
	}
	return nil, fmt.Errorf("type %q is not known", cfg.ASR[name].Type)
}

// rulesOf are the rules of all models in use, which the offline recogniser
// listens for.
func rulesOf(cfg *config.Config) []llm.Rule {
	var out []llm.Rule
	for _, name := range cfg.Used().LLM {
		if t := cfg.LLM[name]; t.Rules != nil {
			out = append(out, convertRules(t.Rules.Rule)...)
		}
	}
	return out
}

func convertRules(rules []config.Rule) []llm.Rule {
	out := make([]llm.Rule, 0, len(rules))
	for _, r := range rules {
		rule := llm.Rule{
			Match: r.Match, Call: r.Call, Arguments: r.Arguments,
			Answer: r.Answer, Answers: r.Answers, Failed: r.Failed, Emotion: r.Emotion,
		}
		for _, s := range r.Then {
			rule.Then = append(rule.Then, llm.Step{Call: s.Call, Arguments: s.Arguments})
		}
		out = append(out, rule)
	}
	return out
}

func newModel(cfg *config.Config, name string, client *http.Client) (pipeline.Model, error) {
	table := "llm." + name
	switch t := cfg.LLM[name]; {
	case t.Rules != nil:
		location, err := cfg.OTA.Location()
		if err != nil {
			return nil, err
		}
		return llm.NewRules(llm.RulesConfig{
			Table: table, Rules: convertRules(t.Rules.Rule), Unknown: t.Rules.Unknown, Location: location,
		})
	case t.OpenAI != nil:
		o := t.OpenAI
		c := llm.OpenAIConfig{
			Table: table, BaseURL: o.BaseURL, APIKey: o.APIKey.Reveal(), Model: o.Model,
			MaxTokens: o.MaxTokens, Extra: o.Extra, HTTP: client, Vision: o.Vision,
		}
		if o.Temperature >= 0 {
			c.Temperature = &o.Temperature
		}
		m, err := llm.NewOpenAI(c)
		if err == nil && o.Schema == "strict" {
			m = strict{m}
		}
		return m, err
	}
	return nil, fmt.Errorf("type %q is not known", cfg.LLM[name].Type)
}

func newSynthesizer(cfg *config.Config, name string, client *http.Client) (pipeline.Synthesizer, error) {
	table := "tts." + name
	switch t := cfg.TTS[name]; {
	case t.Command != nil:
		c := t.Command
		return tts.NewCommand(tts.CommandConfig{
			Table: table, Command: c.Command, Format: c.Format, Rate: c.Rate, Env: c.Environment,
			Timeout: c.Timeout, Concurrent: c.Parallel,
		})
	case t.OpenAI != nil:
		o := t.OpenAI
		return tts.NewOpenAI(tts.OpenAIConfig{
			Table: table, BaseURL: o.BaseURL, APIKey: o.APIKey.Reveal(), Model: o.Model, Voice: o.Voice,
			Instructions: o.Instructions, Speed: o.Speed, Format: o.Format, Rate: o.Rate, HTTP: client,
		})
	}
	return nil, fmt.Errorf("type %q is not known", cfg.TTS[name].Type)
}
