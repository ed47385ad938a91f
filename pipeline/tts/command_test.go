package tts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/internal/audio"
	"parley/pipeline"
	"parley/pipeline/tts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program returns a command that runs a shell script with the given arguments
// after it, and a directory, the script's $DIR.
func program(t *testing.T, script string, args ...string) (command []string, dir string, env []string) {
	t.Helper()
	dir = t.TempDir()
	path := filepath.Join(dir, "speak.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"/bin/sh", path}, args...), dir, []string{"DIR=" + dir}
}

func command(t *testing.T, cfg tts.CommandConfig) pipeline.Synthesizer {
	t.Helper()
	s, err := tts.NewCommand(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// speak returns all that s makes of sentence.
func speak(ctx context.Context, s pipeline.Synthesizer, sentence string) (pcm []int16, rate int, err error) {
	for a, e := range s.Synthesize(ctx, sentence) {
		if e != nil {
			return pcm, rate, e
		}
		pcm, rate = append(pcm, a.PCM...), a.Rate
	}
	return pcm, rate, nil
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestCommandFormats(t *testing.T) {
	pcm := make([]int16, 10_001)
	for i := range pcm {
		pcm[i] = int16(i * 3)
	}
	for format, file := range map[string][]byte{
		tts.FormatWAV: audio.AppendWAV(nil, 22050, pcm),
		tts.FormatRaw: append(audio.AppendPCM(nil, pcm), 0x7f), // half a sample too much
	} {
		cmd, dir, env := program(t, `cat "$DIR/out"`)
		if err := os.WriteFile(filepath.Join(dir, "out"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		s := command(t, tts.CommandConfig{Command: cmd, Env: env, Format: format, Rate: 22050})
		got, rate, err := speak(t.Context(), s, "hi")
		if err != nil || rate != 22050 || !slices.Equal(got, pcm) {
			t.Errorf("%s: %d samples at %d Hz, %v", format, len(got), rate, err)
		}
	}
}

func TestCommandEspeak(t *testing.T) {
	if _, err := exec.LookPath("espeak-ng"); err != nil {
		t.Skip("espeak-ng is not installed")
	}
	for _, cmd := range [][]string{{"espeak-ng", "--stdout"}, {"espeak-ng", "--stdout", "--", "{text}"}, {"espeak-ng", "--stdout", "{text}"}} {
		s := command(t, tts.CommandConfig{Command: cmd})
		for _, sentence := range []string{"Hello there, this is a test.", "-5 degrees", "--version", "--phonout=/nonexistent/x"} {
			pcm, rate, err := speak(t.Context(), s, sentence)
			if err != nil || rate != 22050 || len(pcm) < rate/4 {
				t.Errorf("%q of %q: %d samples at %d Hz, %v", cmd, sentence, len(pcm), rate, err)
			}
		}
	}
}

func TestCommandTextIsOnlyText(t *testing.T) {
	const script = `printf '<%s>' "$@" > "$DIR/args"; cat > "$DIR/stdin"; printf aa`
	for _, c := range []struct {
		args            []string
		sentence        string
		gotArgs, gotStd string
	}{
		{[]string{"--text", "{text}"}, "hello", "<--text><hello>", ""},
		{[]string{"{text}"}, "--output=/etc/passwd", "< --output=/etc/passwd>", ""},
		{[]string{"{text}!"}, "-x", "< -x!>", ""},
		{[]string{"--text={text}"}, "-x", "<--text=-x>", ""},
		{[]string{"{text}", "{text}"}, "a", "<a><a>", ""},
		{[]string{"{text}"}, "$(reboot); `reboot` \"'{text}", "<$(reboot); `reboot` \"'{text}>", ""},
		{[]string{"{text}"}, "\x00\n-a\x00b\r\nc\n", "< -a b  c>", ""},
		{[]string{"-q"}, "--help\nmore\n", "<-q>", "--help more\n"},
		{nil, "你好。", "<>", "你好。\n"},
	} {
		cmd, dir, env := program(t, script, c.args...)
		s := command(t, tts.CommandConfig{Command: cmd, Env: env, Format: tts.FormatRaw, Rate: 24000})
		if _, _, err := speak(t.Context(), s, c.sentence); err != nil {
			t.Errorf("%q: %v", c.sentence, err)
			continue
		}
		if args, std := read(t, dir, "args"), read(t, dir, "stdin"); args != c.gotArgs || std != c.gotStd {
			t.Errorf("%q of %q: arguments %q, standard input %q", c.args, c.sentence, args, std)
		}
	}
}

func TestCommandEnvironmentHoldsNoSecrets(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "hunter2")
	t.Setenv("LC_ALL", "C.UTF-8")
	cmd, dir, env := program(t, `env > "$DIR/env"; printf aa`)
	s := command(t, tts.CommandConfig{Command: cmd, Env: append(env, "VOICE=x"), Format: tts.FormatRaw, Rate: 24000})
	if _, _, err := speak(t.Context(), s, "hi"); err != nil {
		t.Fatal(err)
	}
	got := read(t, dir, "env")
	if strings.Contains(got, "hunter2") || !strings.Contains(got, "VOICE=x") || !strings.Contains(got, "LC_ALL=C.UTF-8") || !strings.Contains(got, "PATH=") {
		t.Errorf("the program's environment is %s", got)
	}
}

func TestCommandFailures(t *testing.T) {
	for name, c := range map[string]struct {
		script, format, says string
		samples              int
	}{
		"exit status":         {`echo first >&2; echo "no such voice: xx" >&2; echo >&2; exit 3`, tts.FormatWAV, "/bin/sh failed: exit status 3: no such voice: xx", 0},
		"exit status, silent": {`exit 3`, tts.FormatRaw, "failed: exit status 3", 0},
		"after some audio":    {`printf aabb; exit 1`, tts.FormatRaw, "exit status 1", 2},
		"no audio":            {`exit 0`, tts.FormatRaw, "wrote no audio", 0},
		"no audio, wav":       {`exit 0`, tts.FormatWAV, "wrote no audio", 0},
		"not wav":             {`echo Usage: speak`, tts.FormatWAV, "WAV", 0},
		"not wav, and fails":  {`echo Usage: speak; echo bad option >&2; exit 2`, tts.FormatWAV, "bad option", 0},
		"killed":              {`kill -9 $$`, tts.FormatRaw, "signal: killed", 0},
		"endless":             {`cat /dev/zero`, tts.FormatRaw, "writes too much", tts.MaxSpeech / 2},
		"leaves a child":      {`sleep 1000 & printf aa; exit 0`, tts.FormatRaw, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, _, env := program(t, c.script)
			s := command(t, tts.CommandConfig{Table: "tts.x", Command: cmd, Env: env, Format: c.format, Rate: 24000})
			pcm, _, err := speak(t.Context(), s, "hi")
			if err == nil || !strings.HasPrefix(err.Error(), "[tts.x]: ") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want %q", err, c.says)
			}
			if len(pcm) > c.samples {
				t.Errorf("%d samples, want at most %d", len(pcm), c.samples)
			}
		})
	}
}

func TestCommandMayBeSilentAboutPunctuation(t *testing.T) {
	cmd, _, env := program(t, `exit 0`)
	s := command(t, tts.CommandConfig{Command: cmd, Env: env})
	if pcm, _, err := speak(t.Context(), s, "…!"); err != nil || len(pcm) != 0 {
		t.Errorf("%d samples, %v", len(pcm), err)
	}
}

// TestCommandLeavesNoProcess ends runs in every way and looks for the program's
// child.
func TestCommandLeavesNoProcess(t *testing.T) {
	// The child ignores what can be ignored.
	const script = `(trap '' TERM HUP INT PIPE; echo $$ > /dev/null; exec sleep 1000) & echo $! > "$DIR/child"; printf aa; wait`
	reason := errors.New("interrupted")
	for name, end := range map[string]func(context.Context, context.CancelCauseFunc, pipeline.Synthesizer) error{
		"break": func(ctx context.Context, _ context.CancelCauseFunc, s pipeline.Synthesizer) error {
			for range s.Synthesize(ctx, "hi") {
				break
			}
			return nil
		},
		"cancel": func(ctx context.Context, cancel context.CancelCauseFunc, s pipeline.Synthesizer) (err error) {
			for _, err = range s.Synthesize(ctx, "hi") {
				cancel(reason)
			}
			if err != reason {
				return fmt.Errorf("cancelled with %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, dir, env := program(t, script)
			s := command(t, tts.CommandConfig{Command: cmd, Env: env, Format: tts.FormatRaw, Rate: 24000})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if err := end(ctx, cancel, s); err != nil {
				t.Error(err)
			}
			dies(t, strings.TrimSpace(read(t, dir, "child")))
		})
	}
}

func TestCommandTimeout(t *testing.T) {
	cmd, dir, env := program(t, `sleep 1000 & echo $! > "$DIR/child"; wait`)
	s := command(t, tts.CommandConfig{Command: cmd, Env: env, Timeout: 300 * time.Millisecond})
	_, _, err := speak(t.Context(), s, "hi")
	if err == nil || !strings.Contains(err.Error(), "stopped after 300ms") {
		t.Errorf("%v", err)
	}
	// A machine so busy that the script did not get to its child has none to leave.
	if pid, err := os.ReadFile(filepath.Join(dir, "child")); err == nil && len(pid) > 0 {
		dies(t, strings.TrimSpace(string(pid)))
	}
}

// dies waits for a process that was sent SIGKILL. The kernel takes its moment for
// one that is not our own child.
func dies(t *testing.T, pid string) {
	t.Helper()
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(time.Millisecond) {
		if state := processState(t, pid); state == "" || state == "Z" {
			return
		}
	}
	t.Errorf("the child %s is still there", pid)
}

// processState returns the state of a process as in proc(5), or "" if there is
// none. A killed process that its new parent has not waited for is "Z".
func processState(t *testing.T, pid string) string {
	t.Helper()
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		return "" // ESRCH: it went while we looked
	}
	_, after, _ := bytes.Cut(stat, []byte(") "))
	return string(after[:1])
}

// TestCommandDoesNotWaitForItsCaller holds one sentence half spoken, as a device
// that plays in real time does, while another is made in the only slot.
func TestCommandDoesNotWaitForItsCaller(t *testing.T) {
	cmd, _, env := program(t, `head -c 2000000 /dev/zero`) // far more than a pipe holds
	s := command(t, tts.CommandConfig{Command: cmd, Env: env, Format: tts.FormatRaw, Rate: 24000, Concurrent: 1})
	total := 0
	for a, err := range s.Synthesize(t.Context(), "one") {
		if err != nil {
			t.Fatal(err)
		}
		if total == 0 {
			if pcm, _, err := speak(t.Context(), s, "two"); err != nil || len(pcm) != 1_000_000 {
				t.Errorf("the other: %d samples, %v", len(pcm), err)
			}
		}
		total += len(a.PCM)
	}
	if total != 1_000_000 {
		t.Errorf("%d samples", total)
	}
}

func TestCommandConcurrency(t *testing.T) {
	cmd, dir, env := program(t, `: > "$DIR/run.$$"; ls "$DIR" | grep -c run >> "$DIR/seen"; sleep 0.05; rm "$DIR/run.$$"; printf aa`)
	s := command(t, tts.CommandConfig{Command: cmd, Env: env, Format: tts.FormatRaw, Rate: 24000, Concurrent: 2})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, _, err := speak(t.Context(), s, "hi"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	seen := strings.Fields(read(t, dir, "seen"))
	if len(seen) != 8 || slices.ContainsFunc(seen, func(n string) bool { return n != "1" && n != "2" }) {
		t.Errorf("8 runs saw %v under way", seen)
	}
}

func TestCommandWaitsForASlotOnlyWhileWanted(t *testing.T) {
	cmd, _, env := program(t, `printf aa; sleep 1000`)
	s := command(t, tts.CommandConfig{Command: cmd, Env: env, Format: tts.FormatRaw, Rate: 24000, Concurrent: 1})
	for range s.Synthesize(t.Context(), "one") {
		reason := errors.New("hung up")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(reason)
		if _, _, err := speak(ctx, s, "two"); err != reason {
			t.Errorf("%v", err)
		}
		break
	}
}

func TestCommandConfig(t *testing.T) {
	sh := []string{"/bin/sh"}
	for says, cfg := range map[string]tts.CommandConfig{
		"command is empty":                   {},
		"command begins with {text}":         {Command: []string{"{text}"}},
		`format "mp3" is not known`:          {Command: sh, Format: "mp3"},
		"rate is 0 Hz":                       {Command: sh, Format: tts.FormatRaw},
		"timeout is -1ns":                    {Command: sh, Timeout: -1},
		"cannot run command: exec: \"no-suc": {Command: []string{"no-such-program"}},
	} {
		cfg.Table = "tts.x"
		if _, err := tts.NewCommand(cfg); err == nil || !strings.HasPrefix(err.Error(), "[tts.x]: "+says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
	if _, _, err := speak(t.Context(), command(t, tts.CommandConfig{Command: sh}), strings.Repeat("x", tts.MaxSentence+1)); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a long sentence: %v", err)
	}
}
