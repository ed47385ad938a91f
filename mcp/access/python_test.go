package access_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/mcp"
	"parley/mcp/access"
)

// python returns an interpreter that has the library mcp_pipe.py is made with.
func python(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import asyncio, websockets; asyncio.to_thread").Run() == nil {
			return name
		}
	}
	t.Skip("no python3 with websockets: apt-get install python3-websockets")
	return ""
}

// TestPython lends over real sockets from the library that users' pipes are made
// with, from a server that is not the SDK's, behind an HTTP server that gives every
// request half a second.
func TestPython(t *testing.T) {
	interpreter := python(t)
	told := make(chan struct{}, 8)
	log := slog.New(slog.NewTextHandler(noticing{told}, nil))
	point, err := access.New(access.Config{Key: key()}, log)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	for _, pattern := range access.Patterns() {
		mux.Handle(pattern, point)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: mux, ReadTimeout: 500 * time.Millisecond, WriteTimeout: 500 * time.Millisecond}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) })
	defer serving.Wait()
	defer server.Close()
	defer point.Close()

	url := "ws://" + l.Addr().String() + "/mcp_endpoint/mcp/?token=" + mint(t, access.Scope{ID: "pc", Device: deviceA})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pipe := exec.CommandContext(ctx, interpreter, "testdata/pipe.py", url, interpreter, "testdata/calculator.py")
	var out bytes.Buffer
	pipe.Stdout, pipe.Stderr = &out, &out
	if err := pipe.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-told:
	case <-ctx.Done():
		t.Fatalf("no tools came; the pipe says:\n%s", &out)
	}
	set, err := mcp.NewSet(mcp.Rules{}, mcp.Member{Label: "endpoint", Source: point.For(deviceA, "")})
	if err != nil {
		t.Fatal(err)
	}
	for len(set.Tools()) == 0 { // told a moment ago, and seated in another
		if ctx.Err() != nil {
			t.Fatal("the tools were told and are not there")
		}
	}
	for time.Since(point.Connections()[0].Since) < 600*time.Millisecond {
		multiply(t, set, "calculator")
	}
	point.SetRevoked([]string{"pc"})
	_ = pipe.Wait()
	if !strings.Contains(out.String(), "closed: 1008 token revoked") {
		t.Errorf("the pipe says:\n%s", &out)
	}
}

// noticing tells when a server has told its tools.
type noticing struct{ told chan<- struct{} }

func (n noticing) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("told its tools")) {
		n.told <- struct{}{}
	}
	return len(line), nil
}
