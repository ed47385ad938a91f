package resilient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"parley/pipeline"
	"parley/pipeline/resilient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBoom = errors.New("boom")

// A step is what a scripted provider does next: wait, then yield, fail or both
// in that order of precedence.
type step struct {
	wait time.Duration
	text string
	err  error
	deaf bool // wait without heeding the context
}

// A script is a provider that does the same at every call. The zero step ends
// it; ctx ends it, too.
type script struct {
	steps []step
	calls atomic.Int32
	ended atomic.Int32
}

func does(steps ...step) *script { return &script{steps: steps} }

// run yields the texts of the script's steps.
func (s *script) run(ctx context.Context, yield func(string, error) bool) {
	s.calls.Add(1)
	defer s.ended.Add(1)
	for _, st := range s.steps {
		if st.deaf {
			time.Sleep(st.wait)
		} else {
			timer := time.NewTimer(st.wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				yield("", ctx.Err())
				return
			}
		}
		if st.err != nil {
			yield("", st.err)
			return
		}
		if st.text != "" && !yield(st.text, nil) {
			return
		}
	}
}

func (s *script) Chat(ctx context.Context, _ *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return func(yield func(pipeline.Delta, error) bool) {
		s.run(ctx, func(text string, err error) bool { return yield(pipeline.Delta{Text: text}, err) })
	}
}

func (s *script) Synthesize(ctx context.Context, _ string) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		s.run(ctx, func(text string, err error) bool { return yield(pipeline.Audio{Opus: []byte(text)}, err) })
	}
}

// A setup is a chain of models "a", "b", … and what it takes to look at it.
type setup struct {
	model    pipeline.Model
	breakers []*resilient.Breaker
	log      bytes.Buffer
}

func chain(limits resilient.Limits, scripts ...*script) *setup {
	s := new(setup)
	var providers []resilient.Named[pipeline.Model]
	for i, p := range scripts {
		s.breakers = append(s.breakers, new(resilient.Breaker))
		providers = append(providers, resilient.Named[pipeline.Model]{
			Name: string(rune('a' + i)), Provider: p, Breaker: s.breakers[i],
		})
	}
	s.model = resilient.Models(providers, limits, slog.New(slog.NewTextHandler(&s.log, nil)))
	return s
}

// A result is what a chain yielded and when, counted from the call.
type result struct {
	texts string
	err   error
	took  time.Duration
}

func (s *setup) ask(ctx context.Context) (r result) {
	start := time.Now()
	for d, err := range s.model.Chat(ctx, &pipeline.Request{}) {
		if err != nil {
			r.err = err
			continue
		}
		r.texts += d.Text
	}
	r.took = time.Since(start)
	return r
}

func TestFallback(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		a, b  *script
		texts string
		is    error
		says  string
		took  time.Duration
		asksB int32
	}{
		"the first serves":          {does(step{wait: 4 * s, text: "A"}), does(step{text: "B"}), "A", nil, "", 4 * s, 0},
		"the first has nothing":     {does(), does(step{text: "B"}), "", nil, "", 0, 0},
		"the first fails":           {does(step{wait: s, err: errBoom}), does(step{text: "B"}), "B", nil, "", s, 1},
		"the first is slow":         {does(step{wait: 9 * s, text: "A"}), does(step{wait: s, text: "B"}), "B", nil, "", 6 * s, 1},
		"just in time":              {does(step{wait: 5*s - 1, text: "A"}), does(step{text: "B"}), "A", nil, "", 5*s - 1, 0},
		"just too late":             {does(step{wait: 5*s + 1, text: "A"}), does(step{text: "B"}), "B", nil, "", 5 * s, 1},
		"fails once it has begun":   {does(step{text: "A"}, step{err: errBoom}), does(step{text: "B"}), "A", errBoom, "a: boom", 0, 0},
		"pauses":                    {does(step{text: "A"}, step{wait: 15*s - 1, text: "A"}), does(), "AA", nil, "", 15*s - 1, 0},
		"stalls":                    {does(step{text: "A"}, step{wait: 15*s + 1, text: "A"}), does(), "A", resilient.ErrTooSlow, "a: the provider is too slow: it took longer than 15s between items", 15 * s, 0},
		"does not end":              {does(step{text: "A"}, step{wait: time.Hour}), does(), "A", resilient.ErrTooSlow, "15s", 15 * s, 0},
		"does not heed its context": {does(step{wait: 60 * s, deaf: true, text: "A"}), does(step{text: "B"}), "B", nil, "", 60 * s, 1},
		"both fail":                 {does(step{err: errBoom}), does(step{wait: 7 * s}), "", errBoom, "llm: no provider is left: a: boom\nb: the provider is too slow: it took longer than 5s for its first item", 5 * s, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := chain(resilient.Limits{}, c.a, c.b).ask(t.Context())
				if r.texts != c.texts || r.took != c.took {
					t.Errorf("yielded %q in %v, want %q in %v", r.texts, r.took, c.texts, c.took)
				}
				if (c.is == nil) != (r.err == nil) || !errors.Is(r.err, c.is) || r.err != nil && !strings.Contains(r.err.Error(), c.says) {
					t.Errorf("error %v, want %q", r.err, c.says)
				}
				if n := c.b.calls.Load(); n != c.asksB {
					t.Errorf("the second was asked %d times, want %d", n, c.asksB)
				}
				if c.a.calls.Load() != c.a.ended.Load() {
					t.Error("a provider outlived its iterator")
				}
			})
		})
	}
}

func TestLimitsCountOnlyTheProvidersTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := chain(resilient.Limits{First: time.Second, Idle: time.Second},
			does(step{text: "A"}, step{wait: time.Second - 1, text: "A"}, step{wait: time.Second - 1, text: "A"}))
		n := 0
		for _, err := range s.model.Chat(t.Context(), &pipeline.Request{}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
			time.Sleep(time.Hour) // the device speaks
		}
		if n != 3 {
			t.Errorf("%d items", n)
		}
	})
}

func TestWhatTheCallerEndsIsNoFailure(t *testing.T) {
	reason := errors.New("interrupted")
	for name, p := range map[string]*script{
		"before the first item": does(step{wait: time.Minute}),
		"after it":              does(step{text: "A"}, step{wait: time.Minute}),
		"deaf":                  does(step{text: "A"}, step{wait: 3 * time.Second, deaf: true}),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := does(step{text: "B"})
				s := chain(resilient.Limits{}, p, b)
				for range 2 * resilient.BreakerFailures {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(reason) })
					if r := s.ask(ctx); r.err == nil || errors.Is(r.err, resilient.ErrTooSlow) || strings.Contains(r.texts, "B") {
						t.Errorf("%q, %v", r.texts, r.err)
					}
				}
				if got := s.breakers[0].State(); got != resilient.Closed || b.calls.Load() != 0 || s.log.Len() != 0 {
					t.Errorf("breaker %v, second asked %d times, log %q", got, b.calls.Load(), s.log.String())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := chain(resilient.Limits{}, does(step{text: "A"}, step{err: errBoom}))
		for range 2 * resilient.BreakerFailures {
			for range s.model.Chat(t.Context(), &pipeline.Request{}) {
				break
			}
		}
		if got := s.breakers[0].State(); got != resilient.Closed {
			t.Errorf("left after the first item: breaker %v", got)
		}
	})
}

func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := does(step{err: errBoom}), does(step{text: "B"})
		s := chain(resilient.Limits{}, a, b)
		expect := func(when string, texts string, asked int32, state resilient.State) {
			t.Helper()
			if r := s.ask(t.Context()); r.texts != texts || r.err != nil {
				t.Errorf("%s: %q, %v", when, r.texts, r.err)
			}
			if a.calls.Load() != asked || s.breakers[0].State() != state {
				t.Errorf("%s: the first was asked %d times and its breaker is %v, want %d and %v",
					when, a.calls.Load(), s.breakers[0].State(), asked, state)
			}
		}
		expect("first failure", "B", 1, resilient.Closed)
		expect("second failure", "B", 2, resilient.Closed)
		expect("third failure", "B", 3, resilient.Open)
		expect("while open", "B", 3, resilient.Open)
		time.Sleep(resilient.BreakerRest - 1)
		expect("just before the trial", "B", 3, resilient.Open)
		time.Sleep(time.Nanosecond)
		if got := s.breakers[0].State(); got != resilient.HalfOpen {
			t.Errorf("after the rest: %v", got)
		}
		expect("failed trial", "B", 4, resilient.Open)
		time.Sleep(resilient.BreakerRest)
		a.steps = []step{{text: "A"}}
		expect("good trial", "A", 5, resilient.Closed)
		a.steps = []step{{err: errBoom}}
		expect("failure after recovery", "B", 6, resilient.Closed)
		a.steps = []step{{text: "A"}}
		expect("success between failures", "A", 7, resilient.Closed)
		a.steps = []step{{err: errBoom}}
		expect("two more failures are not three", "B", 8, resilient.Closed)
		expect("two more failures are not three", "B", 9, resilient.Closed)
		expect("three in a row", "B", 10, resilient.Open)

		log := s.log.String()
		if n := strings.Count(log, "provider failed"); n != 8 {
			t.Errorf("8 failures gave %d lines:\n%s", n, log)
		}
		if strings.Count(log, "provider rests") != 3 || strings.Count(log, "provider recovered") != 1 {
			t.Errorf("the breaker opened 3 times and closed once:\n%s", log)
		}
		if !strings.Contains(log, "kind=llm") || !strings.Contains(log, "provider=a") || !strings.Contains(log, "err=boom") {
			t.Errorf("the log does not say who failed of what:\n%s", log)
		}
	})
}

// TestBreakerTriesOnce asks while a trial is under way, whose outcome only the
// trial may decide.
func TestBreakerTriesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := does(step{wait: time.Second, err: errBoom}), does(step{text: "B"})
		s := chain(resilient.Limits{}, a, b)
		late := make(chan result)
		a.steps = []step{{wait: 4 * time.Second, err: errBoom}}
		go func() { late <- s.ask(t.Context()) }() // begun while closed, fails while open
		synctest.Wait()
		a.steps = []step{{err: errBoom}}
		for range resilient.BreakerFailures {
			s.ask(t.Context())
		}
		<-late
		time.Sleep(resilient.BreakerRest - 4*time.Second)
		a.steps = []step{{wait: time.Second, text: "A"}}
		go func() { late <- s.ask(t.Context()) }()
		synctest.Wait()
		if r := s.ask(t.Context()); r.texts != "B" {
			t.Errorf("beside the trial: %q, %v", r.texts, r.err)
		}
		if r := <-late; r.texts != "A" {
			t.Errorf("the trial: %q, %v", r.texts, r.err)
		}
		if r := s.ask(t.Context()); r.texts != "A" {
			t.Errorf("after the trial: %q, %v", r.texts, r.err)
		}
	})
}

// TestBreakerTrialThatIsLeftOpen ends trials without an outcome; the next call
// must be a trial again.
func TestBreakerTrialThatIsLeftOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := does(step{err: errBoom})
		s := chain(resilient.Limits{}, a)
		for range resilient.BreakerFailures {
			s.ask(t.Context())
		}
		if r := s.ask(t.Context()); !errors.Is(r.err, resilient.ErrResting) || !strings.Contains(r.err.Error(), "a: ") {
			t.Errorf("while open: %v", r.err)
		}
		time.Sleep(resilient.BreakerRest)
		a.steps = []step{{wait: time.Minute}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.ask(ctx)
		a.steps = []step{{text: "A"}}
		func() {
			defer func() { _ = recover() }()
			for range s.model.Chat(t.Context(), &pipeline.Request{}) {
				panic("the caller's bug")
			}
		}()
		if got := s.breakers[0].State(); got != resilient.HalfOpen {
			t.Errorf("after trials without outcome: %v", got)
		}
		if r := s.ask(t.Context()); r.texts != "A" || s.breakers[0].State() != resilient.Closed {
			t.Errorf("%q, %v, %v", r.texts, r.err, s.breakers[0].State())
		}
	})
}

type faultyRequest struct{}

func (faultyRequest) Error() string      { return "400 too long" }
func (faultyRequest) RequestFault() bool { return true }

func TestFaultOfTheRequestLeavesTheBreakerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := chain(resilient.Limits{}, does(step{err: fmt.Errorf("wrapped: %w", faultyRequest{})}), does(step{text: "B"}))
		for range 2 * resilient.BreakerFailures {
			if r := s.ask(t.Context()); r.texts != "B" {
				t.Errorf("%q, %v", r.texts, r.err)
			}
		}
		if got := s.breakers[0].State(); got != resilient.Closed {
			t.Errorf("breaker %v", got)
		}
	})
}

func TestSharedBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := new(resilient.Breaker)
		log := slog.New(slog.DiscardHandler)
		failing := resilient.Named[pipeline.Synthesizer]{Name: "a", Provider: does(step{err: errBoom}), Breaker: shared}
		one := resilient.Synthesizers([]resilient.Named[pipeline.Synthesizer]{failing}, resilient.Limits{}, log)
		for range resilient.BreakerFailures {
			for range one.Synthesize(t.Context(), "hi") {
			}
		}
		two := resilient.Synthesizers([]resilient.Named[pipeline.Synthesizer]{failing, {Name: "b", Provider: does(step{text: "B"})}}, resilient.Limits{}, log)
		got := ""
		for a, err := range two.Synthesize(t.Context(), "hi") {
			got += string(a.Opus)
			if err != nil {
				t.Error(err)
			}
		}
		if n := failing.Provider.(*script).calls.Load(); got != "B" || n != resilient.BreakerFailures {
			t.Errorf("%q after %d calls", got, n)
		}
	})
}

func TestErrorsNameTheirProviderOnce(t *testing.T) {
	r := chain(resilient.Limits{}, does(step{err: errors.New("[a]: down")}), does(step{err: errors.New("[x]: down")})).ask(t.Context())
	if r.err == nil || r.err.Error() != "llm: no provider is left: [a]: down\nb: [x]: down" {
		t.Errorf("%v", r.err)
	}
}

func TestNoProvider(t *testing.T) {
	if r := chain(resilient.Limits{}).ask(t.Context()); !errors.Is(r.err, resilient.ErrNoProvider) {
		t.Errorf("%v", r.err)
	}
}

// BenchmarkModels reports what a chain adds to an answer of 100 items.
func BenchmarkModels(b *testing.B) {
	plain := &fixed{texts: 100}
	model := resilient.Models([]resilient.Named[pipeline.Model]{{Name: "a", Provider: plain}}, resilient.Limits{}, slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range model.Chat(b.Context(), nil) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// fixed yields a number of texts at once.
type fixed struct{ texts int }

func (f *fixed) Chat(context.Context, *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return func(yield func(pipeline.Delta, error) bool) {
		for range f.texts {
			if !yield(pipeline.Delta{Text: "word"}, nil) {
				return
			}
		}
	}
}
