package builtin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/protocol"
	"parley/mcp"
)

// A tool is one function offered to models. Both what run returns and the text
// of its errors are for the model to read.
type tool struct {
	name, description string
	schema            json.RawMessage
	run               func(ctx context.Context, who caller, args arguments) (string, error)
}

// A caller is the device a call is made for.
type caller struct {
	device protocol.DeviceID
	role   string
}

// handler makes the SDK's handler of a tool. A failure is a result: the model is
// to know of it, and the session is not at fault.
func (t *Tools) handler(tool tool) sdk.ToolHandler {
	known := properties(tool.schema)
	return func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		text, err := call(ctx, tool, known, req.Params)
		if err != nil {
			text = err.Error()
		}
		return &sdk.CallToolResult{Content: []sdk.Content{&sdk.TextContent{Text: text}}, IsError: err != nil}, nil
	}
}

func call(ctx context.Context, tool tool, known []string, params *sdk.CallToolParamsRaw) (string, error) {
	who, err := callerOf(params.Meta)
	if err != nil {
		return "", err
	}
	args, err := parseArguments(params.Arguments, known)
	if err != nil {
		return "", err
	}
	return tool.run(ctx, who, args)
}

// callerOf reads whom [mcp.Client] says a call is made for.
func callerOf(meta sdk.Meta) (caller, error) {
	name, _ := meta[mcp.MetaDevice].(string)
	device, err := protocol.ParseDeviceID(name)
	if err != nil {
		return caller{}, errNoCaller
	}
	role, _ := meta[mcp.MetaRole].(string)
	return caller{device, role}, nil
}

// properties are the names of a schema's arguments, sorted.
func properties(schema json.RawMessage) []string {
	var s struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		panic(err) // the schemas are constants of this package
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// arguments are those of a call. Models are not exact, so they are read
// leniently: null is nothing, and a number may be written as text.
type arguments map[string]json.RawMessage

// parseArguments refuses arguments the tool does not have: what a model wanted
// with them would be lost without a word.
func parseArguments(raw json.RawMessage, known []string) (arguments, error) {
	args := arguments{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, errors.New("the arguments are not one JSON object")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		if string(args[name]) == "null" {
			delete(args, name)
			continue
		}
		if slices.Contains(known, name) {
			continue
		}
		if len(known) == 0 {
			return nil, errors.New("this tool takes no arguments")
		}
		return nil, fmt.Errorf("there is no argument %q; this tool takes %s", clip(name, 40), strings.Join(known, ", "))
	}
	return args, nil
}

// text returns a text argument without space around it, control characters
// replaced by spaces; "" if it was not given. limit is in bytes.
func (a arguments) text(name string, limit int) (string, error) {
	raw, ok := a[name]
	if !ok {
		return "", nil
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		if _, isNumber := a.float(name); !isNumber {
			return "", fmt.Errorf("%s must be a text", name)
		}
		s = string(raw) // a label of 5
	}
	s = tidy(s)
	if len(s) > limit {
		return "", fmt.Errorf("%s is too long: %d bytes, at most %d are kept; shorten it", name, len(s), limit)
	}
	return s, nil
}

// number returns a finite number from low to high, and whether it was given.
func (a arguments) number(name string, low, high float64) (float64, bool, error) {
	if _, ok := a[name]; !ok {
		return 0, false, nil
	}
	n, ok := a.float(name)
	if !ok {
		return 0, false, fmt.Errorf("%s must be a number", name)
	}
	if n < low || n > high {
		return 0, false, fmt.Errorf("%s must be from %v to %v", name, low, high)
	}
	return n, true, nil
}

func (a arguments) float(name string) (float64, bool) {
	s := strings.TrimSpace(strings.Trim(string(a[name]), `"`))
	n, err := strconv.ParseFloat(s, 64)
	return n, err == nil && !math.IsNaN(n) && !math.IsInf(n, 0)
}

// oneOf returns a text argument that must be one of several words.
func (a arguments) oneOf(name string, words ...string) (string, error) {
	s, err := a.text(name, 200)
	if err != nil {
		return "", err
	}
	s = strings.ToLower(s)
	if s != "" && !slices.Contains(words, s) {
		return "", fmt.Errorf("%s must be one of %s", name, strings.Join(words, ", "))
	}
	return s, nil
}

// tidy makes s valid UTF-8 on one line.
func tidy(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\uFFFD"))
	return strings.TrimSpace(s)
}

// clip is s cut to at most limit bytes, between characters.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
