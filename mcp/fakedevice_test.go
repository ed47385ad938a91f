package mcp_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/internal/protocol"
	"parley/mcp"
)

const deviceID = protocol.DeviceID("a0:85:e3:f4:49:34")

// A fakeTool is a tool of a fakeDevice.
type fakeTool struct {
	name, description string
	properties        string // JSON members of inputSchema.properties
	required          []string
	userOnly          bool
	run               func(args map[string]any) (string, error)
}

// A fakeDevice answers as firmware 2.x does (docs/protocol.md): it checks a
// request where it is received, runs tools and sends every reply on one serial
// main task, drops without a word what it does not like, lists pages of 8,000
// bytes whose cursor is a tool's name, and does not escape its error messages.
type fakeDevice struct {
	t     *testing.T
	tools []fakeTool
	reply func(json.RawMessage) // to the client
	// salvage gets what is no JSON.
	salvage func([]byte)
	// mangle, if set, replaces the replies to tools/call.
	mangle func(id int64, reply string) []string
	// override, if set, may answer a request instead: with result or error as
	// JSON members, "" for silence.
	override func(method string) (members string, ok bool)
	main     chan func()

	mu      sync.Mutex
	log     []wireMessage
	offline error
}

// A wireMessage is one the client sent.
type wireMessage struct {
	at      time.Time
	Method  string          `json:"method"`
	ID      json.RawMessage `json:"id"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
	Version string          `json:"jsonrpc"`
}

// newFakeDevice returns a device and its client, which is closed with the test.
func newFakeDevice(t *testing.T, cfg mcp.Config, tools ...fakeTool) (*fakeDevice, *mcp.Device) {
	t.Helper()
	f := &fakeDevice{t: t, tools: tools, main: make(chan func(), 256)}
	d := mcp.NewDevice(deviceID, f.receive, cfg, discard())
	f.reply, f.salvage = d.Receive, d.Salvage
	var main sync.WaitGroup
	main.Go(func() {
		for task := range f.main {
			task()
		}
	})
	t.Cleanup(func() {
		d.Close()
		close(f.main)
		main.Wait()
	})
	return f, d
}

// busy keeps the main task from everything else for a while.
func (f *fakeDevice) busy(d time.Duration) { f.main <- func() { time.Sleep(d) } }

// receive is the MQTT receive thread.
func (f *fakeDevice) receive(payload json.RawMessage) error {
	var m wireMessage
	if json.Unmarshal(payload, &m) != nil {
		f.t.Errorf("the client sent no JSON object: %s", payload)
		return nil
	}
	m.at = time.Now()
	f.mu.Lock()
	offline := f.offline
	f.log = append(f.log, m)
	f.mu.Unlock()
	if offline != nil {
		return offline
	}
	id, badID := strconv.ParseInt(string(m.ID), 10, 64)
	switch {
	case m.Version != "2.0", m.Method == "", strings.HasPrefix(m.Method, "notifications"):
		return nil
	case m.Params != nil && m.Params[0] != '{':
		return nil // "params":null, too
	case badID != nil:
		return nil // string ids, no ids
	}
	if f.override != nil {
		if members, ok := f.override(m.Method); ok {
			if members != "" {
				f.main <- func() { f.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,%s}`, id, members)) }
			}
			return nil
		}
	}
	switch m.Method {
	case "initialize":
		f.result(id, `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"bread-compact-wifi","version":"2.2.1"}}`)
	case "tools/list":
		f.list(id, m.Params)
	case "tools/call":
		f.call(id, m.Params)
	default:
		f.fail(id, "Method not implemented: "+m.Method)
	}
	return nil
}

func (f *fakeDevice) result(id int64, result string) {
	f.main <- func() { f.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, result)) }
}

func (f *fakeDevice) fail(id int64, message string) { f.main <- func() { f.sendError(id, message) } }

func (f *fakeDevice) sendError(id int64, message string) {
	f.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"message":"%s"}}`, id, message))
}

// send passes a message through the MQTT envelope, and what is no valid JSON in
// it to Salvage.
func (f *fakeDevice) send(message string) {
	whole := []byte(`{"session_id":"","type":"mcp","payload":` + message + `}`)
	u, err := protocol.ParseUplink(whole)
	if err != nil {
		f.salvage(whole)
		return
	}
	f.reply(u.Payload)
}

func (f *fakeDevice) list(id int64, params json.RawMessage) {
	var p struct {
		Cursor        string `json:"cursor"`
		WithUserTools bool   `json:"withUserTools"`
	}
	_ = json.Unmarshal(params, &p)
	out := `{"tools":[`
	found := p.Cursor == ""
	for _, tool := range f.offered() {
		if found = found || tool.name == p.Cursor; !found || tool.userOnly && !p.WithUserTools {
			continue
		}
		one := tool.json() + ","
		if len(out)+len(one)+30 > 8000 {
			if strings.HasSuffix(out, "[") {
				f.fail(id, "Failed to add tool "+tool.name+" because of payload size limit")
				return
			}
			f.result(id, strings.TrimSuffix(out, ",")+`],"nextCursor":"`+tool.name+`"}`)
			return
		}
		out += one
	}
	if strings.HasSuffix(out, "[") && len(f.offered()) > 0 {
		f.fail(id, "Failed to add tool "+p.Cursor+" because of payload size limit")
		return
	}
	f.result(id, strings.TrimSuffix(out, ",")+`]}`)
}

func (tool fakeTool) json() string {
	s := fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","properties":{%s}`, tool.name, tool.description, tool.properties)
	if len(tool.required) > 0 {
		s += `,"required":["` + strings.Join(tool.required, `","`) + `"]`
	}
	s += "}"
	if tool.userOnly {
		s += `,"annotations":{"audience":["user"]}`
	}
	return s + "}"
}

func (f *fakeDevice) call(id int64, params json.RawMessage) {
	var p struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(params, &p)
	args := map[string]any{}
	if p.Arguments != nil && json.Unmarshal(p.Arguments, &args) != nil {
		f.fail(id, "Invalid arguments")
		return
	}
	for _, tool := range f.offered() {
		if tool.name != p.Name {
			continue
		}
		for _, r := range tool.required {
			if _, ok := args[r]; !ok {
				f.fail(id, "Missing valid argument: "+r)
				return
			}
		}
		f.main <- func() { f.run(id, tool, args) }
		return
	}
	f.fail(id, "Unknown tool: "+p.Name)
}

// run is a tool's body, on the main task.
func (f *fakeDevice) run(id int64, tool fakeTool, args map[string]any) {
	text, err := "true", error(nil)
	if tool.run != nil {
		text, err = tool.run(args)
	}
	if err != nil {
		f.sendError(id, err.Error())
		return
	}
	quoted, _ := json.Marshal(text)
	reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%s}],"isError":false}}`, id, quoted)
	if f.mangle == nil {
		f.send(reply)
		return
	}
	for _, r := range f.mangle(id, reply) {
		f.send(r)
	}
}

// sent is what the client has sent so far.
func (f *fakeDevice) sent() []wireMessage {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]wireMessage(nil), f.log...)
}

// methods is sent by method alone.
func (f *fakeDevice) methods() string {
	var all []string
	for _, m := range f.sent() {
		all = append(all, m.Method)
	}
	return strings.Join(all, " ")
}

func (f *fakeDevice) offered() []fakeTool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tools
}

// become changes the device's tools.
func (f *fakeDevice) become(tools ...fakeTool) {
	done := make(chan struct{})
	f.main <- func() { f.mu.Lock(); f.tools = tools; f.mu.Unlock(); close(done) }
	<-done
}

func (f *fakeDevice) setOffline(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offline = err
}

// waits returns a tool body that takes this long.
func waits(d time.Duration, text string) func(map[string]any) (string, error) {
	return func(map[string]any) (string, error) {
		time.Sleep(d)
		return text, nil
	}
}

// speakerTools are some of every board's tools.
func speakerTools() []fakeTool {
	return []fakeTool{
		{name: "self.get_device_status", description: "Provides the real-time information of the device.", run: func(map[string]any) (string, error) {
			return `{"audio_speaker":{"volume":70}}`, nil
		}},
		{
			name: "self.audio_speaker.set_volume", description: "Set the volume.",
			properties: `"volume":{"type":"integer","minimum":0,"maximum":100}`, required: []string{"volume"},
		},
		{name: "self.reboot", description: "Reboot the system", userOnly: true},
		{
			name: "self.upgrade_firmware", description: "Upgrade firmware from a specific URL.", userOnly: true,
			properties: `"url":{"type":"string","default":"The URL of the firmware binary file to download and install"}`,
		},
	}
}
