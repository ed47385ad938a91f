package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/api"
)

// bearer sends a token with every request of a client.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// connect opens a session of the SDK's own client, with a protocol version or
// with its newest where that is "".
func (w *world) connect(token, version string) *sdk.ClientSession {
	w.t.Helper()
	client := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(w.t.Context(), &sdk.StreamableClientTransport{
		Endpoint: w.url + "/mcp", HTTPClient: &http.Client{Transport: bearer{token, w.client.Transport}},
	}, &sdk.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { session.Close() })
	return session
}

func TestAgentSeesTheToolsOfItsToken(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens(), Version: "1.2.3"})
	for token, want := range map[string]string{
		reader:   "get_device list_device_tools list_devices",
		operator: "call_device_tool end_session say show_alert",
		admin:    "call_device_tool reboot_device",
		all:      "call_device_tool end_session get_device list_device_tools list_devices reboot_device say show_alert",
	} {
		session := w.connect(token, "")
		listed, err := session.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range listed.Tools {
			names = append(names, tool.Name)
			if tool.Description == "" || tool.Annotations == nil {
				t.Errorf("%s is not described", tool.Name)
			}
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s", token, got)
		}
		if info := session.InitializeResult().ServerInfo; info.Name != "parley" || info.Version != "1.2.3" {
			t.Errorf("%+v", info)
		}
	}
	// What is not listed is not there.
	res, err := w.connect(reader, "").CallTool(t.Context(), &sdk.CallToolParams{Name: "reboot_device", Arguments: map[string]any{"device": kitchen}})
	if asked := w.fleet.requests(); err == nil || len(asked) > 0 {
		t.Errorf("%+v, asked %q", res, asked)
	}
}

func TestAgentCalls(t *testing.T) {
	for _, version := range []string{"", "2025-11-25", "2025-03-26"} {
		t.Run("version "+version, func(t *testing.T) { testAgentCalls(t, version) })
	}
}

func testAgentCalls(t *testing.T, version string) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	session := w.connect(all, version)
	on := func(more ...any) map[string]any {
		args := map[string]any{"device": "A0_85_E3_F4_49_34"}
		for pair := range slices.Chunk(more, 2) {
			args[pair[0].(string)] = pair[1]
		}
		return args
	}
	for _, c := range []struct {
		tool        string
		args        map[string]any
		text, asked string
		isError     bool
		logged      string
	}{
		{"get_device", on(), `"board":"bread-compact-wifi"`, ``, false, ``},
		{"list_devices", map[string]any{"state": "connected", "limit": 1}, `"total":1`, ``, false, ``},
		{"list_devices", map[string]any{"limit": 5000}, `use 1 to 1000`, ``, true, ``},
		{"list_devices", map[string]any{"colour": "red"}, `colour`, ``, true, ``},
		{"list_device_tools", on(), `"name":"self.upgrade_firmware","description":"","input_schema":{"type":"object"},"user_only":false,"scope":"admin"`, ``, false, ``},
		{"call_device_tool", on("tool", "self.audio_speaker.set_volume", "arguments", map[string]any{"volume": 30}), `true`, `call self.audio_speaker.set_volume {"volume":30}`, false, "ok"},
		{"call_device_tool", on("tool", "self.audio_speaker.set_volume", "arguments", map[string]any{"volume": 200}), `Value exceeds`, `call self.audio_speaker.set_volume {"volume":200}`, true, "tool_error"},
		{"call_device_tool", on("tool", "self.reboot"), `true`, `call self.reboot `, false, "ok"},
		{"say", on("text", "Dinner"), `{"way":"spoken"}`, `say Dinner`, false, "ok"},
		{"say", on("text", " "), `send a text`, ``, true, "bad_request"},
		{"say", on(), `text`, ``, true, ``},
		{"show_alert", on("status", "a", "message", "b"), `{"done":true}`, `alert a|b|neutral`, false, "ok"},
		{"show_alert", on("status", "a", "message", "b", "emotion", "sad"), `{"done":true}`, `alert a|b|sad`, false, "ok"},
		{"end_session", on(), `{"done":true}`, `end api`, false, "ok"},
		{"reboot_device", on(), `{"done":true}`, `reboot`, false, "ok"},
		{"reboot_device", map[string]any{"device": "02:00:00:00:00:09"}, `not connected; wait until it connects`, ``, true, "device_absent"},
		{"reboot_device", map[string]any{"device": "kitchen"}, `MAC address`, ``, true, ``},
	} {
		res, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: c.tool, Arguments: c.args})
		if err != nil {
			t.Errorf("%s %v: %v", c.tool, c.args, err)
			continue
		}
		text := ""
		if len(res.Content) > 0 {
			text = res.Content[0].(*sdk.TextContent).Text
		}
		if asked := strings.Join(w.fleet.requests(), "; "); !strings.Contains(text, c.text) || res.IsError != c.isError || asked != c.asked {
			t.Errorf("%s %v: %s (error %v), asked %q", c.tool, c.args, text, res.IsError, asked)
		}
		logged := ""
		for _, line := range w.log.take(t) {
			logged += line["result"].(string)
			if line["token"] != "root" || line["device"] == "" {
				t.Errorf("logged %v", line)
			}
		}
		if logged != c.logged {
			t.Errorf("%s %v: logged %q", c.tool, c.args, logged)
		}
	}
}

func TestAgentGetsPictures(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	res, err := w.connect(operator, "").CallTool(t.Context(), &sdk.CallToolParams{
		Name: "call_device_tool", Arguments: map[string]any{"device": kitchen, "tool": "self.camera.take_photo"},
	})
	if err != nil || len(res.Content) != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	if picture, ok := res.Content[1].(*sdk.ImageContent); !ok || picture.MIMEType != "image/jpeg" || string(picture.Data) != "\xff\xd8" {
		t.Errorf("%+v", res.Content[1])
	}
}

func TestAgentNeedsTheScopeOfTheDevicesTool(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	for token, tool := range map[string]string{operator: "self.reboot", admin: "self.camera.take_photo"} {
		res, err := w.connect(token, "").CallTool(t.Context(), &sdk.CallToolParams{
			Name: "call_device_tool", Arguments: map[string]any{"device": kitchen, "tool": tool},
		})
		if asked := w.fleet.requests(); err != nil || !res.IsError || len(asked) > 0 {
			t.Errorf("%s: %+v, %v, asked %q", tool, res, err, asked)
		}
		if lines := w.log.take(t); len(lines) != 1 || lines[0]["result"] != "scope_missing" {
			t.Errorf("%s: logged %v", tool, lines)
		}
	}
}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

func TestAgentDoor(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens(), Hosts: []string{"voice.Example.org"}})
	accept := []string{"Accept", "application/json, text/event-stream"}
	for _, c := range []struct {
		method, token, body string
		headers             []string
		status              int
		code                string
	}{
		{post, reader, ping, accept, 200, ""},
		{post, reader, ping, append([]string{"Host", "localhost:8003"}, accept...), 200, ""},
		{post, reader, ping, append([]string{"Host", "[::1]"}, accept...), 200, ""},
		{post, reader, ping, append([]string{"Host", "Voice.example.org"}, accept...), 200, ""},
		{post, reader, ping, append([]string{"Host", "evil.example"}, accept...), 403, "origin_refused"},
		{post, reader, ping, append([]string{"Origin", "https://evil.example"}, accept...), 403, "origin_refused"},
		{post, "", ping, accept, 401, "token_required"},
		{post, "wrong", ping, accept, 401, "token_refused"},
		{post, reader, ping, nil, 400, ""},
		{post, reader, `rubbish`, accept, 400, ""},
		{post, reader, ``, accept, 400, "bad_request"},
		{post, reader, ping, append([]string{"Content-Type", "text/plain"}, accept...), 415, "media_type"},
		{post, reader, `"` + strings.Repeat("x", 64<<10) + `"`, accept, 413, "too_large"},
		{get, reader, "", accept, 405, "method_not_allowed"},
		{del, reader, "", accept, 405, "method_not_allowed"},
	} {
		if r := w.do(c.method, "/mcp", c.token, c.body, c.headers...); r.status != c.status || c.code != "" && r.code() != c.code {
			t.Errorf("%s %.40s %v: %d %.300s", c.method, c.body, c.headers, r.status, r.body)
		}
	}
	// Other paths under /mcp/ are somebody else's.
	if r := w.do(post, "/mcp/", reader, ping); r.status != 404 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestAgentListIsStructured(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	res, err := w.connect(reader, "").CallTool(t.Context(), &sdk.CallToolParams{Name: "list_devices"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(res.StructuredContent)
	if err != nil {
		t.Fatal(err)
	}
	w.spec.valid(t, json.RawMessage(`{"$ref":"#/components/schemas/Page"}`), "list_devices", reply{status: 200, body: string(text)})
}
