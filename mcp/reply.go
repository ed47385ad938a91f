package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// A reply is a device's answer as it came, result or error undecoded.
type reply struct {
	id     int32
	result json.RawMessage // nil if absent or null
	err    json.RawMessage // nil if absent or null
}

// An envelope is a message of a device, undecoded.
type envelope struct {
	ID     json.RawMessage `json:"id"`
	Method json.RawMessage `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// reply reads the envelope of a reply. "jsonrpc" is not looked at: a reply is
// known by its id.
func (e *envelope) reply() (reply, error) {
	id, err := strconv.ParseInt(string(e.ID), 10, 32)
	if err != nil || id < 1 || id > math.MaxInt32 {
		return reply{}, errors.New(`"id" is no number that was ever sent`)
	}
	return reply{id: int32(id), result: notNull(e.Result), err: notNull(e.Error)}, nil
}

// notNull is raw without surrounding space, nil where it is null or nothing.
func notNull(raw json.RawMessage) json.RawMessage {
	if raw = bytes.TrimSpace(raw); string(raw) == "null" || len(raw) == 0 {
		return nil
	}
	return raw
}

// text is the string raw holds, or raw itself where it holds something else.
func text(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// errorMessage is the message of an error reply. Firmware sends no code; others
// send a mere string.
func errorMessage(raw json.RawMessage) string {
	var e struct {
		Message json.RawMessage `json:"message"`
	}
	if json.Unmarshal(raw, &e) == nil && notNull(e.Message) != nil {
		return text(e.Message)
	}
	return text(raw)
}

// maxErrorText bounds, in bytes, a device's error text that goes into an error.
const maxErrorText = 512

// failure is the error of a reply, nil if it has a result.
func (r reply) failure() error {
	switch {
	case r.err != nil:
		return &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: clip(errorMessage(r.err), maxErrorText)}
	case r.result == nil:
		return errors.New("the reply has neither result nor error")
	}
	return nil
}

// clip cuts s to at most n bytes of whole characters.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// plain is s as valid UTF-8, cut to at most n bytes before that.
func plain(s string, n int) string { return strings.ToValidUTF8(clip(s, n), "\uFFFD") }

// initializeResult keeps who the device is and states the rest itself: the SDK
// refuses versions and types it does not know, and nothing depends on them.
func initializeResult(r reply, version string) (json.RawMessage, error) {
	if err := r.failure(); err != nil {
		return nil, err
	}
	var in struct {
		ServerInfo struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	_ = json.Unmarshal(r.result, &in) // what cannot be read stays empty
	return json.Marshal(&sdk.InitializeResult{
		ProtocolVersion: version,
		Capabilities:    &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}},
		ServerInfo: &sdk.Implementation{
			Name:    clip(in.ServerInfo.Name, maxToolName),
			Version: clip(in.ServerInfo.Version, maxToolName),
		},
	})
}

// greetingResult is initializeResult for servers: the revision is the one that
// the server answers with, the oldest where the SDK does not know that.
func greetingResult(r reply) (json.RawMessage, error) {
	var in struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	_ = json.Unmarshal(r.result, &in) // what cannot be read stays empty
	if in.ProtocolVersion > newestLegacy || !slices.Contains(sdk.SupportedProtocolVersions(), in.ProtocolVersion) {
		in.ProtocolVersion = protocolVersion
	}
	return initializeResult(r, in.ProtocolVersion)
}

// listResult reads one page of tools itself and leaves the SDK only the cursor:
// the SDK would lose annotations.audience and the spelling of the schema, and
// refuse the whole page for one tool it cannot decode.
func listResult(r reply) (json.RawMessage, []toolText, error) {
	if err := r.failure(); err != nil {
		return nil, nil, err
	}
	var in struct {
		Tools      []json.RawMessage `json:"tools"`
		NextCursor any               `json:"nextCursor"`
	}
	if err := json.Unmarshal(r.result, &in); err != nil {
		return nil, nil, fmt.Errorf("reading tools: %w", err)
	}
	var tools []toolText
	for _, raw := range in.Tools {
		if t, ok := readTool(raw); ok {
			tools = append(tools, t)
		}
	}
	next, _ := in.NextCursor.(string) // absent, null and "" all mean the last page
	stub, err := json.Marshal(&sdk.ListToolsResult{Tools: []*sdk.Tool{}, NextCursor: next})
	return stub, tools, err
}

// callResult brings a tool's answer into the SDK's shape, whatever it is. Only a
// reply with neither result nor error is an error. An error reply becomes a
// result with isError, because devices answer so when a tool fails.
func callResult(r reply) (json.RawMessage, error) {
	out := &sdk.CallToolResult{Content: []sdk.Content{}}
	switch {
	case r.err != nil:
		out.IsError = true
		out.Content = append(out.Content, &sdk.TextContent{Text: errorMessage(r.err)})
	case r.result == nil:
		return nil, r.failure()
	default:
		var in struct {
			Content           json.RawMessage `json:"content"`
			StructuredContent json.RawMessage `json:"structuredContent"`
			IsError           any             `json:"isError"`
			ResultType        any             `json:"resultType"`
		}
		if json.Unmarshal(r.result, &in) != nil {
			in.Content = r.result // no object: it is all the content there is
		}
		out.IsError = in.IsError == true
		out.Content = appendContent(out.Content, notNull(in.Content))
		if in.ResultType == "input_required" && len(out.Content) == 0 {
			out.IsError = true // the only answer such a result can have, as nobody is asked
			out.Content = append(out.Content, &sdk.TextContent{Text: "the tool asks for input that nobody can give"})
		}
		if structured := notNull(in.StructuredContent); len(out.Content) == 0 && structured != nil {
			out.Content = append(out.Content, &sdk.TextContent{Text: string(structured)})
		}
	}
	return json.Marshal(out)
}

// appendContent reads content that should be an array of entries and may be one
// entry, or anything.
func appendContent(to []sdk.Content, raw json.RawMessage) []sdk.Content {
	if raw == nil {
		return to
	}
	var entries []json.RawMessage
	if json.Unmarshal(raw, &entries) != nil {
		entries = []json.RawMessage{raw}
	}
	for _, e := range entries {
		to = append(to, readContent(e))
	}
	return to
}

// readContent reads one entry. What is neither text nor a readable image becomes
// a placeholder.
func readContent(raw json.RawMessage) sdk.Content {
	var e struct {
		Type     string          `json:"type"`
		Text     json.RawMessage `json:"text"`
		Data     string          `json:"data"`
		MIMEType string          `json:"mimeType"`
		Image    string          `json:"image"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return &sdk.TextContent{Text: text(raw)}
	}
	switch {
	case notNull(e.Text) != nil:
		return &sdk.TextContent{Text: text(e.Text)}
	case e.Type == "image":
		if e.Data == "" && e.Image != "" {
			// Firmware wraps an image's members in a string of JSON.
			_ = json.Unmarshal([]byte(e.Image), &e)
		}
		if data, err := base64.StdEncoding.DecodeString(e.Data); err == nil && len(data) > 0 {
			return &sdk.ImageContent{MIMEType: clip(e.MIMEType, maxToolName), Data: data}
		}
		return &sdk.TextContent{Text: "[unreadable image]"}
	}
	if e.Type == "" {
		e.Type = "unreadable"
	}
	return &sdk.TextContent{Text: "[" + clip(e.Type, maxToolName) + " content]"}
}

// A toolText is a tool in comparable form, so that devices can share it.
type toolText struct {
	name, description, schema string
	userOnly                  bool
}

func (t toolText) tool() Tool {
	return Tool{Name: t.name, Description: t.description, Schema: json.RawMessage(t.schema), UserOnly: t.userOnly}
}

func (t toolText) size() int { return len(t.name) + len(t.description) + len(t.schema) }

// noArguments is the schema of a tool that has none worth the name; model APIs
// insist on an object.
const noArguments = `{"type":"object","properties":{}}`

// readTool reads one tool and reports false for one that could not be called.
func readTool(raw json.RawMessage) (toolText, bool) {
	var in struct {
		Name        string          `json:"name"`
		Description json.RawMessage `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
		Annotations json.RawMessage `json:"annotations"`
	}
	if json.Unmarshal(raw, &in) != nil || in.Name == "" || len(in.Name) > maxToolName {
		return toolText{}, false
	}
	t := toolText{name: in.Name, schema: noArguments, userOnly: forUsersOnly(in.Annotations)}
	if description := notNull(in.Description); description != nil {
		t.description = text(description)
	}
	var compact bytes.Buffer
	if schema := notNull(in.InputSchema); schema != nil && schema[0] == '{' && json.Compact(&compact, schema) == nil {
		t.schema = strings.ToValidUTF8(compact.String(), "\uFFFD")
	}
	return t, true
}

// forUsersOnly reports whether annotations.audience names the user and not the
// model, which MCP calls the assistant.
func forUsersOnly(annotations json.RawMessage) bool {
	var a struct {
		Audience json.RawMessage `json:"audience"`
	}
	if json.Unmarshal(annotations, &a) != nil {
		return false
	}
	var audience []string
	if json.Unmarshal(a.Audience, &audience) != nil {
		audience = []string{text(a.Audience)}
	}
	return slices.Contains(audience, "user") && !slices.Contains(audience, "assistant")
}

// A listing gathers the pages of tools/list within the limits.
type listing struct {
	tools   []toolText
	names   map[string]bool
	cursors map[string]bool
	pages   int
	bytes   int
}

// add takes one page and the cursor of the next. It returns why the listing must
// end here, "" where it need not.
func (l *listing) add(page []toolText, next string) string {
	if l.names == nil {
		l.names, l.cursors = map[string]bool{}, map[string]bool{}
	}
	l.pages++
	for _, t := range page {
		if l.names[t.name] {
			continue // the first of a name is the one a device would call
		}
		if len(l.tools) == maxTools {
			return fmt.Sprintf("more than %d tools", maxTools)
		}
		if l.bytes += t.size(); l.bytes > maxListBytes {
			return fmt.Sprintf("more than %d bytes of tools", maxListBytes)
		}
		l.names[t.name] = true
		l.tools = append(l.tools, t)
	}
	switch {
	case next == "":
		return ""
	case l.cursors[next]:
		return "the cursors go in a circle"
	case l.pages == maxPages:
		return fmt.Sprintf("more than %d pages", maxPages)
	}
	l.cursors[next] = true
	return ""
}
