package pipe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/mcp"
	"parley/mcp/access"
	"parley/mcp/pipe"
	"parley/mcp/servers"
)

func key() []byte { return []byte("0123456789abcdef0123456789abcdef") }

// A logbook keeps what is logged.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logbook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// newPoint returns an access point, a token for all conversations, and what its
// handler is.
func newPoint(t *testing.T, log *slog.Logger) (*access.Point, string, http.Handler) {
	t.Helper()
	point, err := access.New(access.Config{Key: key(), CallTimeout: time.Minute}, log)
	if err != nil {
		t.Fatal(err)
	}
	token, err := access.Mint(key(), access.Scope{ID: "pc", All: true})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, pattern := range access.Patterns() {
		mux.Handle(pattern, point)
	}
	return point, token, mux
}

// serve serves handler on l until the test ends, when point is closed first.
func serve(t *testing.T, l net.Listener, handler http.Handler, point *access.Point) {
	server := &http.Server{Handler: handler}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		if point != nil {
			point.Close()
		}
		_ = server.Close()
		serving.Wait()
	})
}

// run runs a pipe until the returned function is called, which returns what Run
// did; the test's end calls it, too.
func run(t *testing.T, cfg pipe.Config, log *logbook) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- pipe.Run(ctx, cfg, log.logger()) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// home is an access point on this machine.
func home(t *testing.T, log *logbook) (point *access.Point, set *mcp.Set, endpoint string) {
	t.Helper()
	point, token, handler := newPoint(t, log.logger())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serve(t, l, handler, point)
	set, err = mcp.NewSet(mcp.Rules{}, mcp.Member{Label: "endpoint", Source: point.For("", "")})
	if err != nil {
		t.Fatal(err)
	}
	return point, set, fmt.Sprintf("ws://%s/mcp_endpoint/mcp/?token=%s", l.Addr(), token)
}

// until waits for what another process brings about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		case <-look.C:
		}
	}
}

func names(set *mcp.Set) string {
	var all []string
	for _, tool := range set.Tools() {
		all = append(all, tool.Name)
	}
	return strings.Join(all, " ")
}

func multiply(t *testing.T, set *mcp.Set) {
	t.Helper()
	set.Tools()
	res, err := set.Call(t.Context(), "calculator", json.RawMessage(`{"python_expression":"656 * 502"}`))
	if err != nil || res.IsError || res.Text != `{"success": true, "result": 329312}` {
		t.Errorf("%+v, %v", res, err)
	}
}

func answer(t *testing.T, set *mcp.Set, tool string) string {
	t.Helper()
	set.Tools()
	res, err := set.Call(t.Context(), tool, nil)
	if err != nil {
		t.Errorf("%s: %v", tool, err)
	}
	return res.Text
}

// program is this binary in a role.
func program(t *testing.T, role string) servers.Config {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return servers.Config{Name: role, Command: path, Env: map[string]string{roleVariable: role}}
}

func TestAProgramIsLent(t *testing.T) {
	var log logbook
	_, set, endpoint := home(t, &log)
	stop := run(t, pipe.Config{Endpoint: endpoint, Servers: []servers.Config{program(t, "calculator")}}, &log)
	until(t, "the calculator's tool", func() bool { return names(set) == "calculator" })
	multiply(t, set)
	until(t, "what it said", func() bool { return strings.Contains(log.String(), `server=calculator line="calculator is ready"`) })
	stop()
	until(t, "the end", func() bool { return names(set) == "" })
	for _, want := range []string{"mcp server is lent", "endpoint=ws://127.0.0.1:", "too long and was left out"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q:\n%s", want, &log)
		}
	}
	if strings.Contains(log.String(), "pa1.") {
		t.Errorf("the token is in the log:\n%s", &log)
	}
}

// TestAProgramIsNewWithEachConnection drops the connection: the program is gone,
// and another is lent a second later.
func TestAProgramIsNewWithEachConnection(t *testing.T) {
	t.Setenv(pipe.EndpointVariable, "ws://secret")
	t.Setenv("USERS_OWN_KEY", "for the user's own program")
	var log logbook
	point, set, endpoint := home(t, &log)
	stop := run(t, pipe.Config{Endpoint: endpoint, Servers: []servers.Config{program(t, "environment")}}, &log)
	until(t, "the tools", func() bool { return names(set) != "" })
	first := answer(t, set, "pid")
	if env := answer(t, set, "environment"); strings.Contains(env, "secret") || !strings.Contains(env, "USERS_OWN_KEY=for") {
		t.Errorf("the program's environment:\n%s", env)
	}
	point.SetRevoked([]string{"pc"})
	point.SetRevoked(nil)
	until(t, "the tools again", func() bool { return names(set) != "" })
	second := answer(t, set, "pid")
	if first == second || alive(first) || !alive(second) {
		t.Errorf("first %s (lives: %v), then %s (lives: %v)", first, alive(first), second, alive(second))
	}
	if !strings.Contains(log.String(), `reason="the access point closed the connection: 1008 token revoked"`) {
		t.Errorf("log:\n%s", &log)
	}
	stop()
	if alive(second) {
		t.Error("a program outlived Run")
	}
}

func alive(pid string) bool {
	_, err := os.Stat(filepath.Join("/proc", pid))
	return err == nil
}

func TestAFailingProgram(t *testing.T) {
	var log logbook
	_, set, endpoint := home(t, &log)
	cfg := pipe.Config{Endpoint: endpoint, Servers: []servers.Config{program(t, "failing"), program(t, "calculator"), {Name: "absent", Command: "/nonexistent/program"}}}
	run(t, cfg, &log)
	until(t, "the other's tool", func() bool { return names(set) == "calculator" })
	for _, want := range []string{
		`server=failing endpoint=ws`, `reason="the program ended: exit status 3" lasted_s=0 retry_s=1` + "\n",
		`server=failing line="no module named calculator"`, `server=absent endpoint=ws`, "cannot run command",
	} {
		until(t, want, func() bool { return strings.Contains(log.String(), want) })
	}
	multiply(t, set)
}

func TestAFileOfServers(t *testing.T) {
	dir := t.TempDir()
	binary := program(t, "").Command
	file := fmt.Sprintf(`{"mcpServers": {
		"local-stdio-calculator": {"type": "stdio", "command": %q, "args": [], "env": {%q: "calculator"}},
		"environment": {"command": %q, "env": {%q: "environment"}},
		"remote-sse-server": {"type": "sse", "url": "https://api.example.com/sse", "disabled": true}
	}}`, binary, roleVariable, binary, roleVariable)
	path := filepath.Join(dir, "mcp_config.json")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	var log logbook
	_, set, endpoint := home(t, &log)
	variables := map[string]string{pipe.EndpointVariable: endpoint, pipe.FileVariable: path}
	cfg, faults, err := pipe.FromArgs(nil, func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	if err != nil || len(faults) != 0 || len(cfg.Servers) != 3 {
		t.Fatalf("%+v, %v, %v", cfg, faults, err)
	}
	run(t, cfg, &log)
	until(t, "all tools", func() bool { return names(set) == "calculator environment pid" })
	multiply(t, set)
}

func TestFromArgs(t *testing.T) {
	lookup := func(endpoint, file string) func(string) (string, bool) {
		return func(name string) (string, bool) {
			switch name {
			case pipe.EndpointVariable:
				return endpoint, endpoint != ""
			case pipe.FileVariable:
				return file, file != ""
			}
			return "", false
		}
	}
	cfg, _, err := pipe.FromArgs([]string{"/usr/bin/python3", "calculator.py"}, lookup(" ws://host/mcp/?token=x\n", ""))
	if err != nil || cfg.Endpoint != "ws://host/mcp/?token=x" || len(cfg.Servers) != 1 {
		t.Fatalf("%+v, %v", cfg, err)
	}
	if s := cfg.Servers[0]; s.Name != "python3" || s.Command != "/usr/bin/python3" || len(s.Args) != 1 || s.Args[0] != "calculator.py" {
		t.Errorf("%+v", s)
	}
	if _, _, err := pipe.FromArgs([]string{"x"}, lookup("", "")); !errors.Is(err, pipe.ErrEndpoint) || !strings.Contains(err.Error(), "MCP_ENDPOINT") {
		t.Errorf("without an endpoint: %v", err)
	}
	t.Chdir(t.TempDir())
	if _, _, err := pipe.FromArgs(nil, lookup("ws://host/", "")); err == nil || !strings.Contains(err.Error(), "mcp_config.json") {
		t.Errorf("without a file: %v", err)
	}
	if _, _, err := pipe.FromArgs(nil, lookup("ws://host/", "/nonexistent/x.json")); err == nil || !strings.Contains(err.Error(), "/nonexistent/x.json") {
		t.Errorf("with a wrong file: %v", err)
	}
}

func TestRunRefuses(t *testing.T) {
	good := []servers.Config{{Name: "x", Command: "x"}}
	for name, test := range map[string]struct {
		cfg  pipe.Config
		want string
	}{
		"no address":     {pipe.Config{Servers: good}, "ws://"},
		"another scheme": {pipe.Config{Endpoint: "mqtt://h/?token=secret", Servers: good}, "ws://"},
		"no URL":         {pipe.Config{Endpoint: "ws://h:secret/", Servers: good}, "no URL"},
		"no host":        {pipe.Config{Endpoint: "ws:///?token=secret", Servers: good}, "no host"},
		"no server":      {pipe.Config{Endpoint: "ws://h/"}, "no server to lend"},
		"all disabled":   {pipe.Config{Endpoint: "ws://h/", Servers: []servers.Config{{Name: "x", Command: "x", Disabled: true}}}, "disabled"},
		"a bad server":   {pipe.Config{Endpoint: "ws://h/", Servers: []servers.Config{{Name: "x"}}}, `server "x": neither command nor url`},
	} {
		err := pipe.Run(t.Context(), test.cfg, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
