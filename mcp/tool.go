package mcp

import (
	"context"
	"encoding/json"
	"errors"
)

// A Source offers tools and runs them: a device, or any other MCP server.
// It is safe for concurrent use.
type Source interface {
	// Tools lists what the source is known to offer now, in the source's own
	// order. The caller owns the slice.
	Tools() []Tool
	// Call runs one tool and returns its only result. args is a JSON object,
	// or empty where the tool takes none. An error means that no result is
	// known; a tool that ran and failed, or was refused its arguments, gives
	// a Result with IsError.
	Call(ctx context.Context, name string, args json.RawMessage) (Result, error)
}

// A Versioned source tells a [Set] whether its tools are those of last time. The
// version must rise no later than Tools tells of a change.
type Versioned interface {
	Source
	Version() uint64
}

// A Tool describes one callable function.
type Tool struct {
	Name        string // as its source names it
	Description string
	Schema      json.RawMessage // the JSON schema of its arguments, always an object
	// UserOnly marks a tool meant for people and not for a model: one whose
	// annotations.audience names the user alone.
	UserOnly bool
}

// A Result is what a tool answered, for a model to read.
type Result struct {
	// Text is all the text of the answer, one line per part, with a
	// placeholder where a part was no text. It is valid UTF-8.
	Text string
	// IsError reports that the tool ran and failed, or was refused.
	IsError bool
	// Images are the pictures of the answer that fit in the limit.
	Images []Image
}

// An Image is a picture a tool answered with.
type Image struct {
	MIMEType string
	Data     []byte
}

// Errors of calls. They are wrapped with the tool's name and the circumstances;
// match them with errors.Is. A call whose own context ends gives the context's
// error.
var (
	// ErrUnknownTool means that the source has no tool of this name, or that
	// the tool is not for the model, or not now.
	ErrUnknownTool = errors.New("unknown tool")
	// ErrArguments means that the arguments are not one JSON object of
	// acceptable size. Nothing was sent.
	ErrArguments = errors.New("bad arguments")
	// ErrTimeout means that no usable answer came within the limit. The tool
	// may have run all the same.
	ErrTimeout = errors.New("no answer")
	// ErrBusy means that too many calls already wait. Nothing was sent.
	ErrBusy = errors.New("too many calls under way")
	// ErrClosed means that the device or server is gone.
	ErrClosed = errors.New("disconnected")
)
