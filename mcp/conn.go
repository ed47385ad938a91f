package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// protocolVersion is the revision of MCP all devices speak. The SDK's own
// default would first ask server/discover, which devices answer with an error
// at best.
const protocolVersion = "2024-11-05"

// Methods that conn treats specially.
const (
	methodInitialize = "initialize"
	methodListTools  = "tools/list"
	methodCallTool   = "tools/call"

	notifyInitialized = "notifications/initialized"
)

// A conn is one SDK session's way to the device: an SDK transport and its
// connection in one. It changes what passes where devices and the SDK differ:
//
//   - Ids on the wire are the Device's own, numbers from 1 to 2³¹−1 that differ
//     between sessions. Devices drop string ids, and the SDK counts from 1 anew.
//   - "params":null is left out: devices drop such requests.
//   - initialize tells the device of vision; tools/list asks withUserTools.
//   - Once the device is initialized, initialize is answered here.
//   - No notification but initialized is sent; devices ignore them all.
//   - Every request gets exactly one answer, if need be an error made here: no
//     time limit, failed send or bad reply ends the session.
//   - Results are brought into the shapes the SDK can decode; see reply.go.
//   - Requests and notifications of the device do not come here; see notify.go.
type conn struct {
	d       *Device
	answers chan answer   // capacity 1, as at most one request is unanswered
	done    chan struct{} // closed by Close
	once    sync.Once

	// limit is the time the next request may take. Only the worker uses it:
	// the SDK writes a request on the goroutine that makes it.
	limit time.Duration
	// greeting is the result of initialize, set and used like page.
	greeting json.RawMessage
	// page holds the tools of the last tools/list, set before Read returns the
	// reply and used after the SDK has handed it over.
	page []toolText
}

// A request is one that waits for its answer.
type request struct {
	conn   *conn
	id     int32      // on the wire
	sdkID  jsonrpc.ID // in the SDK's session
	method string
	timer  *time.Timer
}

// An answer ends a request: the device's reply, or err where none is to come.
type answer struct {
	request *request
	reply   reply
	err     error
}

func newConn(d *Device) *conn {
	return &conn{d: d, answers: make(chan answer, 1), done: make(chan struct{})}
}

// Connect implements [sdk.Transport].
func (c *conn) Connect(context.Context) (sdk.Connection, error) { return c, nil }

// SessionID implements [sdk.Connection].
func (c *conn) SessionID() string { return "" }

// Close implements [sdk.Connection].
func (c *conn) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// Write implements [sdk.Connection]. It never fails: what cannot be sent is
// answered with an error.
func (c *conn) Write(_ context.Context, msg jsonrpc.Message) error {
	req, ok := msg.(*jsonrpc.Request)
	if !ok {
		return nil // a response; Read lets no request through
	}
	if !req.IsCall() {
		c.notify(req)
		return nil
	}
	if greeting := c.d.greeted(); req.Method == methodInitialize && greeting != nil {
		c.answers <- answer{
			request: &request{conn: c, sdkID: req.ID, method: req.Method},
			reply:   reply{result: greeting},
		}
		return nil
	}
	r, ok := c.d.register(c, req)
	if !ok {
		return nil // closed, and answered so
	}
	payload, err := c.encode(r.id, req)
	if err == nil {
		err = c.d.send(payload)
	}
	if err != nil {
		c.d.finish(r, answer{err: fmt.Errorf("sending %s: %w", req.Method, err)})
	}
	return nil
}

// notify sends notifications/initialized, once a connection. Devices do not
// need it, so nothing is done about an error; the next request meets it.
func (c *conn) notify(req *jsonrpc.Request) {
	if req.Method != notifyInitialized || !c.d.setGreeted(c.greeting) {
		return
	}
	if payload, err := jsonrpc.EncodeMessage(&jsonrpc.Request{Method: req.Method}); err == nil {
		_ = c.d.send(payload)
	}
}

// encode writes req as devices want it.
func (c *conn) encode(id int32, req *jsonrpc.Request) (json.RawMessage, error) {
	params := req.Params
	if string(params) == "null" {
		params = nil
	}
	var err error
	switch req.Method {
	case methodListTools:
		params, err = setMember(params, "withUserTools", true)
	case methodInitialize:
		params, err = setVision(params, c.d.cfg.visionFor(c.d.id))
	}
	if err != nil {
		return nil, fmt.Errorf("encoding params: %w", err)
	}
	wireID, err := jsonrpc.MakeID(float64(id))
	if err != nil {
		return nil, err
	}
	return jsonrpc.EncodeMessage(&jsonrpc.Request{ID: wireID, Method: req.Method, Params: params})
}

// setVision adds to the params of initialize where pictures go, if anywhere.
func setVision(params json.RawMessage, vision Vision) (json.RawMessage, error) {
	if vision.URL == "" {
		return params, nil
	}
	var p struct {
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	capabilities, err := setMember(p.Capabilities, "vision", vision)
	if err != nil {
		return nil, err
	}
	return setMember(params, "capabilities", capabilities)
}

// setMember returns the JSON object with one member set.
func setMember(object json.RawMessage, name string, value any) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if len(object) > 0 {
		if err := json.Unmarshal(object, &members); err != nil {
			return nil, err
		}
	}
	v, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	members[name] = v
	return json.Marshal(members)
}

// Read implements [sdk.Connection]. It ends only with Close.
func (c *conn) Read(context.Context) (jsonrpc.Message, error) {
	select {
	case a := <-c.answers:
		return c.response(a), nil
	case <-c.done:
		return nil, io.EOF
	}
}

// response makes of an answer what the SDK can decode.
func (c *conn) response(a answer) *jsonrpc.Response {
	resp := &jsonrpc.Response{ID: a.request.sdkID}
	if a.err != nil {
		resp.Error = a.err
		return resp
	}
	var err error
	switch a.request.method {
	case methodInitialize:
		resp.Result, err = initializeResult(a.reply, protocolVersion)
		c.greeting = resp.Result
	case methodListTools:
		resp.Result, c.page, err = listResult(a.reply)
	case methodCallTool:
		resp.Result, err = callResult(a.reply)
	}
	if err != nil {
		resp.Result, resp.Error = nil, err
	}
	return resp
}

// register makes req the pending request and starts its time limit. After Close
// it answers with [ErrClosed] and reports false.
func (d *Device) register(c *conn, req *jsonrpc.Request) (*request, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &request{conn: c, sdkID: req.ID, method: req.Method}
	if d.closed {
		c.answers <- answer{request: r, err: ErrClosed}
		return nil, false
	}
	d.lastID = d.lastID%math.MaxInt32 + 1
	r.id = d.lastID
	limit := c.limit
	r.timer = time.AfterFunc(limit, func() {
		if d.finish(r, answer{err: fmt.Errorf("%w within %v", ErrTimeout, limit)}) {
			d.cfg.Counters.Timeouts.Add(1)
		}
	})
	d.pending = r
	return r, true
}

// finish answers r and reports whether it was unanswered.
func (d *Device) finish(r *request, a answer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pending != r {
		return false
	}
	d.finishLocked(r, a)
	return true
}

// finishLocked answers r, which is the pending request.
func (d *Device) finishLocked(r *request, a answer) {
	r.timer.Stop()
	d.pending = nil
	a.request = r
	r.conn.answers <- a // has room: r is the only request unanswered
}

// greeted is what the device answered to initialize, nil if it has not.
func (d *Device) greeted() json.RawMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.greeting
}

// setGreeted notes what the device answered to initialize and reports whether
// that is new.
func (d *Device) setGreeted(greeting json.RawMessage) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.greeting != nil {
		return false
	}
	d.greeting = greeting
	return true
}
