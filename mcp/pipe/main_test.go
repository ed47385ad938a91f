package pipe_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

// roleVariable tells the test binary that it is to be a stdio server.
const roleVariable = "PARLEY_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "calculator":
		fmt.Println("Starting MCP server 'Calculator'") // as many do
		fmt.Println(strings.Repeat("x", 3<<20))
		fmt.Fprintln(os.Stderr, "calculator is ready")
		_ = calculator(0).Run(context.Background(), &sdk.StdioTransport{})
	case "environment":
		_ = environmentServer().Run(context.Background(), &sdk.StdioTransport{})
	case "failing":
		fmt.Fprintln(os.Stderr, "no module named calculator")
		os.Exit(3)
	default:
		os.Exit(2)
	}
}

// calculator is a server with one tool, which multiplies and takes delay for it.
func calculator(delay time.Duration) *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "Calculator", Version: "1.26.0"}, nil)
	type in struct {
		Expression string `json:"python_expression"`
	}
	sdk.AddTool(server, &sdk.Tool{Name: "calculator"}, func(_ context.Context, _ *sdk.CallToolRequest, in in) (*sdk.CallToolResult, any, error) {
		time.Sleep(delay)
		x, y, _ := strings.Cut(in.Expression, "*")
		a, _ := strconv.Atoi(strings.TrimSpace(x))
		b, _ := strconv.Atoi(strings.TrimSpace(y))
		return text(fmt.Sprintf(`{"success": true, "result": %d}`, a*b)), nil, nil
	})
	return server
}

func text(s string) *sdk.CallToolResult {
	return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: s}}}
}

// environmentServer tells what a program sees of the world.
func environmentServer() *sdk.Server {
	server := sdk.NewServer(&sdk.Implementation{Name: "Environment", Version: "1"}, nil)
	none := json.RawMessage(`{"type":"object"}`)
	server.AddTool(&sdk.Tool{Name: "pid", InputSchema: none}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text(strconv.Itoa(os.Getpid())), nil
	})
	server.AddTool(&sdk.Tool{Name: "environment", InputSchema: none}, func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		return text(strings.Join(os.Environ(), "\n")), nil
	})
	return server
}
