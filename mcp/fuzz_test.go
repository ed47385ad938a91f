package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

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
		}, mcp.Config{ResultLimit: limit, ImageLimit: limit}, discard())
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
		}, mcp.Config{ResultLimit: limit, ImageLimit: limit}, discard())
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

// FuzzSalvage gives a device's client a broken message while a call waits, with
// the call's id wherever the message says ID. The call may end by it only if the
// message names it.
func FuzzSalvage(f *testing.F) {
	for _, seed := range []string{
		`{"session_id":"","type":"mcp","payload":{"jsonrpc":"2.0","id":ID,"error":{"message":"no "x""}}}`,
		`{"payload":{"id":1,"error":{"message":"a "id":ID,"}}`, `"id": ID}"error""message":"`, `"id":IDID,"error"`, `"id":ID.0,"error"`, `"id"`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		id, broken := "", []byte(nil)
		var d *mcp.Device
		d = mcp.NewDevice(deviceID, func(sent json.RawMessage) error {
			var m wireMessage
			if err := json.Unmarshal(sent, &m); err != nil || m.ID == nil {
				return err
			}
			result := `{"tools":[{"name":"t"}]}`
			if m.Method == "tools/call" {
				result, id = `{"content":[{"type":"text","text":"sane"}]}`, string(m.ID)
				broken = bytes.ReplaceAll(message, []byte("ID"), m.ID)
				d.Salvage(broken)
			}
			d.Receive(json.RawMessage(fmt.Sprintf(`{"id":%s,"result":%s}`, m.ID, result)))
			return nil
		}, mcp.Config{}, discard())
		defer d.Close()
		res, err := d.Call(t.Context(), "t", nil)
		if err != nil {
			t.Fatal(err)
		}
		if res.IsError && (!regexp.MustCompile(`"id"\s*:\s*0*`+id+`\s*[,}]`).Match(broken) || len(res.Text) > 2048 || !utf8.ValidString(res.Text)) {
			t.Errorf("%q ended call %s: %+v", broken, id, res)
		}
		if !res.IsError && res.Text != "sane" {
			t.Errorf("%+v", res)
		}
	})
}

// FuzzLines lets a program print anything; a message on a line of its own after
// it is read all the same.
func FuzzLines(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`, "{\"method\":\"notifications/message\"}\r\n\r\n", "hello\n{\n}\n",
		`{"id":"1","error":"no"}`, `{"id":"a","method":"ping","params":null}`, `[{"id":1}]`, "\xff\x00\n\n", strings.Repeat("x", 3000),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, printed []byte) {
		in := append(bytes.Clone(printed), "\n{\"id\":77,\"result\":\"sane\"}"...)
		transport := mcp.LineTransport(io.NopCloser(bytes.NewReader(in)), discardCloser{}, 1000)
		transport.Rubbish = func(line string) {
			if len(line) > 3*512 || !utf8.ValidString(line) {
				t.Errorf("rubbish %q", line)
			}
		}
		conn, err := transport.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var last jsonrpc.Message
		for {
			msg, err := conn.Read(t.Context())
			if err != nil {
				break
			}
			if _, err := jsonrpc.EncodeMessage(msg); err != nil {
				t.Fatalf("%+v: %v", msg, err)
			}
			last = msg
		}
		if resp, ok := last.(*jsonrpc.Response); !ok || string(resp.Result) != `"sane"` {
			t.Errorf("the last message is %+v", last)
		}
	})
}
