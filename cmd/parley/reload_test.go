package main

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"parley/internal/config"
	"parley/mcp/access"
)

// A token that is revoked in the file is worth nothing after a SIGHUP, and a file
// with a fault in it changes nothing.
func TestRevokedAtAHangup(t *testing.T) {
	const key = "0123456789abcdef"
	path := filepath.Join(t.TempDir(), "c.toml")
	table := "[mcp.access]\nkey = \"" + key + "\"\n"
	write(t, path, table)
	loaded, err := config.Load(path, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	n, _ := start(t, func(c *config.Config) { c.MCP = loaded.MCP })
	token, err := access.Mint([]byte(key), access.Scope{ID: "lost", All: true})
	if err != nil {
		t.Fatal(err)
	}
	hangups := make(chan os.Signal) // a second is taken when the first has been obeyed
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.obey(ctx, hangups, path)
	}()
	welcome := func() bool {
		t.Helper()
		ws, resp, err := websocket.Dial(t.Context(), "ws://"+n.webAddr.Addr().String()+"/mcp/?token="+token, nil)
		if err != nil {
			if resp == nil || resp.StatusCode != 401 {
				t.Fatal(err)
			}
			resp.Body.Close()
			return false
		}
		if err := ws.CloseNow(); err != nil {
			t.Log(err)
		}
		return true
	}
	for _, step := range []struct {
		name, text string
		welcome    bool
	}{
		{"as it was", table, true},
		{"a fault", table + "revoked = [\"lost\"]\nrevoke = 1\n", true},
		{"revoked", table + "revoked = [\"lost\"]\n", false},
		{"allowed again", table, true},
	} {
		write(t, path, step.text)
		hangups <- syscall.SIGHUP
		hangups <- syscall.SIGHUP
		if got := welcome(); got != step.welcome {
			t.Errorf("%s: let in %t", step.name, got)
		}
	}
	stop()
	<-done
}
