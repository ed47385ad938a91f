package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"parley/internal/audio"
	"parley/internal/config"
	"parley/internal/openaiapi"
	"parley/internal/ota"
	"parley/internal/session"
	"parley/mcp"
	"parley/pipeline"
	"parley/pipeline/resilient"
	"parley/pipeline/vad"
)

// roles are the roles of a configuration, made of its providers. Roles share
// them: a provider table is one provider, with one breaker.
type roles struct {
	cfg    *config.Config
	byName map[string]*session.Role
	names  []named // of the providers in use, for /readyz
	closes []func()
}

// A named breaker belongs to the provider table of this name.
type named struct {
	table   string
	breaker *resilient.Breaker
}

// newRoles makes everything that the roles of cfg name, or says what is wrong
// with which table. path is the file it is from.
func newRoles(cfg *config.Config, path string, log *slog.Logger) (*roles, error) {
	r := &roles{cfg: cfg, byName: map[string]*session.Role{}}
	made, err := makeProviders(cfg, path, log, r)
	if err != nil {
		r.close()
		return nil, err
	}
	limits := resilient.Limits{First: cfg.Limits.First, Idle: cfg.Limits.Idle}
	encoders := audio.NewEncoderPool(cfg.Limits.Encoders)
	for name, role := range cfg.Role {
		if err := (mcp.Rules{Allow: role.ToolsAllow, Deny: role.ToolsDeny}).Check(); err != nil {
			r.close()
			return nil, &usageError{config.Fault(path, "role."+name, err.Error(), "write globs such as self.camera.*")}
		}
		policy, err := policyOf(cfg, path, role)
		if err != nil {
			r.close()
			return nil, err
		}
		r.byName[name] = &session.Role{
			Name: name, Policy: policy,
			ASR:         resilient.Transcribers(pick(role.ASR, made.asr), limits, log),
			LLM:         resilient.Models(pick(role.LLM, made.llm), limits, log),
			TTS:         pipeline.BySentence(resilient.Synthesizers(pick(role.TTS, made.tts), limits, log), encoders),
			NewDetector: func() (pipeline.Detector, error) { return vad.New() },
			Allow:       role.ToolsAllow, Deny: role.ToolsDeny,
		}
	}
	return r, nil
}

// pick orders providers as a role names them.
func pick[P any](names []string, made map[string]resilient.Named[P]) []resilient.Named[P] {
	out := make([]resilient.Named[P], 0, len(names))
	for _, n := range names {
		out = append(out, made[n])
	}
	return out
}

// policyOf is the policy of a role's conversations.
func policyOf(cfg *config.Config, path string, role config.Role) (pipeline.Config, error) {
	s, p := cfg.Speech, pipeline.DefaultConfig()
	p.Prompt, p.NotUnderstood = role.Prompt, s.NotUnderstood
	p.Lead, p.StartHold, p.StopMargin = s.Lead, s.StartHold, s.StopMargin
	p.BargeIn, p.FalseAlarm = s.BargeIn, s.Resume
	p.Endpointing = pipeline.Endpointing{
		Start: s.VADStart, Stop: s.VADStop, PreRoll: s.PreRoll,
		MinDelay: s.EndpointMin, MaxDelay: s.EndpointMax, Max: s.MaxUtterance,
	}
	p.Silence, p.NoPath = cfg.Session.SilenceTimeout, cfg.Session.AudioTimeout
	p.ToolRounds, p.History = cfg.Limits.ToolRounds, cfg.Limits.History
	// A device runs one call at a time, so that a call may wait for another.
	p.ToolTimeout = 2 * cfg.Limits.ToolSlow
	var err error
	if p.Apology, err = readApology(s.Apology, s.ApologyAudio); err != nil {
		return p, &usageError{config.Fault(path, "speech.apology_audio", err.Error(), "name an Ogg Opus file, such as opusenc makes")}
	}
	return p, nil
}

// of is the role of a device.
func (r *roles) of(device string) *session.Role {
	name, _ := r.cfg.RoleOf(device)
	return r.byName[name]
}

// checks report the providers that rest after failures.
func (r *roles) checks(context.Context) []ota.Check {
	out := make([]ota.Check, 0, len(r.names))
	for _, n := range r.names {
		c := ota.Check{Name: n.table}
		if n.breaker.State() == resilient.Open {
			c.Err = errors.New("failed several times in a row and rests")
		}
		out = append(out, c)
	}
	return out
}

// close frees what providers hold.
func (r *roles) close() {
	for _, f := range r.closes {
		f()
	}
	r.closes = nil
}

// httpClient is shared by all services, so that one connection serves the
// stages that have the same one.
func httpClient(cfg *config.Config) *http.Client { return openaiapi.NewHTTPClient(cfg.Limits.Connect) }
