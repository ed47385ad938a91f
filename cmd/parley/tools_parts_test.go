package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// partVariable tells the test binary that it is to be an MCP server, and which;
// markVariable is for finding what a test has started in /proc.
const (
	partVariable = "PARLEY_TEST_PART"
	markVariable = "PARLEY_TEST_MARK"
)

// outlast is how long what nothing ends lasts: longer than any test waits, and not
// for ever, should a test fail.
const outlast = 3 * time.Minute

// A request is what an MCP server of these tests reads.
type request struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Arguments struct {
			Expression string `json:"python_expression"`
			Word       string
		}
	}
}

// play is an MCP server in the manner of old ones, which know three requests and
// one protocol. Each has one tool, named after its part.
func play(part string) {
	if part == "broken" {
		fmt.Fprintln(os.Stderr, "no module named broken")
		os.Exit(3)
	}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var r request
		if json.Unmarshal(line, &r) != nil || len(r.ID) == 0 {
			continue
		}
		switch r.Method {
		case "initialize":
			reply(r, fmt.Sprintf(`{"protocolVersion":"2024-11-05","capabilities":{"tools":{"listChanged":false}},"serverInfo":{"name":%q,"version":"1.26.0"}}`, part))
		case "tools/list":
			reply(r, fmt.Sprintf(`{"tools":[{"name":%q,"description":"For tests.","inputSchema":{"type":"object","properties":{"python_expression":{"type":"string"},"word":{"type":"string"}}}}]}`, part))
		case "tools/call":
			act(part, r)
		default:
			fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`+"\n", r.ID)
		}
	}
}

func reply(r request, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", r.ID, result)
}

// text replies as a tool does.
func text(r request, s string) {
	quoted, _ := json.Marshal(s) // a string always marshals
	reply(r, fmt.Sprintf(`{"content":[{"type":"text","text":%s}],"isError":false}`, quoted))
}

// act is a call of a part's tool.
func act(part string, r request) {
	switch part {
	case "calculator":
		value := 1
		for factor := range strings.SplitSeq(r.Params.Arguments.Expression, "*") {
			n, _ := strconv.Atoi(strings.TrimSpace(factor))
			value *= n
		}
		text(r, fmt.Sprintf(`{"success": true, "result": %d}`, value))
	case "dying":
		fmt.Print(`{"jsonrpc":"2.0","id":`)
		os.Exit(3)
	case "hanging":
		time.Sleep(outlast)
	case "shouting": // far more than anybody wants, as the answer and as none
		mega := strings.Repeat("x", 1<<20)
		fmt.Print(`{"jsonrpc":"2.0","id":`, string(r.ID), `,"result":{"content":[{"type":"text","text":"`)
		for range 100 {
			if _, err := io.WriteString(os.Stdout, mega); err != nil {
				return
			}
		}
		fmt.Println(`"}]}}`)
	case "doubling": // rubbish, the answer before, the answer twice, and one to nothing
		fmt.Print("\x00\x01{]\n[]\nnull\nStarting up…\n" + `{"jsonrpc":"2.0","id":null,"result":{}}` + "\n")
		var id int
		if json.Unmarshal(r.ID, &id) == nil {
			text(request{ID: json.RawMessage(strconv.Itoa(id - 1))}, "old")
		}
		text(r, r.Params.Arguments.Word)
		text(r, "again")
		text(request{ID: json.RawMessage("4711")}, "nothing")
	default: // an echo
		text(r, r.Params.Arguments.Word)
	}
}
