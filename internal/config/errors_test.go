package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestFaults pins whole lines: they are read by people, in the words they have.
func TestFaults(t *testing.T) {
	const whisper = "[asr.whisper]\ntype = \"command\"\n"
	// The lines are after the name of the file; 0 stands for no line.
	tests := map[string]struct{ text, want string }{
		"unknown key":            {"[mqtt]\nmax_paket = 1\n", `2: mqtt.max_paket: is not a known key; did you mean "max_packet"?`},
		"unknown table":          {"[mqqt]\n", `1: mqqt: is not a known key; did you mean "mqtt"?`},
		"swapped letters":        {"[session]\ndrian = '1s'\n", `2: session.drian: is not a known key; did you mean "drain"?`},
		"upper case":             {"[mqtt]\nListen = ':1'\n", `2: mqtt.Listen: is not a known key; did you mean "listen"?`},
		"key of another table":   {"[mqtt]\nsilence_timeout = '9s'\n", `2: mqtt.silence_timeout: is not a known key; it belongs in [session]`},
		"key like no other":      {"[http]\nwonderful = 1\n", `2: http.wonderful: is not a known key; the keys here are listen`},
		"number for text":        {"[log]\nlevel = 3\n", `2: log.level: is a whole number; give text in quotes`},
		"text for number":        {"[mqtt]\nmax_clients = '20000'\n", `2: mqtt.max_clients: is text; give a whole number, such as 20000`},
		"fraction for number":    {"[mqtt]\nmax_clients = 2.5\n", `2: mqtt.max_clients: is a number with a fraction; give a whole number, such as 20000`},
		"not a number":           {"[mqtt]\nconnect_rate = nan\n", `2: mqtt.connect_rate: is a number with a fraction; give a number, such as 20`},
		"text for switch":        {"[ota]\npublic = 'yes'\n", `2: ota.public: is text; give true or false`},
		"number for duration":    {"[limits]\nfirst = 5\n", `2: limits.first: is a whole number; give text with a unit, such as "5s"`},
		"no unit":                {"[session]\nsilence_timeout = '60'\n", `2: session.silence_timeout: "60" is no duration; give a number with a unit (ms, s, m or h), such as "1m"`},
		"date":                   {"[limits]\nfirst = 1979-05-27\n", `2: limits.first: is a date or time; give text with a unit, such as "5s"`},
		"table for text":         {"[log.level]\n", `1: log.level: is a table; give text in quotes`},
		"text for table":         {"mqtt = 'on'\n", `1: mqtt: is text; give a table`},
		"text for array":         {"[role.default]\ntts = 'espeak'\n", `2: role.default.tts: is text; give an array in brackets`},
		"number in array":        {"[role.default]\ntools_deny = [\n 'a',\n 7,\n]\n", `4: role.default.tools_deny[1]: is a whole number; give text in quotes`},
		"below range":            {"[speech]\nlead = '10ms'\n", `2: speech.lead: is 10ms; allowed is 60ms to 1.8s`},
		"above range":            {"[udp]\nport = 70000\n", `2: udp.port: is 70000; allowed is 0 to 65535`},
		"against another key":    {"[speech]\nendpoint_min = '4s'\n", `1: speech.endpoint_max: is 3s; allowed is 4s to 30s`},
		"negative":               {"[session]\ndrain = '-1s'\n", `2: session.drain: is -1s; allowed is 0s to 1m`},
		"no rate":                {"[session]\nhello_rate = 0\n", `2: session.hello_rate: is 0; allowed is more than 0 to 1000000 a second`},
		"choice":                 {"[log]\nlevel = 'warning'\n", `2: log.level: is "warning"; allowed are "debug", "info", "warn", "error"`},
		"near choice":            {"[log]\nformat = 'jsn'\n", `2: log.format: is "jsn"; did you mean "json"?`},
		"half seconds":           {"[mqtt]\nkeepalive = '90.5s'\n", `2: mqtt.keepalive: is 1m30.5s; give whole seconds: MQTT counts in them`},
		"address":                {"[mqtt]\nlisten = '1883'\n", `2: mqtt.listen: "1883" is no address to listen on; give host:port, such as ":1883" for every address or "127.0.0.1:1883"`},
		"address port":           {"[http]\nlisten = ':99999'\n", `2: http.listen: ":99999" is no address to listen on; give host:port, such as ":1883" for every address or "127.0.0.1:1883"`},
		"address taken":          {"[http]\nlisten = ':1883'\n", `2: http.listen: ":1883" is the address of mqtt.listen, too; give one of them another port`},
		"IPv6 for devices":       {"[udp]\naddress = 'fd00::1'\n", `2: udp.address: "fd00::1" is no host name or IPv4 address; give one without a port, such as "voice.example.org" or "192.168.1.10": devices know no IPv6`},
		"broken IPv4":            {"[udp]\naddress = '192.168.1.256'\n", `2: udp.address: "192.168.1.256" is no host name or IPv4 address; give one without a port, such as "voice.example.org" or "192.168.1.10": devices know no IPv6`},
		"scheme":                 {"[ota]\nmqtt_endpoint = 'mqtt://h:1883'\n", `2: ota.mqtt_endpoint: "mqtt://h:1883" is no host:port; give a host name or IPv4 address and a port, such as "voice.example.org:8883", without mqtt://: a device restarts for ever on anything else`},
		"time zone":              {"[ota]\ntimezone = 'Mars/Olympus'\n", `2: ota.timezone: "Mars/Olympus" is no time zone; give minutes east of UTC, such as "480", or a name, such as "Asia/Shanghai"`},
		"time zone too far":      {"[ota]\ntimezone = '900'\n", `2: ota.timezone: "900" is no time zone; give minutes east of UTC, such as "480", or a name, such as "Asia/Shanghai"`},
		"public without key":     {"[ota]\npublic = true\n", `2: ota.public: would enrol anybody's devices without a password; set mqtt.key too`},
		"half of TLS":            {"[mqtt]\ntls_key = ''\ntls_certificate = 'errors_test.go'\n", `3: mqtt.tls_certificate: certificate and key come together; set both tls_certificate and tls_key, or neither`},
		"short key":              {"[mqtt]\nkey = 'abc'\n", `2: mqtt.key: has 3 bytes; use at least 8; 'openssl rand -base64 32' prints a good one`},
		"number for key":         {"[mqtt]\nkey = 12345678\n", `2: mqtt.key: is a whole number; give text, such as "env:NAME" or "file:/path"`},
		"key not in environment": {"[mqtt]\nkey = 'env:PARLEY_KEY'\n", `2: mqtt.key: the environment variable PARLEY_KEY is not set; set it, or write key = "" for open enrolment on private networks`},
		"missing secret":         {"[role.default]\nllm = ['openai']\n", `0: llm.openai.api_key: the environment variable OPENAI_API_KEY is not set; set it, or write api_key = "" for a service that wants none`},
		"missing secret, where":  {"role.default.llm = ['openai']\n[llm.openai]\nmodel = 'm'\n", `2: llm.openai.api_key: the environment variable OPENAI_API_KEY is not set; set it, or write api_key = "" for a service that wants none`},
		"missing file":           {"role.default.llm = ['openai']\nllm.openai.api_key = 'file:/nonexistent/key'\n", `2: llm.openai.api_key: the file /nonexistent/key cannot be read: no such file or directory; set it, or write api_key = "" for a service that wants none`},
		"no URL":                 {"[tts.openai]\nbase_url = 'localhost:8000'\n", `2: tts.openai.base_url: does not begin with http:// or https://; give a URL such as "http://localhost:11434/v1"`},
		"key in a URL":           {"[tts.openai]\nbase_url = 'https://me:pw@h/v1'\n", `2: tts.openai.base_url: has a user name in it; keys go to api_key; give a URL such as "http://localhost:11434/v1"`},
		"unknown provider":       {"[role.default]\nasr = [\n'pocketsphinks']\n", `3: role.default.asr[0]: there is no provider "pocketsphinks"; did you mean "pocketsphinx"?`},
		"provider of no table":   {"[role.default]\nllm = ['gpt']\n", `2: role.default.llm[0]: there is no provider "gpt"; add a table [llm.gpt], or use one of "openai", "rules"`},
		"unknown type":           {"[tts.x]\ntype = 'comand'\n", `2: tts.x.type: "comand" is not a type of provider; did you mean "command"?`},
		"type of no sense":       {"[llm.x]\ntype = 'quantum'\n", `2: llm.x.type: "quantum" is not a type of provider; the types here are "openai", "rules"`},
		"no type":                {"[tts.x]\nvoice = 'x'\n", `1: tts.x.type: is missing; say which kind of provider this is: "command", "openai"`},
		"type is no text":        {"[tts.x]\ntype = 7\n", `2: tts.x.type: is a whole number; give text in quotes`},
		"key of another type":    {whisper + "command = ['w', '{file}']\nmodel = 'x'\n", `4: asr.whisper.model: is not a key of type "command"; it belongs to type "openai"; remove it or change the type`},
		"no command":             {whisper, `1: asr.whisper.command: is missing; give a program and its arguments, such as command = ["espeak-ng", "--stdout"]`},
		"environment":            {"[tts.espeak]\nenvironment = ['A=1', 'B']\n", `2: tts.espeak.environment[1]: sets no variable; write it as "NAME=value"`},
		"speed":                  {"[tts.openai]\nspeed = 9\n", `2: tts.openai.speed: is 9; allowed is 0.25 to 4, or 0 to leave it to the service`},
		"raw without rate":       {"[tts.espeak]\nformat = 'raw'\n", `1: tts.espeak.rate: is 0; allowed is 8000 to 48000`},
		"temperature":            {"[llm.openai]\ntemperature = 3\n", `2: llm.openai.temperature: is 3; allowed is 0 to 2, or -1 to leave it to the service`},
		"rule without patterns":  {"[[llm.rules.rule]]\nanswer = 'x'\n", `1: llm.rules.rule[0].match: is missing; give the patterns this rule answers, such as match = ["hello"]`},
		"rule without answer":    {"[[llm.rules.rule]]\nmatch = ['a']\nanswer = 'b'\n[[llm.rules.rule]]\nmatch = ['x']\n", `4: llm.rules.rule[1].answer: is missing; say what to answer`},
		"rule without tool":      {"[[llm.rules.rule]]\nmatch = ['a']\nanswer = 'b'\narguments = {x = 1}\n", `4: llm.rules.rule[0].arguments: has no tool to go to; name it with call`},
		"unknown role":           {"[role.kitchen]\n[device.\"a0:85:e3:f4:49:34\"]\nrole = 'kichen'\n", `3: device."a0:85:e3:f4:49:34".role: there is no role "kichen"; did you mean "kitchen"?`},
		"bad MAC":                {"[device.lamp]\n", `1: device.lamp: "lamp" is no MAC address; write it as "a0:85:e3:f4:49:34", in quotes`},
		"MAC of eight":           {"[device.'a0:85:e3:f4:49:34:00:01']\n", `1: device."a0:85:e3:f4:49:34:00:01": "a0:85:e3:f4:49:34:00:01" is no MAC address; write it as "a0:85:e3:f4:49:34", in quotes`},
		"MAC twice":              {"[device.'a0:85:e3:f4:49:34']\n[device.'A0-85-E3-F4-49-34']\n", `1: device."a0:85:e3:f4:49:34": device a0:85:e3:f4:49:34 has another table; keep one of them`},
		"open bracket":           {"[role.default]\ntools_allow = ['self.[']\n", `2: role.default.tools_allow[0]: "self.[" is no pattern: a bracket is open; write one such as "self.screen.*"`},
		"not TOML":               {"[log]\nlevel = info\n", `2: log.level: expected a top-level item to end with a newline, comment, or EOF, but got 'o' instead; correct the TOML on this line; text needs quotes`},
		"secret without quotes":  {"[mqtt]\nkey = abcdefgh\n", `2: mqtt.key: the value is not TOML; correct the TOML on this line; text needs quotes`},
		"key twice":              {"[log]\nlevel = 'info'\nlevel = 'warn'\n", `3: log.level: Key 'log.level' has already been defined.; correct the TOML on this line; text needs quotes`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			file := write(t, tt.text)
			_, err := Load(file, noEnv)
			if err == nil {
				t.Fatal("accepted")
			}
			got := strings.ReplaceAll(err.Error(), file, "F")
			if want := "F:" + strings.TrimPrefix(tt.want, "0:"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestAllFaultsAtOnceInOrder(t *testing.T) {
	got := faults(t, `[role.default]
llm = ["nobody"]
[mqtt]
lisen = ":1883"
max_packet = "big"
[speech]
lead = "9s"
[device.x]
[log]
level = "loud"
`)
	var where []string
	for _, f := range got {
		where = append(where, fmt.Sprintf("%d %s", f.Line, f.Key))
	}
	want := []string{"2 role.default.llm[0]", "4 mqtt.lisen", "5 mqtt.max_packet", "7 speech.lead", "8 device.x", "10 log.level"}
	if !slices.Equal(where, want) {
		t.Errorf("faults\n%q\nwant\n%q", where, want)
	}
}

func TestShorthandNeedsEveryStage(t *testing.T) {
	got := faults(t, "[llm.local]\ntype='rules'\n[tts.local]\ntype='openai'\napi_key=''\n[role.default]\nprovider = 'local'\n")
	if len(got) != 1 || got[0].Line != 7 || got[0].Problem != "there is no table [asr.local]" {
		t.Errorf("faults: %v", got)
	}
}

func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	large := filepath.Join(dir, "large.toml")
	if err := os.WriteFile(large, []byte(strings.Repeat("# comment\n", maxFile/10+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "none.toml"): "cannot be read: no such file or directory",
		dir:                             "cannot be read: is a directory",
		large:                           "cannot be read: has more than 1048576 bytes",
	} {
		_, err := Load(name, noEnv)
		var fault *Error
		if !errors.As(err, &fault) || fault.File != name || fault.Problem != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestFaultsTellNoSecrets puts a secret wherever one can be mistyped.
func TestFaultsTellNoSecrets(t *testing.T) {
	const value = "sk_live_0123456789"
	for _, text := range []string{
		"[mqtt]\nkey = " + value + "\n",
		"[mqtt]\nkey = '" + value + "\n",
		"[llm.openai]\napi_key = " + value + "\n",
		"[llm.openai]\napi_key = ['" + value + "']\n",
		"[llm.openai]\napi_key = {v = '" + value + "'}\n",
		"[llm.openai]\napi_key = '" + value + "'\nmodel = 3\n",
		"[llm.openai]\nbase_url = 'https://" + value + "@h/v1'\n",
		"[llm.openai]\nbase_url = 'https://h/v1?key=" + value + "'\n",
	} {
		for _, f := range faults(t, text) {
			if strings.Contains(f.Error(), "0123456789") {
				t.Errorf("of %q:\n%s", text, f)
			}
		}
	}
}

// TestEveryNumberHasBounds sets each number and duration to values that cannot
// be meant, one at a time.
func TestEveryNumberHasBounds(t *testing.T) {
	n := 0
	try := func(key string, field reflect.Value, c *Config) {
		old := reflect.ValueOf(field.Interface())
		extremes := []int64{-1 << 40, 1 << 60}
		for _, v := range extremes {
			if field.Kind() == reflect.Float64 {
				field.SetFloat(float64(v))
			} else {
				field.SetInt(v)
			}
			r := &report{}
			resolve(c, r, "", noEnv)
			if !slices.ContainsFunc(r.faults, func(e *Error) bool { return e.Key == key }) {
				t.Errorf("%s = %d is accepted", key, v)
			}
			n++
		}
		field.Set(old)
	}
	var walk func(p path, v reflect.Value, c *Config)
	walk = func(p path, v reflect.Value, c *Config) {
		for name, i := range fieldsOf(v.Type()) {
			switch field := v.Field(i); field.Kind() {
			case reflect.Int, reflect.Int64, reflect.Float64:
				try(p.key(name).String(), field, c)
			case reflect.Struct:
				if field.Type() != reflect.TypeFor[Secret]() {
					walk(p.key(name), field, c)
				}
			}
		}
	}
	c := Default()
	c.ASR["whisper"] = ASR{Type: "command", Command: withDefaults(&ASRCommand{Command: []string{"w", "{file}"}})}
	walk(nil, reflect.ValueOf(c).Elem(), c)
	for _, tables := range []reflect.Value{reflect.ValueOf(c.ASR), reflect.ValueOf(c.LLM), reflect.ValueOf(c.TTS)} {
		stage := strings.ToLower(tables.Type().Elem().Name())
		for _, name := range tables.MapKeys() {
			table := tables.MapIndex(name)
			for _, i := range variantsOf(table.Type()) {
				if v := table.Field(i); !v.IsNil() {
					walk(keys(stage, name.String()), v.Elem(), c)
				}
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d values were tried: the walk misses fields", n)
	}
}

func TestNearest(t *testing.T) {
	words := []string{"listen", "tls_listen", "key", "tls_key", "keepalive"}
	for word, want := range map[string]string{
		"lisen": "listen", "listne": "listen", "LISTEN": "listen", "kye": "key", "keep_alive": "keepalive",
		"tls-key": "tls_key", "address": "", "": "", "k": "", "keys": "key",
	} {
		if got := nearest(word, words); got != want {
			t.Errorf("nearest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestFormatDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", time.Minute: "1m", time.Hour: "1h", 90 * time.Second: "1m30s", 10 * time.Minute: "10m",
		10 * time.Second: "10s", 250 * time.Millisecond: "250ms", time.Hour + time.Minute: "1h1m", 20 * time.Hour: "20h",
	} {
		if got := formatDuration(d); got != want {
			t.Errorf("formatDuration(%v) = %q, want %q", d, got, want)
		}
	}
}
