package asr

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"parley/internal/audio"
	"parley/internal/program"
	"parley/pipeline"
)

// What a program reads.
const (
	FormatWAV = "wav" // a WAV file, 16 kHz mono
	FormatRaw = "raw" // 16-bit little-endian samples, 16 kHz mono
)

// maxOutput bounds what a program may write about one utterance, in bytes: far
// more than anybody says in [MaxUtterance].
const maxOutput = 64 << 10

// fileArgument is what the name of a file with the utterance replaces in a
// command's arguments.
const fileArgument = "{file}"

// A CommandConfig describes a program that recognises speech.
type CommandConfig struct {
	// Table is the provider's table in config.toml, which errors name. Empty is
	// "asr.command".
	Table string
	// Command is the program and its arguments; no shell is involved. The name of
	// a file with the utterance replaces {file} in the arguments. Without {file}
	// the utterance is written to standard input. What the program writes to
	// standard output is the text.
	Command []string
	// Format is what the program reads, [FormatWAV] or [FormatRaw]. Empty is wav.
	Format string
	// Env holds the program's environment beside PATH, HOME, LANG and the like,
	// as "NAME=value". Nothing else of the server's environment, which may hold
	// keys, is passed on.
	Env []string
	// Timeout is how long one utterance may take; 0 is
	// [program.DefaultTimeout].
	Timeout time.Duration
	// Concurrent is how many utterances may be recognised at the same time; 0 is
	// the number of cores. Further ones wait.
	Concurrent int
}

// NewCommand returns a [pipeline.Transcriber] that runs a program for each
// utterance once it is over, or an error that names the setting that is wrong.
//
// It yields one transcript. Time stamps, and remarks in brackets or parentheses
// such as [BLANK_AUDIO] or (music), which whisper.cpp writes, are not part of
// it. What is said after [MaxUtterance] is not heard; less than 0.1 s is an
// empty transcript without running anything. The program's process group is
// killed when the context ends and never outlives the iterator.
func NewCommand(cfg CommandConfig) (pipeline.Transcriber, error) {
	if cfg.Table == "" {
		cfg.Table = "asr.command"
	}
	if cfg.Format == "" {
		cfg.Format = FormatWAV
	}
	switch {
	case len(cfg.Command) == 0 || cfg.Command[0] == "":
		return nil, fmt.Errorf("[%s]: command is empty; name a program, such as [\"whisper-cli\", \"-nt\", \"-f\", \"{file}\"]", cfg.Table)
	case strings.Contains(cfg.Command[0], fileArgument):
		return nil, fmt.Errorf("[%s]: command begins with %s; the first element is the program", cfg.Table, fileArgument)
	case cfg.Format != FormatWAV && cfg.Format != FormatRaw:
		return nil, fmt.Errorf("[%s]: format %q is not known; use %q or %q", cfg.Table, cfg.Format, FormatWAV, FormatRaw)
	}
	found, err := program.Find(program.Config{
		Name: cfg.Command[0], Env: cfg.Env, Timeout: cfg.Timeout, Concurrent: cfg.Concurrent,
	})
	if err != nil {
		return nil, fmt.Errorf("[%s]: %w", cfg.Table, err)
	}
	cfg.Command = slices.Clone(cfg.Command)
	return &command{cfg: cfg, program: found}, nil
}

type command struct {
	cfg     CommandConfig
	program *program.Program
}

// Transcribe implements [pipeline.Transcriber].
func (c *command) Transcribe(ctx context.Context, speech <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) {
		pcm, err := collect(ctx, speech)
		if err != nil {
			yield(pipeline.Transcript{}, err)
			return
		}
		text := ""
		if len(pcm) >= samplesIn(minUtterance) {
			text, err = c.recognise(ctx, pcm)
		}
		switch {
		case ctx.Err() != nil:
			yield(pipeline.Transcript{}, context.Cause(ctx))
		case err != nil:
			yield(pipeline.Transcript{}, fmt.Errorf("[%s]: %w", c.cfg.Table, err))
		default:
			yield(pipeline.Transcript{Text: text, Final: true}, nil)
		}
	}
}

// recognise runs the program and returns what it found.
func (c *command) recognise(ctx context.Context, pcm []int16) (string, error) {
	data := encode(pcm, c.cfg.Format)
	args := slices.Clone(c.cfg.Command[1:])
	if !slices.ContainsFunc(args, func(arg string) bool { return strings.Contains(arg, fileArgument) }) {
		return c.run(ctx, args, bytes.NewReader(data))
	}
	dir, err := os.MkdirTemp("", "parley-asr-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "utterance."+c.cfg.Format)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", err
	}
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], fileArgument, file)
	}
	return c.run(ctx, args, nil)
}

func (c *command) run(ctx context.Context, args []string, stdin io.Reader) (string, error) {
	var output bytes.Buffer
	err := c.program.Run(ctx, args, stdin, &output, maxOutput)
	return clean(output.Bytes()), err
}

func encode(pcm []int16, format string) []byte {
	if format == FormatRaw {
		return audio.AppendPCM(nil, pcm)
	}
	return audio.AppendWAV(nil, pipeline.SampleRate, pcm)
}

// clean makes one line of text of what a program wrote, without what stands in
// brackets or parentheses: times and remarks about noises. A bracket that is
// never closed is text.
func clean(output []byte) string {
	text := strings.ToValidUTF8(string(output), "")
	var b strings.Builder
	for text != "" {
		open := strings.IndexAny(text, "[(")
		if open < 0 {
			break
		}
		closing := ")"
		if text[open] == '[' {
			closing = "]"
		}
		length := strings.Index(text[open:], closing)
		if length < 0 {
			break
		}
		b.WriteString(text[:open])
		b.WriteByte(' ')
		text = text[open+length+1:]
	}
	b.WriteString(text)
	return strings.Join(strings.Fields(strings.ReplaceAll(b.String(), "♪", " ")), " ")
}
