package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"
)

// upgradeFirmware replaces a device's firmware from any URL. Firmware marks it
// for users only since 2.0, and its schema invites calls without a URL; no model
// is ever shown it, whatever a role allows.
const upgradeFirmware = "self.upgrade_firmware"

// A Member is a source with a label that is unique in its [Set], such as
// "device" or the name of a configured server.
type Member struct {
	Label  string
	Source Source
}

// Rules say which tools a role has. Patterns are those of [path.Match] and match
// a tool's name as its source gives it; * matches a slash, too.
type Rules struct {
	Allow []string // what the model may see; empty means everything
	Deny  []string // what it may not, even if allowed
}

// Check reports the first malformed pattern.
func (r Rules) Check() error {
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"allow", r.Allow}, {"deny", r.Deny}} {
		for i, pattern := range list.patterns {
			if _, err := match(pattern, ""); err != nil {
				return fmt.Errorf("%s[%d]: pattern %q: %w; close every bracket and escape", list.key, i, pattern, err)
			}
		}
	}
	return nil
}

// visible reports whether the model may see and call t.
func (r Rules) visible(t Tool) bool {
	if t.UserOnly || t.Name == upgradeFirmware {
		return false
	}
	return (len(r.Allow) == 0 || matchAny(r.Allow, t.Name)) && !matchAny(r.Deny, t.Name)
}

func matchAny(patterns []string, name string) bool {
	for _, p := range patterns {
		if ok, _ := match(p, name); ok { // NewSet has checked the patterns
			return true
		}
	}
	return false
}

// match is path.Match without a separator: tool names are not paths.
func match(pattern, name string) (bool, error) {
	const notSlash = "\x00"
	return path.Match(strings.ReplaceAll(pattern, "/", notSlash), strings.ReplaceAll(name, "/", notSlash))
}

// A Set is what the model may use in one conversation: the tools of its sources
// that are for models and that the role allows, under names model APIs accept.
// It is safe for concurrent use and holds nothing to close.
type Set struct {
	rules   Rules
	members []Member

	mu    sync.Mutex
	names namer
}

// NewSet joins sources. Their order is that of the tools, and where two tools
// would have one name, the first keeps it. It returns an error for a malformed
// pattern or a label used twice.
func NewSet(rules Rules, members ...Member) (*Set, error) {
	if err := rules.Check(); err != nil {
		return nil, err
	}
	labels := map[string]bool{}
	for _, m := range members {
		if labels[m.Label] {
			return nil, fmt.Errorf("two tool sources are called %q; rename one", m.Label)
		}
		labels[m.Label] = true
	}
	return &Set{rules: rules, members: members}, nil
}

// Tools lists what the model may call now, named for it. A source that is not
// ready has no tools yet; a tool keeps its name through the life of the Set.
func (s *Set) Tools() []Tool {
	var tools []Tool
	for _, m := range s.members {
		for _, t := range m.Source.Tools() {
			if !s.rules.visible(t) {
				continue
			}
			s.mu.Lock()
			t.Name = s.names.name(toolID{m.Label, t.Name})
			s.mu.Unlock()
			tools = append(tools, t)
		}
	}
	return tools
}

// Call runs the tool the model knows as name. A name that [Set.Tools] has not
// shown gives [ErrUnknownTool]; all else is as with [Source].
func (s *Set) Call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	s.mu.Lock()
	id, ok := s.names.tool(name)
	s.mu.Unlock()
	if ok {
		for _, m := range s.members {
			if m.Label == id.source {
				return m.Source.Call(ctx, id.name, args)
			}
		}
	}
	return Result{}, fmt.Errorf("tool %q: %w; call one of those offered", name, ErrUnknownTool)
}
