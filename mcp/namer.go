package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxModelName is the longest name model APIs accept, in bytes: the pattern is
// ^[a-zA-Z0-9_-]{1,64}$ with OpenAI, and no stricter elsewhere.
const maxModelName = 64

// A toolID identifies a tool among all sources of a conversation.
type toolID struct{ source, name string }

// A namer gives every tool a name that model APIs accept. A name once given
// stays: the model's history speaks of it. The same tools in the same order get
// the same names in every conversation. It is not safe for concurrent use.
type namer struct {
	names map[toolID]string
	tools map[string]toolID
}

// name returns the tool's name for the model. The first tool to want a name gets
// it; one that wants a taken name gets its source's label in front. Where that is
// taken or too long, too, it gets a hash of its own identity behind.
func (n *namer) name(id toolID) string {
	if name, ok := n.names[id]; ok {
		return name
	}
	if n.names == nil {
		n.names, n.tools = map[toolID]string{}, map[string]toolID{}
	}
	plain := plainName(id.name)
	name := plain
	if !n.free(name) && plain != "" {
		name = plainName(id.source) + "_" + plain
	}
	if !n.free(name) || len(name) > maxModelName {
		name = n.hashedName(id, plain)
	}
	n.names[id], n.tools[name] = name, id
	return name
}

// free reports whether name is one and not taken.
func (n *namer) free(name string) bool {
	_, taken := n.tools[name]
	return !taken && name != ""
}

// tool returns the tool that was given this name.
func (n *namer) tool(name string) (toolID, bool) {
	id, ok := n.tools[name]
	return id, ok
}

// plainName replaces what model APIs refuse by underscores, cut to length. A
// name of which nothing would be left, such as one in Chinese, gives "".
func plainName(name string) string {
	var b strings.Builder
	kept := false
	for _, r := range name {
		if b.Len() == maxModelName {
			break
		}
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			kept = true
		} else if r != '-' {
			r = '_'
		}
		b.WriteByte(byte(r))
	}
	if !kept {
		return ""
	}
	return b.String()
}

// hashedName is plain, or "tool", with as many digits of the tool's hash as it
// takes to be free: six, if nobody seeks collisions.
func (n *namer) hashedName(id toolID, plain string) string {
	if plain == "" {
		plain = "tool"
	}
	sum := sha256.Sum256([]byte(id.source + "\x00" + id.name))
	digits := hex.EncodeToString(sum[:])
	for length := 6; ; length++ {
		name := clip(plain, maxModelName-length-1) + "_" + digits[:length]
		if n.free(name) || length == maxModelName-1 {
			return name
		}
	}
}
