package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// newestLegacy is the newest revision of MCP that greets with initialize, which
// every server knows.
const newestLegacy = "2025-11-25"

// probeTimeout is how long a server may think about server/discover before it is
// taken for one that does not know it.
const probeTimeout = 3 * time.Second

// A clientSession is one session of a Client. Its ctx ends when the session
// does; everything that waits, waits on it, too.
type clientSession struct {
	c       *Client
	ctx     context.Context
	session *sdk.ClientSession
	filter  *filter
	changed chan struct{} // capacity 1: the tools are to be listed again

	mu     sync.Mutex
	calls  int // under way
	closed bool
	wait   sync.WaitGroup // counts the calls
}

// serve is Serve, for one session.
func (c *Client) serve(ctx context.Context, t sdk.Transport) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &clientSession{c: c, ctx: ctx, changed: make(chan struct{}, 1)}
	s.filter = &filter{inner: t, counters: c.cfg.Counters, log: c.log, changed: s.signal}
	// Whatever holds the transport up, closing it lets go: the end of ctx must
	// not wait for a server that has stopped reading.
	closed := context.AfterFunc(ctx, s.filter.close)
	defer closed()

	discovery, stop := context.WithTimeout(ctx, s.c.cfg.GreetTimeout+listingTimeout)
	defer stop()
	if err := s.greet(discovery); err != nil {
		s.filter.close()
		return err
	}
	ended := make(chan error, 1)
	var waiter sync.WaitGroup
	// The waiter ends with the session, and the session with the filter.
	waiter.Go(func() { ended <- s.session.Wait() })
	defer func() {
		cancel()
		s.filter.close()
		_ = s.session.Close() // waits for the SDK's reader; the error is known
		waiter.Wait()
		s.end()
	}()
	began := time.Now()
	tools, err := s.list(discovery)
	if errors.Is(err, errNoMethod) {
		err = nil
		c.log.Warn("server has no tools")
	}
	if err != nil {
		return err
	}
	stop()
	c.cfg.Counters.Sessions.Add(1)
	c.setTools(s, tools)
	defer c.setTools(nil, nil)
	info := s.session.InitializeResult()
	c.log.Info("server told its tools", "name", serverName(info), "protocol", info.ProtocolVersion,
		"tools", len(tools), "took_ms", time.Since(began).Milliseconds())
	return s.refresh(ctx, ended)
}

// errNoMethod is what a server without tools answers to tools/list.
var errNoMethod = &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound}

func serverName(info *sdk.InitializeResult) string {
	if info.ServerInfo == nil {
		return ""
	}
	return plain(info.ServerInfo.Name, maxToolName)
}

// signal makes a listing due, unless one is.
func (s *clientSession) signal() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// greet connects and initializes. Where that fails, the next session greets the
// other way: old servers have been seen to end over server/discover, and new
// ones need not know initialize.
func (s *clientSession) greet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.c.cfg.GreetTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, s.filter.close)
	defer stop()
	client := sdk.NewClient(&sdk.Implementation{Name: "parley", Version: s.c.cfg.Version}, &sdk.ClientOptions{
		Capabilities:           &sdk.ClientCapabilities{},
		MultiRoundTrip:         &sdk.MultiRoundTripOptions{Disabled: true},
		ToolListChangedHandler: func(context.Context, *sdk.ToolListChangedRequest) { s.signal() },
	})
	client.AddSendingMiddleware(boundProbe)
	var err error
	s.session, err = client.Connect(ctx, s.filter, &sdk.ClientSessionOptions{ProtocolVersion: s.c.protocol()})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w within %v", ErrTimeout, s.c.cfg.GreetTimeout)
	}
	s.c.greetOtherwise()
	return fmt.Errorf("greeting: %w", err)
}

// boundProbe gives server/discover a limit of its own, after which the SDK goes
// on with initialize.
func boundProbe(next sdk.MethodHandler) sdk.MethodHandler {
	return func(ctx context.Context, method string, req sdk.Request) (sdk.Result, error) {
		if method == methodDiscover {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, probeTimeout)
			defer cancel()
		}
		return next(ctx, method, req)
	}
}

// protocol is the revision to ask for, "" for the SDK's newest.
func (c *Client) protocol() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.legacy && c.cfg.Protocol == "" {
		return newestLegacy
	}
	return c.cfg.Protocol
}

func (c *Client) greetOtherwise() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.legacy = !c.legacy
}

// refresh lists the tools again whenever they have changed, at most once in
// refreshPause, until the session ends.
func (s *clientSession) refresh(ctx context.Context, ended <-chan error) error {
	for {
		var changed <-chan struct{}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return sessionError(err)
		case <-time.After(refreshPause):
			changed = s.changed
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return sessionError(err)
		case <-changed:
		}
		tools, err := s.list(ctx)
		if err != nil {
			s.c.log.Warn("server did not tell its new tools", "error", err)
			continue
		}
		s.c.setTools(s, tools)
		s.c.log.Info("server changed its tools", "tools", len(tools))
	}
}

func sessionError(err error) error {
	if err == nil {
		return fmt.Errorf("the server closed the session: %w", ErrClosed)
	}
	return fmt.Errorf("the session broke: %w: %w", ErrClosed, err)
}

// list reads all pages of tools/list.
func (s *clientSession) list(ctx context.Context) ([]Tool, error) {
	var l listing
	why := ""
	for params := (&sdk.ListToolsParams{}); why == ""; {
		page, next, err := s.page(ctx, params)
		if err != nil {
			if l.pages == 0 {
				return nil, fmt.Errorf("listing tools: %w", err)
			}
			why = err.Error()
			break
		}
		why = l.add(page, next)
		if next == "" {
			break
		}
		params.Cursor = next
	}
	if why != "" {
		s.c.log.Warn("server told its tools in part", "tools", len(l.tools), "reason", why)
	}
	s.c.cfg.Counters.Listings.Add(1)
	tools := make([]Tool, len(l.tools))
	for i, t := range l.tools {
		tools[i] = t.tool()
	}
	return tools, nil
}

// page reads one page of tools/list and the cursor of the next.
func (s *clientSession) page(ctx context.Context, params *sdk.ListToolsParams) ([]toolText, string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	p := *params
	page, err := s.session.ListTools(ctx, &p)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w within %v", ErrTimeout, answerTimeout)
		}
		return nil, "", err
	}
	if texts, ok := s.filter.takePage(); ok {
		return texts, page.NextCursor, nil
	}
	var texts []toolText
	for _, t := range page.Tools {
		if raw, err := json.Marshal(t); err == nil {
			if text, ok := readTool(raw); ok {
				texts = append(texts, text)
			}
		}
	}
	return texts, page.NextCursor, nil
}

// call makes one call. It runs on a goroutine of the session's, so that its
// caller can go whatever the transport does; the goroutine ends with the call,
// at the latest when the session does, which waits for it.
func (s *clientSession) call(ctx context.Context, params *sdk.CallToolParams) (Result, error) {
	limit := s.c.cfg.CallTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w within %v; it may still take effect", ErrTimeout, limit))
	defer cancel()
	done := make(chan outcome, 1)
	if err := s.start(func() { done <- s.run(ctx, params) }); err != nil {
		return Result{}, err
	}
	select {
	case o := <-done:
		if o.err == nil {
			return o.result, nil
		}
		if ctx.Err() == nil {
			return Result{}, o.err
		}
	case <-ctx.Done():
	case <-s.ctx.Done():
		return Result{}, errClosedDuring
	}
	if cause := context.Cause(ctx); errors.Is(cause, ErrTimeout) {
		s.c.cfg.Counters.Timeouts.Add(1)
		return Result{}, cause
	}
	return Result{}, fmt.Errorf("called, and may still take effect: %w", ctx.Err())
}

var errClosedDuring = fmt.Errorf("%w during the call; it may still take effect", ErrClosed)

// start runs f on a goroutine of the session's, if there is room.
func (s *clientSession) start(f func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.calls == s.c.cfg.MaxInFlight:
		s.c.cfg.Counters.Busy.Add(1)
		return fmt.Errorf("%w: %d; wait for their results first", ErrBusy, s.c.cfg.MaxInFlight)
	}
	s.calls++
	s.wait.Go(func() {
		defer func() {
			s.mu.Lock()
			s.calls--
			s.mu.Unlock()
		}()
		f()
	})
	return nil
}

// end refuses further calls and waits for those under way. The transport is
// closed, so none of them waits for anything.
func (s *clientSession) end() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.wait.Wait()
}

// run is the body of a call.
func (s *clientSession) run(ctx context.Context, params *sdk.CallToolParams) outcome {
	s.c.cfg.Counters.Calls.Add(1)
	res, err := s.session.CallTool(ctx, params)
	var refusal *jsonrpc.Error
	switch {
	case err == nil:
		return outcome{result: toResult(res, s.c.cfg.ResultLimit, s.c.cfg.ImageLimit)}
	case s.filter.isBroken(), errors.Is(err, sdk.ErrConnectionClosed):
		return outcome{err: errClosedDuring}
	case errors.As(err, &refusal) && !errors.Is(err, errRejected):
		// A server that refuses a call may refuse in words a model can use.
		return outcome{result: Result{Text: plain(refusal.Message, maxErrorText), IsError: true}}
	}
	return outcome{err: err}
}

// errRejected is what the SDK's transports wrap where a request was not
// delivered; the SDK does not export it.
var errRejected = &jsonrpc.Error{Code: -32005}
