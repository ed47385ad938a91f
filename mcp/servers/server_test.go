package servers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/mcp"
)

func TestAGoodServer(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "sk-secret")
	cfg := self("good")
	cfg.Dir = t.TempDir()
	cfg.Env["OWN"] = "yes"
	cfg.Args = []string{"with space", "$HOME", "; touch x"}
	f := run(t, cfg, Options{Version: "1.2.3"})
	if h := f.waitState(Ready); h.Tools != 5 || h.Restarts != 0 || h.Err != nil {
		t.Errorf("health is %+v", h)
	}
	if r := f.call("add", `{"A":2,"B":3}`); r.Text != "5" {
		t.Errorf("add says %q", r.Text)
	}
	a := f.about()
	if dir, _ := filepath.EvalSymlinks(cfg.Dir); a.Dir != dir {
		t.Errorf("it runs in %s, want %s", a.Dir, dir)
	}
	if env := strings.Join(a.Env, "\n"); strings.Contains(env, "sk-secret") || !slices.Contains(a.Env, "OWN=yes") || !strings.Contains(env, "PATH=") {
		t.Errorf("environment:\n%s", env)
	}
	if !slices.Equal(a.Args, cfg.Args) {
		t.Errorf("arguments %q, want %q: no shell may touch them", a.Args, cfg.Args)
	}
	f.stop()
	mustGo(t, "the program", a.PID)
	if h := f.Health(); h.State != Stopped || h.Tools != 0 {
		t.Errorf("after the end health is %+v", h)
	}
}

// TestBadServersDoTheirWork has servers that break every rule and still answer.
func TestBadServersDoTheirWork(t *testing.T) {
	for _, role := range []string{"rubbish", "huge", "twice"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			var counters mcp.ClientCounters
			cfg := self(role)
			cfg.Timeout = patience
			f := run(t, cfg, Options{Sessions: &counters})
			f.waitState(Ready)
			if r := f.call("do", "{}"); r.Text != "here" {
				t.Errorf("the answer is %q", r.Text)
			}
			if counters.Malformed.Load()+counters.TooLarge.Load()+counters.Unexpected.Load() == 0 {
				t.Error("nothing was counted")
			}
		})
	}
}

// TestAHangingServer keeps a server that never answers next to a good one.
func TestAHangingServer(t *testing.T) {
	for _, role := range []string{"hanging", "deaf"} {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			bad := run(t, self(role), Options{})
			good := run(t, self("good"), Options{})
			good.waitState(Ready)
			if r := good.call("add", `{"A":1,"B":1}`); r.Text != "2" {
				t.Errorf("the good server says %q", r.Text)
			}
			if h := bad.Health(); h.State != Starting || h.Tools != 0 {
				t.Errorf("health is %+v", h)
			}
			if _, err := bad.Call(t.Context(), "do", nil); !errors.Is(err, mcp.ErrClosed) || !strings.Contains(err.Error(), "try later") {
				t.Errorf("the call says %v", err)
			}
			var pid int
			if !eventually(func() bool { pid = bad.log.pid(); return pid > 0 }) {
				t.Fatalf("it never started:\n%s", bad.log)
			}
			began := time.Now()
			bad.stop()
			mustGo(t, "the program", pid)
			if took := time.Since(began); role == "hanging" && took < askAfter || role == "deaf" && took < killAfter {
				t.Errorf("it was ended after %v already", took)
			}
		})
	}
}

func TestACallTakesTooLong(t *testing.T) {
	cfg := self("good")
	cfg.Timeout = 50 * time.Millisecond
	f := run(t, cfg, Options{})
	f.waitState(Ready)
	if _, err := f.Call(t.Context(), "hang", nil); !errors.Is(err, mcp.ErrTimeout) {
		t.Errorf("the call says %v", err)
	}
	if h := f.Health(); h.State != Ready {
		t.Errorf("health is %+v", h)
	}
}

func TestAServerThatDiesDuringACall(t *testing.T) {
	f := run(t, self("good"), Options{})
	f.waitState(Ready)
	old := f.about().PID
	_, err := f.Call(t.Context(), "die", nil)
	if !errors.Is(err, mcp.ErrClosed) || !strings.Contains(err.Error(), "being started again") {
		t.Errorf("the call says %v", err)
	}
	mustGo(t, "the program", old)
	if h := f.waitState(Waiting); len(f.Tools()) != 0 {
		t.Errorf("tools are left: %+v", h)
	}
	if !eventually(func() bool { return f.Health().Err != nil }) || !strings.Contains(f.Health().Err.Error(), "exit status 3") {
		t.Errorf("health says %v", f.Health().Err)
	}
	if h := f.waitState(Ready); h.Restarts != 1 || h.Err != nil {
		t.Errorf("after the restart health is %+v", h)
	}
	if f.about().PID == old {
		t.Error("it is the same process")
	}
	if n := f.log.count("mcp server failed"); n != 1 {
		t.Errorf("the failure was logged %d times:\n%s", n, f.log)
	}
}

func TestAServerThatDiesEachTime(t *testing.T) {
	var counters Counters
	f := run(t, self("dying"), Options{Counters: &counters})
	f.waitState(Ready)
	if _, err := f.Call(t.Context(), "do", nil); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("the call says %v", err)
	}
	f.waitState(Waiting)
	if !eventually(func() bool { return counters.Failures.Load() == 1 && counters.Starts.Load() >= 1 }) {
		t.Errorf("counted %d starts, %d failures", counters.Starts.Load(), counters.Failures.Load())
	}
}

func TestMessagesGoToTheLog(t *testing.T) {
	var counters Counters
	f := run(t, self("shouting"), Options{Counters: &counters})
	f.waitState(Ready)
	f.stop()
	text := f.log.String()
	if !strings.Contains(text, `msg="mcp server says" server=shouting line="first [31m"`) {
		t.Error("the first line is missing, or has control characters")
	}
	if n := strings.Count(text, "mcp server says"); n < lineBurst || n > 2*lineBurst {
		t.Errorf("%d lines were logged, want some %d", n, lineBurst)
	}
	if strings.Contains(text, strings.Repeat("long", maxLine/4+1)) {
		t.Error("a long line was not cut")
	}
	said := strings.Count(text, "line=")
	if n := counters.Dropped.Load(); n == 0 || int(n)+said != 1002 || !strings.Contains(text, "left out") {
		t.Errorf("%d lines are in the log and %d counted as dropped, of 1002", said, n)
	}
}

func TestNewFindsFaults(t *testing.T) {
	dir := t.TempDir()
	script := filepath.Join(dir, "tool")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  Config
		want string // "" is none
	}{
		"no name":          {Config{Command: "sh"}, "give the server a name"},
		"a name of ours":   {Config{Name: "home", Command: "sh"}, "rename the server"},
		"or disabled":      {Config{Name: "device", Command: "sh", Disabled: true}, "rename the server"},
		"nothing":          {Config{Name: "a"}, "neither command nor url"},
		"both":             {Config{Name: "a", Command: "sh", URL: "http://x/"}, "both set"},
		"not there":        {Config{Name: "a", Command: "no-such-program"}, "no-such-program"},
		"no directory":     {Config{Name: "a", Command: "sh", Dir: dir + "/none"}, "cwd"},
		"relative":         {Config{Name: "a", Command: "./tool", Dir: dir}, ""},
		"relative, absent": {Config{Name: "a", Command: "./tool"}, "install it"},
		"PATH of its own":  {Config{Name: "a", Command: "tool", Env: map[string]string{"PATH": "/none:" + dir}}, ""},
		"empty PATH":       {Config{Name: "a", Command: "sh", Env: map[string]string{"PATH": "/none"}}, "install it"},
		"disabled":         {Config{Name: "a", Command: "no-such-program", Disabled: true}, ""},
		"transport":        {Config{Name: "a", Command: "sh", Transport: "websocket"}, "stdio, http or sse"},
		"sse program":      {Config{Name: "a", Command: "sh", Transport: "sse"}, "set url instead"},
		"stdio service":    {Config{Name: "a", URL: "http://x/", Transport: "stdio"}, "set command instead"},
		"no url":           {Config{Name: "a", URL: "x?key=secret"}, "url is none"},
		"broken url":       {Config{Name: "a", URL: "http://x/%zz?key=secret"}, "url is none"},
		"file url":         {Config{Name: "a", URL: "file:///etc/passwd"}, "url is none"},
		"alias":            {Config{Name: "a", URL: "http://x/", Transport: "streamableHttp"}, ""},
		"header name":      {Config{Name: "a", URL: "http://x/", Headers: map[string]string{"A B": "secret"}}, `"A B"`},
		"header value":     {Config{Name: "a", URL: "http://x/", Headers: map[string]string{"A": "secret\r\nB: c"}}, `"A"`},
		"host header":      {Config{Name: "a", URL: "http://x/", Headers: map[string]string{"host": "y"}}, "into url"},
		"timeout":          {Config{Name: "a", Command: "sh", Timeout: time.Hour}, "10m0s"},
		"variable":         {Config{Name: "a", Command: "sh", Env: map[string]string{"A=B": ""}}, `"A=B"`},
		"NUL":              {Config{Name: "a", Command: "sh", Args: []string{"a\x00b"}}, "NUL"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.cfg, Options{}, new(logbook).logger())
			switch {
			case c.want == "" && err != nil, c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %q", err, c.want)
			case err != nil && strings.Contains(err.Error(), "secret"):
				t.Errorf("the error tells a key: %v", err)
			}
		})
	}
}

func TestADisabledServer(t *testing.T) {
	s, err := New(Config{Name: "a", Command: "no-such-program", Disabled: true}, Options{}, new(logbook).logger())
	if err != nil {
		t.Fatal(err)
	}
	s.Run(context.Background()) // returns
	if h := s.Health(); h.State != Disabled || h.Name != "a" {
		t.Errorf("health is %+v", h)
	}
	if _, err := s.Call(t.Context(), "x", nil); !errors.Is(err, mcp.ErrClosed) {
		t.Errorf("the call says %v", err)
	}
}

// TestAProgramThatIsNotThereAnyMore is found by New and missing later.
func TestAProgramThatIsNotThereAnyMore(t *testing.T) {
	script := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, log: new(logbook)}
	s, err := New(Config{Name: "a", Command: script}, Options{}, f.log.logger())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(script); err != nil {
		t.Fatal(err)
	}
	f.Server = s
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	h := f.waitState(Waiting)
	cancel()
	<-done
	if h.Err == nil || !strings.Contains(h.Err.Error(), "install it") {
		t.Errorf("health says %v", h.Err)
	}
}
