package config

import (
	"os"
	"path/filepath"
	"testing"
)

func TestFaultFindsTheLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.toml")
	if err := os.WriteFile(file, []byte("[log]\nlevel = \"info\"\n\n[udp]\naddress = \"\"\nlisten = \":1\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, key, want string }{
		{file, "udp.listen", file + ":6: udp.listen: is taken; choose another"},
		{file, "mqtt.listen", file + ": mqtt.listen: is taken; choose another"},
		{"", "udp.listen", "built-in configuration: udp.listen: is taken; choose another"},
	} {
		if got := Fault(c.name, c.key, "is taken", "choose another").Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
