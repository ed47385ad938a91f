package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"parley/internal/audio"
	"parley/internal/device"
	"parley/internal/protocol"
	"parley/pipeline"
	"parley/pipeline/tts"
)

// maxQuestion bounds a recording to say, in samples: a minute at 48 kHz.
const maxQuestion = 60 * 48000

// talkFlags are what `parley talk` was asked.
type talkFlags struct {
	server, ota, say, wav, voice, out, mac string
	mode, profile                          string
	times                                  int
	timeout                                time.Duration
}

// talk is a device that says something to a running server and prints what
// becomes of it.
func talk(ctx context.Context, args []string, out io.Writer) error {
	var o talkFlags
	f := newFlags("talk", out)
	f.StringVar(&o.server, "server", "", "MQTT address of the server, `HOST:PORT`, where no key is set")
	f.StringVar(&o.ota, "ota", "", "OTA `URL` of the server, which hands out signed credentials")
	f.StringVar(&o.say, "say", "", "`TEXT` to say, spoken by espeak-ng")
	f.StringVar(&o.voice, "voice", "en-us", "espeak-ng `VOICE` to say it with")
	f.StringVar(&o.wav, "wav", "", "WAV `FILE` to say instead")
	f.StringVar(&o.out, "out", "", "WAV `FILE` for the last answer")
	f.StringVar(&o.mac, "mac", "02:70:61:72:6c:65", "MAC `ADDRESS` of the device")
	f.StringVar(&o.mode, "mode", "auto", "listening `MODE`: auto, manual or realtime")
	f.StringVar(&o.profile, "profile", "fw24", "client to be: fw24, fw22, fw18, fw17, fw162, fw160, fw15 or py")
	f.IntVar(&o.times, "times", 1, "how often to ask")
	f.DurationVar(&o.timeout, "timeout", time.Minute, "how long one answer may take")
	if err := parse(f, args); err != nil {
		return err
	}
	if (o.server == "") == (o.ota == "") {
		return &usageError{errors.New(`parley talk: give one of --server HOST:PORT and --ota URL`)}
	}
	if (o.say == "") == (o.wav == "") {
		return &usageError{errors.New(`parley talk: give one of --say TEXT and --wav FILE`)}
	}
	question, err := o.question(ctx)
	if err != nil {
		return err
	}
	opts, err := o.device()
	if err != nil {
		return &usageError{err}
	}
	s := newScreen(out)
	opts.OnEvent = s.event
	d, err := device.New(opts)
	if err != nil {
		return &usageError{err}
	}
	defer d.Close()
	if err := d.Connect(ctx); err != nil {
		return err
	}
	return o.converse(ctx, d, question, s)
}

// question is what will be said, 16 kHz mono.
func (o *talkFlags) question(ctx context.Context) ([]int16, error) {
	if o.say != "" {
		return speakText(ctx, o.say, o.voice)
	}
	f, err := os.Open(o.wav)
	if err != nil {
		return nil, &usageError{err}
	}
	defer f.Close()
	return readSpeech(f)
}

func (o *talkFlags) device() (device.Options, error) {
	id, err := protocol.ParseDeviceID(o.mac)
	if err != nil {
		return device.Options{}, fmt.Errorf("--mac: %w", err)
	}
	profile, err := device.ParseProfile(o.profile)
	if err != nil {
		return device.Options{}, fmt.Errorf("--profile: %w", err)
	}
	if o.server != "" && (profile == device.FW160 || profile == device.FW15) {
		return device.Options{}, fmt.Errorf("--profile %v: this firmware connects with TLS to port 8883 only and cannot be given a port; use --ota, or another profile", profile)
	}
	opts := device.Options{ID: id, Profile: profile, Mode: protocol.Mode(o.mode), OTA: o.ota, Decode: true}
	if o.server != "" {
		client := protocol.ClientID{Group: "GID_parley", Device: id, UUID: "talk"}
		opts.MQTT = device.Credentials{
			Endpoint: o.server, ClientID: client.String(), Username: protocol.Enrolment{}.Username(),
			Password: "open", PublishTopic: protocol.UplinkTopic(id),
		}
	}
	return opts, nil
}

// converse asks as often as wanted and reports what a listener lost.
func (o *talkFlags) converse(ctx context.Context, d *device.Device, question []int16, s *screen) error {
	for i := range o.times {
		s.line("you", "say %q (%d of %d, %s)", cmp.Or(o.say, o.wav), i+1, o.times, o.mode)
		answer, err := ask(ctx, d, question, o.timeout)
		if err != nil {
			return fmt.Errorf("question %d: %w", i+1, err)
		}
		s.line("latency", "%v from the end of speech to the first sound", round(answer.FirstSound.Sub(answer.SpeechEnd)))
		if o.out != "" {
			if err := writeWAV(o.out, answer.PCM); err != nil {
				return err
			}
		}
	}
	return s.report(d.Report())
}

func ask(ctx context.Context, d *device.Device, question []int16, limit time.Duration) (device.Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no complete answer within %v", limit))
	defer cancel()
	answer, err := d.Ask(ctx, question)
	if err == nil && len(answer.Sentences) == 0 {
		err = errors.New("the answer had no words")
	}
	return answer, err
}

// speakText returns text spoken by espeak-ng, 16 kHz mono.
func speakText(ctx context.Context, text, voice string) ([]int16, error) {
	synth, err := tts.NewCommand(tts.CommandConfig{
		Table: "--say", Command: []string{"espeak-ng", "--stdin", "--stdout", "-v", voice}, Format: tts.FormatWAV,
	})
	if err != nil {
		return nil, err
	}
	var pcm []int16
	rate := 0
	for a, err := range synth.Synthesize(ctx, text) {
		if err != nil {
			return nil, err
		}
		pcm, rate = append(pcm, a.PCM...), a.Rate
	}
	return resample(pcm, rate)
}

// readSpeech reads a WAV file as 16 kHz mono.
func readSpeech(r io.Reader) ([]int16, error) {
	pcm, rate, err := audio.ReadWAV(r, maxQuestion)
	if err != nil {
		return nil, err
	}
	return resample(pcm, rate)
}

func resample(pcm []int16, rate int) ([]int16, error) {
	r, err := audio.NewResampler(rate, pipeline.SampleRate)
	if err != nil {
		return nil, err
	}
	return r.Flush(r.Append(nil, pcm)), nil
}

func writeWAV(path string, pcm []int16) error {
	var b bytes.Buffer
	if err := audio.WriteWAV(&b, protocol.DownlinkSampleRate, pcm); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
