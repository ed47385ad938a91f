package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/device"
)

// The tokens of these tests.
const (
	everything = "token-for-everything"
	onlyRead   = "token-for-looking-only"
)

const tokens = `
[mqtt]
key = "the key of credentials"

[api]
gateway = true

[[api.token]]
name = "test"
token = "token-for-everything"
scopes = ["read", "control", "admin"]

[[api.token]]
name = "looking"
token = "token-for-looking-only"
scopes = ["read"]
`

// decoded makes one request that must succeed and reads its answer.
func decoded(t *testing.T, n *node, method, path, token, body string, into any) {
	t.Helper()
	status, answer := fetch(t, n, method, path, token, body)
	if status/100 != 2 {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if into == nil {
		return
	}
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatalf("%s %s: %s: %v", method, path, answer, err)
	}
}

// A stream is what a program sees that listens to events.
type stream struct {
	end context.CancelFunc
	run sync.WaitGroup

	mu   sync.Mutex
	came []happened
}

// A happened is one event.
type happened struct {
	Kind, Device, Detail string
	Data                 struct {
		Tools   []string
		Packets int
	}
}

// listen opens a stream of events until the test ends.
func listen(t *testing.T, n *node, query string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://127.0.0.1:%d/api/v1/events%s", n.webPort(), query), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+onlyRead)
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("events: %s", resp.Status)
	}
	s := &stream{end: cancel}
	s.run.Go(func() { // ends with the connection
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for lines.Scan() {
			var e happened
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(data), &e) == nil {
				s.mu.Lock()
				s.came = append(s.came, e)
				s.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		s.run.Wait()
	})
	return s
}

// await waits for an event of a kind and returns the first.
func (s *stream) await(t *testing.T, kind string) (e happened) {
	t.Helper()
	until(t, "the event "+kind, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		i := slices.IndexFunc(s.came, func(e happened) bool { return e.Kind == kind })
		if i >= 0 {
			e = s.came[i]
		}
		return i >= 0
	})
	return e
}

// TestAPI sees, hears and controls a device as an operator does.
func TestAPI(t *testing.T) {
	t.Parallel()
	n, _ := startFile(t, configure(t, tokens), rules(t, ""))
	all, turns := listen(t, n, ""), listen(t, n, "?kind=turn&device="+kitchen)
	p := connect(t, n, kitchen, nil)
	const one = "/api/v1/devices/" + kitchen

	var list struct {
		Devices []struct{ ID, State, Board, Firmware, Role string }
		Total   int
	}
	decoded(t, n, http.MethodGet, "/api/v1/devices", onlyRead, "", &list)
	if list.Total != 1 || list.Devices[0].ID != kitchen || list.Devices[0].State != "connected" || list.Devices[0].Firmware != "2.4.2" {
		t.Errorf("devices: %+v", list)
	}
	var tools struct {
		Tools []struct {
			Name, Scope string
			UserOnly    bool `json:"user_only"`
		}
	}
	decoded(t, n, http.MethodGet, one+"/tools", onlyRead, "", &tools)
	if len(tools.Tools) != len(device.DefaultTools()) {
		t.Errorf("tools: %+v", tools)
	}
	from := p.now()
	var result struct {
		Text    string
		IsError bool `json:"is_error"`
	}
	decoded(t, n, http.MethodPost, one+"/tools/"+volumeTool, everything, `{"volume":40}`, &result)
	if calls := p.calls(from); result.Text != "true" || result.IsError || !slices.Contains(calls, volumeTool+` {"volume":40}`) {
		t.Errorf("called %q, which gave %+v", calls, result)
	}
	var said struct{ Way string }
	decoded(t, n, http.MethodPost, one+"/say", everything, `{"text":"Nobody listens."}`, &said)
	if e, _ := p.await("the text", from, alert); said.Way != "shown" || e.Text != "Nobody listens." {
		t.Errorf("it is %s: %q", said.Way, e.Text)
	}
	from = p.now()
	decoded(t, n, http.MethodPost, one+"/alert", everything, `{"status":"Door","message":"Somebody rings.","emotion":"happy"}`, nil)
	if e, _ := p.await("the alert", from, alert); e.Detail != "Door" || e.Text != "Somebody rings." {
		t.Errorf("it shows %q, %q", e.Detail, e.Text)
	}

	open(p)
	from = p.now()
	decoded(t, n, http.MethodPost, one+"/say", everything, `{"text":"Somebody listens."}`, &said)
	if got, _ := p.hears(from); said.Way != "spoken" || !slices.Equal(got, []string{"Somebody listens."}) {
		t.Errorf("it is %s: %q", said.Way, got)
	}
	says(p, "what is the volume", "The volume is 40.")
	until(t, "two turns", func() bool { turns.mu.Lock(); defer turns.mu.Unlock(); return len(turns.came) == 2 })
	turns.mu.Lock()
	if turn := turns.came[1]; turn.Device != kitchen || !slices.Equal(turn.Data.Tools, []string{"self_get_device_status"}) || turn.Data.Packets == 0 {
		t.Errorf("the turn is told as %+v", turn)
	}
	turns.mu.Unlock()
	open(p)
	from = p.now()
	decoded(t, n, http.MethodDelete, one+"/session", everything, "", nil)
	p.closes(from)
	for _, kind := range []string{"connected", "session_opened", "listening", "speaking", "silent", "turn", "session_closed"} {
		all.await(t, kind)
	}

	for path, want := range map[string]int{one + "/reboot": http.StatusForbidden, "/api/v1/devices/" + study + "/reboot": http.StatusNotFound} {
		token := everything
		if want == http.StatusForbidden {
			token = onlyRead
		}
		if status, answer := fetch(t, n, http.MethodPost, path, token, ""); status != want {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
	from = p.now()
	decoded(t, n, http.MethodPost, one+"/reboot", everything, "", nil)
	_, at := p.await("the restart", from, is(device.Rebooting))
	p.await("its return", at, is(device.Connected))
}

// TestGateway speaks to a device as programs do that were written for the Node
// gateway.
func TestGateway(t *testing.T) {
	t.Parallel()
	n, _ := startFile(t, configure(t, tokens), rules(t, ""))
	p := connect(t, n, kitchen, nil)
	sum := sha256.Sum256([]byte(time.Now().Format(time.DateOnly) + "the key of credentials"))
	daily := hex.EncodeToString(sum[:])
	const client, absent = "GID_default@@@02_00_00_00_00_a1@@@x", "GID_default@@@02_00_00_00_00_a2@@@x"
	presence := func() map[string]struct{ IsAlive, Exists bool } {
		t.Helper()
		var there map[string]struct{ IsAlive, Exists bool }
		decoded(t, n, http.MethodPost, "/api/devices/status", daily, fmt.Sprintf(`{"clientIds":[%q,%q]}`, client, absent), &there)
		return there
	}
	if there := presence(); !there[client].Exists || there[client].IsAlive || there[absent].Exists {
		t.Errorf("status: %+v", there)
	}
	open(p)
	if there := presence(); !there[client].IsAlive {
		t.Errorf("status with a session: %+v", there)
	}
	command := func(method, params string) string {
		t.Helper()
		var answer struct {
			Success bool
			Data    json.RawMessage
		}
		decoded(t, n, http.MethodPost, "/api/commands/"+client, daily,
			fmt.Sprintf(`{"type":"mcp","payload":{"method":%q,"params":%s}}`, method, params), &answer)
		if !answer.Success {
			t.Errorf("%s failed", method)
		}
		return string(answer.Data)
	}
	from := p.now()
	if got := command("tools/call", `{"name":"self.audio_speaker.set_volume","arguments":{"volume":12}}`); got != `{"content":[{"type":"text","text":"true"}],"isError":false}` {
		t.Errorf("tools/call: %s", got)
	}
	if calls := p.calls(from); !slices.Equal(calls, []string{volumeTool + ` {"volume":12}`}) {
		t.Errorf("called %q", calls)
	}
	if got := command("tools/list", `{}`); !strings.Contains(got, volumeTool) || strings.Contains(got, "upgrade_firmware") {
		t.Errorf("tools/list: %s", got)
	}
	if got := command("tools/list", `{"withUserTools":true}`); !strings.Contains(got, "upgrade_firmware") {
		t.Errorf("tools/list with the user's tools: %s", got)
	}
	if got := command("initialize", `{}`); !strings.Contains(got, `"serverInfo":{"name":"parley-simulator","version":"2.4.2"}`) {
		t.Errorf("initialize: %s", got)
	}
	if status, _ := fetch(t, n, http.MethodPost, "/api/devices/status", strings.Repeat("0", 64), `{"clientIds":[]}`); status != http.StatusUnauthorized {
		t.Errorf("with another token: %d", status)
	}
}

// bearer adds a token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// TestAgents uses Parley as an MCP server, by the SDK's client.
func TestAgents(t *testing.T) {
	t.Parallel()
	n, _ := startFile(t, configure(t, tokens), rules(t, ""))
	p := connect(t, n, kitchen, nil)
	enter := func(token string) *sdk.ClientSession {
		t.Helper()
		s, err := sdk.NewClient(&sdk.Implementation{Name: "agent", Version: "1"}, nil).Connect(t.Context(), &sdk.StreamableClientTransport{
			Endpoint:   fmt.Sprintf("http://127.0.0.1:%d/mcp", n.webPort()),
			HTTPClient: &http.Client{Transport: bearer{token, &http.Transport{DisableKeepAlives: true}}},
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	call := func(s *sdk.ClientSession, tool string, args map[string]any) (string, bool) {
		t.Helper()
		r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			t.Fatalf("%s: %v", tool, err)
		}
		return r.Content[0].(*sdk.TextContent).Text, r.IsError
	}
	s := enter(everything)
	if got, failed := call(s, "list_devices", nil); failed || !strings.Contains(got, kitchen) {
		t.Errorf("list_devices: %s", got)
	}
	if got, failed := call(s, "call_device_tool", map[string]any{"device": kitchen, "tool": volumeTool, "arguments": map[string]any{"volume": 25}}); failed || got != "true" {
		t.Errorf("call_device_tool: %s", got)
	}
	open(p)
	from := p.now()
	if got, failed := call(s, "say", map[string]any{"device": kitchen, "text": "An agent speaks."}); failed || !strings.Contains(got, "spoken") {
		t.Errorf("say: %s", got)
	}
	if got, _ := p.hears(from); !slices.Equal(got, []string{"An agent speaks."}) {
		t.Errorf("it says %q", got)
	}
	if got, failed := call(s, "say", map[string]any{"device": study, "text": "Nobody."}); !failed {
		t.Errorf("say to nobody: %s", got)
	}
	offered, err := enter(onlyRead).ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range offered.Tools {
		if !slices.Contains([]string{"list_devices", "get_device", "list_device_tools"}, tool.Name) {
			t.Errorf("who may only look is offered %s", tool.Name)
		}
	}
}
