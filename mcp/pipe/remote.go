package pipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/mcp/servers"
)

const (
	// maxEvent bounds an answer of a service in bytes, and an event of its stream.
	maxEvent = 4 << 20
	// maxAsked bounds the requests under way with a service. Further ones wait.
	maxAsked = 64
)

// A remote is the end that a service over HTTP is. It uses the SDK's transports
// without the SDK's session, as that would answer for the client it is not.
type remote struct {
	conn   sdk.Connection
	trip   *trip
	url    *url.URL
	ctx    context.Context         // of everything under way
	cancel context.CancelCauseFunc // ends it; the first cause is why
	slots  chan struct{}           // capacity maxAsked; holds one element a request under way
	asked  sync.WaitGroup          // counts them
}

// openRemote opens a session with the service. Where its kind is not configured, a
// path that ends in /sse tells.
func (l *lender) openRemote(ctx context.Context) (end, error) {
	u, err := url.Parse(l.server.URL)
	if err != nil {
		return nil, errors.New("url is none") // err quotes it
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.DialContext = l.cfg.Dial
	r := &remote{url: u, trip: &trip{base: base, headers: l.server.Headers}, slots: make(chan struct{}, maxAsked)}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	client := &http.Client{Transport: r.trip, CheckRedirect: func(req *http.Request, via []*http.Request) error {
		if len(via) > 3 || req.URL.Scheme != u.Scheme || req.URL.Host != u.Host {
			return errors.New("the service redirects too often, or to another host, where headers are not sent; put that into url")
		}
		return nil
	}}
	var transport sdk.Transport = &sdk.StreamableClientTransport{Endpoint: l.server.URL, HTTPClient: client, MaxEventSize: maxEvent}
	if l.isSSE(u) {
		transport = &sdk.SSEClientTransport{Endpoint: l.server.URL, HTTPClient: client, MaxEventSize: maxEvent}
	}
	// The stream lives as long as the context it was asked for with.
	late := time.AfterFunc(dialTimeout, func() { r.cancel(fmt.Errorf("no answer within %v", dialTimeout)) })
	r.conn, err = transport.Connect(r.ctx)
	if !late.Stop() && err == nil {
		_ = r.conn.Close()
		err = context.Cause(r.ctx)
	}
	if err != nil {
		r.cancel(err)
		base.CloseIdleConnections()
		return nil, fmt.Errorf("no service there: %w", hide(err, u))
	}
	return r, nil
}

func (l *lender) isSSE(u *url.URL) bool {
	switch strings.ToLower(l.server.Transport) {
	case servers.SSE:
		return true
	case "":
		return strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/sse")
	}
	return false
}

// read implements end.
func (r *remote) read() ([]byte, error) {
	msg, err := r.conn.Read(r.ctx)
	if err != nil {
		if r.ctx.Err() != nil {
			err = context.Cause(r.ctx)
		}
		return nil, fmt.Errorf("the service is gone: %w", hide(err, r.url))
	}
	if resp, ok := msg.(*jsonrpc.Response); ok {
		r.trip.look(resp)
	}
	return jsonrpc.EncodeMessage(msg)
}

// write implements end. A request is answered over HTTP by its result, so it is
// sent by a goroutine of its own, which ends with the answer or the session. All
// else is sent in order: a client that has said that it is initialized must have
// been heard before it asks.
func (r *remote) write(message []byte) error {
	msg, ok := decode(message)
	if !ok {
		return nil // no service could read it
	}
	if req, ok := msg.(*jsonrpc.Request); ok && req.IsCall() {
		select {
		case r.slots <- struct{}{}:
		case <-r.ctx.Done():
			return context.Cause(r.ctx)
		}
		r.asked.Go(func() {
			defer func() { <-r.slots }()
			if err := r.conn.Write(r.ctx, msg); err != nil {
				r.cancel(err)
			}
		})
		return nil
	}
	ctx, cancel := context.WithTimeout(r.ctx, writeTimeout)
	defer cancel()
	if err := r.conn.Write(ctx, msg); err != nil {
		return fmt.Errorf("the service takes no message: %w", hide(err, r.url))
	}
	return nil
}

func decode(message []byte) (jsonrpc.Message, bool) {
	msg, err := jsonrpc.DecodeMessage(message)
	return msg, err == nil
}

// close implements end.
func (r *remote) close() {
	_ = r.conn.Close()
	r.cancel(nil)
	r.asked.Wait()
	r.trip.base.CloseIdleConnections()
}

// A trip adds to each request what the SDK's session would, or the user wants: the
// revision that was agreed on, and configured headers.
type trip struct {
	base    *http.Transport
	headers map[string]string

	mu       sync.Mutex
	revision string
}

// look notes the revision from the answer to initialize, the one message that
// names one.
func (t *trip) look(resp *jsonrpc.Response) {
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if json.Unmarshal(resp.Result, &result) == nil && result.ProtocolVersion != "" {
		t.mu.Lock()
		t.revision = result.ProtocolVersion
		t.mu.Unlock()
	}
}

// RoundTrip implements [http.RoundTripper].
func (t *trip) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	t.mu.Lock()
	if t.revision != "" && req.Header.Get("Mcp-Protocol-Version") == "" {
		req.Header.Set("Mcp-Protocol-Version", t.revision)
	}
	t.mu.Unlock()
	for name, value := range t.headers {
		if req.Header.Get(name) == "" { // the protocol's own stay
			req.Header.Set(name, value)
		}
	}
	resp, err := t.base.RoundTrip(req)
	if err == nil && !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = cut{io.LimitReader(resp.Body, maxEvent), resp.Body} // the SDK bounds events
	}
	return resp, err
}

// A cut is the beginning of a body.
type cut struct {
	io.Reader
	io.Closer
}
