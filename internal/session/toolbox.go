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
type toolbox struct {
	set    *mcp.Set
	caller mcp.Caller
}

// newToolbox joins the tools that a role may use in one session of the device:
// the device's own first, so that the list begins alike for all devices of a kind
// and a model service can cache it.
func (p *peer) newToolbox(sessionID string, role *Role) (pipeline.Toolbox, error) {
	members := []mcp.Member{{Label: "device", Source: p.tools}}
	if f := p.server.cfg.Sources; f != nil {
		members = append(members, f(p.id, role)...)
	}
	set, err := mcp.NewSet(mcp.Rules{Allow: role.Allow, Deny: role.Deny}, members...)
	if err != nil {
		return nil, err
	}
	return toolbox{set, mcp.Caller{Device: p.id, Session: sessionID, Role: role.Name}}, nil
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

// errWordless is what a model is told of a failure that its source says nothing of.
var errWordless = errors.New("the tool failed and did not say why")

// Call implements [pipeline.Toolbox]. The source learns for whom the call is made.
func (b toolbox) Call(ctx context.Context, c pipeline.Call) (pipeline.ToolResult, error) {
	r, err := b.set.Call(mcp.WithCaller(ctx, b.caller), c.Name, c.Args)
	if err != nil {
		return pipeline.ToolResult{}, err
	}
	if r.IsError {
		if why := strings.TrimSpace(r.Text); why != "" {
			return pipeline.ToolResult{}, errors.New(why)
		}
		return pipeline.ToolResult{}, errWordless
	}
	out := pipeline.ToolResult{Text: r.Text}
	for _, i := range r.Images {
		out.Images = append(out.Images, pipeline.Image{MIMEType: i.MIMEType, Data: i.Data})
	}
	return out, nil
}
