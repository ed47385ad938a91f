package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"unicode/utf8"

	"parley/mcp"
)

// FuzzReceive lets a device say anything, as a whole message and as the result
// of whatever it is asked. A sane reply follows each time, so nothing may time
// out, and a call that follows is answered.
func FuzzReceive(f *testing.F) {
	for _, seed := range []string{
		`{"tools":[{"name":"t","description":"d","inputSchema":{"type":"object"},"annotations":{"audience":["user"]}}],"nextCursor":"t"}`,
		`{"content":[{"type":"text","text":"true"}],"isError":false}`,
		`{"content":[{"type":"image","image":"{\"mimeType\":\"image/jpeg\",\"data\":\"/9j/\"}"}]}`,
		`{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"b","version":"2"}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"message":"no"}}`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`,
		"\"\xff\xfe\"", `[[[[`, ``,
	} {
		f.Add([]byte(seed))
	}
	const limit = 100
	f.Fuzz(func(t *testing.T, payload []byte) {
		sane := false // after the fuzzed exchanges
		var d *mcp.Device
		d = mcp.NewDevice(deviceID, func(sent json.RawMessage) error {
			var m wireMessage
			if err := json.Unmarshal(sent, &m); err != nil {
				t.Fatalf("sent %q", sent)
			}
			if m.ID == nil {
				return nil
			}
			if !sane {
				d.Receive(json.RawMessage(payload))
				d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"error":%s}`, m.ID, payload)))
				d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"result":%s}`, m.ID, payload)))
			}
			result := `{"tools":[{"name":"t"}]}`
			if m.Method == "tools/call" {
				result = `{"content":[{"type":"text","text":"sane"}]}`
			}
			d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"result":%s}`, m.ID, result)))
			return nil
		}, mcp.Config{ResultLimit: limit}, discard())
		defer d.Close()
		_, _ = d.Call(t.Context(), "t", nil) // discovery and call, all fuzzed
		sane = true
		if res, err := d.Call(t.Context(), "t", nil); err == nil && res.Text != "sane" {
			t.Errorf("after the fuzzed exchanges: %+v", res)
		}
		for _, tool := range d.Tools() {
			var schema map[string]any
			if tool.Name == "" || json.Unmarshal(tool.Schema, &schema) != nil {
				t.Errorf("tool %+v", tool)
			}
		}
	})
}

// FuzzResult makes anything the result of a call and checks what the model gets.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{
		`{"content":[{"type":"text","text":"true"}],"isError":false}`,
		`{"content":[{"type":"image","mimeType":"image/jpeg","data":"/9j/"},{"type":"text","text":7}]}`,
		`{"content":{"type":"audio"},"structuredContent":[1]}`, `"text"`, `[null,[],{}]`, "\"\xff\xfe\"",
	} {
		f.Add([]byte(seed))
	}
	const limit = 100
	f.Fuzz(func(t *testing.T, result []byte) {
		if !json.Valid(result) || string(bytes.TrimSpace(result)) == "null" {
			return // the protocol layer has dropped it, or it is no result
		}
		var d *mcp.Device
		d = mcp.NewDevice(deviceID, func(sent json.RawMessage) error {
			var m wireMessage
			if err := json.Unmarshal(sent, &m); err != nil {
				t.Fatalf("sent %q", sent)
			}
			switch m.Method {
			case "initialize":
				d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"result":{}}`, m.ID)))
			case "tools/list":
				d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"result":{"tools":[{"name":"t"}]}}`, m.ID)))
			case "tools/call":
				d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"result":%s}`, m.ID, result)))
			}
			return nil
		}, mcp.Config{ResultLimit: limit}, discard())
		defer d.Close()
		res, err := d.Call(t.Context(), "t", nil)
		if err != nil {
			t.Fatalf("a result of %q is an error: %v", result, err)
		}
		if len(res.Text) > limit || !utf8.ValidString(res.Text) {
			t.Errorf("text %q", res.Text)
		}
		size := 0
		for _, image := range res.Images {
			size += len(image.Data)
		}
		if size > limit {
			t.Errorf("%d bytes of images", size)
		}
	})
}
