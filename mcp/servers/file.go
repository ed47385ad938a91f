package servers

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Limits on a file of servers.
const (
	maxFile    = 1 << 20 // bytes; the fullest seen has 3 KiB
	maxServers = 64
)

// A Fault is something in a file that its owner should know. It is an error.
type Fault struct {
	File   string
	Line   int    // from 1; 0 where unknown
	Server string // its name; empty where the fault is in no server
	Key    string // empty where it is in no key
	Text   string // what is wrong, and what to do; it quotes no value
	// Note says that the server is used all the same. Without it, the server
	// was left out, and only that one.
	Note bool
}

// Error implements error.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	if f.Server != "" {
		fmt.Fprintf(&b, ": server %q", f.Server)
	}
	if f.Key != "" {
		fmt.Fprintf(&b, ": %s", f.Key)
	}
	return b.String() + ": " + f.Text
}

// ReadFile reads the servers of a JSON file as other programs have it: the
// mcp_config.json of mcp-calculator, the mcp_server_settings.json of
// xiaozhi-esp32-server, Claude's .mcp.json and claude_desktop_config.json. They
// all have an object mcpServers of servers by name.
//
// In command, args, env, cwd, url and headers ${NAME} stands for a variable of
// Parley's environment and ${NAME:-text} has a default. Programs run in the
// file's directory where the file does not say cwd, as relative names in such
// files mean it.
//
// Servers come in the file's order, the disabled ones too. What is wrong with
// one server leaves that one out and is told as a [Fault], and so is what was
// passed over. The error means that the file gives nothing at all; it is a Fault,
// too, unless the file could not be read.
func ReadFile(path string) ([]Config, []Fault, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, fmt.Errorf("mcp servers file: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("mcp servers file: %w", err)
	}
	return parseFile(path, data, os.LookupEnv)
}

// parseFile reads the file's content. lookup is [os.LookupEnv].
func parseFile(path string, data []byte, lookup func(string) (string, bool)) ([]Config, []Fault, error) {
	p := parser{file: path, data: data, lookup: lookup, seen: map[string]bool{}}
	if len(data) > maxFile {
		return nil, nil, Fault{File: path, Text: fmt.Sprintf("it has more than %d bytes; split it", maxFile)}
	}
	root, err := p.object(bytes.TrimPrefix(data, []byte("\uFEFF")))
	if err != nil {
		return nil, nil, p.wrong(err)
	}
	i := slices.IndexFunc(root, func(m member) bool { return m.key == "mcpServers" })
	if i < 0 {
		return nil, nil, Fault{File: path, Text: "it has no mcpServers; put the servers into an object of that name"}
	}
	servers, err := p.object(root[i].value)
	if err != nil {
		return nil, nil, p.wrong(fmt.Errorf("mcpServers: %w", err))
	}
	if len(servers) > maxServers {
		return nil, nil, Fault{File: path, Key: "mcpServers", Text: fmt.Sprintf("it has %d servers, at most %d are read; split the file", len(servers), maxServers)}
	}
	var configs []Config
	for _, m := range servers {
		if c, ok := p.server(m); ok {
			configs = append(configs, c)
		}
	}
	return configs, p.faults, nil
}

// A parser reads one file.
type parser struct {
	file   string
	data   []byte
	lookup func(string) (string, bool)
	faults []Fault
	seen   map[string]bool // names of servers
}

// A member is one of an object's, as it stands in the file.
type member struct {
	key   string
	value []byte // part of the file
}

// errNoObject means that something else stands where an object must.
var errNoObject = errors.New("it must be an object, { … }")

// object returns the members of a JSON object in their order, those of equal
// name, too. value is part of the file.
func (p *parser) object(value []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(value))
	base := p.offset(value)
	fail := func(err error) ([]member, error) {
		var syntax *json.SyntaxError
		offset := dec.InputOffset()
		if errors.As(err, &syntax) {
			offset = syntax.Offset
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("it breaks off; close all brackets and quotes")
		}
		return nil, located{err: err, line: p.line(base + int(offset))}
	}
	if t, err := dec.Token(); err != nil {
		return fail(err)
	} else if t != json.Delim('{') {
		return fail(errNoObject)
	}
	var members []member
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return fail(err)
		}
		key, ok := t.(string)
		if !ok {
			return fail(errNoObject)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return fail(err)
		}
		end := int(dec.InputOffset())
		members = append(members, member{key, value[end-len(raw) : end]})
	}
	if _, err := dec.Token(); err != nil {
		return fail(err)
	}
	if rest := bytes.TrimLeft(value[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, located{errors.New("something follows the closing bracket; remove it"), p.line(p.offset(rest))}
	}
	return members, nil
}

// located is an error with its line.
type located struct {
	err  error
	line int
}

func (l located) Error() string { return l.err.Error() }
func (l located) Unwrap() error { return l.err }

// wrong makes a Fault of an error of object.
func (p *parser) wrong(err error) Fault {
	f := Fault{File: p.file, Text: err.Error()}
	if l, ok := errors.AsType[located](err); ok {
		f.Line = l.line
	}
	return f
}

// offset is where part begins in the file; both share one array.
func (p *parser) offset(part []byte) int { return cap(p.data) - cap(part) }

// line is the number of the line at an offset of the file.
func (p *parser) line(offset int) int {
	return 1 + bytes.Count(p.data[:min(offset, len(p.data))], []byte("\n"))
}

// fault notes a fault of the server m, in its member key where that is not nil.
func (p *parser) fault(m member, key *member, note bool, text string) {
	f := Fault{File: p.file, Line: p.line(p.offset(m.value)), Server: m.key, Text: text, Note: note}
	if key != nil {
		f.Key, f.Line = key.key, p.line(p.offset(key.value))
	}
	p.faults = append(p.faults, f)
}

// server reads one server and reports whether it can be used.
func (p *parser) server(m member) (Config, bool) {
	c := Config{Name: m.key}
	if p.seen[m.key] {
		p.fault(m, nil, false, "another server has this name; rename one")
		return c, false
	}
	p.seen[m.key] = true
	members, err := p.object(m.value)
	if err != nil {
		p.fault(m, nil, false, err.Error())
		return c, false
	}
	ok := true
	for _, key := range members {
		if err := p.key(&c, m, key); err != nil {
			p.fault(m, &key, false, err.Error())
			ok = false
		}
	}
	if !ok {
		return c, false
	}
	if err := c.Check(); err != nil {
		p.fault(m, nil, false, err.Error())
		return c, false
	}
	if c.Command != "" && !filepath.IsAbs(c.Dir) {
		c.Dir = filepath.Join(filepath.Dir(p.file), c.Dir)
	}
	return c, true
}

// key reads one member of the server m into c.
func (p *parser) key(c *Config, m, key member) error {
	switch key.key {
	case "command":
		return p.text(key, &c.Command)
	case "args":
		return p.texts(key, &c.Args)
	case "env":
		return p.table(key, &c.Env)
	case "cwd":
		return p.text(key, &c.Dir)
	case "url":
		return p.text(key, &c.URL)
	case "headers":
		return p.headers(key, c)
	case "API_ACCESS_TOKEN":
		// xiaozhi-esp32-server's older form of a header.
		var token string
		err := p.text(key, &token)
		setHeader(c, "Authorization", "Bearer "+token)
		p.fault(m, &key, true, "is an old form; better put Authorization into headers")
		return err
	case "type", "transport", "transportType":
		var name string
		if err := p.text(key, &name); err != nil {
			return err
		}
		transport, err := parseTransport(name)
		c.Transport = transport
		return err
	case "disabled":
		return p.plain(key, &c.Disabled, "true or false")
	case "enabled":
		enabled := true
		err := p.plain(key, &enabled, "true or false")
		c.Disabled = !enabled
		return err
	case "timeout":
		return p.timeout(m, key, c)
	case "des", "description", "link", "name":
		return nil // for people
	}
	p.fault(m, &key, true, "is not a key Parley knows; it is passed over")
	return nil
}

// timeout reads seconds, as xiaozhi-esp32-server means them. Other programs mean
// milliseconds, which gives a number no second count has.
func (p *parser) timeout(m, key member, c *Config) error {
	var n float64
	if err := p.plain(key, &n, "a number of seconds"); err != nil {
		return err
	}
	if n >= 1000 {
		n /= 1000
		p.fault(m, &key, true, "is taken for milliseconds")
	}
	if n < 0 || n > MaxTimeout.Seconds() {
		return fmt.Errorf("must be from 0 to %v seconds", MaxTimeout.Seconds())
	}
	c.Timeout = time.Duration(n * float64(time.Second))
	return nil
}

// plain decodes a value that has no variables.
func (p *parser) plain(m member, to any, kind string) error {
	if err := json.Unmarshal(m.value, to); err != nil {
		return fmt.Errorf("must be %s", kind)
	}
	return nil
}

// text decodes a text and puts in its variables; null is none.
func (p *parser) text(m member, to *string) error {
	if err := p.plain(m, to, "a text, in quotes"); err != nil {
		return err
	}
	var err error
	*to, err = expand(*to, p.lookup)
	return err
}

func (p *parser) texts(m member, to *[]string) error {
	if err := p.plain(m, to, "a list of texts, [\"…\"]"); err != nil {
		return err
	}
	for i, s := range *to {
		var err error
		if (*to)[i], err = expand(s, p.lookup); err != nil {
			return fmt.Errorf("[%d] %w", i, err)
		}
	}
	return nil
}

// table decodes texts by name. Numbers and truth values are taken as they are
// written, as Python does.
func (p *parser) table(m member, to *map[string]string) error {
	var values map[string]json.RawMessage
	if err := p.plain(m, &values, "texts by name, {\"…\": \"…\"}"); err != nil {
		return err
	}
	*to = make(map[string]string, len(values))
	for name, raw := range values {
		s := string(raw)
		switch raw[0] {
		case '{', '[', 'n':
			return fmt.Errorf("%q must be a text, in quotes", name)
		case '"':
			if err := json.Unmarshal(raw, &s); err != nil {
				return fmt.Errorf("%q must be a text, in quotes", name)
			}
		}
		var err error
		if (*to)[name], err = expand(s, p.lookup); err != nil {
			return fmt.Errorf("%q %w", name, err)
		}
	}
	return nil
}

func (p *parser) headers(m member, c *Config) error {
	var headers map[string]string
	if err := p.table(m, &headers); err != nil {
		return err
	}
	for name, value := range headers {
		setHeader(c, name, value)
	}
	return nil
}

// setHeader keeps a header that is there.
func setHeader(c *Config, name, value string) {
	if c.Headers == nil {
		c.Headers = map[string]string{}
	}
	if _, ok := c.Headers[name]; !ok {
		c.Headers[name] = value
	}
}

// expand puts variables into a text: ${NAME} and ${NAME:-default}, the two forms
// of Claude's files. Anything else with a dollar stays as it is. A variable that
// is not set and has no default is an error.
func expand(s string, lookup func(string) (string, bool)) (string, error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		b.WriteString(before)
		if !found {
			return b.String(), nil
		}
		inside, after, closed := strings.Cut(rest, "}")
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		if !closed || !isVariable(name) {
			b.WriteString("${")
			s = rest
			continue
		}
		value, set := lookup(name)
		switch {
		case set && (value != "" || !hasFallback):
			b.WriteString(value)
		case hasFallback:
			b.WriteString(fallback)
		default:
			return "", fmt.Errorf("needs the variable %s, which is not set in Parley's environment; set it, or write ${%s:-default}", name, name)
		}
		s = after
	}
}

// isVariable reports whether name is one a shell would allow.
func isVariable(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}
