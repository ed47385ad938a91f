package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/internal/audio"
	"parley/internal/config"
	"parley/internal/openaitest"
	"parley/internal/phrase"
	"parley/pipeline"
	"parley/pipeline/asr"
)

// TestMain runs the tests, or what one of them starts: this binary is its own
// collection of MCP servers, and the guard of their programs.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == guardCommand {
		os.Exit(run(context.Background(), os.Args[1:], io.Discard, os.Stderr))
	}
	if part := os.Getenv(partVariable); part != "" {
		play(part)
		return
	}
	goleak.VerifyTestMain(m)
}

// parley runs the program with arguments and returns its exit status and what it
// printed.
func parley(t *testing.T, args ...string) (code int, out, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var o, e bytes.Buffer
	code = run(ctx, args, &o, &e)
	return code, o.String(), e.String()
}

// TestDemo runs the demo as a newcomer does: a spoken question, a tool call on
// the device, a spoken answer. A recogniser reads the answer back.
func TestDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "answer.wav")
	code, out, errOut := parley(t, "demo", "--out", file)
	if code != exitOK {
		t.Fatalf("exit status %d\n%s%s", code, out, errOut)
	}
	inOrder(t, out,
		`say "set the volume to fifty"`,
		`heard    "set the volume to fifty"`,
		`self.audio_speaker.set_volume {"volume":50} -> true`,
		`parley   "The volume is`,
		`latency  endpoint `, ` + asr `, ` + llm `, ` + tts `, ` from the end of speech to the first packet`,
		`clipped 0, lost 0, late 0`,
	)
	if got := readBack(t, file, "the volume is [now] (at|set to) {n:number}"); !strings.HasSuffix(got, "fifty") {
		t.Errorf("the recogniser reads %q back from the answer", got)
	}
}

// inOrder asserts that the parts occur in the text one after the other.
func inOrder(t *testing.T, text string, parts ...string) {
	t.Helper()
	rest := text
	for _, p := range parts {
		_, after, found := strings.Cut(rest, p)
		if !found {
			t.Errorf("%q is missing, or out of order, in\n%s", p, text)
			return
		}
		rest = after
	}
}

// readBack recognises a WAV file with a grammar of one pattern.
func readBack(t *testing.T, file, pattern string) string {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pcm, err := readSpeech(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := phrase.Parse(pattern)
	if err != nil {
		t.Fatal(err)
	}
	r, err := asr.NewPocketsphinx(asr.PocketsphinxConfig{Patterns: []*phrase.Pattern{p}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	speech := make(chan []int16, 1)
	speech <- pcm
	close(speech)
	var heard pipeline.Transcript
	for h, err := range r.Transcribe(t.Context(), speech) {
		if err != nil {
			t.Fatal(err)
		}
		heard = h
	}
	return heard.Text
}

// TestDemoOverHTTP runs the same demo through services behind OpenAI's API, with
// tool-call deltas split across chunks and speech streamed as Ogg Opus.
func TestDemoOverHTTP(t *testing.T) {
	service := &openaitest.Service{
		Key:        "sk-test-secret",
		Transcribe: func(openaitest.Transcription) string { return "Set the volume to fifty." },
		Chat: func(r *openaitest.ChatRequest) openaitest.Answer {
			if last := r.Messages[len(r.Messages)-1]; last.Role == "tool" {
				return openaitest.Answer{Text: "😊 Done. The volume is now fifty percent."}
			}
			for _, tool := range r.Tools {
				if strings.Contains(tool.Function.Name, "set_volume") {
					return openaitest.Answer{Calls: []openaitest.Call{{Name: tool.Function.Name, Args: `{"volume": 50}`}}}
				}
			}
			return openaitest.Answer{Text: "There is no such tool."}
		},
		Speak: func(text string) []int16 {
			pcm, err := speakText(context.Background(), text, "en-us")
			if err != nil {
				t.Error(err)
			}
			r, err := audio.NewResampler(pipeline.SampleRate, 24000)
			if err != nil {
				t.Error(err)
				return nil
			}
			return r.Flush(r.Append(nil, pcm))
		},
	}
	server, err := openaitest.Start(service)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Setenv("OPENAI_BASE_URL", server.URL)
	t.Setenv("OPENAI_API_KEY", "sk-test-secret")
	file := filepath.Join(t.TempDir(), "answer.wav")
	code, out, errOut := parley(t, "demo", "--out", file)
	if code != exitOK {
		t.Fatalf("exit status %d\n%s%s", code, out, errOut)
	}
	inOrder(t, out,
		"listens with [openai], thinks with [openai], speaks with [openai]",
		`heard    "Set the volume to fifty."`,
		`self.audio_speaker.set_volume {"volume":50} -> true`,
		`face     happy`, `parley   "Done."`, `parley   "The volume is now fifty percent."`,
		"clipped 0",
	)
	if strings.Contains(out+errOut, "sk-test-secret") {
		t.Error("the key was printed")
	}
	if got := readBack(t, file, "done the volume is now {n:number}"); !strings.HasSuffix(got, "fifty") && !strings.HasSuffix(got, "fifty percent") {
		t.Errorf("the recogniser reads %q back from the answer", got)
	}
	paths := map[string]int{}
	for _, r := range service.Requests() {
		paths[r.Path]++
	}
	if paths[openaitest.PathTranscriptions] != 1 || paths[openaitest.PathChat] != 2 || paths[openaitest.PathSpeech] != 2 {
		t.Errorf("requests %v", paths)
	}
}

// TestAServiceThatFailsIsApologisedFor asserts that a device hears words even
// when nothing behind Parley works.
func TestAServiceThatFailsIsApologisedFor(t *testing.T) {
	service := &openaitest.Service{Key: "right"}
	server, err := openaitest.Start(service)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	t.Setenv("OPENAI_BASE_URL", server.URL)
	t.Setenv("OPENAI_API_KEY", "wrong")
	code, out, _ := parley(t, "demo", "--out", filepath.Join(t.TempDir(), "answer.wav"))
	if code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	inOrder(t, out, `parley   "Sorry, something went wrong. Please try again."`)
}

// start serves a configuration on free ports of loopback until the test ends.
func start(t *testing.T, change func(*config.Config)) (n *node, stop func()) {
	t.Helper()
	return startFile(t, "", change)
}

// startFile is start with a file of configuration.
func startFile(t *testing.T, path string, change func(*config.Config)) (n *node, stop func()) {
	t.Helper()
	cfg, err := demoConfig(path, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	cfg.MQTT.ConnectRate = -1
	cfg.Tools.Dir = t.TempDir()
	cfg.Log.Level = "info"
	if change != nil {
		change(cfg)
	}
	log := &logbook{}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the server:\n%s", log)
		}
	})
	n, err = newNode(cfg, path, newLogger(cfg.Log, log), nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- n.run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return n, stop
}

func TestTalkInEveryMode(t *testing.T) {
	t.Parallel()
	n, _ := start(t, nil)
	for i, mode := range []string{"auto", "manual", "realtime"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := parley(t, "talk", "--server", n.broker.Addr().String(), "--mode", mode,
				"--mac", fmt.Sprintf("02:00:00:00:00:0%d", i), "--say", "what is your status", "--times", "2")
			if code != exitOK {
				t.Errorf("exit status %d\n%s%s", code, out, errOut)
			}
			inOrder(t, out, `heard    "what is your status"`, "self.get_device_status", `parley   "`, "clipped 0, lost 0, late 0")
		})
	}
}

func TestTalkWithSignedCredentials(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.toml")
	write(t, path, "[mqtt]\nkey = \"env:PARLEY_TEST_KEY\"\n")
	cfg, err := demoConfig(path, func(name string) string { return map[string]string{"PARLEY_TEST_KEY": "a long secret"}[name] })
	if err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, func(c *config.Config) { c.MQTT.Key = cfg.MQTT.Key })
	code, out, errOut := parley(t, "talk", "--ota", fmt.Sprintf("http://127.0.0.1:%d/xiaozhi/ota/", n.webPort()), "--say", "hello")
	if code != exitOK {
		t.Errorf("exit status %d\n%s%s", code, out, errOut)
	}
	code, _, errOut = parley(t, "talk", "--server", n.broker.Addr().String(), "--say", "hello")
	if code != exitFailed || !strings.Contains(errOut, "refused") {
		t.Errorf("with a made-up password: exit status %d, %q", code, errOut)
	}
}

func TestHTTP(t *testing.T) {
	n, stop := start(t, nil)
	base := fmt.Sprintf("http://127.0.0.1:%d", n.webPort())
	get := func(path string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Close = true
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get("/healthz"); code != http.StatusOK {
		t.Errorf("/healthz: %d %s", code, body)
	}
	code, body := get("/readyz")
	var ready struct {
		Ready  bool
		Checks []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(body), &ready); err != nil || code != http.StatusOK || !ready.Ready || len(ready.Checks) != 3 {
		t.Errorf("/readyz: %d %s", code, body)
	}
	if code, body := get("/xiaozhi/ota/"); code != http.StatusOK || !strings.Contains(body, "<html") {
		t.Errorf("OTA page: %d", code)
	}
	code, body = get("/metrics")
	for _, name := range []string{"parley_devices_connected 0", `parley_udp_dropped_total{reason="replayed"} 0`, "parley_turns_total", "go_goroutines"} {
		if !strings.Contains(body, name) {
			t.Errorf("/metrics (%d) lacks %s", code, name)
		}
	}
	stop()
	if _, err := net.DialTimeout("tcp", n.webAddr.Addr().String(), time.Second); err == nil {
		t.Error("the port is still open after the end")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestFaultsOfTheConfiguration(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for name, c := range map[string]struct{ text, want string }{
		"wrong key":      {"[log]\n\nlevle = \"info\"\n", `c\.toml:3: log\.levle: .*level`},
		"wrong type":     {"[log]\nlevel = 5\n", `c\.toml:2: log\.level: .+; .+`},
		"missing secret": {"[role.default]\nprovider = \"openai\"\n", `c\.toml:?\d*: .*openai\.api_key: .*OPENAI_API_KEY.*; .+`},
		"taken port":     {"[http]\nlisten = \"127.0.0.1:0\"\n[mqtt]\nlisten = \"" + taken.Addr().String() + "\"\n[udp]\nlisten = \"127.0.0.1:0\"\n", `c\.toml:4: mqtt\.listen: .*address already in use; .+`},
		"missing program": {"[tts.x]\ntype = \"command\"\ncommand = [\"no-such-program\"]\n[role.default]\ntts = [\"x\"]\n",
			`c\.toml:1: tts\.x: .*no-such-program.*; .+`},
		"bad rule": {"[llm.rules]\n[[llm.rules.rule]]\nmatch = [\"set (the\"]\nanswer = \"x\"\n", `c\.toml:\d: .*llm\.rules.*set \(the.*; .+`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OPENAI_API_KEY", "")
			path := filepath.Join(t.TempDir(), "c.toml")
			write(t, path, c.text)
			code, out, errOut := parley(t, "serve", "--config", path)
			if code != exitUsage {
				t.Errorf("exit status %d, want %d\n%s", code, exitUsage, out)
			}
			for _, line := range strings.Split(strings.TrimSpace(errOut), "\n") {
				if !regexp.MustCompile(c.want).MatchString(line) {
					t.Errorf("got the line %q, want %s", line, c.want)
				}
			}
		})
	}
}

func TestCheck(t *testing.T) {
	if code, out, errOut := parley(t, "check", "--config", "../../config.toml"); code != exitOK || !strings.Contains(out, "good") {
		t.Errorf("exit status %d\n%s%s", code, out, errOut)
	}
	if code, _, errOut := parley(t, "check", "--config", "/nowhere.toml"); code != exitUsage || !strings.Contains(errOut, "/nowhere.toml") {
		t.Errorf("exit status %d: %s", code, errOut)
	}
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "parley serve"},
		{[]string{"help"}, exitOK, "parley serve"},
		{[]string{"sing"}, exitUsage, `unknown command "sing"`},
		{[]string{"version"}, exitOK, "parley dev"},
		{[]string{"serve", "--help"}, exitOK, "config"},
		{[]string{"serve", "--colour"}, exitUsage, "colour"},
		{[]string{"serve", "more"}, exitUsage, `unexpected argument "more"`},
		{[]string{"talk", "--say", "x"}, exitUsage, "--server"},
		{[]string{"talk", "--server", "x:1"}, exitUsage, "--say"},
		{[]string{"talk", "--server", "x:1", "--wav", "/nowhere.wav"}, exitUsage, "/nowhere.wav"},
		{[]string{"talk", "--server", "x:1", "--say", "x", "--mode", "loud"}, exitUsage, "loud"},
		{[]string{"talk", "--server", "x:1", "--say", "x", "--mac", "1"}, exitUsage, "MAC"},
		{[]string{"talk", "--server", "127.0.0.1:1", "--say", "x"}, exitFailed, "refused"},
	} {
		code, out, errOut := parley(t, c.args...)
		if code != c.code || !strings.Contains(out+errOut, c.want) {
			t.Errorf("%q: exit status %d, printed %q; want %d and %q", c.args, code, out+errOut, c.code, c.want)
		}
	}
}
