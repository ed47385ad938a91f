package pipe

import (
	"bytes"
	"encoding/json"
	"testing"
)

func FuzzReadable(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{}}`, "{\r\n \"id\":\n\"a\\nb\"}\n", "Starting…", "[", "", "null", "\xff", `{"a":1}{"b":2}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := bytes.Clone(text)
		line, ok := readable(text)
		if !bytes.Equal(before, text) {
			t.Error("the text was changed")
		}
		if !ok {
			return
		}
		var was, is any
		if bytes.ContainsAny(line, "\r\n") || json.Unmarshal(text, &was) != nil || json.Unmarshal(line, &is) != nil {
			t.Fatalf("%q became %q", text, line)
		}
		a, _ := json.Marshal(was)
		b, _ := json.Marshal(is)
		if !bytes.Equal(a, b) {
			t.Errorf("%q became %q", text, line)
		}
	})
}
