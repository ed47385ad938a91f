package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/protocol"
)

// DefaultImageLimit bounds the pictures of one result, in bytes and all
// together: two of a phone's screen, or one of a camera at 1080 lines.
const DefaultImageLimit = 2 << 20

// Limits on what a server may make Parley hold or do, beside those of a listing.
const (
	// maxServerArguments bounds a call's arguments in bytes. A model's whole
	// answer is no longer.
	maxServerArguments = 256 << 10
	// listingTimeout bounds the listing that follows a greeting; each page has
	// answerTimeout.
	listingTimeout = 45 * time.Second
	// refreshPause is the least time from one listing to the next, however
	// often a server says that its tools have changed.
	refreshPause = 2 * time.Second
)

// DefaultMaxInFlight bounds the calls under way with one server.
const DefaultMaxInFlight = 64

// A ClientConfig says how to treat a server. Zero values mean the defaults.
type ClientConfig struct {
	Label       string        // of the server, for logs and errors
	CallTimeout time.Duration // of one call (DefaultCallTimeout)
	ResultLimit int           // bytes of text in a Result (DefaultResultLimit)
	ImageLimit  int           // bytes of pictures in a Result (DefaultImageLimit)
	MaxInFlight int           // calls under way at once (DefaultMaxInFlight)
	// GreetTimeout bounds the greeting, 15 s by default. A program that is
	// downloaded first, as by npx, takes longer.
	GreetTimeout time.Duration
	Version      string // of Parley, told to the server

	// Protocol is the revision of MCP to ask for first, such as "2025-11-25".
	// "" means the SDK's newest, which is asked for with a request that servers
	// of old do not know; see [Client.Serve].
	Protocol string
	// TellCaller puts the [Caller] of a call into params._meta as parley/device,
	// parley/session and parley/role. It is for servers in this process: others
	// have no business to know.
	TellCaller bool
	// Counters may be shared by many clients.
	Counters *ClientCounters
	// OnChange, if set, is called after the tools came, changed or went, by the
	// goroutine of Serve; it must return promptly.
	OnChange func()
}

// ClientCounters count what passes between Parley and servers. They only rise.
type ClientCounters struct {
	Sessions   atomic.Uint64 // sessions that told their tools
	Listings   atomic.Uint64 // times tools were told, the first included
	Calls      atomic.Uint64 // tools/call requests sent
	Failures   atomic.Uint64 // calls without a result, timeouts included
	Timeouts   atomic.Uint64 // calls not answered in time
	Busy       atomic.Uint64 // calls refused with ErrBusy
	Malformed  atomic.Uint64 // messages that were no JSON-RPC, skipped
	TooLarge   atomic.Uint64 // messages over the transport's limit, skipped
	Unexpected atomic.Uint64 // answers nobody waits for: late, doubled or made up
	Refused    atomic.Uint64 // requests and notifications over the permitted rate
}

func (c ClientConfig) withDefaults() ClientConfig {
	if c.CallTimeout <= 0 {
		c.CallTimeout = DefaultCallTimeout
	}
	if c.ResultLimit <= 0 {
		c.ResultLimit = DefaultResultLimit
	}
	if c.ImageLimit <= 0 {
		c.ImageLimit = DefaultImageLimit
	}
	if c.MaxInFlight <= 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
	if c.GreetTimeout <= 0 {
		c.GreetTimeout = answerTimeout
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	if c.Counters == nil {
		c.Counters = new(ClientCounters)
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	return c
}

// A Client is the MCP client of one server: a program, a URL, the far end of a
// WebSocket or a part of this process. It outlives its sessions. While one is up
// it offers the server's tools; without one it has none, and a conversation that
// uses it goes on when the next session brings them back.
//
// Servers run calls side by side, and so does a Client, up to 64 at a time. All
// methods are safe for concurrent use.
type Client struct {
	cfg ClientConfig
	log *slog.Logger

	version atomic.Uint64 // of tools; rises when they change

	mu      sync.Mutex
	serving bool
	legacy  bool           // the server did not survive the newest greeting
	session *clientSession // nil while none is ready
	tools   []Tool         // never changed, only replaced
}

var _ Source = (*Client)(nil)

// NewClient returns a client without a session.
func NewClient(cfg ClientConfig, log *slog.Logger) *Client {
	return &Client{cfg: cfg.withDefaults(), log: log.With("server", cfg.Label)}
}

// Ready reports whether a session is up and has told its tools.
func (c *Client) Ready() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session != nil
}

// Tools implements [Source]. There are none without a session.
func (c *Client) Tools() []Tool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.tools)
}

// Version rises whenever the tools change.
func (c *Client) Version() uint64 { return c.version.Load() }

// errServing is returned by a second Serve.
var errServing = errors.New("a session is being served already; one Client serves one at a time")

// Serve holds one session over t: it greets the server, lists its tools, and
// lists them again when the server says that they have changed, until ctx ends
// or the session does. It returns why, nil after ctx. By then the transport is
// closed, the calls under way have ended with [ErrClosed], and there are no
// tools. Serve may be called again, one at a time; a transport is good for one.
//
// A server that does not answer within 15 s ends the session, and so does one
// that takes more than a minute to tell its tools. The first listing must
// succeed; if a later one does not, the tools stay as they were.
//
// The newest revision of MCP greets with server/discover. A server that refuses
// it, or says nothing for 3 s, is greeted the old way; if one closes the
// connection over it, the next Serve does that at once.
func (c *Client) Serve(ctx context.Context, t sdk.Transport) error {
	c.mu.Lock()
	if c.serving {
		c.mu.Unlock()
		return errServing
	}
	c.serving = true
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.serving = false
		c.mu.Unlock()
	}()
	if ctx.Err() != nil {
		return nil
	}
	err := c.serve(ctx, t)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("MCP server %q: %w", c.cfg.Label, err)
}

// setTools replaces session and tools, and tells who wants to know.
func (c *Client) setTools(s *clientSession, tools []Tool) {
	c.mu.Lock()
	changed := s != c.session || !slices.EqualFunc(tools, c.tools, sameTool)
	c.session, c.tools = s, tools
	c.mu.Unlock()
	if changed {
		c.version.Add(1)
		c.cfg.OnChange()
	}
}

func sameTool(a, b Tool) bool {
	return a.Name == b.Name && a.Description == b.Description && string(a.Schema) == string(b.Schema) && a.UserOnly == b.UserOnly
}

// Call implements [Source]. A result that is an error of the server's is a
// Result with IsError. When ctx or the time limit ends, the server is told that
// nobody waits any more, and Call returns at once.
func (c *Client) Call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	r, err := c.call(ctx, name, args)
	if err != nil {
		return Result{}, fmt.Errorf("tool %q of %q: %w", name, c.cfg.Label, err)
	}
	return r, nil
}

func (c *Client) call(ctx context.Context, name string, args json.RawMessage) (Result, error) {
	args, err := checkArguments(args, maxServerArguments)
	if err != nil {
		return Result{}, err
	}
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("not called: %w", err)
	}
	c.mu.Lock()
	s := c.session
	known := slices.ContainsFunc(c.tools, func(t Tool) bool { return t.Name == name })
	c.mu.Unlock()
	switch {
	case s == nil:
		return Result{}, ErrClosed
	case !known:
		return Result{}, ErrUnknownTool
	}
	params := &sdk.CallToolParams{Name: name, Arguments: args}
	if caller, ok := CallerOf(ctx); ok && c.cfg.TellCaller {
		params.Meta = sdk.Meta{MetaDevice: string(caller.Device), MetaSession: caller.Session, MetaRole: caller.Role}
	}
	began := time.Now()
	r, err := s.call(ctx, params)
	took := time.Since(began).Milliseconds()
	switch {
	case err != nil && ctx.Err() != nil: // nobody waits any more
		c.log.Debug("tool call given up", "tool", name, "took_ms", took)
		return Result{}, err
	case err != nil:
		if !errors.Is(err, ErrBusy) {
			c.cfg.Counters.Failures.Add(1)
		}
		c.log.Warn("tool call failed", "tool", name, "took_ms", took, "error", err)
		return Result{}, err
	}
	c.log.Debug("tool called", "tool", name, "took_ms", took, "is_error", r.IsError, "bytes", len(r.Text))
	return r, nil
}

// Keys of params._meta by which a server in this process learns of the caller.
const (
	MetaDevice  = "parley/device"
	MetaSession = "parley/session"
	MetaRole    = "parley/role"
)

// A Caller is for whom a call is made.
type Caller struct {
	Device  protocol.DeviceID
	Session string
	Role    string
}

type callerKey struct{}

// WithCaller returns a context whose calls are made for caller.
func WithCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

// CallerOf returns for whom the context's calls are made, if anybody.
func CallerOf(ctx context.Context) (Caller, bool) {
	caller, ok := ctx.Value(callerKey{}).(Caller)
	return caller, ok
}
