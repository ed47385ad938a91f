package servers

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An exchange is a call of somebody else's server and what it must answer.
type exchange struct {
	tool, args string
	want       string // a pattern for all of the text
	isError    bool
}

func (f *fixture) exchange(x exchange) {
	f.t.Helper()
	r := f.call(x.tool, x.args)
	if !regexp.MustCompile(`^(?s:`+x.want+`)$`).MatchString(r.Text) || r.IsError != x.isError {
		f.t.Errorf("%s(%s) says %q (error: %v), want %q (error: %v)", x.tool, x.args, r.Text, r.IsError, x.want, x.isError)
	}
}

// TestAPythonServer is configured as mcp-calculator's users do it: in a file
// beside the program.
func TestAPythonServer(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("python3 is not installed (Debian: python3)")
	}
	program, err := os.ReadFile("testdata/calculator.py")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "mcp_config.json")
	if err := os.WriteFile(filepath.Join(dir, "calculator.py"), program, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(`{"mcpServers": {"calc": {"type": "stdio", "command": "python3", "args": ["calculator.py"]}}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	configs, faults, err := ReadFile(file)
	if err != nil || len(configs) != 1 || len(faults) != 0 {
		t.Fatalf("the file gives %v, %v, %v", configs, faults, err)
	}
	f := run(t, configs[0], Options{})
	f.waitState(Ready)
	f.exchange(exchange{"calculator", `{"expression":"2*(3+4)-1"}`, "13", false})
	f.exchange(exchange{"calculator", `{"expression":"1/0"}`, "division by zero", true})
	f.exchange(exchange{"calculator", `{"expression":"__import__('os')"}`, "this is no arithmetic", true})
	f.stop()
	if !strings.Contains(f.log.String(), "calculator is ready") {
		t.Errorf("its message is not in the log:\n%s", f.log)
	}
}

// TestTheSDKsExamples builds example servers that come with the SDK and uses
// each as a program and as a service.
func TestTheSDKsExamples(t *testing.T) {
	const module = "github.com/modelcontextprotocol/go-sdk/examples/server/"
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir+"/", module+"everything", module+"memory", module+"sequentialthinking")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	for name, exchanges := range map[string][]exchange{
		"everything": {
			{"greet", `{"name":"Ada"}`, "Hi Ada", false},
			{"greet (structured)", `{"name":"Ada"}`, `\{"message":"Hi Ada"\}`, false},
			{"ping", `{}`, "", false},    // asks Parley, which answers
			{"sample", `{}`, ".+", true}, // asks for what Parley does not offer
			{"greet", `{"nobody":1}`, ".*nobody.*", true},
		},
		"memory": {
			{"create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`, ".*created.*", false},
			{"search_nodes", `{"query":"Ada"}`, "Nodes searched successfully.*", false},
			{"open_nodes", `{"names":["Ada"]}`, "Nodes opened successfully.*", false},
		},
		"sequentialthinking": {
			{"start_thinking", `{"problem":"why","sessionId":"s"}`, `.*session 's'.*`, false},
			{"review_thinking", `{"sessionId":"none"}`, `.*not found.*`, true},
		},
	} {
		for kind, start := range map[string]func(t *testing.T, path string) Config{
			Stdio: func(_ *testing.T, path string) Config { return Config{Name: name, Command: path} },
			HTTP: func(t *testing.T, path string) Config {
				port := freePort(t)
				start(t, Config{Command: path, Args: []string{"-http", "127.0.0.1:" + port}})
				return Config{Name: name, URL: "http://127.0.0.1:" + port + "/"}
			},
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				cfg := start(t, filepath.Join(dir, name))
				cfg.Timeout = patience
				f := run(t, cfg, Options{})
				f.waitState(Ready) // at the second attempt, where it is slow to listen
				for _, x := range exchanges {
					f.exchange(x)
				}
				f.stop()
			})
		}
	}
}

// start runs a program until the test ends; its messages are the test's.
func start(t *testing.T, cfg Config) {
	t.Helper()
	p, err := StartProcess(cfg, nil, nil, new(logbook).logger())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { // ends with the program
		defer close(done)
		var printed bytes.Buffer
		_, _ = printed.ReadFrom(p.Out)
	}()
	t.Cleanup(func() {
		p.Stop()
		<-done
	})
}

// freePort returns a port that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// npmPackages are the reference servers that are written for Node.
func npmPackages() []string {
	return []string{
		"@modelcontextprotocol/server-everything@2026.8.31",
		"@modelcontextprotocol/server-filesystem@2026.8.31",
		"@modelcontextprotocol/server-memory@2026.8.31",
	}
}

// npmServers returns a directory with the reference servers. They are fetched
// once and kept in the user's cache.
func npmServers(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"node", "npm", "npx"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (Debian: nodejs, npm)", program)
		}
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Skip("there is no cache directory: ", err)
	}
	parent := filepath.Join(cache, "parley-test")
	dir := filepath.Join(parent, "mcp-servers-2026.8.31")
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	half, err := os.MkdirTemp(parent, "half-*")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(half)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	npm := exec.CommandContext(ctx, "npm", append([]string{"install", "--no-audit", "--no-fund", "--prefix", half}, npmPackages()...)...)
	if out, err := npm.CombinedOutput(); err != nil {
		t.Skipf("npm cannot fetch the servers: %v\n%s", err, out)
	}
	if err := os.Rename(half, dir); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	return dir
}

// TestNodesReferenceServers uses the servers that MCP's authors publish.
func TestNodesReferenceServers(t *testing.T) {
	dir := npmServers(t)
	picture := tinyImage(t, dir)
	script := func(name string) string {
		return filepath.Join(dir, "node_modules", "@modelcontextprotocol", name, "dist", "index.js")
	}
	t.Run("everything stdio", func(t *testing.T) {
		everything(t, Config{Name: "everything", Command: "node", Args: []string{script("server-everything"), "stdio"}, Env: map[string]string{"OWN": "yes"}}, picture)
	})
	t.Run("everything http", func(t *testing.T) {
		port := freePort(t)
		start(t, Config{Command: "node", Args: []string{script("server-everything"), "streamableHttp"}, Env: map[string]string{"PORT": port, "OWN": "yes"}})
		everything(t, Config{Name: "everything", URL: "http://127.0.0.1:" + port + "/mcp"}, picture)
	})
	t.Run("everything sse", func(t *testing.T) {
		port := freePort(t)
		start(t, Config{Command: "node", Args: []string{script("server-everything"), "sse"}, Env: map[string]string{"PORT": port, "OWN": "yes"}})
		everything(t, Config{Name: "everything", URL: "http://127.0.0.1:" + port + "/sse"}, picture)
	})
	t.Run("filesystem", func(t *testing.T) { filesystem(t, script("server-filesystem")) })
	t.Run("memory by npx", func(t *testing.T) { memory(t, dir) })
}

// everything asserts of each tool of server-everything what it returns.
func everything(t *testing.T, cfg Config, picture []byte) {
	cfg.Timeout = patience
	f := run(t, cfg, Options{})
	f.waitState(Ready)
	exchanges := []exchange{
		{"echo", `{"message":"héllo, 世界"}`, "Echo: héllo, 世界", false},
		{"get-sum", `{"a":2,"b":40.5}`, `The sum of 2 and 40\.5 is 42\.5\.`, false},
		{"get-sum", `{"a":"two"}`, ".*expected number.*", true},
		{"get-annotated-message", `{"messageType":"error"}`, "Error: Operation failed", false},
		{"get-annotated-message", `{"messageType":"success","includeImage":true}`, `Operation completed successfully\n\[image image/png, \d+ bytes\]`, false},
		{"get-annotated-message", `{"messageType":"debug"}`, "Debug: Cache hit ratio .*", false},
		{"get-env", `{}`, `\{.*"OWN": "yes".*\}`, false},
		{"get-resource-links", `{"count":2}`, "Here are 2 resource links to resources available in this server:\n.*\n.*", false},
		{"get-resource-reference", `{"resourceType":"Text","resourceId":7}`, "Returning resource reference for Resource 7:\n.*You can access this resource using the URI: demo://resource/dynamic/text/7", false},
		{"get-structured-content", `{"location":"Chicago"}`, `\{"temperature":36,"conditions":"Light rain / drizzle","humidity":82\}`, false},
		{"get-tiny-image", `{}`, "Here's the image you requested:\n\\[image image/png, \\d+ bytes\\]\nThe image above is the MCP logo\\.", false},
		{"gzip-file-as-resource", `{"name":"x.gz","data":"data:text/plain,hello","outputType":"resource"}`, ".+", false},
		{"toggle-simulated-logging", `{}`, "Started simulated, random-leveled logging.*", false},
		{"toggle-simulated-logging", `{}`, "Stopped simulated logging.*", false},
		{"toggle-subscriber-updates", `{}`, "Started simulated resource updated.*", false},
		{"toggle-subscriber-updates", `{}`, "Stopped simulated resource updates.*", false},
		{"trigger-long-running-operation", `{"duration":0.2,"steps":2}`, `Long running operation completed\. Duration: 0\.2 seconds, Steps: 2\.`, false},
		{"simulate-research-query", `{"topic":"x"}`, `(?i).*task.*`, true}, // it wants tasks, which Parley does not offer
	}
	tried := map[string]bool{}
	for _, x := range exchanges {
		tried[x.tool] = true
		f.exchange(x)
	}
	for _, tool := range f.Tools() {
		if !tried[tool.Name] {
			t.Errorf("the tool %s is not tried", tool.Name)
		}
	}
	for _, name := range []string{"get-tiny-image", "get-annotated-message"} {
		r := f.call(name, `{"messageType":"error","includeImage":true}`)
		if len(r.Images) != 1 || r.Images[0].MIMEType != "image/png" || !bytes.Equal(r.Images[0].Data, picture) {
			t.Errorf("%s has images %v", name, r.Images)
		}
	}
	f.stop()
}

// tinyImage takes the picture out of the tool's own source.
func tinyImage(t *testing.T, dir string) []byte {
	source, err := os.ReadFile(filepath.Join(dir, "node_modules/@modelcontextprotocol/server-everything/dist/tools/get-tiny-image.js"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(source), `MCP_TINY_IMAGE = "`)
	text, _, _ := strings.Cut(after, `"`)
	picture, err := base64.StdEncoding.DecodeString(text)
	if config, bad := png.DecodeConfig(bytes.NewReader(picture)); err != nil || bad != nil || config.Width != 20 {
		t.Fatalf("the source has no picture: %v, %v", err, bad)
	}
	return picture
}

// filesystem writes and reads a file within the one directory it may.
func filesystem(t *testing.T, script string) {
	allowed, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := run(t, Config{Name: "filesystem", Command: "node", Args: []string{script, allowed}}, Options{})
	f.waitState(Ready)
	path := filepath.Join(allowed, "a.txt")
	args := func(m map[string]any) string {
		b, _ := json.Marshal(m)
		return string(b)
	}
	f.exchange(exchange{"write_file", args(map[string]any{"path": path, "content": "Grüße"}), "Successfully wrote to .*", false})
	if text, err := os.ReadFile(path); err != nil || string(text) != "Grüße" {
		t.Errorf("the file says %q: %v", text, err)
	}
	f.exchange(exchange{"read_text_file", args(map[string]any{"path": path}), "Grüße", false})
	f.exchange(exchange{"list_directory", args(map[string]any{"path": allowed}), `\[FILE\] a\.txt`, false})
	f.exchange(exchange{"read_text_file", args(map[string]any{"path": "/etc/passwd"}), ".*Access denied.*", true})
	f.stop()
}

// memory runs as users run such servers, by npx, which starts a shell, which
// starts node: a family that must end together.
func memory(t *testing.T, dir string) {
	file := filepath.Join(t.TempDir(), "memory.json")
	f := run(t, Config{
		Name: "memory", Command: "npx", Args: []string{"--no", "--prefix", dir, "mcp-server-memory"},
		Env: map[string]string{"MEMORY_FILE_PATH": file},
	}, Options{})
	f.waitState(Ready)
	family := processesWith("MEMORY_FILE_PATH=" + file)
	if len(family) < 2 {
		t.Errorf("the family is %v", family)
	}
	f.exchange(exchange{"create_entities", `{"entities":[{"name":"Ada","entityType":"person","observations":["counts"]}]}`, `.*"Ada".*`, false})
	f.exchange(exchange{"search_nodes", `{"query":"counts"}`, `.*"Ada".*`, false})
	f.stop()
	for _, pid := range family {
		mustGo(t, "a process of npx", pid)
	}
}

// processesWith returns the processes with an entry in their environment.
func processesWith(entry string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		environ, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(environ, []byte(entry+"\x00")) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/environ", &pid); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
