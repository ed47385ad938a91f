package resilient

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"

	"parley/pipeline"
)

var (
	// ErrResting reports a provider that was not asked because its breaker is
	// open.
	ErrResting = errors.New("the provider is resting after failures in a row")
	// ErrTooLong reports that no further provider was asked because the input
	// is longer than what is kept for one.
	ErrTooLong = errors.New("the input is too long to be given to another provider")
	// ErrNoProvider reports a chain without providers.
	ErrNoProvider = errors.New("no provider is configured")
)

// A Named is a provider and what it is called in errors, logs and metrics.
type Named[P any] struct {
	Name     string
	Provider P
	// Breaker is the provider's breaker, for the caller to read its state or to
	// share it between chains; nil gives it one of its own.
	Breaker *Breaker
}

// Models returns a [pipeline.Model] that asks the providers in order until one
// yields something. If none does, it yields one error that joins those of all
// and names each. The log gets a line for each failure.
func Models(providers []Named[pipeline.Model], limits Limits, log *slog.Logger) pipeline.Model {
	return &models{newChain[pipeline.Model, pipeline.Delta]("llm", providers, limits, log)}
}

type models struct {
	chain[pipeline.Model, pipeline.Delta]
}

// Chat implements [pipeline.Model]. It starts no goroutine.
func (m *models) Chat(ctx context.Context, req *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return m.run(ctx, nil, func(ctx context.Context, p pipeline.Model, _ *watch, _ bool) iter.Seq2[pipeline.Delta, error] {
		return p.Chat(ctx, req)
	})
}

// Synthesizers returns a [pipeline.Synthesizer] that asks the providers in order,
// as [Models] does.
func Synthesizers(providers []Named[pipeline.Synthesizer], limits Limits, log *slog.Logger) pipeline.Synthesizer {
	return &synthesizers{newChain[pipeline.Synthesizer, pipeline.Audio]("tts", providers, limits, log)}
}

type synthesizers struct {
	chain[pipeline.Synthesizer, pipeline.Audio]
}

// Synthesize implements [pipeline.Synthesizer]. It starts no goroutine.
func (s *synthesizers) Synthesize(ctx context.Context, sentence string) iter.Seq2[pipeline.Audio, error] {
	return s.run(ctx, nil, func(ctx context.Context, p pipeline.Synthesizer, _ *watch, _ bool) iter.Seq2[pipeline.Audio, error] {
		return p.Synthesize(ctx, sentence)
	})
}

// A chain holds the providers of one kind, P, which yield items of type T.
type chain[P, T any] struct {
	kind      string
	providers []Named[P]
	limits    Limits
	log       *slog.Logger
}

func newChain[P, T any](kind string, providers []Named[P], limits Limits, log *slog.Logger) chain[P, T] {
	providers = slices.Clone(providers)
	for i := range providers {
		if providers[i].Breaker == nil {
			providers[i].Breaker = new(Breaker)
		}
	}
	return chain[P, T]{kind, providers, limits.orDefault(), log}
}

// An input is what providers are fed over time; see [recording].
type input interface {
	// replayable reports whether a further provider can be given all of it.
	replayable() bool
}

// run calls the providers in order, in the caller's goroutine, until one has
// been used. in is nil if providers are given all their input at once; else start
// tells w when it has ended, and is told whether p is the last to need it.
func (c *chain[P, T]) run(
	ctx context.Context, in input,
	start func(ctx context.Context, p P, w *watch, last bool) iter.Seq2[T, error],
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		var failures []error
		for i, p := range c.providers {
			trial, ok := p.Breaker.allow()
			if !ok {
				failures = append(failures, named(p.Name, ErrResting))
				continue
			}
			last := i == len(c.providers)-1
			a := attempt[T]{ctx: ctx, limits: c.limits, fed: in != nil, outcome: undecided}
			c.try(&a, p, trial, yield, func(ctx context.Context, w *watch) iter.Seq2[T, error] {
				return start(ctx, p.Provider, w, last)
			})
			if a.left || a.err == nil {
				return
			}
			err := named(p.Name, a.err)
			if a.used || ctx.Err() != nil {
				yield(none, err)
				return
			}
			failures = append(failures, err)
			if in != nil && !last && !in.replayable() {
				failures = append(failures, ErrTooLong)
				break
			}
		}
		if len(failures) == 0 {
			failures = append(failures, ErrNoProvider)
		}
		yield(none, fmt.Errorf("%s: no provider is left: %w", c.kind, errors.Join(failures...)))
	}
}

// named returns err with its provider's name before it, unless it begins with
// that already: our providers' errors begin with their table in config.toml.
func named(name string, err error) error {
	if strings.HasPrefix(err.Error(), "["+name+"]: ") {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// try makes one attempt and reports it, even if the caller's loop panics: a
// breaker whose trial never ended would stay open.
func (c *chain[P, T]) try(
	a *attempt[T], p Named[P], trial bool,
	yield func(T, error) bool, start func(context.Context, *watch) iter.Seq2[T, error],
) {
	defer func() { c.report(p, trial, a) }()
	a.run(start, yield)
}

// report tells the breaker of p how an attempt went, and the log if it went
// wrong.
func (c *chain[P, T]) report(p Named[P], trial bool, a *attempt[T]) {
	changed := p.Breaker.report(trial, a.outcome)
	if a.err != nil && a.ctx.Err() == nil {
		c.log.Warn("provider failed", "kind", c.kind, "provider", p.Name, "answer_begun", a.used, "err", a.err)
	}
	switch {
	case changed && a.outcome == failed:
		c.log.Warn("provider rests", "kind", c.kind, "provider", p.Name, "rest", BreakerRest)
	case changed:
		c.log.Info("provider recovered", "kind", c.kind, "provider", p.Name)
	}
}

// An attempt is one call of one provider.
type attempt[T any] struct {
	ctx    context.Context // the caller's
	limits Limits
	fed    bool // input arrives over time

	used    bool  // an item has reached the caller
	left    bool  // the caller left the loop
	err     error // the provider's, or of the limit it exceeded, or of the caller's context
	outcome outcome
}

// run calls the provider under the limits and yields its items but not its
// error.
func (a *attempt[T]) run(start func(context.Context, *watch) iter.Seq2[T, error], yield func(T, error) bool) {
	ctx, cancel := context.WithCancelCause(a.ctx)
	defer cancel(nil)
	w := newWatch(a.limits, cancel, a.fed)
	defer func() { _ = w.pause() }() // a limit exceeded after the end counts for nothing
	for item, err := range start(ctx, w) {
		if a.err = err; w.pause() != nil || err != nil {
			break
		}
		a.used = true
		if !yield(item, nil) {
			a.left = true
			break
		}
		w.resume()
	}
	a.decide(w.pause())
}

// decide settles the error and what the attempt tells about the provider, given
// the limit it exceeded, if any.
func (a *attempt[T]) decide(tooSlow error) {
	switch {
	case a.left:
		a.outcome = succeeded
	case tooSlow != nil && a.ctx.Err() == nil:
		a.err, a.outcome = tooSlow, failed
	case tooSlow != nil:
		a.err, a.outcome = context.Cause(a.ctx), failed
	case a.ctx.Err() != nil:
		a.outcome = undecided
		if a.err == nil {
			a.err = context.Cause(a.ctx)
		}
	case a.err == nil:
		a.outcome = succeeded
	case requestFault(a.err):
		a.outcome = undecided
	default:
		a.outcome = failed
	}
}

// requestFault reports whether err found fault with the request and not with
// the provider: one device's odd history must not make a provider rest that
// serves all others.
func requestFault(err error) bool {
	fault, ok := errors.AsType[interface {
		error
		RequestFault() bool
	}](err)
	return ok && fault.RequestFault()
}
