package api

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/protocol"
)

// instructions tell a model what it has come to.
const instructions = "Parley serves voice devices: small boxes with a microphone, a loudspeaker and often a screen. " +
	"A device is named by its MAC address; list_devices has those that are connected. " +
	"What a device can do itself, such as setting its volume, is its tools: list_device_tools, then call_device_tool."

// makeAgents makes one MCP server for each set of scopes among the tokens, with
// the tools that those allow. Servers are stateless: each request stands alone,
// so there are no sessions to bound, expire or hijack.
func (a *API) makeAgents(version string) {
	if version == "" {
		version = "unknown"
	}
	a.agents = map[scopes]*sdk.Server{}
	for _, k := range a.keys {
		s := k.caller.scopes
		if a.agents[s] != nil {
			continue
		}
		server := sdk.NewServer(&sdk.Implementation{Name: "parley", Title: "Parley", Version: version}, &sdk.ServerOptions{
			Instructions: instructions,
			Capabilities: &sdk.ServerCapabilities{Tools: &sdk.ToolCapabilities{}}, // the list never changes
		})
		a.addTools(server, s)
		a.agents[s] = server
	}
	a.agentDoor = sdk.NewStreamableHTTPHandler(func(r *http.Request) *sdk.Server {
		return a.agents[visitOf(r.Context()).caller.scopes]
	}, &sdk.StreamableHTTPOptions{
		Stateless: true, JSONResponse: true, MaxRequestBodyBytes: MaxBody,
		DisableLocalhostProtection: true, // checkHost does it, and knows of proxies
	})
}

// A visit is what the handlers of MCP tools need to know of the HTTP request they
// serve. The SDK's contexts do not end with the request, so its own comes along.
type visit struct {
	caller caller
	ended  context.Context
}

type visitKey struct{}

func visitOf(ctx context.Context) visit {
	v, _ := ctx.Value(visitKey{}).(visit)
	return v
}

// agent serves MCP over streamable HTTP.
func (a *API) agent(w http.ResponseWriter, r *http.Request) {
	if err := a.off(); err != nil {
		writeProblem(w, err)
		return
	}
	if err := a.checkHost(r); err != nil {
		writeProblem(w, err)
		return
	}
	c, err := a.authenticate(r, false)
	if err != nil {
		writeProblem(w, err)
		return
	}
	body, err := readBody(w, r)
	if err != nil {
		writeProblem(w, err)
		return
	}
	if len(body) == 0 {
		writeProblem(w, badRequest("", "the body is empty", "send one JSON-RPC message of MCP"))
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), visitKey{}, visit{c, r.Context()}))
	r.Body = io.NopCloser(bytes.NewReader(body))
	allowTime(w)
	w.Header().Set("Cache-Control", "no-store")
	a.agentDoor.ServeHTTP(w, r)
}

// checkHost keeps web pages out whose name has been bound to this machine's
// loopback address: their requests come from the same origin, but not for a name
// that is known here.
func (a *API) checkHost(r *http.Request) error {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok || !local.IP.IsLoopback() {
		return nil
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.Trim(host, "[]"))
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() || slices.Contains(a.hosts, host) {
		return nil
	}
	p := newProblem(http.StatusForbidden, codeOrigin, "the request came over loopback for a name that is not known here", "if a proxy on this machine sent it, add the name to the hosts of the API")
	p.Field = "Host"
	return p
}

// agentTool adds a tool to server if have covers one of the scopes that it needs.
// The SDK derives the schema of its input from In, and checks it.
func agentTool[In any](server *sdk.Server, have, need scopes, t *sdk.Tool, run func(context.Context, caller, In) (any, error)) {
	if have&need == 0 {
		return
	}
	sdk.AddTool(server, t, func(ctx context.Context, _ *sdk.CallToolRequest, in In) (*sdk.CallToolResult, any, error) {
		v := visitOf(ctx)
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stop := context.AfterFunc(v.ended, cancel) // who hangs up ends what he asked for
		defer stop()
		out, err := run(ctx, v.caller, in)
		if err != nil {
			return nil, nil, problemOf(err)
		}
		if r, ok := out.(*sdk.CallToolResult); ok {
			return r, nil, nil
		}
		return nil, out, nil
	})
}

// Inputs of the tools.
type (
	listInput struct {
		State    string `json:"state,omitempty" jsonschema:"only devices in this state: connected (no session open), idle, listening, thinking or speaking"`
		Role     string `json:"role,omitempty" jsonschema:"only devices of this role"`
		Board    string `json:"board,omitempty" jsonschema:"only devices of this board"`
		Firmware string `json:"firmware,omitempty" jsonschema:"only devices with this firmware version"`
		Limit    int    `json:"limit,omitempty" jsonschema:"at most this many, 1 to 1000; 100 if left out"`
		Cursor   string `json:"cursor,omitempty" jsonschema:"next_cursor of the page before"`
	}
	deviceInput struct {
		Device string `json:"device" jsonschema:"the device's MAC address, such as a0:85:e3:f4:49:34"`
	}
	callInput struct {
		Device    string         `json:"device" jsonschema:"the device's MAC address, such as a0:85:e3:f4:49:34"`
		Tool      string         `json:"tool" jsonschema:"the tool's name, such as self.audio_speaker.set_volume"`
		Arguments map[string]any `json:"arguments,omitempty" jsonschema:"what the tool's input_schema asks for"`
	}
	sayInput struct {
		Device string `json:"device" jsonschema:"the device's MAC address, such as a0:85:e3:f4:49:34"`
		Text   string `json:"text" jsonschema:"what to say, at most 1000 characters of plain words"`
	}
	alertInput struct {
		Device  string `json:"device" jsonschema:"the device's MAC address, such as a0:85:e3:f4:49:34"`
		Status  string `json:"status" jsonschema:"the headline, at most 64 characters"`
		Message string `json:"message" jsonschema:"the message, at most 500 characters"`
		Emotion string `json:"emotion,omitempty" jsonschema:"the face, such as happy, sad or neutral"`
	}
)

// done is the output of a tool that has nothing to tell.
type done struct {
	Done bool `json:"done"`
}

// on makes a tool's run of one that acts on a device.
func on[In any](device func(In) string, run func(context.Context, caller, protocol.DeviceID, In) (any, error)) func(context.Context, caller, In) (any, error) {
	return func(ctx context.Context, c caller, in In) (any, error) {
		id, err := parseDevice(device(in))
		if err != nil {
			return nil, err
		}
		return run(ctx, c, id, in)
	}
}

// addTools adds the tools that the scopes allow.
func (a *API) addTools(server *sdk.Server, have scopes) {
	yes, no := true, false
	look := &sdk.ToolAnnotations{ReadOnlyHint: true, OpenWorldHint: &no}
	act := &sdk.ToolAnnotations{DestructiveHint: &no, OpenWorldHint: &no}
	harm := &sdk.ToolAnnotations{DestructiveHint: &yes, OpenWorldHint: &no}
	named := func(in deviceInput) string { return in.Device }

	agentTool(server, have, canRead, &sdk.Tool{Name: "list_devices", Annotations: look,
		Description: "Lists the devices that are connected now, sorted by MAC address, in pages."},
		func(_ context.Context, _ caller, in listInput) (any, error) {
			limit := ""
			if in.Limit != 0 {
				limit = strconv.Itoa(in.Limit)
			}
			f, err := newFilter(in.State, in.Role, in.Board, in.Firmware, limit, in.Cursor)
			if err != nil {
				return nil, err
			}
			return a.list(f), nil
		})
	agentTool(server, have, canRead, &sdk.Tool{Name: "get_device", Annotations: look,
		Description: "Tells what is known of one connected device: its board, firmware, role, what it is doing."},
		on(named, func(_ context.Context, _ caller, id protocol.DeviceID, _ deviceInput) (any, error) {
			return a.connected(id)
		}))
	agentTool(server, have, canRead, &sdk.Tool{Name: "list_device_tools", Annotations: look,
		Description: "Lists what a device can do itself, with the schema of each tool's arguments and the scope that calling it needs."},
		on(named, func(ctx context.Context, _ caller, id protocol.DeviceID, _ deviceInput) (any, error) {
			return a.tools(ctx, id)
		}))
	agentTool(server, have, canControl|canAdmin, &sdk.Tool{Name: "call_device_tool", Annotations: harm,
		Description: "Calls one tool of a device and returns its answer. A device does one thing at a time; a camera may take half a minute."},
		on(func(in callInput) string { return in.Device }, a.agentCall))
	agentTool(server, have, canControl, &sdk.Tool{Name: "say", Annotations: act,
		Description: "Brings a text to the user of a device: spoken where a session is open or can be opened, else shown. The answer says which."},
		on(func(in sayInput) string { return in.Device }, func(ctx context.Context, c caller, id protocol.DeviceID, in sayInput) (any, error) {
			way, err := a.say(ctx, c, id, in.Text)
			return said{way}, err
		}))
	agentTool(server, have, canControl, &sdk.Tool{Name: "show_alert", Annotations: act,
		Description: "Shows a message on a device, with a face and a short sound."},
		on(func(in alertInput) string { return in.Device }, func(ctx context.Context, c caller, id protocol.DeviceID, in alertInput) (any, error) {
			alert := Alert{in.Status, in.Message, in.Emotion}
			if alert.Emotion == "" {
				alert.Emotion = neutral
			}
			return done{true}, a.alert(ctx, c, id, alert)
		}))
	agentTool(server, have, canControl, &sdk.Tool{Name: "end_session", Annotations: act,
		Description: "Ends the open session of a device, as if its user had said goodbye."},
		on(named, func(ctx context.Context, c caller, id protocol.DeviceID, _ deviceInput) (any, error) {
			return done{true}, a.end(ctx, c, id)
		}))
	agentTool(server, have, canAdmin, &sdk.Tool{Name: "reboot_device", Annotations: harm,
		Description: "Restarts a device. It is away for some seconds, and a session it has is lost."},
		on(named, func(ctx context.Context, c caller, id protocol.DeviceID, _ deviceInput) (any, error) {
			return done{true}, a.reboot(ctx, c, id)
		}))
}

// agentCall calls a tool of a device; what it answers is passed on as it is.
func (a *API) agentCall(ctx context.Context, c caller, id protocol.DeviceID, in callInput) (any, error) {
	var args json.RawMessage
	if in.Arguments != nil {
		var err error
		if args, err = json.Marshal(in.Arguments); err != nil {
			return nil, err
		}
	}
	r, err := a.call(ctx, c, id, in.Tool, args)
	if err != nil {
		return nil, err
	}
	out := &sdk.CallToolResult{IsError: r.IsError, Content: []sdk.Content{&sdk.TextContent{Text: r.Text}}}
	for _, i := range r.Images {
		out.Content = append(out.Content, &sdk.ImageContent{MIMEType: i.MIMEType, Data: i.Data})
	}
	return out, nil
}
