package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"parley/internal/audio"
	"parley/internal/config"
	"parley/internal/openaiapi"
	"parley/internal/ota"
	"parley/internal/record"
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
	log    *slog.Logger
	byName map[string]*session.Role
	seeing map[string]pipeline.Model // by role, those that look at pictures
	stages []stage                   // for /readyz
	// recorder is nil unless a role is recorded. Its files are complete when
	// close has returned.
	recorder *record.Recorder
	tries    []func(context.Context) error

	mu     sync.Mutex
	chosen map[string]string // role by device, where it was switched
	closes []func()
}

// A stage of a role works while one of its providers does.
type stage struct {
	name     string
	breakers []*resilient.Breaker
}

// newRoles makes everything that the roles of cfg name, or says what is wrong
// with which table. path is the file it is from.
func newRoles(cfg *config.Config, path string, log *slog.Logger) (*roles, error) {
	r := &roles{cfg: cfg, log: log, byName: map[string]*session.Role{}, seeing: map[string]pipeline.Model{}, chosen: map[string]string{}}
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
		if role.Record && r.recorder == nil {
			if r.recorder, err = newRecorder(cfg, log); err != nil {
				r.close()
				return nil, &usageError{config.Fault(path, "record.dir", err.Error(), "see docs/listening-in.md")}
			}
		}
		policy, err := policyOf(cfg, path, role)
		if err != nil {
			r.close()
			return nil, err
		}
		r.byName[name] = &session.Role{
			Name: name, Policy: policy,
			ASR:         resilient.Transcribers(pick(r, name+".asr", recognisers(cfg, role), made.asr), limits, log),
			LLM:         resilient.Models(pick(r, name+".llm", role.LLM, made.llm), limits, log),
			TTS:         pipeline.BySentence(resilient.Synthesizers(pick(r, name+".tts", role.TTS, made.tts), limits, log), encoders),
			NewDetector: func() (pipeline.Detector, error) { return vad.New() },
			Allow:       role.ToolsAllow, Deny: role.ToolsDeny,
			Echo: role.Engine == "echo",
		}
	}
	for name, role := range cfg.Role {
		if role.Record {
			r.byName[name].Recorder = r.recorder
		}
		if len(role.Vision) > 0 {
			r.seeing[name] = resilient.Models(pick(r, name+".vision", role.Vision, made.llm), limits, log)
		}
	}
	return r, nil
}

// newRecorder makes the recorder of all roles that are recorded.
func newRecorder(cfg *config.Config, log *slog.Logger) (*record.Recorder, error) {
	return record.New(record.Config{
		Dir: cfg.Record.Dir, MaxDuration: cfg.Record.MaxDuration, MaxTotal: int64(cfg.Record.MaxTotal),
		Mirror: cfg.Record.Mirror, MirrorOnly: cfg.Record.MirrorOnly,
	}, log)
}

// recognisers are the keys of a role's recognisers.
func recognisers(cfg *config.Config, role config.Role) []string {
	out := make([]string, 0, len(role.ASR))
	for _, name := range role.ASR {
		out = append(out, hearing(cfg, name, role))
	}
	return out
}

// pick orders providers as a role's stage names them.
func pick[P any](r *roles, name string, tables []string, made map[string]resilient.Named[P]) []resilient.Named[P] {
	out := make([]resilient.Named[P], 0, len(tables))
	s := stage{name: "role." + name}
	for _, t := range tables {
		out = append(out, made[t])
		s.breakers = append(s.breakers, made[t].Breaker)
	}
	r.stages = append(r.stages, s)
	return out
}

// policyOf is the policy of a role's conversations.
func policyOf(cfg *config.Config, path string, role config.Role) (pipeline.Config, error) {
	s, p := cfg.Speech, pipeline.DefaultConfig()
	p.Prompt, p.NotUnderstood = role.Prompt, s.NotUnderstood
	p.Filler, p.FillAfter = s.Filler, s.FillAfter
	p.Lead, p.StartHold, p.StopMargin = s.Lead, s.StartHold, s.StopMargin
	p.BargeIn, p.FalseAlarm = s.BargeIn, s.Resume
	p.Endpointing = pipeline.Endpointing{
		Start: s.VADStart, PreRoll: s.PreRoll,
		MinDelay: s.EndpointMin, MaxDelay: s.EndpointMax, Max: s.MaxUtterance,
	}
	p.Silence, p.NoPath = cfg.Session.SilenceTimeout, cfg.Session.AudioTimeout
	p.ToolRounds, p.History = cfg.Limits.ToolRounds, cfg.Limits.History
	// A device runs one call at a time, so that a call may wait for another; a
	// server may have more time than either.
	p.ToolTimeout = 2 * cfg.Limits.ToolSlow
	for _, s := range cfg.MCP.Server {
		p.ToolTimeout = max(p.ToolTimeout, s.Timeout)
	}
	var err error
	if p.Apology, err = readApology(s.Apology, s.ApologyAudio); err != nil {
		return p, &usageError{config.Fault(path, "speech.apology_audio", err.Error(), "name an Ogg Opus file, such as opusenc makes")}
	}
	return p, nil
}

// of is the role of a device: the one it was switched to, else that of the
// configuration.
func (r *roles) of(device string) *session.Role {
	r.mu.Lock()
	chosen, ok := r.chosen[device]
	r.mu.Unlock()
	if ok {
		return r.byName[chosen]
	}
	name, _ := r.cfg.RoleOf(device)
	return r.byName[name]
}

// sight is what looks at a device's pictures, nil if nothing does.
func (r *roles) sight(device string) pipeline.Model { return r.seeing[r.of(device).Name] }

// maxChosen bounds the devices whose role is another than the configuration's.
const maxChosen = 100_000

// choices are the roles a device may be switched to by its user.
func (r *roles) choices(device string) []string {
	own, _ := r.cfg.RoleOf(device)
	out := []string{own}
	for name, role := range r.cfg.Role {
		if role.ByVoice && name != own {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// choose gives a device another role until the next start.
func (r *roles) choose(device, role string) error {
	if !slices.Contains(r.choices(device), role) {
		return fmt.Errorf("there is no role %q to switch to", role)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if configured, _ := r.cfg.RoleOf(device); configured == role {
		delete(r.chosen, device)
		return nil
	}
	if len(r.chosen) >= maxChosen {
		return errors.New("too many devices have switched their role")
	}
	r.chosen[device] = role
	return nil
}

// checks report the stages none of whose providers works.
func (r *roles) checks(context.Context) []ota.Check {
	out := make([]ota.Check, 0, len(r.stages))
	for _, s := range r.stages {
		c := ota.Check{Name: s.name, Err: errResting}
		for _, b := range s.breakers {
			if b.State() != resilient.Open {
				c.Err = nil
			}
		}
		out = append(out, c)
	}
	return out
}

// errBlind means that a picture came that nobody can look at.
var errBlind = errors.New("no model of the role takes pictures; set vision = true in the table of one that does")

var errResting = errors.New("every provider has failed several times in a row and rests")

// try runs what can be run to see whether it works, and returns what does not.
func (r *roles) try(ctx context.Context) error {
	var errs []error
	for _, f := range r.tries {
		errs = append(errs, f(ctx))
	}
	return errors.Join(errs...)
}

// close frees what providers hold.
func (r *roles) close() {
	for _, f := range r.closes {
		f()
	}
	r.closes = nil
	if r.recorder != nil {
		ctx, cancel := context.WithTimeout(context.Background(), recorderGrace)
		defer cancel()
		if err := r.recorder.Close(ctx); err != nil {
			r.log.Warn("recordings may be incomplete", "error", err)
		}
		r.recorder = nil
	}
}

// recorderGrace is how long recordings may take to be written at the end.
const recorderGrace = 5 * time.Second

// httpClient is shared by all services, so that one connection serves the
// stages that have the same one.
func httpClient(cfg *config.Config) *http.Client { return openaiapi.NewHTTPClient(cfg.Limits.Connect) }
