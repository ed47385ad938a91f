package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
)

// shipped is the documented default at the root of the repository.
const shipped = "../../config.toml"

func noEnv(string) string { return "" }

// environment makes an env func of pairs.
func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// write puts a configuration into a file named parley.toml.
func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "parley.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func load(t *testing.T, text string, pairs ...string) *Config {
	t.Helper()
	c, err := Load(write(t, text), environment(pairs...))
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	return c
}

// faults loads a faulty configuration and returns what is reported.
func faults(t *testing.T, text string, pairs ...string) []*Error {
	t.Helper()
	c, err := Load(write(t, text), environment(pairs...))
	if err == nil {
		t.Fatalf("Load accepted:\n%s", text)
	}
	if c != nil {
		t.Error("Load returned a configuration beside its error")
	}
	var one *Error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Error
		for _, e := range joined.Unwrap() {
			if !errors.As(e, &one) {
				t.Fatalf("%T is no *Error: %v", e, e)
			}
			all = append(all, one)
		}
		return all
	}
	if !errors.As(err, &one) {
		t.Fatalf("%T is no *Error: %v", err, err)
	}
	return []*Error{one}
}

func TestShippedFileIsDefault(t *testing.T) {
	c, err := Load(shipped, noEnv)
	if err != nil {
		t.Fatal(err)
	}
	d := Default()
	if reflect.DeepEqual(c, d) {
		return
	}
	cv, dv := reflect.ValueOf(*c), reflect.ValueOf(*d)
	for i := range cv.NumField() {
		got, _ := json.Marshal(cv.Field(i).Interface())
		want, _ := json.Marshal(dv.Field(i).Interface())
		if !reflect.DeepEqual(cv.Field(i).Interface(), dv.Field(i).Interface()) {
			t.Errorf("%s in config.toml\n%s\nand built in\n%s", cv.Type().Field(i).Name, got, want)
		}
	}
}

func TestNoFileIsDefault(t *testing.T) {
	for name, load := range map[string]func() (*Config, error){
		"no name":    func() (*Config, error) { return Load("", noEnv) },
		"empty file": func() (*Config, error) { return Load(write(t, ""), noEnv) },
	} {
		c, err := load()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(c, Default()) {
			t.Errorf("%s: not the default", name)
		}
	}
}

func TestDefaultIsNotShared(t *testing.T) {
	c := Default()
	c.ASR["openai"].OpenAI.Model = "changed"
	c.LLM["rules"].Rules.Rule[0].Answer = "changed"
	c.Role["default"].ToolsAllow[0] = "changed"
	if reflect.DeepEqual(c, Default()) || Default().ASR["openai"].OpenAI.Model == "changed" {
		t.Error("a change of one default shows in the next")
	}
}

// example is the shipped file with its examples turned on.
func example(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(`(?m)^#([^ #\n-])`).ReplaceAllString(string(b), "$1")
}

func TestShippedExamplesLoad(t *testing.T) {
	c := load(t, example(t), "PARLEY_HOME_PASSWORD", "lamp", "CALCULATOR_KEY", "k", "SEARCH_AUTHORIZATION", "Bearer k",
		"PARLEY_API_TOKEN", "a token of some length")
	if got := c.MCP.Server["calculator"]; got.Env["API_KEY"].Reveal() != "k" || got.Command != "python3" {
		t.Errorf("mcp.server.calculator: %+v", got)
	}
	if got := c.MQTT.Tool[0].Arguments["minutes"]; got.Max == nil || *got.Max != 30 || !got.Required {
		t.Errorf("the example of an mqtt.tool: %+v", got)
	}
	if c.MQTT.User[0].Password.Reveal() != "lamp" || c.API.Token[0].Token.Reveal() != "a token of some length" {
		t.Error("secrets of the examples are not read")
	}
	if got := c.ASR["whisper"].Command; got == nil || got.Command[0] != "whisper-cli" {
		t.Errorf("asr.whisper: %+v", got)
	}
	if got := c.TTS["piper"].Command; got == nil || got.Rate != 22050 {
		t.Errorf("tts.piper: %+v", got)
	}
	if name, role := c.RoleOf("a0:85:e3:f4:49:34"); name != "kitchen" || len(role.ToolsDeny) != 1 {
		t.Errorf("role of the example device: %q %+v", name, role)
	}
}

// TestShippedFileHasEveryKey walks the types and asks the file for each key.
// Kinds of tables that the default has none of may be in its examples.
func TestShippedFileHasEveryKey(t *testing.T) {
	var live, doc map[string]any
	liveKeys, err := toml.DecodeFile(shipped, &live)
	if err != nil {
		t.Fatal(err)
	}
	exampleKeys, err := toml.Decode(example(t), &doc)
	if err != nil {
		t.Fatal(err)
	}
	has := func(pattern string) bool {
		keys := liveKeys.Keys()
		if regexp.MustCompile(`^(device|asr|mcp/server|api/token|mqtt/user|mqtt/tool)`).MatchString(pattern) {
			keys = exampleKeys.Keys()
		}
		re := regexp.MustCompile("^" + pattern + "$")
		return slices.ContainsFunc(keys, func(key toml.Key) bool { return re.MatchString(strings.Join(key, "/")) })
	}
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for name, i := range fieldsOf(typ) {
			field, at := typ.Field(i).Type, prefix+name
			isTable := field.Kind() == reflect.Map && field.Elem().Kind() == reflect.Struct ||
				field.Kind() == reflect.Struct && field != reflect.TypeFor[Secret]() // implied by its keys
			if !isTable && !has(at) || isTable && !has(at+"/.*") {
				t.Errorf("config.toml does not document %s", at)
			}
			for field.Kind() == reflect.Map || field.Kind() == reflect.Slice {
				if field.Kind() == reflect.Map && field.Elem().Kind() == reflect.Struct {
					at += "/[^/]+"
				}
				field = field.Elem()
			}
			if field.Kind() == reflect.Struct && field != reflect.TypeFor[Secret]() {
				walk(at+"/", field)
			}
		}
		for name, i := range variantsOf(typ) {
			inner := typ.Field(i).Type.Elem()
			for key := range fieldsOf(inner) {
				if !variantHas(doc, strings.Trim(strings.Split(prefix, "/")[0], "/"), name, key) {
					t.Errorf("config.toml documents no %s of a provider of type %q under [%s]", key, name, prefix)
				}
			}
			walk(prefix, inner)
		}
	}
	walk("", reflect.TypeFor[Config]())
}

// variantHas reports whether some provider table of this type has the key.
func variantHas(doc map[string]any, stage, typ, key string) bool {
	tables, _ := doc[stage].(map[string]any)
	for _, v := range tables {
		table, _ := v.(map[string]any)
		if _, ok := table[key]; ok && table["type"] == typ {
			return true
		}
	}
	return false
}

func TestFileOverlaysDefault(t *testing.T) {
	c := load(t, `
[mqtt]
max_packet = 100_000
connect_rate = 0.5
[speech]
lead = "240ms"
[tts.espeak]
command = ["espeak-ng", "--stdin", "--stdout", "-v", "de"]
[tts.openai]
type = "command"
command = ["piper", "{text}"]
format = "raw"
rate = 22050
[[llm.rules.rule]]
match = ["ping"]
answer = "pong"
[device.A0_85_E3_F4_49_34]
`)
	d := Default()
	d.MQTT.MaxPacket, d.MQTT.ConnectRate, d.Speech.Lead = 100_000, 0.5, 240*time.Millisecond
	d.TTS["espeak"].Command.Command[4] = "de"
	d.TTS["openai"] = TTS{Type: "command", Command: &TTSCommand{
		Command: []string{"piper", "{text}"}, Environment: []string{}, Format: "raw", Rate: 22050, Timeout: 15 * time.Second,
	}}
	d.LLM["rules"].Rules.Rule = []Rule{{Match: []string{"ping"}, Answer: "pong"}}
	d.Device["a0:85:e3:f4:49:34"] = Device{Role: "default"}
	if !reflect.DeepEqual(c, d) {
		t.Errorf("got  %+v\nwant %+v", c, d)
	}
}

func TestRoleStages(t *testing.T) {
	const key = "OPENAI_API_KEY"
	tests := map[string]struct {
		text, role    string
		asr, llm, tts string
	}{
		"built in":                    {"", "default", "pocketsphinx", "rules", "espeak"},
		"empty lists":                 {"[role.default]\nasr=[]\n", "default", "pocketsphinx", "rules", "espeak"},
		"provider alone":              {"[role.default]\nprovider='openai'\n", "default", "openai", "openai", "openai"},
		"provider and a list":         {"[role.default]\nprovider='openai'\ntts=['espeak']\n", "default", "openai", "openai", "espeak"},
		"order is kept":               {"[role.default]\ntts=['openai','espeak']\n", "default", "pocketsphinx", "rules", "openai espeak"},
		"inherited":                   {"[role.default]\nprovider='openai'\n[role.x]\n", "x", "openai", "openai", "openai"},
		"inherited, written first":    {"[role.a]\n[role.default]\nprovider='openai'\n", "a", "openai", "openai", "openai"},
		"own provider over inherited": {"[role.default]\ntts=['espeak']\n[role.x]\nprovider='openai'\n", "x", "openai", "openai", "openai"},
		"own list over inherited":     {"[role.default]\nprovider='openai'\n[role.x]\nllm=['rules']\n", "x", "openai", "rules", "openai"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := load(t, tt.text, key, "sk-x")
			r := c.Role[tt.role]
			got := [3]string{strings.Join(r.ASR, " "), strings.Join(r.LLM, " "), strings.Join(r.TTS, " ")}
			if want := [3]string{tt.asr, tt.llm, tt.tts}; got != want {
				t.Errorf("stages %q, want %q", got, want)
			}
		})
	}
}

func TestRoleInheritance(t *testing.T) {
	c := load(t, `
[role.default]
prompt = "Be brief."
language = "de"
tools_deny = ["self.reboot"]
[role.child]
language = "fr"
[device."a0:85:e3:f4:49:34"]
role = "child"
`)
	name, r := c.RoleOf("a0:85:e3:f4:49:34")
	if name != "child" || r.Prompt != "Be brief." || r.Language != "fr" || r.ToolsDeny[0] != "self.reboot" {
		t.Errorf("role %q: %+v", name, r)
	}
	if name, r = c.RoleOf("00:00:00:00:00:00"); name != "default" || r.Language != "de" {
		t.Errorf("role of a device nobody named: %q: %+v", name, r)
	}
}

func TestUsed(t *testing.T) {
	c := load(t, "[role.x]\ntts=['openai']\n", "OPENAI_API_KEY", "k")
	want := Providers{ASR: []string{"pocketsphinx"}, LLM: []string{"rules"}, TTS: []string{"espeak", "openai"}}
	if got := c.Used(); !reflect.DeepEqual(got, want) {
		t.Errorf("Used() = %v, want %v", got, want)
	}
}

func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("  from-a-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "c.toml")
	text := `
mqtt.key = "env:SIGNING_KEY"
role.default.provider = "openai"
asr.openai.api_key = "file:token"
llm.openai.api_key = "literal"
llm.openai.base_url = "http://localhost:11434/v1/"
tts.openai.api_key = ""
`
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(name, environment("SIGNING_KEY", "sign-with-this\n", "OPENAI_BASE_URL", "https://example.org/v1"))
	if err != nil {
		t.Fatal(err)
	}
	got := []string{
		c.MQTT.Key.Reveal(), c.ASR["openai"].OpenAI.APIKey.Reveal(), c.LLM["openai"].OpenAI.APIKey.Reveal(),
		c.TTS["openai"].OpenAI.APIKey.Reveal(), c.LLM["openai"].OpenAI.BaseURL, c.TTS["openai"].OpenAI.BaseURL,
	}
	want := []string{"sign-with-this", "from-a-file", "literal", "", "http://localhost:11434/v1", "https://example.org/v1"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if c.TTS["openai"].OpenAI.APIKey.IsSet() || !c.MQTT.Key.IsSet() {
		t.Error("IsSet is wrong")
	}
	if got := Default().LLM["openai"].OpenAI.BaseURL; got != "https://api.openai.com/v1" {
		t.Errorf("base_url without a variable: %q", got)
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	const value = "hunter2hunter2"
	c := load(t, "mqtt.key = '"+value+"'\n")
	var log strings.Builder
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "config", c, "key", c.MQTT.Key)
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "config", c, "key", c.MQTT.Key)
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := toml.NewEncoder(&text).Encode(c.MQTT); err != nil {
		t.Fatal(err)
	}
	out := log.String() + string(b) + text.String()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T"} {
		holder := struct{ mqtt MQTT }{c.MQTT} // fmt calls no methods below an unexported field
		out += fmt.Sprintf(verb, holder) + fmt.Sprintf(verb, &holder)
		out += fmt.Sprintf(verb, c.MQTT) + fmt.Sprintf(verb, c.MQTT.Key) + fmt.Sprintf(verb, &c.MQTT.Key)
	}
	for _, leak := range []string{value, fmt.Sprintf("%x", value), fmt.Sprintf("%X", value)} {
		if strings.Contains(out, leak) {
			i := strings.Index(out, leak)
			t.Errorf("output has %q after %q", leak, out[max(0, i-60):i])
		}
	}
	if !strings.Contains(out, "***") {
		t.Error("output has no *** in place of the secret")
	}
}

func TestLocation(t *testing.T) {
	at := time.Date(2026, 1, 15, 12, 0, 0, 0, time.UTC)
	for zone, want := range map[string]int{"480": 480, "-210": -210, "0": 0, "Asia/Shanghai": 480, "America/New_York": -300} {
		c := load(t, "ota.timezone = '"+zone+"'\n")
		loc, err := c.OTA.Location()
		if err != nil {
			t.Fatal(err)
		}
		if _, offset := at.In(loc).Zone(); offset != want*60 {
			t.Errorf("timezone %q: %d minutes, want %d", zone, offset/60, want)
		}
	}
	if loc, err := (OTA{}).Location(); err != nil || loc != time.Local {
		t.Errorf("no timezone: %v, %v", loc, err)
	}
}
