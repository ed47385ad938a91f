package doctor

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
)

// A service is an OpenAI-compatible provider in use.
type service struct{ table, baseURL, key, model string }

// services are the providers in use that are reached over HTTP.
func (x *examination) services() []service {
	c := x.cfg.Config
	used := c.Used()
	var out []service
	for _, name := range used.ASR {
		if o := c.ASR[name].OpenAI; o != nil {
			out = append(out, service{"asr." + name, o.BaseURL, o.APIKey.Reveal(), o.Model})
		}
	}
	for _, name := range used.LLM {
		if o := c.LLM[name].OpenAI; o != nil {
			out = append(out, service{"llm." + name, o.BaseURL, o.APIKey.Reveal(), o.Model})
		}
	}
	for _, name := range used.TTS {
		if o := c.TTS[name].OpenAI; o != nil {
			out = append(out, service{"tts." + name, o.BaseURL, o.APIKey.Reveal(), o.Model})
		}
	}
	return out
}

// providers asks the services and runs the programs.
func (x *examination) providers(ctx context.Context) {
	for _, s := range x.services() {
		x.ask(ctx, s)
	}
	for _, t := range x.cfg.Trials {
		ctx, cancel := context.WithTimeout(ctx, trialTimeout)
		found, err := t.Run(ctx)
		cancel()
		if err != nil {
			x.report.fail("provider", "see ["+t.Table+"] in the configuration", "[%s] does not work: %v", t.Table, err)
			continue
		}
		x.report.ok("provider", "[%s] %s", t.Table, found)
	}
}

// ask asks a service for its models, which costs nothing and needs the key.
func (x *examination) ask(ctx context.Context, s service) {
	const check = "provider"
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	status, body, err := get(ctx, x.cfg.HTTP, s.baseURL+"/models", s.key)
	switch {
	case err != nil:
		x.report.fail(check, "check base_url of ["+s.table+"]; is the service running, and is the network there?", "[%s] %s cannot be reached: %s", s.table, s.baseURL, reason(err))
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		remedy := "check api_key of [" + s.table + "]"
		if s.key == "" {
			remedy = "set api_key of [" + s.table + "]"
		}
		// What the service says is not repeated: some quote the key.
		x.report.fail(check, remedy, "[%s] %s refuses the key (status %d)", s.table, s.baseURL, status)
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		x.report.warn(check, "if it does not work, see whether base_url of ["+s.table+"] ends in /v1", "[%s] %s answers, but has no list of models (status %d)", s.table, s.baseURL, status)
	case status != http.StatusOK:
		x.report.fail(check, "check base_url of ["+s.table+"], and the state of the service", "[%s] %s answers with status %d", s.table, s.baseURL, status)
	case lacks(body, s.model):
		x.report.warn(check, "check model of ["+s.table+"]", "[%s] %s does not list the model %q", s.table, s.baseURL, s.model)
	case s.key == "":
		x.report.ok(check, "[%s] %s answers, and wants no key", s.table, s.baseURL)
	default:
		x.report.ok(check, "[%s] %s answers, and takes the key", s.table, s.baseURL)
	}
}

// lacks reports whether a list of models is there and has no such model. Many
// services list none, or take names that they do not list.
func lacks(body []byte, model string) bool {
	var list struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if json.Unmarshal(body, &list) != nil || len(list.Data) == 0 || model == "" {
		return false
	}
	return !slices.ContainsFunc(list.Data, func(m struct {
		ID string `json:"id"`
	}) bool {
		return m.ID == model
	})
}
