package api

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// A Scope is a kind of thing a token may do. None includes another.
type Scope string

// The scopes of tokens.
const (
	// Read is for seeing devices and their tools.
	Read Scope = "read"
	// Control is for what a user of the device could do as well: calling its
	// tools, making it speak, showing an alert, ending a session.
	Control Scope = "control"
	// Admin is for what can put a device out of order: restarting it, and its
	// tools for people only, such as those that replace firmware and assets.
	Admin Scope = "admin"
)

// scopes is a set of scopes.
type scopes uint8

const (
	canRead scopes = 1 << iota
	canControl
	canAdmin
	everything = canRead | canControl | canAdmin
)

// bit is the set of this scope alone, empty for an unknown one.
func (s Scope) bit() scopes {
	switch s {
	case Read:
		return canRead
	case Control:
		return canControl
	case Admin:
		return canAdmin
	}
	return 0
}

// String names the scopes of the set, for error messages.
func (s scopes) String() string {
	var names []string
	for _, scope := range []Scope{Read, Control, Admin} {
		if s&scope.bit() != 0 {
			names = append(names, string(scope))
		}
	}
	return strings.Join(names, " or ")
}

// A Token is one bearer token.
type Token struct {
	Name   string  // who uses it, for the log: 1 to 64 characters
	Secret string  // what is sent; at least MinSecret bytes
	Scopes []Scope // at least one
}

// MinSecret is the least length of a token's secret in bytes. 16 random letters
// and digits cannot be guessed at the rate that is allowed here.
const MinSecret = 16

// MinGatewayKey is the least length in bytes of a key whose daily tokens are
// accepted, as in the Node gateway.
const MinGatewayKey = 8

// maxTokenName bounds a token's name in bytes: it stands in every audit line.
const maxTokenName = 64

// Config says who may ask for what.
type Config struct {
	// Tokens are accepted everywhere. With none only the gateway's API is
	// served, if that is on.
	Tokens []Token
	// Gateway serves the management API of the Node gateway as well, to our
	// tokens and to the daily token: the SHA-256 of the date and GatewayKey.
	// Everybody who sees one can try keys against it at leisure, and has all
	// scopes until the day ends, so it is for those who need it.
	Gateway bool
	// GatewayKey is the key that signs the credentials of devices, at least
	// MinGatewayKey bytes long. It is used with Gateway only.
	GatewayKey string
	// Location is the time zone of the daily token's date; nil: the server's.
	// The date in UTC is accepted as well.
	Location *time.Location
	// Hosts are the names, without ports, that a proxy on this machine passes
	// on for /mcp. Requests that arrive at a loopback address must be for one
	// of them or for a loopback name; no others are checked.
	Hosts []string
	// Version is the program's, told to MCP clients.
	Version string
}

// check reports what is wrong with cfg. It names tokens by their place and name
// and never repeats a secret.
func (cfg Config) check() error {
	names, secrets := map[string]bool{}, map[string]bool{}
	for i, t := range cfg.Tokens {
		if err := t.check(); err != nil {
			return fmt.Errorf("api: token %d (%.64q): %w", i+1, t.Name, err)
		}
		if names[t.Name] {
			return fmt.Errorf("api: token %d (%.64q): the name is taken; the log tells tokens apart by it", i+1, t.Name)
		}
		if secrets[t.Secret] {
			return fmt.Errorf("api: token %d (%.64q): another has the same secret; make one for each", i+1, t.Name)
		}
		names[t.Name], secrets[t.Secret] = true, true
	}
	if cfg.Gateway && len(cfg.GatewayKey) < MinGatewayKey {
		return fmt.Errorf("api: the gateway's API needs the key that signs devices' credentials, at least %d bytes long; set mqtt.key or switch the gateway's API off", MinGatewayKey)
	}
	return nil
}

func (t Token) check() error {
	switch {
	case t.Name == "":
		return errors.New("it has no name; name it after who uses it")
	case len(t.Name) > maxTokenName || !utf8.ValidString(t.Name):
		return fmt.Errorf("its name must be text of at most %d bytes", maxTokenName)
	case len(t.Secret) < MinSecret:
		return fmt.Errorf("its secret has %d bytes; use at least %d, such as openssl rand -hex 16 gives", len(t.Secret), MinSecret)
	case strings.ContainsFunc(t.Secret, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("its secret has a character that cannot be sent in a header; use letters and digits")
	case len(t.Scopes) == 0:
		return errors.New("it has no scopes; give read, control or admin")
	}
	for _, s := range t.Scopes {
		if s.bit() == 0 {
			return fmt.Errorf("%.32q is no scope; there are read, control and admin", s)
		}
	}
	return nil
}

// A key is a token as it is kept: its secret only as a hash.
type key struct {
	hash   [sha256.Size]byte
	caller caller
}

// keys are the tokens of cfg, which must have been checked.
func (cfg Config) keys() []key {
	out := make([]key, len(cfg.Tokens))
	for i, t := range cfg.Tokens {
		out[i] = key{sha256.Sum256([]byte(t.Secret)), caller{name: t.Name}}
		for _, s := range t.Scopes {
			out[i].caller.scopes |= s.bit()
		}
	}
	return out
}
