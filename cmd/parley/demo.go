package main

import (
	"bytes"
	"context"
	_ "embed" // the question
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"parley/internal/config"
	"parley/internal/device"
	"parley/internal/ota"
	"parley/internal/protocol"
	"parley/pipeline"
)

// question is what the demo asks: "set the volume to fifty", 16 kHz mono. See
// docs/fixtures.md for how it was made.
//
//go:embed question.wav
var question []byte

const (
	questionText = "set the volume to fifty"
	demoTimeout  = time.Minute
	answerFile   = "demo-answer.wav"
)

// cloudConfig is the demo's configuration when a service is configured by
// environment: the two lines that switch a role to it.
const cloudConfig = "[role.default]\nprovider = \"openai\"\n"

// demo starts a server and a simulated device, which talk over real MQTT and
// real encrypted UDP on loopback, and shows the conversation.
func demo(ctx context.Context, args []string, out io.Writer) error {
	f := newFlags("demo", out)
	path := f.String("config", "", "configuration `FILE`; its ports are not used (default: built-in, or OpenAI-compatible services if OPENAI_API_KEY and OPENAI_BASE_URL are set)")
	file := f.String("out", answerFile, "WAV `FILE` for the answer")
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := demoConfig(*path, os.Getenv)
	if err != nil {
		return err
	}
	if cfg.Tools.Dir, err = os.MkdirTemp("", "parley-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(cfg.Tools.Dir)
	traces := make(chan pipeline.Trace, 1) // one turn; a second has no taker and is not waited for
	n, err := newNode(cfg, *path, newLogger(cfg.Log, os.Stderr), func(_ protocol.DeviceID, t pipeline.Trace) {
		select {
		case traces <- t:
		default:
		}
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, demoTimeout, fmt.Errorf("the demo took longer than %v", demoTimeout))
	defer cancel()
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- n.run(serving) }()
	err = n.converse(ctx, out, traces, *file)
	stop()
	return errors.Join(err, <-served)
}

// demoConfig is the configuration on free ports of the loopback interface.
func demoConfig(path string, env func(string) string) (*config.Config, error) {
	if path == "" && env("OPENAI_API_KEY") != "" && env("OPENAI_BASE_URL") != "" {
		dir, err := os.MkdirTemp("", "parley-demo-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(dir)
		path = filepath.Join(dir, "demo.toml")
		if err := os.WriteFile(path, []byte(cloudConfig), 0o600); err != nil {
			return nil, err
		}
	}
	cfg, err := config.Load(path, env)
	if err != nil {
		return nil, &usageError{err}
	}
	cfg.MQTT.Listen, cfg.UDP.Listen, cfg.HTTP.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	cfg.MQTT.TLSCertificate, cfg.MQTT.TLSKey = "", ""
	cfg.UDP.Address, cfg.UDP.Port, cfg.OTA.MQTTEndpoint = "", 0, ""
	cfg.Log.Level = "error"
	return cfg, nil
}

// converse is the demo's device and what is printed of it.
func (n *node) converse(ctx context.Context, out io.Writer, traces <-chan pipeline.Trace, file string) error {
	fmt.Fprintf(out, "Parley %s: MQTT %v, UDP %v, HTTP %v\n", version, n.broker.Addr(), n.udpAddr, n.webAddr.Addr())
	_, role := n.cfg.RoleOf("")
	fmt.Fprintf(out, "listens with %v, thinks with %v, speaks with %v\n\n", role.ASR, role.LLM, role.TTS)
	s := newScreen(out)
	pcm, err := readSpeech(bytes.NewReader(question))
	if err != nil {
		return err
	}
	d, err := device.New(device.Options{
		ID: "02:70:61:72:6c:65", Mode: protocol.ModeAuto, Decode: true, OnEvent: s.event,
		OTA: fmt.Sprintf("http://127.0.0.1:%d%s", n.webPort(), ota.Path),
	})
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Connect(ctx); err != nil {
		return err
	}
	s.line("device", "connected: configuration by HTTP, then MQTT")
	if err := n.awaitTools(ctx); err != nil {
		return err
	}
	s.line("you", "say %q (a recording of %.1f s)", questionText, float64(len(pcm))/pipeline.SampleRate)
	answer, err := ask(ctx, d, pcm, demoTimeout)
	if err != nil {
		return err
	}
	select {
	case t := <-traces:
		s.trace(t)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := writeWAV(file, answer.PCM); err != nil {
		return err
	}
	s.line("answer", "%s, %.1f s", file, float64(len(answer.PCM))/protocol.DownlinkSampleRate)
	if len(answer.Calls) == 0 {
		return errors.New("the device's tool was not called")
	}
	return s.report(d.Report())
}

// awaitTools waits until the device has told its tools, as it does within
// milliseconds of connecting.
func (n *node) awaitTools(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("the device told no tools"))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for n.mcp.Discovered.Load() == 0 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
