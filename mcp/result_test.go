package mcp

import (
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func TestWhatAModelReadsOfAResult(t *testing.T) {
	found := map[string]any{"entities": []any{"Ada"}, "count": 1}
	for name, tt := range map[string]struct {
		content    []sdk.Content
		structured any
		want       string
	}{
		"text":                      {[]sdk.Content{&sdk.TextContent{Text: "done"}}, nil, "done"},
		"structure alone":           {nil, found, `{"count":1,"entities":["Ada"]}`},
		"structure beside words":    {[]sdk.Content{&sdk.TextContent{Text: "Found."}}, found, "Found.\n" + `{"count":1,"entities":["Ada"]}`},
		"structure said already":    {[]sdk.Content{&sdk.TextContent{Text: "{ \"entities\": [\"Ada\"],\n \"count\": 1.0 }"}}, found, "{ \"entities\": [\"Ada\"],\n \"count\": 1.0 }"},
		"a resource of text":        {[]sdk.Content{&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x:1", Text: "inside"}}}, nil, "inside"},
		"a resource of bytes":       {[]sdk.Content{&sdk.EmbeddedResource{Resource: &sdk.ResourceContents{URI: "x:1", MIMEType: "image/png", Blob: []byte{1, 2}}}}, nil, "[resource image/png, 2 bytes]"},
		"a resource of nothing":     {[]sdk.Content{&sdk.EmbeddedResource{}}, nil, "[resource]"},
		"a link":                    {[]sdk.Content{&sdk.ResourceLink{Name: "Report", URI: "file:///r"}}, nil, "[Report: file:///r]"},
		"sound":                     {[]sdk.Content{&sdk.AudioContent{MIMEType: "audio/wav", Data: []byte{1}}}, nil, "[content that is no text]"},
		"structure that is no JSON": {[]sdk.Content{&sdk.TextContent{Text: "done"}}, func() {}, "done"},
	} {
		if got := toResult(&sdk.CallToolResult{Content: tt.content, StructuredContent: tt.structured}, 1000, 0).Text; got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}
