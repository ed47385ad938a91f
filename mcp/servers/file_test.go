package servers

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// variables is the environment of the tests.
func variables(name string) (string, bool) {
	value, ok := map[string]string{"TOKEN": "t0p", "HOME": "/home/me", "EMPTY": ""}[name]
	return value, ok
}

// TestFilesOfOthers reads files as their programs' users have them.
func TestFilesOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		want  []Config
		notes []string // one in each fault, in order
	}{
		"mcp_config.json": {want: []Config{
			{Name: "calculator", Command: "python3", Args: []string{"-m", "calculator"}, Dir: "testdata", Transport: Stdio},
			{Name: "remote-sse", URL: "https://api.example.com/sse", Transport: SSE, Disabled: true},
			{Name: "remote-http", URL: "https://api.example.com/mcp", Transport: HTTP, Headers: map[string]string{"Authorization": "Bearer t0p"}},
		}},
		"mcp_server_settings.json": {
			want: []Config{
				{
					Name: "Home Assistant", Command: "mcp-proxy", Dir: "testdata",
					Args: []string{"http://homeassistant.local:8123/mcp_server/sse"},
					Env:  map[string]string{"API_ACCESS_TOKEN": "none", "RETRIES": "3"},
				},
				{Name: "filesystem", Command: "npx", Dir: "testdata", Args: []string{"-y", "@modelcontextprotocol/server-filesystem", "/home/me/Desktop"}},
				{Name: "old", URL: "http://localhost:8080/sse", Headers: map[string]string{"Authorization": "Bearer abc"}},
				{Name: "streams", URL: "http://localhost:8000/mcp", Transport: HTTP, Timeout: 30 * time.Second},
			},
			notes: []string{
				`testdata/mcp_server_settings.json:16: server "old": API_ACCESS_TOKEN: `,
				`testdata/mcp_server_settings.json:22: server "streams": sse_read_timeout: `,
			},
		},
		"claude_desktop_config.json": {want: []Config{{
			Name: "memory", Command: "npx", Args: []string{"-y", "@modelcontextprotocol/server-memory"},
			Env: map[string]string{"MEMORY_FILE_PATH": "memory.json"}, Dir: "testdata/data",
		}}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name)
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, prefix := range []string{"", "\uFEFF"} { // Windows adds one
				got, faults, err := parseFile(path, append([]byte(prefix), data...), variables)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(got, c.want) {
					t.Errorf("got\n%+v, want\n%+v", got, c.want)
				}
				checkFaults(t, faults, c.notes)
				for _, f := range faults {
					if !f.Note {
						t.Errorf("a server was left out: %v", f)
					}
				}
			}
		})
	}
}

func checkFaults(t *testing.T, faults []Fault, want []string) {
	t.Helper()
	if len(faults) != len(want) {
		t.Fatalf("faults are %v, want %q", faults, want)
	}
	for i, f := range faults {
		if !strings.Contains(f.Error(), want[i]) {
			t.Errorf("fault %d is %q, want %q", i, f.Error(), want[i])
		}
		if strings.Contains(f.Error(), "secret") {
			t.Errorf("fault %d tells a value: %v", i, f)
		}
	}
}

// TestOneBadServerIsLeftOut has a bad one before a good one.
func TestOneBadServerIsLeftOut(t *testing.T) {
	for server, want := range map[string]string{
		`[]`:                                     `f.json:3: server "bad": it must be an object`,
		`"secret"`:                               `f.json:3: server "bad": it must be an object`,
		`{}`:                                     `server "bad": neither command nor url`,
		`{"command":"a","url":"http://secret/"}`: `both set`,
		"{\"command\":\"a\",\n\"args\":\"secret\"}":        `f.json:4: server "bad": args: must be a list of texts`,
		`{"command":["secret"]}`:                           `command: must be a text`,
		`{"command":"a","args":[{"secret":1}]}`:            `args: must be a list`,
		`{"command":"a","env":["secret"]}`:                 `env: must be texts by name`,
		`{"command":"a","env":{"A":["secret"]}}`:           `env: "A" must be a text`,
		`{"command":"a","env":{"A":null}}`:                 `env: "A" must be a text`,
		`{"command":"a","env":{"A":"secret${NONE}"}}`:      `env: "A" needs the variable NONE`,
		`{"command":"a","args":["b","secret${NONE}"]}`:     `args: [1] needs the variable NONE`,
		`{"url":"secret://x"}`:                             `url is none`,
		`{"url":"http://x/","transport":"websocket"}`:      `transport: transport is "websocket"`,
		`{"url":"http://x/","disabled":"secret"}`:          `disabled: must be true or false`,
		`{"url":"http://x/","timeout":"secret"}`:           `timeout: must be a number`,
		`{"url":"http://x/","timeout":-1}`:                 `timeout: must be from 0 to 600`,
		`{"url":"http://x/","timeout":700}`:                `timeout: must be from 0 to 600`,
		`{"url":"http://x/","headers":{"A":"secret\r\n"}}`: `headers "A"`,
	} {
		file := "{\"mcpServers\": {\n\n\"bad\": " + server + ",\n\"good\": {\"command\": \"sh\"}}}"
		configs, faults, err := parseFile("f.json", []byte(file), variables)
		if err != nil || len(configs) != 1 || configs[0].Name != "good" {
			t.Errorf("%s: got %+v, %v", server, configs, err)
		}
		checkFaults(t, faults, []string{want})
	}
}

// TestBadFiles give nothing.
func TestBadFiles(t *testing.T) {
	for file, want := range map[string]string{
		"":                   "f.json:1: it breaks off",
		"[]":                 "f.json:1: it must be an object",
		"{}":                 "f.json: it has no mcpServers",
		"{\n\"a\": 1,\n}":    "f.json:3: ",
		"{\n// words\n}":     "f.json:2: invalid character '/'",
		"{\"mcpServers\":5}": "f.json:1: mcpServers: it must be an object",
		"{\n\"mcpServers\": {\n\"a\": {\n\"command\": \"secret\n\"}}}":         "f.json:4: invalid character",
		"{\n\"mcpServers\": {\n\"a\": {\n":                                     "it breaks off",
		"{\"mcpServers\":{}}\n{}":                                              "f.json:2: something follows",
		strings.Repeat(" ", maxFile+1):                                         "more than 1048576 bytes",
		`{"mcpServers":{` + strings.Repeat(`"a":{},`, maxServers) + `"b":{}}}`: "65 servers, at most 64",
	} {
		configs, faults, err := parseFile("f.json", []byte(file), variables)
		if _, ok := errors.AsType[Fault](err); !ok || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.60q: got %v, want %q", file, err, want)
		}
		if configs != nil || faults != nil {
			t.Errorf("%.60q gives %v, %v", file, configs, faults)
		}
	}
}

func TestReadFile(t *testing.T) {
	if _, _, err := ReadFile("testdata/none.json"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file gives %v", err)
	}
	t.Setenv("TOKEN", "from here")
	configs, faults, err := ReadFile("testdata/mcp_config.json")
	if err != nil || len(configs) != 3 || len(faults) != 0 {
		t.Fatalf("got %v, %v, %v", configs, faults, err)
	}
	if h := configs[2].Headers["Authorization"]; h != "Bearer from here" {
		t.Errorf("the header is %q", h)
	}
}

// TestTwoOfAName keeps the first.
func TestTwoOfAName(t *testing.T) {
	configs, faults, err := parseFile("f.json", []byte(`{"mcpServers":{"a":{"command":"x"},"a":{"command":"y"}}}`), variables)
	if err != nil || len(configs) != 1 || configs[0].Command != "x" {
		t.Errorf("got %+v, %v", configs, err)
	}
	checkFaults(t, faults, []string{"another server has this name"})
}

func TestTimeoutsInMilliseconds(t *testing.T) {
	configs, faults, err := parseFile("f.json", []byte(`{"mcpServers":{"a":{"command":"x","timeout":45000}}}`), variables)
	if err != nil || len(configs) != 1 || configs[0].Timeout != 45*time.Second {
		t.Errorf("got %+v, %v", configs, err)
	}
	checkFaults(t, faults, []string{"milliseconds"})
}

func TestExpand(t *testing.T) {
	for text, want := range map[string]string{
		"plain":                 "plain",
		"${TOKEN}":              "t0p",
		"a${TOKEN}b${HOME}":     "at0pb/home/me",
		"${EMPTY}":              "",
		"${EMPTY:-x}":           "x",
		"${NONE:-x}":            "x",
		"${NONE:-}":             "",
		"${TOKEN:-x}":           "t0p",
		"$TOKEN $$ ${":          "$TOKEN $$ ${",
		"${}":                   "${}",
		"${1A} ${a b} ${TOKEN}": "${1A} ${a b} t0p",
		"${input:key}":          "${input:key}",
		"${${TOKEN}}":           "${t0p}",
	} {
		if got, err := expand(text, variables); err != nil || got != want {
			t.Errorf("%s gives %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := expand("x${NONE}", variables); err == nil || !strings.Contains(err.Error(), "NONE") {
		t.Errorf("a missing variable gives %v", err)
	}
}

func FuzzFile(f *testing.F) {
	for _, name := range []string{"mcp_config.json", "mcp_server_settings.json", "claude_desktop_config.json"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","env":{"A":1,"B":true}},"a":5,"":{"url":"http://x"}}}`))
	f.Add([]byte("\uFEFF{\"mcpServers\":{\"a\":{\"url\":\"${\"}}} x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		configs, faults, err := parseFile("f.json", data, variables)
		if err != nil {
			if fault, ok := errors.AsType[Fault](err); !ok || configs != nil || fault.Line > 1+strings.Count(string(data), "\n") {
				t.Errorf("got %v, %#v", configs, err)
			}
			return
		}
		seen := map[string]bool{}
		for _, c := range configs {
			if err := c.Check(); err != nil || seen[c.Name] {
				t.Errorf("%+v was let through: %v", c, err)
			}
			seen[c.Name] = true
		}
		for _, fault := range faults {
			if fault.Line < 1 || fault.Line > 1+strings.Count(string(data), "\n") || fault.Text == "" {
				t.Errorf("fault %#v", fault)
			}
		}
	})
}
