package mcp

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"
)

// Limits on what a server may ask and say of its own accord.
const (
	// messageRate and messageBurst bound requests and log messages, a second.
	messageRate  = 20
	messageBurst = 100
	// maxAsked bounds the server's requests that are unanswered: a server that
	// does not read its answers gets no further ones.
	maxAsked = 16
)

// More methods and notifications; see conn.go.
const (
	methodDiscover = "server/discover"

	notifyCancelled    = "notifications/cancelled"
	notifyToolsChanged = "notifications/tools/list_changed"
	notifyMessage      = "notifications/message"
)

// A filter stands between the SDK's session and a transport, as conn does for
// devices. What it changes:
//
//   - An answer nobody waits for (unknown, doubled, late) is counted and dropped.
//   - Results are brought into the shapes the SDK can decode, and the tools of a
//     page kept as they came; see reply.go.
//   - The server's requests are bounded in rate and number.
//   - Log messages go to the log, and changes of the list straight to the
//     session; other notifications are dropped.
//   - A probe that the SDK gives up before the greeting is given up in silence:
//     old servers take a cancellation then for a fault.
//
// The SDK's streamable HTTP connection is left as it is, because the SDK has a
// private understanding with it: it opens the stream on which the server speaks
// of its own accord only when nothing stands between. It pairs requests and
// answers itself.
type filter struct {
	inner    sdk.Transport
	counters *ClientCounters
	log      *slog.Logger
	changed  func() // the tools are to be listed again; never blocks

	mu     sync.Mutex
	conn   sdk.Connection // once connected
	closed bool
	broken bool // the connection cannot be read any more
	page   []toolText
	paged  bool // page is the answer to the last tools/list
}

// Connect implements [sdk.Transport].
func (f *filter) Connect(ctx context.Context) (sdk.Connection, error) {
	if t, ok := f.inner.(interface{ count(*ClientCounters) }); ok {
		t.count(f.counters)
	}
	conn, err := f.inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.conn = conn
	closed := f.closed
	f.mu.Unlock()
	if closed {
		_ = conn.Close()
	}
	if _, ok := f.inner.(*sdk.StreamableClientTransport); ok {
		return conn, nil
	}
	return &filterConn{
		Connection: conn,
		filter:     f,
		asked:      map[jsonrpc.ID]string{},
		limit:      rate.NewLimiter(messageRate, messageBurst),
	}, nil
}

// close closes the connection, or the one that Connect is about to get.
func (f *filter) close() {
	f.mu.Lock()
	f.closed = true
	conn := f.conn
	f.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // nobody is left to tell
	}
}

func (f *filter) isBroken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.broken || f.closed
}

// takePage returns the tools of the last tools/list, if they passed through
// here. It is called once the SDK has returned the answer.
func (f *filter) takePage() ([]toolText, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	page, ok := f.page, f.paged
	f.page, f.paged = nil, false
	return page, ok
}

// A filterConn is the connection of a filter.
type filterConn struct {
	sdk.Connection
	*filter
	limit *rate.Limiter // used by the reader alone

	mu      sync.Mutex
	asked   map[jsonrpc.ID]string // our requests that are unanswered: their methods
	listing jsonrpc.ID            // the last tools/list
	theirs  []jsonrpc.ID          // the server's requests that are unanswered
}

// Write implements [sdk.Connection].
func (c *filterConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	c.mu.Lock()
	silent := false
	switch m := msg.(type) {
	case *jsonrpc.Response:
		c.theirs = slices.DeleteFunc(c.theirs, func(id jsonrpc.ID) bool { return id == m.ID })
	case *jsonrpc.Request:
		if m.IsCall() {
			c.asked[m.ID] = m.Method
			if m.Method == methodListTools {
				c.listing = m.ID
			}
		} else if m.Method == notifyCancelled {
			silent = c.forget(m.Params)
		}
	}
	c.mu.Unlock()
	if silent {
		return nil
	}
	return c.Connection.Write(ctx, msg)
}

// forget makes the answer to a cancelled request unexpected. It reports whether
// the request is better cancelled in silence.
func (c *filterConn) forget(params json.RawMessage) bool {
	var p struct {
		RequestID float64 `json:"requestId"` // the SDK's ids are small integers
	}
	if json.Unmarshal(params, &p) != nil {
		return false
	}
	id, err := jsonrpc.MakeID(p.RequestID)
	if err != nil {
		return false
	}
	silent := c.asked[id] == methodDiscover
	delete(c.asked, id)
	return silent
}

// Read implements [sdk.Connection].
func (c *filterConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	for {
		msg, err := c.Connection.Read(ctx)
		if err != nil {
			c.filter.mu.Lock()
			c.broken = true
			c.filter.mu.Unlock()
			return nil, err
		}
		switch m := msg.(type) {
		case *jsonrpc.Response:
			if c.answer(m) {
				return m, nil
			}
		case *jsonrpc.Request:
			if c.admit(m) {
				return m, nil
			}
		}
	}
}

// answer brings the answer to one of our requests into shape. It reports false
// for any other.
func (c *filterConn) answer(m *jsonrpc.Response) bool {
	c.mu.Lock()
	method, ok := c.asked[m.ID]
	delete(c.asked, m.ID)
	isListing := m.ID == c.listing
	c.mu.Unlock()
	if !ok {
		c.counters.Unexpected.Add(1)
		return false
	}
	if m.Error != nil {
		return true
	}
	m.Result = notNull(m.Result)
	var err error
	r := reply{result: m.Result}
	switch {
	case m.Result == nil:
		err = r.failure()
	case method == methodInitialize:
		m.Result, err = greetingResult(r)
	case method == methodListTools && isListing:
		var page []toolText
		m.Result, page, err = listResult(r)
		c.filter.mu.Lock()
		c.page, c.paged = page, err == nil
		c.filter.mu.Unlock()
	case method == methodCallTool:
		m.Result, err = callResult(r)
	}
	if err != nil {
		m.Result, m.Error = nil, err
	}
	return true
}

// admit reports whether the SDK is to see a request or notification.
func (c *filterConn) admit(m *jsonrpc.Request) bool {
	switch {
	case m.Method == notifyToolsChanged:
		c.changed() // however often: it is one listing at a time
		return false
	case m.IsCall():
		return c.admitCall(m.ID)
	case m.Method == notifyMessage:
		c.logMessage(m.Params)
	}
	return false
}

// admitCall reports whether there is room for a request of the server.
func (c *filterConn) admitCall(id jsonrpc.ID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.theirs) == maxAsked || slices.Contains(c.theirs, id) || !c.limit.AllowN(time.Now(), 1) {
		c.counters.Refused.Add(1)
		return false
	}
	c.theirs = append(c.theirs, id)
	return true
}

// logMessage writes a server's log message to the log.
func (c *filterConn) logMessage(params json.RawMessage) {
	if !c.limit.AllowN(time.Now(), 1) {
		c.counters.Refused.Add(1)
		return
	}
	var p struct {
		Level  string          `json:"level"`
		Logger string          `json:"logger"`
		Data   json.RawMessage `json:"data"`
	}
	_ = json.Unmarshal(params, &p) // what cannot be read stays empty
	c.log.Debug("server says", "level", plain(p.Level, maxToolName), "logger", plain(p.Logger, maxToolName),
		"text", plain(text(p.Data), maxErrorText))
}
