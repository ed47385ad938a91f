package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"parley/internal/protocol"
	"parley/mcp"
)

// For returns the tools that are lent to the conversations of a device in a role:
// those of the connections whose tokens are for this device, then for this role,
// then for all. An empty device or role matches no token for one.
//
// Connections come and go, and the source's tools with them. A tool keeps its name
// through the life of the source, even if its connection ends and comes back.
// Where two connections lend tools of one name, the first in order has it, and the
// other's has its server's name before it. The source holds nothing to close.
func (p *Point) For(device protocol.DeviceID, role string) mcp.Source {
	v := &view{p: p}
	if device != "" {
		v.targets = append(v.targets, targetDevice+string(device))
	}
	if role != "" {
		v.targets = append(v.targets, targetRole+role)
	}
	v.targets = append(v.targets, targetAll)
	return v
}

// A lent is one tool of one place.
type lent struct {
	place place
	tool  string
}

// A view is what one conversation sees of a Point.
type view struct {
	p       *Point
	targets []string

	mu         sync.Mutex
	generation uint64 // of the Point when tools was made
	made       bool
	tools      []mcp.Tool // never changed, only replaced
	names      map[lent]string
	lents      map[string]lent
}

var _ mcp.Versioned = (*view)(nil)

// Version implements [mcp.Versioned].
func (v *view) Version() uint64 { return v.p.generation.Load() }

// Tools implements [mcp.Source].
func (v *view) Tools() []mcp.Tool {
	v.mu.Lock()
	defer v.mu.Unlock()
	// Read before the tools are: what changes meanwhile is seen the next time.
	generation := v.p.generation.Load()
	if !v.made || generation != v.generation {
		v.tools = v.gather()
		v.made, v.generation = true, generation
	}
	return slices.Clone(v.tools)
}

func (v *view) gather() []mcp.Tool {
	var tools []mcp.Tool
	seen := map[lent]string{}
	for _, l := range v.p.lenders(v.targets) {
		for _, t := range l.client.Tools() {
			key := lent{l.place, t.Name}
			t.Name = v.name(key)
			seen[key] = t.Name
			tools = append(tools, t)
		}
	}
	if len(v.names) > maxShown { // somebody keeps changing names: forget the old
		v.names, v.lents = seen, map[string]lent{}
		for key, name := range seen {
			v.lents[name] = key
		}
	}
	return tools
}

// name returns the name of a tool here, which nothing else has had.
func (v *view) name(key lent) string {
	if name, ok := v.names[key]; ok {
		return name
	}
	if v.names == nil {
		v.names, v.lents = map[lent]string{}, map[string]lent{}
	}
	server := cmp.Or(key.place.server, "endpoint")
	numbered := fmt.Sprintf("%s%d_%s", server, key.place.number, key.tool)
	for _, name := range []string{key.tool, server + "_" + key.tool, numbered, key.place.token + "_" + numbered} {
		if _, taken := v.lents[name]; !taken {
			v.names[key], v.lents[name] = name, key
			return name
		}
	}
	// Somebody has called tools as others are renamed.
	name := fmt.Sprintf("%s_%x", numbered, sha256.Sum256(fmt.Append(nil, key)))
	v.names[key], v.lents[name] = name, key
	return name
}

// Call implements [mcp.Source].
func (v *view) Call(ctx context.Context, name string, args json.RawMessage) (mcp.Result, error) {
	v.mu.Lock()
	key, ok := v.lents[name]
	v.mu.Unlock()
	if !ok {
		return mcp.Result{}, fmt.Errorf("tool %q: %w; call one of those offered", name, mcp.ErrUnknownTool)
	}
	for _, l := range v.p.lenders([]string{key.place.target}) {
		if l.place == key.place {
			return l.client.Call(ctx, key.tool, args)
		}
	}
	return mcp.Result{}, fmt.Errorf("tool %q: %w: the program that lends it is not connected now", name, mcp.ErrUnknownTool)
}
