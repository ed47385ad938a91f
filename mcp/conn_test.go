package mcp

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// TestNullParamsAreLeftOut checks what the SDK need not do today: devices drop a
// request with "params":null.
func TestNullParamsAreLeftOut(t *testing.T) {
	var sent string
	d := NewDevice("a0:85:e3:f4:49:34", func(p json.RawMessage) error { sent = string(p); return nil }, Config{}, slog.New(slog.DiscardHandler))
	defer d.Close()
	d.lastID = 6
	c := newConn(d)
	c.limit = answerTimeout
	id, err := jsonrpc.MakeID("text")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Write(t.Context(), &jsonrpc.Request{ID: id, Method: "tools/call", Params: json.RawMessage("null")}); err != nil {
		t.Fatal(err)
	}
	if want := `{"jsonrpc":"2.0","id":7,"method":"tools/call"}`; sent != want {
		t.Errorf("sent %s, want %s", sent, want)
	}
}
