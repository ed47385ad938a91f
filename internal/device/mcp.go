package device

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// maxPage is the firmware's limit of one page of tools/list, in bytes, and
// pageReserve what it keeps for the cursor.
const (
	maxPage     = 8000
	pageReserve = 30
)

// boardName is what the device calls itself to MCP and in its User-Agent.
const boardName = "parley-simulator"

// A toolbox is a device's MCP server.
type toolbox struct {
	tools   []Tool
	schemas []string
	byName  map[string]Tool
}

func newToolbox(tools []Tool) (*toolbox, error) {
	b := &toolbox{tools: tools, byName: map[string]Tool{}}
	for _, t := range tools {
		s, err := t.schema()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		if _, twice := b.byName[t.Name]; twice || t.Name == "" || t.Call == nil {
			return nil, fmt.Errorf("%q: a tool needs a name of its own and a Call", t.Name)
		}
		b.schemas = append(b.schemas, s)
		b.byName[t.Name] = t
	}
	return b, nil
}

// receiveMCP answers a request as the firmware does: checks on the reader, the
// tool's body and every reply on the main task, and no reply at all to what it
// thinks malformed.
func (d *Device) receiveMCP(payload json.RawMessage) {
	r, ok := readRequest(payload, d.traits.py)
	if !ok {
		d.mu.Lock()
		d.counts.ToolDropped++
		d.mu.Unlock()
		return
	}
	switch {
	case strings.HasPrefix(r.method, "notifications"):
	case r.method == "initialize":
		d.replyResult(r, `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"`+
			boardName+`","version":"`+d.traits.version+`"}}`)
	case r.method == "tools/list":
		d.listTools(r)
	case r.method == "tools/call":
		d.callTool(r)
	default:
		d.replyError(r, "Method not implemented: "+r.method)
	}
}

// A request is a JSON-RPC request as far as the firmware reads one.
type request struct {
	id     string // as it is copied into the reply
	method string
	params message
}

// readRequest applies the firmware's checks; what fails them is dropped. Ids
// must be numbers, and params, where present, an object: null is neither.
func readRequest(payload json.RawMessage, py bool) (request, bool) {
	var m message
	if json.Unmarshal(payload, &m) != nil || m == nil {
		return request{}, false
	}
	if v, _ := m.text("jsonrpc"); v != "2.0" {
		return request{}, false
	}
	r := request{}
	var ok bool
	if r.method, ok = m.text("method"); !ok {
		return request{}, false
	}
	if strings.HasPrefix(r.method, "notifications") {
		return r, true
	}
	if _, present := m["params"]; present {
		if r.params, ok = m.object("params"); !ok {
			return request{}, false
		}
	}
	id, ok := m.number("id")
	switch {
	case ok:
		r.id = strconv.Itoa(saturated(id))
	case py && len(m["id"]) > 0 && string(m["id"]) != "null":
		r.id = string(m["id"])
	default:
		return request{}, false
	}
	return r, true
}

// listTools sends one page of tools.
func (d *Device) listTools(r request) {
	cursor, _ := r.params.text("cursor")
	var user bool
	if d.traits.userTools {
		_ = json.Unmarshal(r.params["withUserTools"], &user) // anything but true is false
	}
	page, found, next := `{"tools":[`, cursor == "", ""
	for i, t := range d.tools.tools {
		found = found || t.Name == cursor
		if !found || t.UserOnly && !user {
			continue
		}
		s := d.tools.schemas[i] + ","
		if len(page)+len(s)+pageReserve > maxPage {
			next = t.Name
			break
		}
		page += s
	}
	page = strings.TrimSuffix(page, ",")
	if strings.HasSuffix(page, "[") && len(d.tools.tools) > 0 {
		d.replyError(r, "Failed to add tool "+next+" because of payload size limit")
		return
	}
	page += "]"
	if next != "" {
		page += `,"nextCursor":"` + next + `"`
	}
	d.replyResult(r, page+"}")
}

// callTool checks a call and leaves it to the main task, or, in the firmware
// that does so, to a thread of its own.
func (d *Device) callTool(r request) {
	name, ok := r.params.text("name")
	if !ok {
		d.replyError(r, "Missing name")
		return
	}
	var given message
	if _, present := r.params["arguments"]; present {
		if given, ok = r.params.object("arguments"); !ok {
			d.replyError(r, "Invalid arguments")
			return
		}
	}
	t, ok := d.tools.byName[name]
	if !ok {
		d.replyError(r, "Unknown tool: "+name)
		return
	}
	args, err := t.check(given)
	if err != nil {
		d.replyError(r, err.Error())
		return
	}
	run := func() { d.runTool(r, t, args) }
	if d.traits.toolThread {
		d.spawn(run)
		return
	}
	d.schedule(run)
}

// runTool runs a tool's body and replies.
func (d *Device) runTool(r request, t Tool, args Args) {
	if !d.pause(t.Duration) {
		return
	}
	value, err := t.Call(d.ctx, args)
	given, _ := json.Marshal(args) // bools, ints and strings always marshal
	e := Event{Kind: ToolCalled, Tool: t.Name, Text: string(given), Err: err}
	if err == nil {
		e.Result, err = resultText(value)
	}
	d.mu.Lock()
	d.counts.ToolCalls++
	d.mu.Unlock()
	d.emit(e)
	if err != nil {
		d.replyError(r, err.Error())
		return
	}
	d.replyResult(r, `{"content":[{"type":"text","text":`+quote(e.Result)+`}],"isError":false}`)
}

// resultText is a tool's value as the text of its result.
func resultText(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("result: %w", err)
	}
	return string(b), nil
}

func (d *Device) replyResult(r request, result string) {
	d.reply(`{"jsonrpc":"2.0","id":` + r.id + `,"result":` + result + `}`)
}

// replyError copies the message unescaped, which may make the reply invalid
// JSON. Only py-xiaozhi escapes and has a code.
func (d *Device) replyError(r request, text string) {
	if d.traits.py {
		d.reply(`{"jsonrpc":"2.0","id":` + r.id + `,"error":{"code":-32603,"message":` + quote(text) + `}}`)
		return
	}
	d.reply(`{"jsonrpc":"2.0","id":` + r.id + `,"error":{"message":"` + text + `"}}`)
}

// reply sends on the main task, in whatever session there is by then.
func (d *Device) reply(payload string) {
	d.schedule(func() {
		d.publish(`{"session_id":"` + d.SessionID() + `","type":"mcp","payload":` + payload + `}`)
	})
}
