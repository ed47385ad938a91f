package config

import (
	"fmt"
	"log/slog"
)

const redacted = "***"

// A Secret is a key or token. Printed, logged or marshalled in any way it is
// "***"; only [Secret.Reveal] gives its value.
//
// In the file it is the value itself, "env:NAME" for an environment variable, or
// "file:/path" for the contents of a file without the white space around them. A
// relative path is relative to the configuration file.
type Secret struct {
	// Pointers, because fmt calls no methods below an unexported field: printed
	// there, a Secret shows addresses. They point to strings and not to a struct,
	// because fmt prints the latter with a verb that is wrong for it.
	text *string // as the file has it; nil: no secret
	open *string // the value
}

func newSecret(text, value string) Secret {
	if text == "" {
		return Secret{}
	}
	return Secret{&text, &value}
}

// Reveal returns the value, "" when there is none.
func (s Secret) Reveal() string {
	if s.open == nil {
		return ""
	}
	return *s.open
}

// IsSet reports whether there is a value.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

// source returns what the file says, "" when it says that there is no secret.
func (s Secret) source() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// String returns "***".
func (s Secret) String() string { return redacted }

// GoString returns "***".
func (s Secret) GoString() string { return redacted }

// Format writes "***" whatever the verb, so that %x and %#v tell nothing either.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns "***".
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns "***", for JSON and TOML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
