package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const filler = "One moment, please."

// TestSlowToolsAreFilled: the user shall not wonder whether anybody is there.
func TestSlowToolsAreFilled(t *testing.T) {
	answer := "say:Hi. say:How are you? stop"
	for name, c := range map[string]struct {
		change func(*Config)
		setup  func(*testbed)
		want   string
	}{
		"slow":                {nil, func(b *testbed) { b.box.delay = 6 * time.Second }, "start say:" + filler + " " + answer},
		"just not":            {nil, func(b *testbed) { b.box.delay = 2500*ms - 1 }, "start " + answer},
		"another filler":      {func(c *Config) { c.Filler, c.FillAfter = "Hm.", time.Second }, func(b *testbed) { b.box.delay = 2 * time.Second }, "start say:Hm. " + answer},
		"no filler is wanted": {func(c *Config) { c.Filler = "" }, func(b *testbed) { b.box.delay = 6 * time.Second }, "start " + answer},
		"once in a turn": {func(c *Config) { c.ToolRounds = 3 }, func(b *testbed) {
			b.box.delay, b.llm.always = 6*time.Second, true
		}, "start say:" + filler + " " + answer},
		"many rounds, each of them quick": {func(c *Config) { c.ToolRounds = 3 }, func(b *testbed) {
			b.box.delay, b.llm.always = time.Second, true
		}, "start say:" + filler + " " + answer},
		"a few quick rounds": {func(c *Config) { c.ToolRounds = 2 }, func(b *testbed) {
			b.box.delay, b.llm.always = time.Second, true
		}, "start " + answer},
		"only one of the calls is slow": {nil, func(b *testbed) {
			b.llm.calls = []string{"lamp", "door"}
			b.c.p.Tools = toolFunc(func(ctx context.Context, call Call) (ToolResult, error) {
				if call.Name == "door" {
					sleep(ctx, 5*time.Second)
				}
				return ToolResult{Text: "done"}, nil
			})
		}, "start say:" + filler + " " + answer},
		"something was said": {nil, func(b *testbed) {
			b.box.delay = 6 * time.Second
			b.c.p.LLM = modelFunc(func(_ context.Context, req *Request, yield func(Delta, error) bool) {
				if req.Messages[len(req.Messages)-1].Role == RoleTool {
					yield(Delta{Text: "It is open."}, nil)
				} else if yield(Delta{Text: "Let me see. "}, nil) {
					yield(Delta{Call: &Call{ID: "1", Name: "door", Args: []byte("{}")}}, nil)
				}
			})
		}, "start say:Let me see. say:It is open. stop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, c.change)
				b.llm.calls = []string{"lamp"}
				c.setup(b)
				b.ask()
				b.after(time.Minute)
				if got := strings.TrimPrefix(b.dev.log(), "stt:hello "); !strings.HasPrefix(got, c.want) {
					t.Errorf("told %q, want %q", got, c.want)
				}
			})
		})
	}
}

func TestAFillerIsHeardInTimeAndForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.box.delay = []string{"lamp"}, 6*time.Second
		released := b.ask()
		b.after(20 * time.Second)
		// Recogniser, model, patience, voice.
		if got, want := b.dev.frames[0].Sub(released), 200*ms+300*ms+2500*ms+150*ms; got != want {
			t.Errorf("the filler is heard after %v, want %v", got, want)
		}
		if tr := b.traces()[0]; tr.Said != filler+" Hi. How are you?" {
			t.Errorf("said %q", tr.Said)
		}
		h := b.history()
		if last := h[len(h)-1]; last.Text != "Hi. How are you?" || last.Interrupted {
			t.Errorf("history ends with %+v", last)
		}
	})
}

// TestToolsThatEndAsTheFillerBegins: whichever comes first, the answer is whole and
// remembered without the filler.
func TestToolsThatEndAsTheFillerBegins(t *testing.T) {
	for range 20 { // it is a matter of chance
		synctest.Test(t, func(t *testing.T) {
			b := newTestbed(t, nil)
			b.llm.calls, b.box.delay = []string{"lamp", "time", "door"}, b.c.cfg.FillAfter
			b.ask()
			b.after(20 * time.Second)
			if got := b.dev.log(); !strings.HasSuffix(got, "say:Hi. say:How are you? stop") {
				t.Errorf("told %q", got)
			}
			h := b.history()
			checkCalls(t, h)
			if last := h[len(h)-1]; last.Text != "Hi. How are you?" {
				t.Errorf("history ends with %+v", last)
			}
		})
	}
}

// TestAFillerCutByNewWords: the tool goes on, and its result is known to the next
// answers.
func TestAFillerCutByNewWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.box.delay, b.asr.texts = []string{"lamp"}, 6*time.Second, []string{"hello", "wait"}
		b.c.ListenStart(Realtime)
		b.speak(600 * ms)
		b.hush(3900 * ms) // into the filler
		b.llm.calls = nil
		b.speak(900 * ms)
		b.hush(20 * time.Second)
		if got, want := turns(b.dev.log()), "stt:hello start stop stt:wait start stop"; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
		h := b.history()
		checkCalls(t, h)
		results := 0
		for _, m := range h {
			if m.Role == RoleTool && m.Text == "lamp done" {
				results++
			}
			if strings.Contains(m.Text, "moment") {
				t.Errorf("the filler is remembered: %+v", m)
			}
		}
		if results != 1 {
			t.Errorf("%d results of one call", results)
		}
	})
}

// TestAFillerIsCutLikeAnyWord: nothing of it follows an abort, neither to the
// device nor in what the model reads.
func TestAFillerIsCutLikeAnyWord(t *testing.T) {
	for name, after := range map[string]time.Duration{"within": 3400 * ms, "before it is made": 3100 * ms, "after it": 5 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, nil)
				b.llm.calls, b.box.delay = []string{"lamp"}, 10*time.Second
				b.ask()
				b.after(after)
				b.c.Abort()
				synctest.Wait()
				n := b.dev.played()
				b.after(20 * time.Second)
				if got := b.dev.played(); got != n {
					t.Errorf("%d packets after the abort", got-n)
				}
				h := b.history()
				checkCalls(t, h)
				for _, m := range h {
					if m.Role == RoleAssistant && m.Text != "" {
						t.Errorf("history has %+v", m)
					}
				}
			})
		})
	}
}

// TestAToolThatFailsIsExplained: whatever goes wrong, the user hears of it.
func TestAToolThatFailsIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		tool func(context.Context) (ToolResult, error)
		err  error  // of the model after the tool
		want string // spoken at the end
	}{
		"the model explains":         {func(context.Context) (ToolResult, error) { return ToolResult{}, errors.New("jammed") }, nil, "say:It failed: jammed. stop"},
		"a tool that never ends":     {func(ctx context.Context) (ToolResult, error) { <-ctx.Done(); return ToolResult{}, ctx.Err() }, nil, "say:It failed: context deadline exceeded. stop"},
		"the model fails, too":       {func(context.Context) (ToolResult, error) { return ToolResult{}, errors.New("jammed") }, errors.New("down"), "say:Sorry. stop"},
		"only the model, after that": {func(context.Context) (ToolResult, error) { return ToolResult{Text: "open"}, nil }, errors.New("down"), "say:Sorry. stop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, func(c *Config) { c.Filler = "" })
				b.c.p.Tools = toolFunc(func(ctx context.Context, _ Call) (ToolResult, error) { return c.tool(ctx) })
				b.c.p.LLM = modelFunc(func(_ context.Context, req *Request, yield func(Delta, error) bool) {
					switch last := req.Messages[len(req.Messages)-1]; {
					case last.Role != RoleTool:
						yield(Delta{Call: &Call{ID: "1", Name: "door", Args: []byte("{}")}}, nil)
					case c.err != nil:
						yield(Delta{}, c.err)
					case last.Failed:
						yield(Delta{Text: "It failed: " + last.Text + "."}, nil)
					}
				})
				b.ask()
				b.after(time.Minute)
				if got := b.dev.log(); !strings.HasSuffix(got, c.want) {
					t.Errorf("told %q, want %q", got, c.want)
				}
			})
		})
	}
}
