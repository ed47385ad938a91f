package session

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"parley/mcp"
	"parley/pipeline"
)

// A toolbox is a set of tools in the words of a conversation.
type toolbox struct{ set *mcp.Set }

// newToolbox joins the tools that a role may use on one device.
func newToolbox(device *mcp.Device, role *Role) (pipeline.Toolbox, error) {
	set, err := mcp.NewSet(mcp.Rules{Allow: role.Allow, Deny: role.Deny}, mcp.Member{Label: "device", Source: device})
	if err != nil {
		return nil, err
	}
	return toolbox{set}, nil
}

// anyArguments is the schema of a tool that gave none.
var anyArguments = json.RawMessage(`{"type":"object","properties":{}}`)

// Tools implements [pipeline.Toolbox].
func (b toolbox) Tools() []pipeline.Tool {
	var out []pipeline.Tool
	for _, t := range b.set.Tools() {
		schema := t.Schema
		if len(schema) == 0 {
			schema = anyArguments
		}
		out = append(out, pipeline.Tool{Name: t.Name, Description: t.Description, Schema: schema})
	}
	return out
}

// Call implements [pipeline.Toolbox].
func (b toolbox) Call(ctx context.Context, c pipeline.Call) (string, error) {
	r, err := b.set.Call(ctx, c.Name, c.Args)
	if err != nil {
		return "", err
	}
	if r.IsError {
		return "", errors.New(strings.TrimSpace(r.Text))
	}
	return r.Text, nil
}
