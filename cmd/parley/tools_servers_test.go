package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// server is the table of an MCP server that is this binary.
func server(t *testing.T, part, mark string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("[mcp.server.%s]\ncommand = %q\nenv = { %s = %q, %s = %q }\n", part, self, partVariable, part, markVariable, mark)
}

// relatives lists the processes that were started with a mark.
func relatives(t *testing.T, mark string) []string {
	t.Helper()
	return processes(t, func(_, environ, _ []byte) bool { return bytes.Contains(environ, []byte(markVariable+"="+mark)) })
}

// guards lists the guards that this process has started. Tests that start some at
// the same time see each other's.
func guards(t *testing.T) []string {
	t.Helper()
	return processes(t, func(stat, _, cmd []byte) bool {
		_, after, _ := bytes.Cut(stat, []byte(") "))
		fields := strings.Fields(string(after)) // state, parent
		return len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) && bytes.HasSuffix(cmd, []byte("\x00"+guardCommand+"\x00"))
	})
}

// processes lists the processes that are wanted, by what /proc tells of each. What
// has ended has neither environment nor command line.
func processes(t *testing.T, want func(stat, environ, cmd []byte) bool) []string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(dirs) == 0 {
		t.Skip("there is no /proc")
	}
	var all []string
	for _, dir := range dirs {
		stat, err := os.ReadFile(dir + "/stat")
		environ, err2 := os.ReadFile(dir + "/environ")
		cmd, err3 := os.ReadFile(dir + "/cmdline")
		if errors.Join(err, err2, err3) == nil && want(stat, environ, cmd) {
			all = append(all, filepath.Base(dir)+" "+string(bytes.ReplaceAll(cmd, []byte{0}, []byte(" "))))
		}
	}
	return all
}

// mustEnd asserts that no program outlives a node.
func mustEnd(t *testing.T, mark string, stop func()) {
	t.Helper()
	if len(relatives(t, mark)) == 0 {
		t.Error("nothing was started")
	}
	stop()
	if left := relatives(t, mark); len(left) > 0 {
		t.Errorf("processes outlived the server: %q", left)
	}
}

// A readiness is what /readyz answers.
type readiness struct {
	Ready  bool
	Checks []struct {
		Name, Error  string
		OK, Optional bool
	}
}

// ready asks /readyz.
func ready(t *testing.T, n *node) (status int, r readiness) {
	t.Helper()
	status, body := fetch(t, n, http.MethodGet, "/readyz", "", "")
	if err := json.Unmarshal(body, &r); err != nil {
		t.Fatalf("/readyz: %s: %v", body, err)
	}
	return status, r
}

// ok reports whether a check of /readyz passes; known whether it is there.
func (r readiness) ok(name string) (ok, known bool) {
	for _, c := range r.Checks {
		if c.Name == name {
			return c.OK, true
		}
	}
	return false, false
}

// fetch makes one request over a connection of its own.
func fetch(t *testing.T, n *node, method, path, token, body string) (status int, answer []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, fmt.Sprintf("http://127.0.0.1:%d%s", n.webPort(), path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// awaitServers waits until servers are in /readyz as wanted.
func awaitServers(t *testing.T, n *node, want ...string) {
	t.Helper()
	until(t, fmt.Sprint("servers ", want), func() bool {
		_, r := ready(t, n)
		return !slices.ContainsFunc(want, func(name string) bool { ok, _ := r.ok("mcp." + name); return !ok })
	})
}

// TestServersByConfigurationAlone has the tools of a table and of a file in
// conversations, beside a server that never starts.
func TestServersByConfigurationAlone(t *testing.T) {
	mark := t.Name()
	dir := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	calculator := map[string]any{"command": self, "args": []string{}, "env": map[string]string{partVariable: "calculator", markVariable: mark}}
	rule := `arguments = { python_expression = "{a} * {b}" }
answer = "That is {result.result}."`
	if python, err := exec.LookPath("python3"); err == nil { // as most people have it
		there, err := filepath.Abs("../../mcp/servers/testdata")
		if err != nil {
			t.Fatal(err)
		}
		calculator = map[string]any{"type": "stdio", "command": python, "args": []string{"calculator.py"}, "cwd": there, "env": map[string]string{markVariable: mark}}
		rule = `arguments = { expression = "{a} * {b}" }
answer = "That is {result}."`
	}
	file, err := json.Marshal(map[string]any{"mcpServers": map[string]any{
		"calc": calculator, "later": map[string]any{"command": "x", "disabled": true}, "absent": map[string]any{"command": "no-such-program"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "mcp_config.json"), string(file))
	path := filepath.Join(dir, "config.toml")
	write(t, path, "[mcp]\nfiles = [\"mcp_config.json\"]\n"+server(t, "echo", mark)+server(t, "broken", mark))
	t.Chdir(dir)
	n, stop := startFile(t, path, rules(t, `
[[rule]]
match = ["what is {a:number} times {b:number}"]
call = "calculator"
`+rule+`

[[rule]]
match = ["echo {word}"]
call = "echo"
arguments = { word = "{word}" }
answer = "{result}"
`))
	awaitServers(t, n, "calc", "echo", "later")
	status, r := ready(t, n)
	if status != http.StatusOK || !r.Ready {
		t.Errorf("/readyz: %d %+v", status, r)
	}
	if ok, known := r.ok("mcp.broken"); ok || !known {
		t.Errorf("the server that cannot start: ok %v, listed %v", ok, known)
	}
	p := connect(t, n, kitchen, nil)
	says(p, "what is 1004 times 328", "That is 329312.")
	says(p, "echo good morning", "good morning")
	if g := guards(t); len(g) != 1 {
		t.Errorf("guards: %q", g)
	}
	mustEnd(t, mark, stop)
	if g := guards(t); len(g) != 0 {
		t.Errorf("a guard outlived the server: %q", g)
	}
}

// TestMisbehavingServers asserts that every turn ends in words whatever a server
// does, that others go on, and that nothing is left.
func TestMisbehavingServers(t *testing.T) {
	t.Parallel()
	mark := t.Name()
	path := configure(t, "[limits]\ntool = \"1s\"\n"+server(t, "echo", mark)+server(t, "dying", mark)+
		server(t, "hanging", mark)+server(t, "shouting", mark)+server(t, "doubling", mark))
	n, stop := startFile(t, path, rules(t, `
[[rule]]
match = ["echo {word}"]
call = "echo"
arguments = { word = "{word}" }
answer = "{result}"

[[rule]]
match = ["die"]
call = "dying"
answer = "It lives."
failed = "It is dead."

[[rule]]
match = ["hang"]
call = "hanging"
answer = "It answered."

[[rule]]
match = ["shout"]
call = "shouting"
answer = "It was quiet."
failed = "It was too loud."

[[rule]]
match = ["double {word}"]
call = "doubling"
arguments = { word = "{word}" }
answer = "{result}"
failed = "It was too much."
`))
	awaitServers(t, n, "echo", "dying", "hanging", "shouting", "doubling")
	p := connect(t, n, kitchen, nil)
	says(p, "die", "It is dead.")
	says(p, "echo one", "one")
	says(p, "hang", "Sorry, that did not work.")
	says(p, "echo two", "two")
	says(p, "shout", "It was too loud.")
	says(p, "double first", "first")
	says(p, "double second", "second")
	awaitServers(t, n, "dying") // it was started again
	mustEnd(t, mark, stop)
}
