package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
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
	// Guarded, if not nil, reports the tools that do what cannot be undone by a
	// word, such as those of locks and alarms. They are there only for a role
	// whose Allow names them: by a pattern whose part for the tool's own name is
	// more than asterisks. Neither an empty Allow nor "*" nor "house:*" does.
	Guarded func(name string) bool
	// Hide, if not nil, is asked at every request which tools are of no use in
	// this conversation now. It must be quick, and safe for concurrent use.
	Hide func(name string) bool
}

// Rules say which tools a role has. Patterns are those of [path.Match], except
// that * matches a slash, too. They match a tool's name as its source gives it:
// "self.camera.*". One with a colon also matches the source's label, a colon and
// that name: "weather:*" is all of the source weather.
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

// visible reports whether the model may see and call t of m.
func (r Rules) visible(m Member, t Tool) bool {
	if t.UserOnly || t.Name == upgradeFirmware || matchAny(r.Deny, m.Label, t.Name) {
		return false
	}
	if m.Guarded != nil && m.Guarded(t.Name) {
		return slices.ContainsFunc(r.Allow, func(p string) bool { return names(p) && matches(p, m.Label, t.Name) })
	}
	return len(r.Allow) == 0 || matchAny(r.Allow, m.Label, t.Name)
}

func matchAny(patterns []string, label, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, label, name) })
}

// matches reports whether a pattern, which NewSet has checked, is for a tool.
func matches(pattern, label, name string) bool {
	if ok, _ := match(pattern, name); ok {
		return true
	}
	if !strings.Contains(pattern, ":") {
		return false
	}
	ok, _ := match(pattern, label+":"+name)
	return ok
}

// names reports whether a pattern says something of a tool's own name.
func names(pattern string) bool {
	return strings.Trim(pattern[strings.LastIndexByte(pattern, ':')+1:], "*") != ""
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

	mu      sync.Mutex
	names   namer
	shelves []shelf // by member
}

// A shelf is what a Set has made of one member's tools.
type shelf struct {
	valid   bool   // version is that of the tools
	version uint64 // of the source
	tools   []Tool // those the role may see, named for the model; never changed
	own     []string
}

// NewSet joins sources. Their order is that of the tools. Where two tools would
// have one name, the first to be listed keeps it, and the other gets its source's
// label in front. It returns an error for a malformed pattern or a label used
// twice.
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
	return &Set{rules: rules, members: members, shelves: make([]shelf, len(members))}, nil
}

// Tools lists what the model may call now, named for it. A source that is not
// ready, or has gone, has no tools; a tool keeps its name through the life of the
// Set, and gets it back when its source returns. The caller owns the slice, and
// nobody may change the schemas.
func (s *Set) Tools() []Tool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i := range s.members {
		n += len(s.shelf(i).tools)
	}
	tools := make([]Tool, 0, n)
	for i, m := range s.members {
		for j, t := range s.shelves[i].tools {
			if m.Hide == nil || !m.Hide(s.shelves[i].own[j]) {
				tools = append(tools, t)
			}
		}
	}
	return tools
}

// shelf brings the shelf of member i up to date. A source that tells no version
// is asked for its tools each time.
func (s *Set) shelf(i int) *shelf {
	m, shelf := &s.members[i], &s.shelves[i]
	version, versioned := uint64(0), false
	if v, ok := m.Source.(Versioned); ok {
		version, versioned = v.Version(), true // before the tools: rather too old than too new
	}
	if shelf.valid && versioned && version == shelf.version {
		return shelf
	}
	all := m.Source.Tools()
	shelf.tools, shelf.own = make([]Tool, 0, len(all)), make([]string, 0, len(all))
	for _, t := range all {
		if !s.rules.visible(*m, t) {
			continue
		}
		shelf.own = append(shelf.own, t.Name)
		t.Name = s.names.name(toolID{m.Label, t.Name})
		shelf.tools = append(shelf.tools, t)
	}
	shelf.version, shelf.valid = version, true
	return shelf
}

// Call runs the tool the model knows as name. It is refused with
// [ErrUnknownTool] where [Set.Tools] would not show it now, whatever the model
// remembers; all else is as with [Source].
func (s *Set) Call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	m, own, why := s.find(name)
	if why != "" {
		return Result{}, fmt.Errorf("tool %q: %w; %s", name, ErrUnknownTool, why)
	}
	return m.Source.Call(ctx, own, args)
}

// find returns whose tool the model's name is, and its own name, or why it
// cannot be called, in words for the model.
func (s *Set) find(name string) (m Member, own, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.names.tool(name)
	if !ok {
		return Member{}, "", "call one of those offered"
	}
	i := slices.IndexFunc(s.members, func(m Member) bool { return m.Label == id.source })
	m = s.members[i]
	if !slices.Contains(s.shelf(i).own, id.name) || m.Hide != nil && m.Hide(id.name) {
		return Member{}, "", "it is not available any more; say so, or call one of those offered"
	}
	return m, id.name, ""
}
