package servers

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"parley/mcp"
)

// Transports of [Config].
const (
	Stdio = "stdio" // a program of our own, JSON-RPC in lines
	HTTP  = "http"  // streamable HTTP, MCP since 2025-03-26
	SSE   = "sse"   // HTTP with server-sent events, MCP 2024-11-05
)

// Limits of a [Config].
const (
	// MaxTimeout is the longest Timeout.
	MaxTimeout = 10 * time.Minute
	// maxName bounds a server's name in bytes; it is part of tools' names.
	maxName = 64
)

// A Config says what one server is: a program with Command, or a service with
// URL. It may hold keys, in Args, Env, URL and Headers, and is not for logs.
type Config struct {
	Name string // unique; tools are allowed and denied by it

	Command string            // the program, in PATH unless it has a slash
	Args    []string          // passed as they are; no shell sees them
	Env     map[string]string // beside PATH, HOME, LANG and the like
	Dir     string            // its working directory; empty is Parley's

	URL     string            // http or https
	Headers map[string]string // sent with each request, to URL's host alone

	// Transport is Stdio, HTTP or SSE. Empty is Stdio with Command; with URL it
	// is found out: HTTP first, or SSE where the path ends in /sse, and the
	// other one where the server refuses that.
	Transport string
	Disabled  bool
	// Timeout is how long one call may take; 0 is [mcp.DefaultCallTimeout].
	Timeout time.Duration
}

// Check returns the first fault, which names the key. It neither looks for the
// program nor contacts anybody.
func (c *Config) Check() error {
	switch {
	case c.Name == "" || len(c.Name) > maxName || !utf8.ValidString(c.Name) || strings.ContainsFunc(c.Name, unicode.IsControl):
		return fmt.Errorf("name %q: give the server a name of 1 to %d bytes without control characters", c.Name, maxName)
	case c.Command == "" && c.URL == "":
		return errors.New("neither command nor url is set; set the one that says where the server is")
	case c.Command != "" && c.URL != "":
		return errors.New("command and url are both set; a server has one of them")
	case c.Timeout < 0 || c.Timeout > MaxTimeout:
		return fmt.Errorf("timeout is %v; give at most %v", c.Timeout, MaxTimeout)
	}
	transport, err := parseTransport(c.Transport)
	switch {
	case err != nil:
		return err
	case c.URL != "":
		return c.checkRemote(transport)
	case transport == HTTP || transport == SSE:
		return fmt.Errorf("transport is %s, but command is set; set url instead, or drop transport", transport)
	}
	return c.checkProgram()
}

func (c *Config) checkProgram() error {
	if strings.ContainsRune(c.Command+c.Dir+strings.Join(c.Args, ""), 0) {
		return errors.New("command, args or cwd has a NUL character; remove it")
	}
	for name, value := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return fmt.Errorf("env %q: a name must not be empty or have =, and nothing may have a NUL character", name)
		}
	}
	return nil
}

func (c *Config) checkRemote(transport string) error {
	if transport == Stdio {
		return errors.New("transport is stdio, but url is set; set command instead, or drop transport")
	}
	// The URL may hold a key, so no error quotes it.
	u, err := url.Parse(c.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return errors.New("url is none; give http:// or https://, a host and a path")
	}
	for name, value := range c.Headers {
		if !isToken(name) || strings.ContainsFunc(value, isControl) {
			return fmt.Errorf("headers %q: HTTP allows no such header; correct its name or value", name)
		}
		if http.CanonicalHeaderKey(name) == "Host" {
			return errors.New(`headers "Host": put the host into url`)
		}
	}
	return nil
}

// isToken reports whether name can be that of a header (RFC 9110, section 5.6.2).
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7F || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

// isControl reports whether a header's value cannot have r.
func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7F }

// parseTransport understands the names of transports in the files of other
// programs; empty stays empty.
func parseTransport(name string) (string, error) {
	switch strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(name)) {
	case "":
		return "", nil
	case "stdio":
		return Stdio, nil
	case "sse":
		return SSE, nil
	case "http", "streamablehttp", "streamable":
		return HTTP, nil
	}
	return "", fmt.Errorf("transport is %q; give stdio, http or sse", name)
}

// withDefaults fills in what is not set, for a checked Config.
func (c Config) withDefaults() Config {
	c.Transport, _ = parseTransport(c.Transport)
	if c.Transport == "" && c.Command != "" {
		c.Transport = Stdio
	}
	if c.Timeout == 0 {
		c.Timeout = mcp.DefaultCallTimeout
	}
	return c
}

// kinds returns the transports to try with a service, in order.
func (c *Config) kinds() []string {
	switch {
	case c.Transport != "":
		return []string{c.Transport}
	case endsInSSE(c.URL):
		return []string{SSE, HTTP}
	}
	return []string{HTTP, SSE}
}

func endsInSSE(address string) bool {
	u, err := url.Parse(address)
	return err == nil && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/sse")
}
