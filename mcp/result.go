package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// truncated ends a text that was cut at the result limit.
const truncated = "… [truncated]"

// toResult makes of an SDK result what a model reads, at most limit bytes of
// text, and images of at most room bytes together.
func toResult(res *sdk.CallToolResult, limit, room int) Result {
	r := Result{IsError: res.IsError}
	var b strings.Builder
	for i, content := range res.Content {
		if i > 0 {
			b.WriteByte('\n')
		}
		switch c := content.(type) {
		case *sdk.TextContent:
			b.WriteString(strings.ToValidUTF8(c.Text, "\uFFFD"))
		case *sdk.ImageContent:
			fmt.Fprintf(&b, "[image %s, %d bytes]", c.MIMEType, len(c.Data))
			if len(c.Data) <= room {
				room -= len(c.Data)
				r.Images = append(r.Images, Image{MIMEType: c.MIMEType, Data: c.Data})
			}
		case *sdk.EmbeddedResource:
			b.WriteString(resourceText(c.Resource))
		case *sdk.ResourceLink:
			fmt.Fprintf(&b, "[%s: %s]", strings.ToValidUTF8(c.Name, "\uFFFD"), strings.ToValidUTF8(c.URI, "\uFFFD"))
		default:
			b.WriteString("[content that is no text]")
		}
		if b.Len() > limit {
			break
		}
	}
	r.Text = withStructure(b.String(), res.StructuredContent)
	if len(r.Text) > limit {
		r.Text = clip(r.Text, max(0, limit-len(truncated))) + truncated
	}
	return r
}

// resourceText is what a model can read of a resource within a result.
func resourceText(c *sdk.ResourceContents) string {
	switch {
	case c == nil:
		return "[resource]"
	case c.Text != "":
		return strings.ToValidUTF8(c.Text, "\uFFFD")
	}
	return fmt.Sprintf("[resource %s, %d bytes]", strings.ToValidUTF8(c.MIMEType, "\uFFFD"), len(c.Blob))
}

// withStructure adds a result's structured content to its text, unless the text
// is that already, as the specification asks of servers. Some say only that they
// are done, and keep what they have found for programs.
func withStructure(text string, structured any) string {
	if structured == nil {
		return text
	}
	encoded, err := json.Marshal(structured)
	if err != nil {
		return text
	}
	var said any
	if json.Unmarshal([]byte(text), &said) == nil {
		if again, err := json.Marshal(said); err == nil && bytes.Equal(again, canonical(encoded)) {
			return text
		}
	}
	if text == "" {
		return string(encoded)
	}
	return text + "\n" + string(encoded)
}

// canonical is JSON with its members sorted and its numbers as Go writes them.
func canonical(encoded []byte) []byte {
	var v any
	if json.Unmarshal(encoded, &v) != nil {
		return encoded
	}
	if again, err := json.Marshal(v); err == nil {
		return again
	}
	return encoded
}
