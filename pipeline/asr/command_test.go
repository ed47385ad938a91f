package asr_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/internal/audio"
	"parley/pipeline"
	"parley/pipeline/asr"
)

// actAs names the environment variable that makes the test's own binary act as
// a recogniser.
const actAs = "PARLEY_TEST_RECOGNISER"

func TestMain(m *testing.M) {
	if act := os.Getenv(actAs); act != "" {
		if err := recogniser(act, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// recogniser is the main function of a recogniser for tests.
func recogniser(act string, args []string) error {
	switch act {
	case "wav": // says what it was given as WAV on standard input
		pcm, rate, err := audio.ReadWAV(os.Stdin, 1<<20)
		fmt.Printf("%d samples at %d, last %d\n", len(pcm), rate, pcm[len(pcm)-1])
		return err
	case "raw":
		data, err := io.ReadAll(os.Stdin)
		fmt.Printf("%d bytes\n", len(data))
		return err
	case "file": // the same of a file, and who may read it
		data, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		info, err := os.Stat(args[1])
		if err != nil {
			return err
		}
		pcm, _, err := audio.ReadWAV(bytes.NewReader(data), 1<<20)
		fmt.Printf("%s %d samples %v %s\n", args[0], len(pcm), info.Mode().Perm(), args[1])
		return err
	case "print":
		fmt.Print(args[0])
	case "environment":
		for _, entry := range os.Environ() {
			fmt.Println(entry)
		}
	case "fail":
		fmt.Fprint(os.Stderr, "loading\nno such model: tiny\n\n")
		return nil
	case "exit":
		return errors.New("loading\nno such model: tiny\n")
	case "flood":
		for {
			if _, err := os.Stdout.Write(make([]byte, 4096)); err != nil {
				return err
			}
		}
	case "alone": // fails if another one runs in the same directory
		if err := os.Mkdir(args[0], 0o700); err != nil {
			return err
		}
		return os.Remove(args[0])
	case "hang": // starts a child that holds the pipe open, and writes both ids
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), actAs+"=sleep")
		child.Stdout = os.Stdout
		if err := child.Start(); err != nil {
			return err
		}
		text := fmt.Sprint(os.Getpid(), " ", child.Process.Pid)
		if err := os.WriteFile(args[0], []byte(text), 0o600); err != nil {
			return err
		}
		select {}
	case "sleep":
		select {}
	}
	return nil
}

// newCommand returns a transcriber that runs the test's binary.
func newCommand(t *testing.T, act string, cfg asr.CommandConfig, args ...string) pipeline.Transcriber {
	t.Helper()
	cfg.Command = append([]string{os.Args[0]}, args...)
	// A binary with the race detector waits for a second before it exits.
	cfg.Env = append(cfg.Env, actAs+"="+act, "GORACE=atexit_sleep_ms=0")
	c, err := asr.NewCommand(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tone is half a second of audio that ends with the sample 77.
func tone() []int16 {
	pcm := make([]int16, pipeline.SampleRate/2)
	pcm[len(pcm)-1] = 77
	return pcm
}

func TestCommandGivesTheUtterance(t *testing.T) {
	for _, test := range []struct{ act, format, want string }{
		{"wav", "", "8000 samples at 16000, last 77"},
		{"raw", asr.FormatRaw, "16000 bytes"},
	} {
		got, err := transcribe(t, newCommand(t, test.act, asr.CommandConfig{Format: test.format}), tone())
		if err != nil || got.Text != test.want {
			t.Errorf("%s: %q, %v, want %q", test.act, got.Text, err, test.want)
		}
	}
}

func TestCommandGivesAFile(t *testing.T) {
	got, err := transcribe(t, newCommand(t, "file", asr.CommandConfig{}, "--quiet", "{file}"), tone())
	if err != nil {
		t.Fatal(err)
	}
	if want := "--quiet 8000 samples -rw------- "; !strings.HasPrefix(got.Text, want) {
		t.Errorf("%q, want %q and the file", got.Text, want)
	}
	file := got.Text[strings.LastIndexByte(got.Text, ' ')+1:]
	if _, err := os.Stat(filepath.Dir(file)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of %s is left behind: %v", file, err)
	}
}

func TestCommandCleansTheText(t *testing.T) {
	for output, want := range map[string]string{
		"  Turn it  up.\r\n": "Turn it up.",
		"\n[00:00:00.000 --> 00:00:02.000]   Turn it up.\n[00:00:02.000 --> 00:00:03.000]   Please.\n": "Turn it up. Please.",
		"[BLANK_AUDIO]":                    "",
		" (wind blowing) Hello [MUSIC] ♪♪": "Hello",
		"a [b":                             "a [b",
		"":                                 "",
		"caf\xe9 caf\u00e9":                "caf café",
	} {
		got, err := transcribe(t, newCommand(t, "print", asr.CommandConfig{}, output), tone())
		if err != nil || got.Text != want || got.Rejected {
			t.Errorf("%q: %+v, %v, want %q", output, got, err, want)
		}
	}
}

func TestCommandKeepsTheEnvironmentFromTheProgram(t *testing.T) {
	t.Setenv("OPENAI_API_KEY", "secret")
	t.Setenv("LC_TEST", "language")
	got, err := transcribe(t, newCommand(t, "environment", asr.CommandConfig{Env: []string{"MODEL=tiny"}}), tone())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"PATH=", "MODEL=tiny", "LC_TEST=language"} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("the environment lacks %s: %s", want, got.Text)
		}
	}
	if strings.Contains(got.Text, "secret") {
		t.Error("the environment holds the server's key")
	}
}

func TestCommandFails(t *testing.T) {
	for _, test := range []struct {
		act  string
		cfg  asr.CommandConfig
		want string
	}{
		{"exit", asr.CommandConfig{}, "failed: exit status 3: no such model: tiny"},
		{"flood", asr.CommandConfig{}, "it writes too much: more than 65536 bytes"},
		{"sleep", asr.CommandConfig{Timeout: 50 * time.Millisecond}, "was stopped after 50ms, see timeout"},
	} {
		got, err := transcribe(t, newCommand(t, test.act, test.cfg), tone())
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "[asr.command]: ") {
			t.Errorf("%s: %+v, %v, want an error with %q", test.act, got, err, test.want)
		}
	}
	if got, err := transcribe(t, newCommand(t, "fail", asr.CommandConfig{}), tone()); err != nil || got.Text != "" {
		t.Errorf("messages without failure: %+v, %v", got, err)
	}
}

func TestCommandSkipsWhatHoldsNoWord(t *testing.T) {
	got, err := transcribe(t, newCommand(t, "exit", asr.CommandConfig{}), make([]int16, 1000))
	if err != nil || got.Text != "" {
		t.Errorf("62 ms: %+v, %v, want an empty transcript without running the program", got, err)
	}
}

// The end of the context ends the program and what it started.
func TestCommandEndsWithTheContext(t *testing.T) {
	ids := pipe(t)
	c := newCommand(t, "hang", asr.CommandConfig{}, ids)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("hung up")
	var text []byte
	var reader sync.WaitGroup
	reader.Go(func() {
		defer cancel(cause)
		var err error
		if text, err = os.ReadFile(ids); err != nil { // waits for the program to write
			t.Error(err)
		}
	})
	speech := make(chan []int16, 1)
	speech <- tone()
	close(speech)
	for got, err := range c.Transcribe(ctx, speech) {
		if !errors.Is(err, cause) {
			t.Errorf("%+v, %v, want the cause", got, err)
		}
	}
	reader.Wait()
	for id := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		// The signal has been sent; the kernel needs a moment for a process that
		// nobody waits for.
		for deadline := time.Now().Add(10 * time.Second); running(pid); runtime.Gosched() {
			if time.Now().After(deadline) {
				t.Fatalf("process %d of %q is still running", pid, text)
			}
		}
	}
}

// pipe makes a named pipe, whose reader waits for a writer.
func pipe(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// running reports whether a process exists and is not merely a remnant its new
// parent has yet to collect.
func running(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z") && !strings.HasPrefix(rest, "X")
}

func TestCommandWaitsForASlot(t *testing.T) {
	c := newCommand(t, "alone", asr.CommandConfig{Concurrent: 1}, filepath.Join(t.TempDir(), "taken"))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, err := transcribe(t, c, tone()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestCommandStopsWaitingForASlot(t *testing.T) {
	ids := pipe(t)
	c := newCommand(t, "hang", asr.CommandConfig{Concurrent: 1}, ids)
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		speech := make(chan []int16, 1)
		speech <- tone()
		close(speech)
		for range c.Transcribe(ctx, speech) {
		}
	})
	if _, err := os.ReadFile(ids); err != nil { // waits for the program to write
		t.Fatal(err)
	}
	second, end := context.WithTimeout(t.Context(), time.Millisecond)
	defer end()
	speech := make(chan []int16, 1)
	speech <- tone()
	close(speech)
	for got, err := range c.Transcribe(second, speech) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%+v, %v, want the deadline", got, err)
		}
	}
	cancel()
	first.Wait()
}

func TestCommandRefusesWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		cfg  asr.CommandConfig
		want string
	}{
		{asr.CommandConfig{}, "command is empty"},
		{asr.CommandConfig{Command: []string{"{file}"}}, "the first element is the program"},
		{asr.CommandConfig{Command: []string{"true"}, Format: "mp3"}, `format "mp3" is not known`},
		{asr.CommandConfig{Command: []string{"true"}, Timeout: -1}, "must not be negative"},
		{asr.CommandConfig{Command: []string{"parley-has-no-such-program"}}, "install it or correct command"},
	} {
		_, err := asr.NewCommand(test.cfg)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "[asr.command]: ") {
			t.Errorf("%+v: error %v, want one with %q", test.cfg, err, test.want)
		}
	}
}

// The configuration belongs to the caller, who may use it again.
func TestCommandCopiesItsConfiguration(t *testing.T) {
	cfg := asr.CommandConfig{Command: []string{os.Args[0], "hello"}, Env: []string{actAs + "=print", "GORACE=atexit_sleep_ms=0"}}
	before := slices.Clone(cfg.Command)
	c, err := asr.NewCommand(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Command[1] = "changed"
	if got, err := transcribe(t, c, tone()); err != nil || got.Text != before[1] {
		t.Errorf("%+v, %v, want %q", got, err, before[1])
	}
}
