package asr_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"parley/internal/phrase"
	"parley/pipeline"
	"parley/pipeline/asr"
)

func patterns(t *testing.T, sources ...string) []*phrase.Pattern {
	t.Helper()
	var list []*phrase.Pattern
	for _, source := range sources {
		p, err := phrase.Parse(source)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
	return list
}

func startPocketsphinx(t *testing.T, cfg asr.PocketsphinxConfig) *asr.Pocketsphinx {
	t.Helper()
	p, err := asr.NewPocketsphinx(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func TestPocketsphinxTellsSilenceFromSpeech(t *testing.T) {
	p := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello", "set volume to {n:number}")})
	hiss := make([]int16, pipeline.SampleRate)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range hiss {
		hiss[i] = int16(random.NormFloat64() * 30)
	}
	for name, pcm := range map[string][]int16{
		"nothing": nil, "50 ms": make([]int16, 800), "silence": make([]int16, pipeline.SampleRate), "hiss": hiss,
	} {
		if got, err := transcribe(t, p, pcm); err != nil || got.Text != "" || got.Rejected {
			t.Errorf("%s: %+v, %v, want an empty transcript", name, got, err)
		}
	}
	long := make([]int16, pipeline.SampleRate*int(asr.MaxCommand.Seconds())+1)
	if got, err := transcribe(t, p, long); err != nil || !got.Rejected {
		t.Errorf("more than MaxCommand: %+v, %v, want Rejected", got, err)
	}
}

// What is rejected as a saying is understood once a rule is about it.
func TestPocketsphinxSayings(t *testing.T) {
	no := speaker("flite rms").say(t, "no", 0)
	without := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello")})
	if got, err := transcribe(t, without, no); err != nil || !got.Rejected || got.Text != "" {
		t.Errorf("without a rule: %+v, %v, want Rejected", got, err)
	}
	with := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello", "no")})
	if got, err := transcribe(t, with, no); err != nil || got.Text != "no" || got.Rejected {
		t.Errorf("with a rule: %+v, %v, want %q", got, err, "no")
	}
}

func TestPocketsphinxPronounce(t *testing.T) {
	p := startPocketsphinx(t, asr.PocketsphinxConfig{
		Patterns:  patterns(t, "hello xiaozhi", "goodbye"),
		Pronounce: map[string]string{"Xiaozhi": "SH AW JH ER"},
	})
	if got, err := transcribe(t, p, speaker("flite rms").say(t, "hello shao jer", 0)); err != nil || got.Text != "hello xiaozhi" {
		t.Errorf("%+v, %v, want %q", got, err, "hello xiaozhi")
	}
}

func TestPocketsphinxRefusesWhatIsWrong(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	hello := patterns(t, "hello")
	empty := filepath.Join(t.TempDir(), "empty.dict")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name string
		cfg  asr.PocketsphinxConfig
		want string
	}{
		{"nothing to understand", asr.PocketsphinxConfig{}, "none of the patterns can be in a grammar"},
		{"program", asr.PocketsphinxConfig{Patterns: hello, Program: "parley-has-no-such-program"}, "install it or correct command"},
		{"dictionary", asr.PocketsphinxConfig{Patterns: hello, Dictionary: "/nowhere"}, "install pocketsphinx-en-us or correct dictionary"},
		{"empty dictionary", asr.PocketsphinxConfig{Patterns: hello, Dictionary: empty}, "holds no pronunciations"},
		{"word", asr.PocketsphinxConfig{Patterns: patterns(t, "hello xiaozhi")}, `"xiaozhi" of the phrases to understand is not in`},
		{"phone", asr.PocketsphinxConfig{Patterns: hello, Pronounce: map[string]string{"hello": "HH AX"}}, `"hello" is not spoken as "HH AX"`},
		{"model", asr.PocketsphinxConfig{Patterns: hello, Model: "/nowhere"}, "install pocketsphinx-en-us or correct model"},
	} {
		p, err := asr.NewPocketsphinx(test.cfg)
		if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "[asr.pocketsphinx]: ") {
			t.Errorf("%s: %v, error %v, want one with %q", test.name, p, err, test.want)
		}
	}
	left, err := os.ReadDir(temporary)
	if err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v, %v", left, err)
	}
}

func TestPocketsphinxTriesItsModel(t *testing.T) {
	if err := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello")}).Try(t.Context()); err != nil {
		t.Error(err)
	}
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "mdef"), []byte("not a model"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello"), Model: broken}).Try(t.Context())
	if err == nil || !strings.Contains(err.Error(), "pocketsphinx_batch failed") {
		t.Errorf("a broken model: %v", err)
	}
}

// The default rules have many phrases for other recognisers: one line says how
// many, and which they are only those are told who look for it.
func TestPocketsphinxSaysWhatItCannotHear(t *testing.T) {
	for level, names := range map[slog.Level]bool{slog.LevelInfo: false, slog.LevelDebug: true} {
		var log bytes.Buffer
		startPocketsphinx(t, asr.PocketsphinxConfig{
			Patterns: patterns(t, "hello", "remind me to {what}", "你好"),
			Logger:   slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: level})),
		})
		text := log.String()
		if !strings.Contains(text, "phrases=2 of=3") || strings.Contains(text, "level=WARN") {
			t.Errorf("log %q, want two of three phrases, and no alarm", text)
		}
		if strings.Contains(text, "remind me to {what}") != names {
			t.Errorf("at %v the log is %q; names the phrases: %t expected", level, text, names)
		}
	}
}

func TestPocketsphinxClose(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	p := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello")})
	if left, err := os.ReadDir(temporary); err != nil || len(left) != 1 {
		t.Errorf("the recogniser has %v, %v, want a directory of its own", left, err)
	}

	speech := make(chan []int16) // never closed
	var listening sync.WaitGroup
	listening.Go(func() {
		for got, err := range p.Transcribe(context.Background(), speech) {
			if !errors.Is(err, asr.ErrClosed) {
				t.Errorf("while closing: %+v, %v, want ErrClosed", got, err)
			}
		}
	})
	speech <- tone()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	listening.Wait()
	if got, err := transcribe(t, p, tone()); !errors.Is(err, asr.ErrClosed) {
		t.Errorf("after closing: %+v, %v, want ErrClosed", got, err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v, %v", left, err)
	}
}

func TestPocketsphinxEndsWithTheContext(t *testing.T) {
	p := startPocketsphinx(t, asr.PocketsphinxConfig{Patterns: patterns(t, "hello")})
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("hung up")
	speech := make(chan []int16)
	go func() {
		speech <- tone()
		cancel(cause)
	}()
	for got, err := range p.Transcribe(ctx, speech) {
		if !errors.Is(err, cause) {
			t.Errorf("%+v, %v, want the cause", got, err)
		}
	}
}
