package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/mcp"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// A serverConn joins the SDK's own server to a Device.
type serverConn struct {
	in   chan json.RawMessage
	done chan struct{}
	out  func(json.RawMessage)
}

func (c *serverConn) Connect(context.Context) (sdk.Connection, error) { return c, nil }
func (c *serverConn) SessionID() string                               { return "" }
func (c *serverConn) Close() error {
	select {
	case <-c.done:
	default:
		close(c.done)
	}
	return nil
}

func (c *serverConn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case payload := <-c.in:
		return jsonrpc.DecodeMessage(payload)
	case <-c.done:
		return nil, io.EOF
	}
}

func (c *serverConn) Write(_ context.Context, msg jsonrpc.Message) error {
	payload, err := jsonrpc.EncodeMessage(msg)
	c.out(payload)
	return err
}

// TestStandardServer shows that what suits devices is still MCP: the SDK's own
// server, which validates what it gets, understands it.
func TestStandardServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := sdk.NewServer(&sdk.Implementation{Name: "standard", Version: "1"}, &sdk.ServerOptions{PageSize: 2})
		type volume struct {
			Volume int `json:"volume" jsonschema:"0 to 100"`
		}
		sdk.AddTool(server, &sdk.Tool{Name: "set_volume", Description: "Set it."}, func(_ context.Context, _ *sdk.CallToolRequest, in volume) (*sdk.CallToolResult, any, error) {
			if in.Volume > 100 {
				return nil, nil, errors.New("too loud")
			}
			return &sdk.CallToolResult{Content: []sdk.Content{
				&sdk.TextContent{Text: "ok"},
				&sdk.ImageContent{MIMEType: "image/png", Data: []byte("png")},
				&sdk.ResourceLink{URI: "file:///x", Name: "x"},
			}}, nil, nil
		})
		for _, name := range []string{"a", "b", "c"} {
			server.AddTool(&sdk.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)},
				func(context.Context, *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
					return &sdk.CallToolResult{Content: []sdk.Content{}}, nil
				})
		}
		c := &serverConn{in: make(chan json.RawMessage, 8), done: make(chan struct{})}
		d := mcp.NewDevice(deviceID, func(payload json.RawMessage) error { c.in <- payload; return nil }, mcp.Config{}, discard())
		defer d.Close()
		c.out = func(payload json.RawMessage) { d.Receive(payload) }
		session, err := server.Connect(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()

		start(t, d)
		if got := strings.Join(toolNames(d.Tools()), " "); got != "a b c set_volume" {
			t.Errorf("tools %q", got)
		}
		res, err := d.Call(t.Context(), "set_volume", json.RawMessage(`{"volume":5}`))
		if err != nil || res.IsError || res.Text != "ok\n[image image/png, 3 bytes]\n[resource_link content]" || len(res.Images) != 1 {
			t.Errorf("%+v, %v", res, err)
		}
		for _, args := range []string{`{"volume":500}`, `{"volume":"loud"}`, `{}`} {
			if res, err := d.Call(t.Context(), "set_volume", json.RawMessage(args)); err != nil || !res.IsError || res.Text == "" {
				t.Errorf("%s: %+v, %v", args, res, err)
			}
		}
	})
}
