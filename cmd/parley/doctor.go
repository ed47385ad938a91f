package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"strings"
	"time"

	"parley/internal/config"
	"parley/internal/doctor"
	"parley/internal/ota"
	"parley/pipeline"
	"parley/pipeline/asr"
)

// defaultHTTPPort is where a Parley is asked for unless another port is named.
const defaultHTTPPort = "8003"

// errUnwell is the end of an examination that found a fault. The report has said
// which.
var errUnwell = errors.New("something does not work, as said above")

// examine finds out why devices are connected and nothing is heard: on the
// server, by looking at the machine; from elsewhere, by being a device.
func examine(ctx context.Context, args []string, out io.Writer) error {
	f := newFlags("doctor", out)
	path := f.String("config", "", "examine this machine with configuration `FILE` (default config.toml if it is there, else built-in)")
	server := f.String("server", "", "be a device, and visit the server `HOST[:HTTPPORT]`; run it where devices are")
	address := f.String("ota", "", "the same, by the OTA `URL` that is typed into devices")
	asJSON := f.Bool("json", false, "print JSON")
	if err := parse(f, args); err != nil {
		return err
	}
	if *server != "" && *address != "" || *path != "" && *server+*address != "" {
		return &usageError{errors.New("parley doctor: give one of --config FILE, --server HOST[:HTTPPORT] and --ota URL")}
	}
	var report doctor.Report
	switch {
	case *server != "":
		report = doctor.Visit(ctx, doctor.VisitConfig{OTA: otaOf(*server)})
	case *address != "":
		report = doctor.Visit(ctx, doctor.VisitConfig{OTA: *address})
	default:
		var err error
		if report, err = examineHere(ctx, path); err != nil {
			return err
		}
	}
	if err := show(report, *asJSON, out); err != nil {
		return err
	}
	if !report.Healthy() {
		return errUnwell
	}
	return nil
}

// otaOf is the OTA address of a server named HOST or HOST:PORT.
func otaOf(server string) string {
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(strings.Trim(server, "[]"), defaultHTTPPort)
	}
	return "http://" + server + ota.Path
}

func show(r doctor.Report, asJSON bool, out io.Writer) error {
	if !asJSON {
		return r.WriteText(out)
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(r)
}

// examineHere examines this machine. A configuration with faults is a finding,
// and all there is to find.
func examineHere(ctx context.Context, path *string) (doctor.Report, error) {
	cfg, err := load(path)
	if err != nil {
		return doctor.Faults(err), nil
	}
	log := slog.New(slog.DiscardHandler)
	r := &roles{cfg: cfg}
	defer r.close()
	made, err := makeProviders(cfg, *path, log, r)
	if err != nil {
		return doctor.Faults(err), nil
	}
	machine, err := doctor.ThisMachine(built())
	if err != nil {
		return doctor.Report{}, err
	}
	return doctor.Examine(ctx, doctor.ExamineConfig{
		Config: cfg, Machine: machine, HTTP: httpClient(cfg), Trials: trials(cfg, made),
	}), nil
}

// built is when this program's source was committed, as the linker recorded it.
func built() time.Time {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return time.Time{}
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if at, err := time.Parse(time.RFC3339, s.Value); err == nil {
				return at
			}
		}
	}
	return time.Time{}
}

// trials run the providers that are programs of this machine. Services are asked
// by the doctor itself.
func trials(cfg *config.Config, made providers) []doctor.Trial {
	var out []doctor.Trial
	used := cfg.Used()
	for _, name := range used.ASR {
		if cfg.ASR[name].OpenAI == nil {
			out = append(out, doctor.Trial{Table: "asr." + name, Run: hearTrial(made.asr[name].Provider)})
		}
	}
	for _, name := range used.TTS {
		if cfg.TTS[name].OpenAI == nil {
			out = append(out, doctor.Trial{Table: "tts." + name, Run: speakTrial(made.tts[name].Provider)})
		}
	}
	return out
}

// hearTrial lets a recogniser hear a second of silence, or try itself where it
// can.
func hearTrial(t pipeline.Transcriber) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if p, ok := t.(*asr.Pocketsphinx); ok {
			return "recognises", p.Try(ctx)
		}
		sound := make(chan []int16, 1)
		sound <- make([]int16, pipeline.SampleRate)
		close(sound)
		began := time.Now()
		for _, err := range t.Transcribe(ctx, sound) {
			if err != nil {
				return "", err
			}
		}
		return fmt.Sprintf("heard a second of silence in %v", round(time.Since(began))), nil
	}
}

// speakTrial lets a synthesizer say a word.
func speakTrial(s pipeline.Synthesizer) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		began := time.Now()
		for a, err := range s.Synthesize(ctx, "Hello.") {
			if err != nil {
				return "", err
			}
			if len(a.PCM) > 0 || len(a.Opus) > 0 {
				return fmt.Sprintf("speaks, after %v", round(time.Since(began))), nil
			}
		}
		return "", errors.New("it says nothing")
	}
}
