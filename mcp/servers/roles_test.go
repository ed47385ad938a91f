package servers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// roles are what the test binary can be.
func roles() map[string]func() {
	return map[string]func(){
		"good":     func() { _ = goodServer().Run(context.Background(), &sdk.StdioTransport{}) },
		"hanging":  hanging,
		"deaf":     func() { deafen(); hanging() },
		"rubbish":  func() { raw(rubbish) },
		"huge":     func() { raw(huge) },
		"dying":    func() { raw(dying) },
		"twice":    func() { raw(twice) },
		"shouting": func() { shout(); raw(plainly) },
		"child":    func() { deafen(); time.Sleep(lifetime) },
		"parley":   parley,
	}
}

// lifetime is how long what nothing ends lasts: longer than any test waits, and
// not for ever, should a test fail.
const lifetime = 3 * time.Minute

// deafen makes the process one that only SIGKILL ends.
func deafen() { signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) }

// hanging reads nothing and says nothing, not even after its input has ended.
func hanging() {
	fmt.Fprintln(os.Stderr, "pid", os.Getpid())
	time.Sleep(lifetime)
}

// goodServer is a server of the SDK's with tools to try out.
func goodServer() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "good", Version: "1"}, nil)
	text := func(s string) *sdk.CallToolResult {
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
	}
	type sum struct{ A, B int }
	type none struct{}
	sdk.AddTool(server, &sdk.Tool{Name: "add"}, func(_ context.Context, _ *sdk.CallToolRequest, in sum) (*sdk.CallToolResult, any, error) {
		return text(fmt.Sprint(in.A + in.B)), nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "about"}, func(context.Context, *sdk.CallToolRequest, none) (*sdk.CallToolResult, any, error) {
		dir, _ := os.Getwd()
		about, err := json.Marshal(about{PID: os.Getpid(), Dir: dir, Env: os.Environ(), Args: os.Args[1:]})
		return text(string(about)), nil, err
	})
	sdk.AddTool(server, &sdk.Tool{Name: "spawn"}, func(context.Context, *sdk.CallToolRequest, none) (*sdk.CallToolResult, any, error) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = []string{roleKey + "=child"}
		cmd.Stdout = os.Stdout // it holds the pipe, as node's children do
		err := cmd.Start()
		return text(fmt.Sprint(cmd.Process.Pid)), nil, err
	})
	sdk.AddTool(server, &sdk.Tool{Name: "die"}, func(context.Context, *sdk.CallToolRequest, none) (*sdk.CallToolResult, any, error) {
		os.Exit(3)
		return nil, nil, nil
	})
	sdk.AddTool(server, &sdk.Tool{Name: "hang"}, func(ctx context.Context, _ *sdk.CallToolRequest, _ none) (*sdk.CallToolResult, any, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	return server
}

// about is what the tool of that name tells.
type about struct {
	PID  int
	Dir  string
	Env  []string
	Args []string
}

// raw serves a bad server: answer writes what it likes for a request whose plain
// answer is line.
func raw(answer func(method, line string)) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var req struct {
			ID     json.RawMessage
			Method string
		}
		if json.Unmarshal(in.Bytes(), &req) != nil || len(req.ID) == 0 {
			continue
		}
		result := `{"content":[{"type":"text","text":"here"}]}`
		switch req.Method {
		case "initialize":
			result = `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"bad","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"do","inputSchema":{"type":"object"}}]}`
		case "tools/call":
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}`+"\n", req.ID)
			continue
		}
		answer(req.Method, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, req.ID, result))
	}
}

func plainly(_, line string) { fmt.Println(line) }

func rubbish(_, line string) {
	fmt.Println("Starting up…\n\x00\x01{]\n[]\nnull\n{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":{}}\n{\"id\":7}")
	fmt.Println(line)
}

func huge(_, line string) {
	mega := strings.Repeat("x", 1<<20)
	for range 100 {
		_, _ = io.WriteString(os.Stdout, mega)
	}
	fmt.Println()
	fmt.Println(line)
}

func dying(method, line string) {
	if method == "tools/call" {
		os.Exit(3)
	}
	fmt.Println(line)
}

func twice(_, line string) {
	fmt.Println(line)
	fmt.Println(line)
	fmt.Println(`{"jsonrpc":"2.0","id":4711,"result":{}}`)
}

// shout says more than a log can hold, and a line that is longer than one.
func shout() {
	fmt.Fprintln(os.Stderr, "first\x1b[31m")
	fmt.Fprintln(os.Stderr, strings.Repeat("long", 1000))
	for range 1000 {
		fmt.Fprintln(os.Stderr, "more")
	}
}

// parley keeps a good server whose program has a child, and tells their process
// numbers, and the guard's. The test kills it.
func parley() {
	log := slog.New(slog.DiscardHandler)
	guard := NewGuard(log, "/proc/self/exe", "guard")
	cfg := Config{Name: "good", Command: os.Args[0], Env: map[string]string{roleKey: "good"}}
	ready := make(chan struct{}, 1)
	s, err := New(cfg, Options{Guard: guard, OnChange: func() { ready <- struct{}{} }}, log)
	if err != nil {
		panic(err)
	}
	go s.Run(context.Background())
	<-ready
	var a about
	r, err := s.Call(context.Background(), "about", nil)
	if err == nil {
		err = json.Unmarshal([]byte(r.Text), &a)
	}
	if err != nil {
		panic(err)
	}
	child, err := s.Call(context.Background(), "spawn", nil)
	if err != nil {
		panic(err)
	}
	fmt.Println(a.PID, child.Text, guard.cmd.Process.Pid)
	select {}
}
