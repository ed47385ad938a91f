package mcp_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"parley/mcp"
)

const noArguments = `{"type":"object","properties":{}}`

func TestFaithfulSchema(t *testing.T) {
	for in, want := range map[string]string{
		`{"type":"object","properties":{"z":{"$ref":"#/$defs/x"},"a":{"pattern":"<.>"}},"$defs":{"x":{}}}`: `{"type":"object","properties":{"z":{"$ref":"#/$defs/x"},"a":{"pattern":"<.>"}},"$defs":{"x":{}}}`,
		`{"$schema":"http://x","properties":{"a":{"minimum":1e-30}},"additionalProperties":false}`:         `{"properties":{"a":{"minimum":1e-30}},"additionalProperties":false,"type":"object"}`,
		`{"type":["object","null"]}`: `{"type":"object"}`,
		`{}`:                         `{"type":"object"}`,
		`[]`:                         noArguments,
		`{`:                          noArguments,
		``:                           noArguments,
	} {
		if got := string(mcp.FaithfulSchema(json.RawMessage(in))); got != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
	}
}

func TestStrictSchema(t *testing.T) {
	object := func(properties string) string { return `{"type":"object","properties":{` + properties + `}}` }
	for name, test := range map[string]struct{ in, want string }{
		"a device's": {
			`{"type":"object","properties":{"volume":{"type":"integer","minimum":0,"maximum":100}},"required":["volume"]}`,
			`{"type":"object","properties":{"volume":{"type":"integer","minimum":0,"maximum":100}},"required":["volume"]}`,
		},
		"what is dropped": {
			`{"$schema":"x","title":"T","type":"object","properties":{"a":{"title":"A","type":"string","pattern":"x","format":"uri","minLength":2,"examples":["y"]}},"x-mcp":1}`,
			object(`"a":{"type":"string"}`),
		},
		"what is kept": {
			`{"description":"d","properties":{"a":{"type":"array","items":{"enum":["x",1,null]},"default":[ ]}},"additionalProperties":false}`,
			`{"type":"object","description":"d","properties":{"a":{"type":"array","items":{"enum":["x",1,null]},"default":[]}},"additionalProperties":false}`,
		},
		"a reference": {
			`{"$defs":{"u/n~it":{"enum":["C","F"],"description":"far"}},"properties":{"u":{"$ref":"#/$defs/u~1n~0it","description":"near"}}}`,
			object(`"u":{"description":"near","enum":["C","F"]}`),
		},
		"a reference of a reference": {
			`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"type":"string"}},"properties":{"u":{"allOf":[{"$ref":"#/$defs/a"}],"default":"x"}}}`,
			object(`"u":{"type":"string","default":"x"}`),
		},
		"references to nothing": {
			`{"properties":{"a":{"$ref":"#/$defs/x"},"b":{"$ref":"http://x/y"},"c":{"$ref":7},"d":{"$ref":"#/%zz"}}}`,
			object(`"a":{},"b":{},"c":{},"d":{}`),
		},
		"pydantic's optional": {
			`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null,"title":"A"}}}`,
			object(`"a":{"type":"integer","default":null}`),
		},
		"a choice":         {`{"properties":{"a":{"oneOf":[{"type":"integer"},{"const":"auto"}]}}}`, object(`"a":{"anyOf":[{"type":"integer"},{"enum":["auto"]}]}`)},
		"types":            {`{"properties":{"a":{"type":["null","string"]},"b":{"type":["number","integer"]},"c":{"type":["string","object"]},"d":{"type":"text"},"e":{"type":7}}}`, object(`"a":{"type":"string"},"b":{"type":"number"},"c":{},"d":{},"e":{}`)},
		"odd values":       {`{"properties":{"a":{"minimum":"0","maximum":null,"enum":{},"description":7,"items":true,"required":"x","anyOf":7,"properties":[]},"b":true,"c":null}}`, object(`"a":{},"b":{},"c":{}`)},
		"required unknown": {`{"properties":{"a":{}},"required":["a","a","b",7]}`, `{"type":"object","properties":{"a":{}},"required":["a"]}`},
		"choice on top":    {`{"anyOf":[{"properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{}}}]}`, object(`"a":{"type":"string"},"b":{}`)},
		"allOf on top":     {`{"allOf":[{"properties":{"a":{}},"required":["a"]},{"properties":{"b":{}}}]}`, `{"type":"object","properties":{"a":{},"b":{}},"required":["a"]}`},
		"an object of any": {`{"additionalProperties":{"type":"string","format":"x"}}`, `{"type":"object","properties":{},"additionalProperties":{"type":"string"}}`},
		"nothing":          {`{}`, noArguments},
		"no schema":        {`"x"`, noArguments},
		"broken":           {`{"type":`, noArguments},
		"too large":        {`{"properties":{"a":{"description":"` + strings.Repeat("x", 70<<10) + `"}}}`, noArguments},
	} {
		if got := string(mcp.StrictSchema(json.RawMessage(test.in))); got != test.want {
			t.Errorf("%s:\ngot  %.300s\nwant %s", name, got, test.want)
		}
	}
}

// TestSchemasThatGrow unfold to something bounded, in little time.
func TestSchemasThatGrow(t *testing.T) {
	var doubling []string
	for i := range 60 {
		doubling = append(doubling, fmt.Sprintf(`"d%d":{"description":%q,"properties":{"a":{"$ref":"#/$defs/d%d"},"b":{"$ref":"#/$defs/d%d"}}}`, i, strings.Repeat("x", 500), i+1, i+1))
	}
	for _, in := range []string{
		`{"properties":{"self":{"$ref":"#"}}}`,
		`{"$ref":"#"}`,
		`{"allOf":[{"$ref":"#"},{"$ref":"#"},{"$ref":"#"}]}`,
		`{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"properties":{"x":{"$ref":"#/$defs/a"}}}`,
		`{"$ref":"#/$defs/d0","$defs":{` + strings.Join(doubling, ",") + `}}`,
		strings.Repeat(`{"properties":{"a":`, 3000) + "{}" + strings.Repeat("}}", 3000),
	} {
		checkStrict(t, mcp.StrictSchema(json.RawMessage(in)))
	}
}

// checkStrict fails where out is no schema of the subset.
func checkStrict(t *testing.T, out json.RawMessage) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatalf("%.300s: %v", out, err)
	}
	if _, err := s.Resolve(nil); err != nil {
		t.Fatalf("%.300s: %v", out, err)
	}
	if len(out) > 64<<10 || s.Type != "object" || s.Ref != "" || s.Properties == nil {
		t.Errorf("%d bytes: %.300s", len(out), out)
	}
	if again := mcp.StrictSchema(out); !bytes.Equal(again, out) {
		t.Errorf("reduced again:\n%.1000s\n%.1000s", out, again)
	}
}

func FuzzStrictSchema(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object","properties":{"volume":{"type":"integer","minimum":0,"maximum":100}},"required":["volume"]}`,
		`{"$defs":{"u":{"enum":["C"]}},"properties":{"u":{"$ref":"#/$defs/u"},"self":{"$ref":"#"}}}`,
		`{"properties":{"a":{"anyOf":[{"type":"integer"},{"type":"null"}],"default":null}},"additionalProperties":{"allOf":[{}]}}`,
		`{"oneOf":[{"const":1},{"items":[{}]}],"type":["object","null"]}`, `true`, `{"$ref":"#/"}`, "{\"\xff\":{}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkStrict(t, mcp.StrictSchema(raw))
		var top map[string]json.RawMessage
		if faithful := mcp.FaithfulSchema(raw); json.Unmarshal(faithful, &top) != nil || string(top["type"]) != `"object"` {
			t.Errorf("faithful: %s", faithful)
		}
	})
}
