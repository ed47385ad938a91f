package mcp

import (
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
		default:
			b.WriteString("[content that is no text]")
		}
		if b.Len() > limit {
			break
		}
	}
	if structured, err := json.Marshal(res.StructuredContent); err == nil && res.StructuredContent != nil && len(res.Content) == 0 {
		b.Write(structured) // a server should repeat it as text; some do not
	}
	r.Text = b.String()
	if len(r.Text) > limit {
		r.Text = clip(r.Text, max(0, limit-len(truncated))) + truncated
	}
	return r
}
