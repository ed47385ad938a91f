package asr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"parley/internal/audio"
	"parley/internal/phrase"
	"parley/internal/program"
	"parley/pipeline"
)

// Where Debian's packages pocketsphinx and pocketsphinx-en-us put what is
// needed.
const (
	DefaultSphinxProgram    = "pocketsphinx_batch"
	DefaultSphinxModel      = "/usr/share/pocketsphinx/model/en-us/en-us"
	DefaultSphinxDictionary = "/usr/share/pocketsphinx/model/en-us/cmudict-en-us.dict"
)

// MaxCommand is the longest utterance [Pocketsphinx] looks at; longer speech is
// rejected. It bounds the work an utterance makes to about a second of a core.
const MaxCommand = 12 * time.Second

// ErrClosed is the error of a recogniser that was used after its Close.
var ErrClosed = errors.New("the recogniser is closed")

// A PocketsphinxConfig describes an offline recogniser of commands.
type PocketsphinxConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "asr.pocketsphinx".
	Table string
	// Patterns are what can be understood. Those that are not speakable are
	// passed over, with a warning; see [phrase.Pattern.Speakable].
	Patterns []*phrase.Pattern
	// Program is CMU Sphinx's pocketsphinx_batch; empty is
	// [DefaultSphinxProgram].
	Program string
	// Model is the directory of the acoustic model; empty is
	// [DefaultSphinxModel].
	Model string
	// Dictionary is the file of pronunciations; empty is
	// [DefaultSphinxDictionary].
	Dictionary string
	// Pronounce adds pronunciations of words that the dictionary lacks, in its
	// phones, such as "parley": "P AA R L IY".
	Pronounce map[string]string
	// Timeout is how long one utterance may take; 0 is
	// [program.DefaultTimeout].
	Timeout time.Duration
	// Concurrent is how many utterances may be recognised at the same time; 0 is
	// the number of cores. Further ones wait.
	Concurrent int
	// Logger takes the warning about patterns that are not speakable. Nil drops
	// it.
	Logger *slog.Logger
}

// A Pocketsphinx recognises the utterances of a grammar, made of the patterns of
// rules, and rejects all other speech. It needs no network.
//
// It runs pocketsphinx_batch twice for each utterance, side by side: once with
// the grammar, and once with a loop of all phones of the language, which can
// follow any speech. Speech of the grammar fits the grammar about as well as it
// fits the loop, and other speech does not; see docs/offline-recognition.md. A
// third answer guards against the shortest words: the grammar holds common
// sayings, such as "no", which are rejected when recognised.
//
// A Pocketsphinx is safe for concurrent use.
type Pocketsphinx struct {
	table   string
	program *program.Program
	name    string // of the program, for errors
	model   string
	dir     string
	decoys  map[string]bool

	ctx    context.Context // ends at Close
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	under  sync.WaitGroup // calls of Transcribe under way
}

// NewPocketsphinx returns a recogniser, or an error that names the setting that
// is wrong. It writes the grammar and a dictionary of its words to a directory
// of its own, and runs nothing: see [Pocketsphinx.Try].
func NewPocketsphinx(cfg PocketsphinxConfig) (*Pocketsphinx, error) {
	setDefault(&cfg.Table, "asr.pocketsphinx")
	setDefault(&cfg.Program, DefaultSphinxProgram)
	setDefault(&cfg.Model, DefaultSphinxModel)
	setDefault(&cfg.Dictionary, DefaultSphinxDictionary)
	if cfg.Concurrent == 0 {
		cfg.Concurrent = runtime.NumCPU()
	}
	found, err := program.Find(program.Config{
		Name: cfg.Program, Timeout: cfg.Timeout, Concurrent: passes * cfg.Concurrent,
	})
	if err != nil {
		return nil, fmt.Errorf("[%s]: %w", cfg.Table, err)
	}
	dir, err := os.MkdirTemp("", "parley-sphinx-")
	if err != nil {
		return nil, fmt.Errorf("[%s]: %w", cfg.Table, err)
	}
	p := &Pocketsphinx{table: cfg.Table, program: found, name: cfg.Program, model: cfg.Model, dir: dir}
	p.ctx, p.cancel = context.WithCancelCause(context.Background())
	if err := p.setUp(cfg); err != nil {
		return nil, errors.Join(fmt.Errorf("[%s]: %w", cfg.Table, err), p.Close())
	}
	return p, nil
}

func setDefault(s *string, value string) {
	if *s == "" {
		*s = value
	}
}

func (p *Pocketsphinx) setUp(cfg PocketsphinxConfig) error {
	if _, err := os.Stat(filepath.Join(cfg.Model, "mdef")); err != nil {
		return fmt.Errorf("model: %w; install pocketsphinx-en-us or correct model", err)
	}
	decoys, err := writeModels(p.dir, cfg)
	if err != nil {
		return err
	}
	p.decoys = decoys
	return nil
}

// Try runs the program once, on silence, to see that it works with the grammar
// and the model. It takes some 20 ms.
func (p *Pocketsphinx) Try(ctx context.Context) error {
	if !p.begin() {
		return fmt.Errorf("[%s]: %w", p.table, ErrClosed)
	}
	defer p.under.Done()
	if _, err := p.recognise(ctx, make([]int16, pipeline.SampleRate/5)); err != nil {
		return fmt.Errorf("[%s]: %w", p.table, err)
	}
	return nil
}

// Close ends all calls of Transcribe under way with [ErrClosed], waits for them
// and removes the recogniser's files. It may be called more than once.
func (p *Pocketsphinx) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel(ErrClosed)
	p.under.Wait()
	return os.RemoveAll(p.dir)
}

// begin notes that a call is under way, unless the recogniser is closed.
func (p *Pocketsphinx) begin() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.under.Add(1)
	}
	return !p.closed
}

// Transcribe implements [pipeline.Transcriber]. It yields one transcript once the
// audio is closed: a command, nothing where nobody spoke, or Rejected.
func (p *Pocketsphinx) Transcribe(ctx context.Context, speech <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) {
		if !p.begin() {
			yield(pipeline.Transcript{}, fmt.Errorf("[%s]: %w", p.table, ErrClosed))
			return
		}
		defer p.under.Done()
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer context.AfterFunc(p.ctx, func() { cancel(ErrClosed) })()
		transcript, err := p.transcribe(ctx, speech)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			yield(pipeline.Transcript{}, err)
			return
		}
		yield(transcript, nil)
	}
}

func (p *Pocketsphinx) transcribe(ctx context.Context, speech <-chan []int16) (pipeline.Transcript, error) {
	final := pipeline.Transcript{Final: true}
	pcm, err := collect(ctx, speech)
	switch {
	case err != nil:
		return pipeline.Transcript{}, err
	case len(pcm) < samplesIn(minUtterance):
		return final, nil
	case len(pcm) > samplesIn(MaxCommand):
		final.Rejected = true
		return final, nil
	}
	v, err := p.recognise(ctx, pcm)
	if err != nil {
		return pipeline.Transcript{}, fmt.Errorf("[%s]: %w", p.table, err)
	}
	final.Text, final.Rejected = v.text, v.rejected
	if p.decoys[v.text] {
		final.Text, final.Rejected = "", true
	}
	return final, nil
}

// recognise runs both passes over an utterance.
func (p *Pocketsphinx) recognise(ctx context.Context, pcm []int16) (verdict, error) {
	file, err := p.store(pcm)
	if err != nil {
		return verdict{}, err
	}
	defer os.Remove(file)

	var (
		command, loop       []segment
		commandErr, loopErr error
		both                sync.WaitGroup
	)
	both.Go(func() { command, commandErr = p.decode(ctx, file, commandFiles) })
	both.Go(func() { loop, loopErr = p.decode(ctx, file, loopFiles, loopBeams()...) })
	both.Wait()
	if err := errors.Join(commandErr, loopErr); err != nil {
		return verdict{}, err
	}
	return judge(command, loop), nil
}

// store writes an utterance to a file of its own.
func (p *Pocketsphinx) store(pcm []int16) (string, error) {
	f, err := os.CreateTemp(p.dir, "utterance-*"+rawExtension)
	if err != nil {
		return "", err
	}
	_, err = f.Write(audio.AppendPCM(nil, pcm))
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// passes is how many programs run for one utterance.
const passes = 2

const rawExtension = ".raw"

// loopBeams are narrow beams for the loop of phones, which has few states; they
// save a quarter of its time. The thresholds were measured with them.
func loopBeams() []string {
	return []string{"-beam", "1e-20", "-pbeam", "1e-20", "-wbeam", "1e-10"}
}

// decode runs one pass over the utterance in file.
func (p *Pocketsphinx) decode(ctx context.Context, file, models string, options ...string) ([]segment, error) {
	name := strings.TrimSuffix(filepath.Base(file), rawExtension)
	args := append([]string{
		"-hmm", p.model,
		"-dict", filepath.Join(p.dir, models+dictionaryExtension),
		"-jsgf", filepath.Join(p.dir, models+grammarExtension),
		"-adcin", "yes",
		"-cepdir", p.dir,
		"-cepext", rawExtension,
		"-ctl", "/dev/stdin",
		"-hypseg", "/dev/stdout",
		"-bestpath", "no",
		// Scores are relative to the best state of a frame. Only if all states
		// are looked at do those of two passes compare.
		"-compallsen", "yes",
	}, options...)
	var output bytes.Buffer
	if err := p.program.Run(ctx, args, strings.NewReader(name+"\n"), &output, maxOutput); err != nil {
		return nil, err
	}
	segments, err := parseSegments(output.String())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.name, err)
	}
	return segments, nil
}
