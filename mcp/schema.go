package mcp

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Limits on what a schema may unfold to.
const (
	// maxSchemaDepth bounds the nesting of a reduced schema, references followed
	// included; what lies deeper accepts anything.
	maxSchemaDepth = 8
	// maxSchemaNodes bounds the schemas in a reduced one. References may make a
	// small schema grow without end.
	maxSchemaNodes = 1000
	// maxSchemaBytes bounds a schema to reduce, the texts in the reduced one, and
	// that itself. A tool with more is offered without arguments.
	maxSchemaBytes = 64 << 10
	// maxReferences bounds the different references that are resolved.
	maxReferences = 64
)

// FaithfulSchema returns a tool's schema as an API that knows JSON schema takes
// it: as it came, in its order, but for a "$schema", which some refuse, and with
// the "type" that model APIs insist on. What is no JSON object becomes the schema
// of a tool without arguments.
func FaithfulSchema(raw json.RawMessage) json.RawMessage {
	all, ok := objectMembers(raw)
	if !ok {
		return json.RawMessage(noArguments)
	}
	out := []byte("{")
	typed := false
	for _, m := range all {
		if m.name == "$schema" || m.name == "type" && typed {
			continue
		}
		if m.name == "type" {
			typed, m.value = true, json.RawMessage(`"object"`) // arguments are nothing else
		}
		out = appendMember(out, m.name, m.value)
	}
	if !typed {
		out = appendMember(out, "type", json.RawMessage(`"object"`))
	}
	return append(out, '}')
}

// StrictSchema reduces a tool's schema to what servers of old take that speak the
// OpenAI API: type, properties, required, items, enum, description, minimum,
// maximum, default, anyOf and additionalProperties. References within the schema
// are resolved, const becomes an enum, oneOf an anyOf, allOf is merged, and of
// several types null is left out. What is dropped only makes the schema more
// permissive, or less so of null; the tool checks its arguments itself. The
// result is always a schema of an object, and StrictSchema of it is the same.
func StrictSchema(raw json.RawMessage) json.RawMessage {
	if len(raw) > maxSchemaBytes || !json.Valid(raw) {
		return json.RawMessage(noArguments)
	}
	r := &reducer{root: raw, nodes: maxSchemaNodes, bytes: maxSchemaBytes, resolved: map[string]json.RawMessage{}}
	s := r.reduce(raw, 0)
	s.kind, s.items, s.enum, s.fallback, s.minimum, s.maximum = "object", nil, nil, nil, nil, nil
	for _, branch := range s.anyOf { // what APIs refuse at the top
		s.addProperties(branch)
	}
	s.anyOf = nil
	s.keepRequired()
	s.hasProperties = true
	out := s.json()
	if len(out) > maxSchemaBytes {
		return json.RawMessage(noArguments)
	}
	return out
}

// A reduced is a schema of the subset. The zero value accepts anything.
type reduced struct {
	kind          string // "type"; "" is any
	description   string
	properties    []property
	hasProperties bool // also where there are none
	required      []string
	items         *reduced
	enum          []json.RawMessage
	minimum       json.RawMessage
	maximum       json.RawMessage
	fallback      json.RawMessage // "default"
	anyOf         []*reduced
	additional    json.RawMessage // reduced already
}

type property struct {
	name   string
	schema *reduced
}

// A reducer reduces one schema.
type reducer struct {
	root     json.RawMessage
	nodes    int // how many more there may be
	bytes    int // how many more of texts
	resolved map[string]json.RawMessage
}

// afford takes n bytes of text, if there are any left.
func (r *reducer) afford(n int) bool {
	r.bytes -= n
	return r.bytes >= 0
}

// reduce reads one schema. What is no schema accepts anything.
func (r *reducer) reduce(raw json.RawMessage, depth int) *reduced {
	s := new(reduced)
	if r.nodes--; r.nodes < 0 || depth > maxSchemaDepth {
		return s
	}
	all, ok := objectMembers(raw)
	if !ok {
		return s
	}
	for _, m := range all {
		r.keyword(s, m, depth)
	}
	// References and parts add what the schema does not say itself.
	for _, m := range all {
		switch m.name {
		case "$ref":
			if target, ok := r.resolve(m.value); ok {
				s.merge(r.reduce(target, depth+1))
			}
		case "allOf":
			for _, part := range array(m.value) {
				s.merge(r.reduce(part, depth+1))
			}
		}
	}
	s.keepRequired()
	return s
}

// keyword takes one member of a schema.
func (r *reducer) keyword(s *reduced, m member, depth int) {
	value := m.value
	switch m.name {
	case "description", "enum", "const", "default":
		if r.afford(len(value)) {
			s.setText(m)
		}
	case "type":
		s.setType(value)
	case "minimum":
		s.minimum = number(value)
	case "maximum":
		s.maximum = number(value)
	case "properties":
		all, ok := objectMembers(value)
		s.hasProperties = s.hasProperties || ok
		for _, p := range all {
			if r.nodes > 0 && r.afford(len(p.name)) {
				s.properties = append(s.properties, property{p.name, r.reduce(p.value, depth+1)})
			}
		}
	case "required":
		for _, raw := range array(value) {
			var name string
			if json.Unmarshal(raw, &name) == nil && !slices.Contains(s.required, name) {
				s.required = append(s.required, name)
			}
		}
	case "items":
		if value[0] == '{' {
			s.items = r.reduce(value, depth+1)
		}
	case "anyOf", "oneOf":
		r.setAnyOf(s, value, depth)
	case "additionalProperties":
		switch value[0] {
		case 't', 'f':
			s.additional = value
		case '{':
			s.additional = r.reduce(value, depth+1).json()
		}
	}
}

// setText takes a member that is kept as it is.
func (s *reduced) setText(m member) {
	switch m.name {
	case "description":
		_ = json.Unmarshal(m.value, &s.description) // no text, no description
	case "enum":
		s.enum = array(m.value)
	case "const":
		s.enum = []json.RawMessage{compact(m.value)}
	case "default":
		s.fallback = compact(m.value)
	}
}

// setAnyOf takes alternatives. Null is left out, and a single one is no choice.
func (r *reducer) setAnyOf(s *reduced, value json.RawMessage, depth int) {
	var branches []*reduced
	for _, raw := range array(value) {
		if b := r.reduce(raw, depth+1); b.kind != "null" {
			branches = append(branches, b)
		}
	}
	if len(branches) == 1 {
		s.merge(branches[0])
		return
	}
	s.anyOf = branches
}

var schemaTypes = []string{"object", "array", "string", "number", "integer", "boolean", "null"}

// setType takes one type, or the first of several that is not null: a choice of
// types is beyond what the subset can say in one word.
func (s *reduced) setType(value json.RawMessage) {
	var names []string
	var one string
	if json.Unmarshal(value, &one) == nil {
		names = []string{one}
	} else {
		_ = json.Unmarshal(value, &names) // what is neither says nothing
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !slices.Contains(schemaTypes, n) })
	if len(names) > 1 {
		names = slices.DeleteFunc(names, func(n string) bool { return n == "null" })
	}
	switch slices.Sort(names); {
	case len(names) == 1:
		s.kind = names[0]
	case slices.Equal(names, []string{"integer", "number"}):
		s.kind = "number"
	default:
		s.kind = "" // any of several
	}
}

// merge adds what from says and s does not.
func (s *reduced) merge(from *reduced) {
	if s.kind == "" {
		s.kind = from.kind
	}
	if s.description == "" {
		s.description = from.description
	}
	for _, raw := range []struct{ to, from *json.RawMessage }{
		{&s.minimum, &from.minimum}, {&s.maximum, &from.maximum}, {&s.fallback, &from.fallback}, {&s.additional, &from.additional},
	} {
		if *raw.to == nil {
			*raw.to = *raw.from
		}
	}
	if s.items == nil {
		s.items = from.items
	}
	if s.enum == nil {
		s.enum = from.enum
	}
	if s.anyOf == nil {
		s.anyOf = from.anyOf
	}
	s.addProperties(from)
	for _, name := range from.required {
		if !slices.Contains(s.required, name) {
			s.required = append(s.required, name)
		}
	}
}

// addProperties adds those of from that s does not have.
func (s *reduced) addProperties(from *reduced) {
	s.hasProperties = s.hasProperties || from.hasProperties
	for _, p := range from.properties {
		if !slices.ContainsFunc(s.properties, func(q property) bool { return q.name == p.name }) {
			s.properties = append(s.properties, p)
		}
	}
}

// keepRequired drops what is required and not described: some APIs refuse it.
func (s *reduced) keepRequired() {
	s.required = slices.DeleteFunc(s.required, func(name string) bool {
		return !slices.ContainsFunc(s.properties, func(p property) bool { return p.name == name })
	})
}

// json writes the schema.
func (s *reduced) json() json.RawMessage {
	b := []byte{'{'}
	if s.kind != "" {
		b = appendMember(b, "type", quote(s.kind))
	}
	if s.description != "" {
		b = appendMember(b, "description", quote(s.description))
	}
	if s.hasProperties {
		inner := []byte{'{'}
		for _, p := range s.properties {
			inner = appendMember(inner, p.name, p.schema.json())
		}
		b = appendMember(b, "properties", append(inner, '}'))
	}
	if len(s.required) > 0 {
		var all []json.RawMessage
		for _, name := range s.required {
			all = append(all, quote(name))
		}
		b = appendMember(b, "required", list(all))
	}
	if s.items != nil {
		b = appendMember(b, "items", s.items.json())
	}
	if len(s.enum) > 0 {
		b = appendMember(b, "enum", list(s.enum))
	}
	for _, m := range []member{{"minimum", s.minimum}, {"maximum", s.maximum}, {"default", s.fallback}, {"additionalProperties", s.additional}} {
		if m.value != nil {
			b = appendMember(b, m.name, m.value)
		}
	}
	if len(s.anyOf) > 0 {
		var all []json.RawMessage
		for _, branch := range s.anyOf {
			all = append(all, branch.json())
		}
		b = appendMember(b, "anyOf", list(all))
	}
	return append(b, '}')
}

// resolve follows a reference into the schema itself, a JSON pointer (RFC 6901).
func (r *reducer) resolve(ref json.RawMessage) (json.RawMessage, bool) {
	var s string
	if json.Unmarshal(ref, &s) != nil {
		return nil, false
	}
	if target, known := r.resolved[s]; known {
		return target, target != nil
	}
	if len(r.resolved) == maxReferences {
		return nil, false
	}
	target := r.follow(s)
	r.resolved[s] = target
	return target, target != nil
}

// follow is what a reference leads to, nil if nothing.
func (r *reducer) follow(ref string) json.RawMessage {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	if pointer == "" {
		return r.root
	}
	decoded, err := url.PathUnescape(pointer)
	if err != nil {
		return nil
	}
	at, unescape := r.root, strings.NewReplacer("~1", "/", "~0", "~")
	for part := range strings.SplitSeq(strings.TrimPrefix(decoded, "/"), "/") {
		if at, ok = child(at, unescape.Replace(part)); !ok {
			return nil
		}
	}
	return at
}

// child is the member or entry of a JSON value that a pointer's part names.
func child(of json.RawMessage, part string) (json.RawMessage, bool) {
	if all, ok := objectMembers(of); ok {
		i := slices.IndexFunc(all, func(m member) bool { return m.name == part })
		if i < 0 {
			return nil, false
		}
		return all[i].value, true
	}
	entries := array(of)
	i, err := strconv.Atoi(part)
	if err != nil || i < 0 || i >= len(entries) {
		return nil, false
	}
	return entries[i], true
}

// A member is one of a JSON object.
type member struct {
	name  string
	value json.RawMessage
}

// objectMembers is a JSON object in its own order, false for anything else. Of
// members that share a name the last counts, in the first one's place.
func objectMembers(raw json.RawMessage) ([]member, bool) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || raw[0] != '{' || !json.Valid(raw) {
		return nil, false
	}
	var all []member
	at := map[string]int{}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if _, err := dec.Token(); err != nil {
		return nil, false
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, false
		}
		m := member{name: name.(string)} // a valid object's key is nothing else
		if err := dec.Decode(&m.value); err != nil {
			return nil, false
		}
		if i, doubled := at[m.name]; doubled {
			all[i] = m
			continue
		}
		at[m.name] = len(all)
		all = append(all, m)
	}
	return all, true
}

// appendMember adds a member to an object that is being written.
func appendMember(b []byte, name string, value json.RawMessage) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	b = append(b, quote(name)...)
	b = append(b, ':')
	return append(b, value...)
}

func quote(s string) json.RawMessage {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // < and > are words in descriptions
	if enc.Encode(s) != nil {
		return json.RawMessage(`""`) // a string always has a form
	}
	return bytes.TrimSpace(b.Bytes())
}

// array is the entries of a JSON array, compact, nil for anything else.
func array(raw json.RawMessage) []json.RawMessage {
	var all []json.RawMessage
	if json.Unmarshal(raw, &all) != nil {
		return nil
	}
	for i := range all {
		all[i] = compact(all[i])
	}
	return all
}

func list(all []json.RawMessage) json.RawMessage {
	b := append([]byte{'['}, bytes.Join(toBytes(all), []byte{','})...)
	return append(b, ']')
}

func toBytes(all []json.RawMessage) [][]byte {
	out := make([][]byte, len(all))
	for i, raw := range all {
		out[i] = raw
	}
	return out
}

func compact(raw json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return json.RawMessage("null") // what was decoded is valid
	}
	return b.Bytes()
}

// number is raw where it is one, else nil.
func number(raw json.RawMessage) json.RawMessage {
	var n json.Number
	if raw[0] == '"' || json.Unmarshal(raw, &n) != nil || n == "" {
		return nil
	}
	return raw
}
