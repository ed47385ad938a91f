package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"parley/mcp/pipe"
)

// lending is the configuration of these tests.
const lending = "[mcp.access]\nkey = \"a key of some length\"\n"

// times is what the lent calculator is asked by.
const times = `
[[rule]]
match = ["what is {a:number} times {b:number}"]
call = "calculator"
arguments = { python_expression = "{a} * {b}" }
answer = "That is {result.result}."
`

// A piper is mcp_pipe.py: each message of the WebSocket is a line for a program,
// and each line of the program a message, its line feed included.
type piper struct {
	ws  *websocket.Conn
	cmd *exec.Cmd
	run sync.WaitGroup
}

// lendCalculator has this binary's calculator lent to the access point of n by the
// token.
func lendCalculator(t *testing.T, n *node, token string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, fmt.Sprintf("ws://127.0.0.1:%d/mcp_endpoint/mcp/?token=%s", n.webPort(), token), nil)
	if err != nil {
		if resp != nil {
			resp.Body.Close()
		}
		t.Fatal(err)
	}
	p := &piper{ws: ws, cmd: exec.Command(self)}
	p.cmd.Env = []string{partVariable + "=calculator", markVariable + "=" + t.Name()}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.run.Go(func() { // ends with the connection
		defer in.Close()
		for {
			_, message, err := ws.Read(context.Background())
			if err != nil {
				return
			}
			_, _ = in.Write(append(message, '\n'))
		}
	})
	p.run.Go(func() { // ends with the program
		lines := bufio.NewReader(out)
		for {
			line, err := lines.ReadBytes('\n')
			if err != nil {
				return
			}
			_ = ws.Write(context.Background(), websocket.MessageText, line)
		}
	})
	t.Cleanup(func() {
		ws.CloseNow()
		p.run.Wait()
		_ = p.cmd.Wait()
	})
}

// mint has the program print a token.
func mint(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errOut := parley(t, append([]string{"token"}, args...)...)
	if code != exitOK {
		t.Fatalf("parley token: exit status %d: %s", code, errOut)
	}
	return strings.TrimSpace(out)
}

// awaitLent waits until the access point has a tool for a device, or has none.
func awaitLent(t *testing.T, n *node, mac string, is bool) {
	t.Helper()
	until(t, "what is lent", func() bool {
		return len(n.sources.access.For(parseMAC(t, mac), "default").Tools()) > 0 == is
	})
}

// TestACalculatorIsLent lends to the conversations of one device, with a token of
// its own and with a program that is not the project's.
func TestACalculatorIsLent(t *testing.T) {
	t.Parallel()
	path := configure(t, lending)
	n, _ := startFile(t, path, rules(t, times))
	lent, other := connect(t, n, kitchen, nil), connect(t, n, study, nil)
	says(lent, "what is 1004 times 328", "This device cannot do that.")
	lendCalculator(t, n, mint(t, "--config", path, "--device", kitchen))
	awaitLent(t, n, kitchen, true)
	says(lent, "what is 1004 times 328", "That is 329312.") // in the session that is open
	says(other, "what is 1004 times 328", "This device cannot do that.")
}

// TestACalculationIsHeard asks the lent calculator in spoken words, offline, with
// numbers that the recogniser knows.
func TestACalculationIsHeard(t *testing.T) {
	t.Parallel()
	path := configure(t, lending)
	n, _ := startFile(t, path, rules(t, times))
	lendCalculator(t, n, mint(t, "--config", path, "--all"))
	awaitLent(t, n, kitchen, true)
	code, out, errOut := parley(t, "talk", "--server", n.broker.Addr().String(), "--mac", kitchen,
		"--say", "what is twelve times thirty four")
	if code != exitOK {
		t.Errorf("exit status %d\n%s%s", code, out, errOut)
	}
	inOrder(t, out, `heard    "what is twelve times thirty four"`, `parley   "That is 408."`, "clipped 0")
}

// A relay is a network between a pipe and the access point that can be cut.
type relay struct {
	net.Listener
	to   string
	work sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{Listener: l, to: to}
	r.work.Go(r.serve) // ends with the listener
	t.Cleanup(func() {
		l.Close()
		r.cut()
		r.work.Wait()
	})
	return r
}

func (r *relay) serve() {
	for {
		from, err := r.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", r.to)
		if err != nil {
			from.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, from, to)
		r.mu.Unlock()
		carry := func(a, b net.Conn) { // ends with either
			_, _ = io.Copy(a, b)
			a.Close()
			b.Close()
		}
		r.work.Go(func() { carry(from, to) })
		r.work.Go(func() { carry(to, from) })
	}
}

// cut breaks every connection there is.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// TestAPipeComesBack lends a Python program with "parley pipe" and cuts its
// connection in the middle of a conversation, which goes on with the same tool.
func TestAPipeComesBack(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed (Debian: python3)")
	}
	calculator, err := filepath.Abs("../../mcp/access/testdata/calculator.py")
	if err != nil {
		t.Fatal(err)
	}
	path := configure(t, lending)
	n, _ := startFile(t, path, rules(t, times))
	network := newRelay(t, n.webAddr.Addr().String())
	t.Setenv(pipe.EndpointVariable, fmt.Sprintf("ws://%s/mcp_endpoint/mcp/?token=%s", network.Addr(), mint(t, "--config", path, "--device", kitchen)))
	t.Setenv(markVariable, t.Name())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() { // ends with ctx
		var out, errOut bytes.Buffer
		code := run(ctx, []string{"pipe", python, calculator}, &out, &errOut)
		ended <- fmt.Sprintf("%d %s%s", code, &out, &errOut)
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		if got := <-ended; got != "0 " {
			t.Errorf("parley pipe ended with %s", got)
		}
	})
	t.Cleanup(stop)
	awaitLent(t, n, kitchen, true)
	p := connect(t, n, kitchen, nil)
	says(p, "what is 1004 times 328", "That is 329312.")
	session := p.SessionID()
	network.cut()
	awaitLent(t, n, kitchen, false)
	says(p, "what is 1004 times 328", "This device cannot do that.")
	awaitLent(t, n, kitchen, true)
	says(p, "what is 3 times 4", "That is 12.")
	if p.SessionID() != session {
		t.Error("the conversation did not go on")
	}
	mustEnd(t, t.Name(), stop)
}
