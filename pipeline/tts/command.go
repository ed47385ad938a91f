package tts

import (
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode"

	"parley/internal/program"
	"parley/pipeline"
)

// The formats of a program's standard output.
const (
	FormatWAV = "wav" // a WAV file, whose header says the rate
	FormatRaw = "raw" // 16-bit little-endian mono samples
)

const (
	// MaxSentence bounds a sentence in bytes; a longer one is an error. It is
	// several times what a conversation sends at once.
	MaxSentence = 4 << 10
	// MaxSpeech bounds the audio of one sentence, in bytes: two minutes of
	// 48 kHz PCM.
	MaxSpeech = 12 << 20

	// textArgument is what a sentence replaces in a command's arguments.
	textArgument = "{text}"
	// pieceSamples is how much PCM is yielded at a time at most: 85 ms at 24 kHz.
	pieceSamples = 2048
)

// A CommandConfig describes a program that speaks.
type CommandConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "tts.command".
	Table string
	// Command is the program and its arguments; no shell is involved. The
	// sentence replaces {text} in the arguments. Without {text} it is written to
	// standard input as one line.
	Command []string
	// Format is what the program writes to standard output, [FormatWAV] or
	// [FormatRaw]. Empty is wav.
	Format string
	// Rate is the sample rate of raw output, in Hz.
	Rate int
	// Env holds the program's environment beside PATH, HOME, LANG and the like,
	// as "NAME=value". Nothing else of the server's environment, which may hold
	// keys, is passed on.
	Env []string
	// Timeout is how long one sentence may take; 0 is program.DefaultTimeout.
	Timeout time.Duration
	// Concurrent is how many sentences may be made at the same time; further ones
	// wait. 0 is one for each core, all of which synthesis takes.
	Concurrent int
}

// NewCommand returns a [pipeline.Synthesizer] that runs a program for each
// sentence, or an error that names the setting that is wrong.
//
// Audio is yielded as the program writes it. The program runs at its own speed
// whatever the caller's; its process group is killed when the iterator ends.
// A sentence can never become an option: one that begins with a dash is given a
// space before it. A program that writes no audio for a sentence with letters or
// digits has failed: that is how espeak-ng answers a script it cannot read.
func NewCommand(cfg CommandConfig) (pipeline.Synthesizer, error) {
	if cfg.Table == "" {
		cfg.Table = "tts.command"
	}
	if cfg.Format == "" {
		cfg.Format = FormatWAV
	}
	switch {
	case len(cfg.Command) == 0 || cfg.Command[0] == "":
		return nil, fmt.Errorf("[%s]: command is empty; name a program, such as [\"espeak-ng\", \"--stdout\"]", cfg.Table)
	case strings.Contains(cfg.Command[0], textArgument):
		return nil, fmt.Errorf("[%s]: command begins with %s; the first element is the program", cfg.Table, textArgument)
	case cfg.Format != FormatWAV && cfg.Format != FormatRaw:
		return nil, fmt.Errorf("[%s]: format %q is not known; use %q or %q", cfg.Table, cfg.Format, FormatWAV, FormatRaw)
	case cfg.Format == FormatRaw && (cfg.Rate < 8000 || cfg.Rate > 48000):
		return nil, fmt.Errorf("[%s]: rate is %d Hz; raw output needs one between 8000 and 48000", cfg.Table, cfg.Rate)
	}
	run, err := program.Find(program.Config{Name: cfg.Command[0], Env: cfg.Env, Timeout: cfg.Timeout, Concurrent: cfg.Concurrent})
	if err != nil {
		return nil, fmt.Errorf("[%s]: %w", cfg.Table, err)
	}
	cfg.Command = slices.Clone(cfg.Command)
	return &command{cfg: cfg, program: run}, nil
}

type command struct {
	cfg     CommandConfig
	program *program.Program
}

// Synthesize implements [pipeline.Synthesizer]. The goroutines of a run end, and
// its processes with them, before the iterator does.
func (c *command) Synthesize(ctx context.Context, sentence string) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		if len(sentence) > MaxSentence {
			yield(pipeline.Audio{}, fmt.Errorf("[%s]: a sentence of %d bytes is too long, the limit is %d",
				c.cfg.Table, len(sentence), MaxSentence))
			return
		}
		r := c.start(ctx, sentence)
		defer r.stop()
		heard := false
		for piece, err := range c.pieces(r.output) {
			if err != nil {
				// A program that failed explains more than what it left unwritten.
				if failure := r.wait(); failure != nil {
					err = failure
				}
				yield(pipeline.Audio{}, c.explain(ctx, err))
				return
			}
			heard = true
			if !yield(piece, nil) {
				return
			}
		}
		err := r.wait()
		if err == nil && !heard && strings.ContainsFunc(sentence, isSpoken) {
			err = fmt.Errorf("%s wrote no audio; can it speak the language?", c.cfg.Command[0])
		}
		if err != nil {
			yield(pipeline.Audio{}, c.explain(ctx, err))
		}
	}
}

// explain says whose error err is, unless the caller ended ctx.
func (c *command) explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("[%s]: %w", c.cfg.Table, err)
}

// pieces yields the audio of a program's output.
func (c *command) pieces(output io.Reader) iter.Seq2[pipeline.Audio, error] {
	if c.cfg.Format == FormatRaw {
		return rawPieces(output, c.cfg.Rate)
	}
	return wavPieces(output)
}

// arguments returns the arguments and the standard input for a sentence.
func (c *command) arguments(sentence string) (args []string, input string) {
	sentence = program.OneLine(sentence)
	args = slices.Clone(c.cfg.Command[1:])
	inArguments := false
	for i, arg := range args {
		if strings.Contains(arg, textArgument) {
			args[i] = strings.ReplaceAll(arg, textArgument, sentence)
			inArguments = true
			if strings.HasPrefix(arg, textArgument) && strings.HasPrefix(sentence, "-") {
				args[i] = " " + args[i]
			}
		}
	}
	if inArguments {
		return args, ""
	}
	return args, sentence + "\n"
}

// isSpoken reports whether r is something a synthesizer must make sound of.
func isSpoken(r rune) bool { return unicode.IsLetter(r) || unicode.IsNumber(r) }
