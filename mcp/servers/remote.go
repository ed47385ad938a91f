package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits on a service.
const (
	// maxBody bounds one message of a service in bytes: the body of an answer,
	// or one event of a stream.
	maxBody = 16 << 20
	// maxRedirects is how often a service may send a request elsewhere on the
	// same host; from /mcp to /mcp/ is common.
	maxRedirects = 3
	// streamPatience is how long a service may take to begin a stream. One that
	// has none ought to say so; some say nothing.
	streamPatience = 5 * time.Second
)

// errGone means that a session's time is over.
var errGone = errors.New("the session is over")

// A remote is where a service is. Both may hold keys.
type remote struct {
	url     *url.URL
	headers map[string]string
	base    *http.Transport
}

// newRemote returns the service of a checked Config.
func newRemote(cfg Config) (*remote, error) {
	u, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, errors.New("url is none") // err quotes it
	}
	return &remote{url: u, headers: cfg.Headers, base: http.DefaultTransport.(*http.Transport).Clone()}, nil
}

// A link is what one session with a service goes over: the round tripper below
// the SDK's transport of its kind, HTTP or SSE. The SDK is told the URL without
// what may be a key, so that none gets into its error texts; the link puts in the
// rest and the headers, and sends them to that host alone.
type link struct {
	*remote
	kind string

	ctx    context.Context // of everything the session asks for
	cancel context.CancelFunc
	open   sync.WaitGroup // counts requests, until their answer is read

	mu     sync.Mutex
	closed bool
	status int   // of the last answer
	cause  error // why the last request got none, if it got none
}

// link returns what one session goes over. It must be closed.
func (r *remote) link(kind string) *link {
	ctx, cancel := context.WithCancel(context.Background())
	return &link{remote: r, kind: kind, ctx: ctx, cancel: cancel}
}

// close cuts off what is still open and waits for it.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.open.Wait()
	l.base.CloseIdleConnections()
}

// refused reports whether the service said no in a way that MCP knows as the
// sign of another transport (revision 2025-11-25, "Backwards Compatibility").
func (l *link) refused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed:
		return l.cause == nil
	}
	return false
}

// reason adds to err what the SDK did not say.
func (l *link) reason(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cause != nil && !errors.Is(err, l.cause):
		return fmt.Errorf("%w: %w", err, l.cause)
	case l.cause == nil && (l.status == http.StatusUnauthorized || l.status == http.StatusForbidden):
		return fmt.Errorf("%w; put the right token into headers", err)
	}
	return err
}

// transport returns what a session is held over. It is the SDK's own type for
// streamable HTTP, which [mcp.Client] treats as such.
func (l *link) transport() sdk.Transport {
	client := &http.Client{Transport: l, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // RoundTrip follows what may be followed
	}}
	bare := url.URL{Scheme: l.url.Scheme, Host: l.url.Host, Path: "/"}
	if l.kind == HTTP {
		return &sdk.StreamableClientTransport{Endpoint: bare.String(), HTTPClient: client, MaxEventSize: maxBody}
	}
	// The address for messages may be relative to the path.
	bare.Path, bare.RawPath = l.url.Path, l.url.RawPath
	return eventTransport{l, &sdk.SSEClientTransport{Endpoint: bare.String(), HTTPClient: client, MaxEventSize: maxBody}}
}

// An eventTransport is the SDK's transport over SSE with its stream's life put
// right: the SDK has it end with the context it was connected with, which is for
// connecting only.
type eventTransport struct {
	link *link
	sse  *sdk.SSEClientTransport
}

// Connect implements [sdk.Transport].
func (t eventTransport) Connect(ctx context.Context) (sdk.Connection, error) {
	defer context.AfterFunc(ctx, t.link.cancel)()
	return t.sse.Connect(t.link.ctx)
}

// RoundTrip implements [http.RoundTripper].
func (l *link) RoundTrip(req *http.Request) (*http.Response, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, errGone
	}
	l.open.Add(1)
	l.mu.Unlock()
	resp, err := l.send(req)
	l.mu.Lock()
	if l.cause = err; err == nil {
		l.status = resp.StatusCode
	}
	l.mu.Unlock()
	if err != nil && l.kind == SSE {
		// http.Client would add the URL to an error, and it holds a session.
		return answer(req, http.StatusBadGateway, err.Error()), nil
	}
	return resp, err
}

// send sends a request, following redirections on the host, and sees to it that
// the answer's end, or else the session's, counts down open.
func (l *link) send(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	stop := context.AfterFunc(l.ctx, cancel)
	release := sync.OnceFunc(func() {
		stop()
		cancel()
		l.open.Done()
	})
	out, err := l.address(req.Clone(ctx))
	if err != nil {
		release()
		return nil, err
	}
	late := time.NewTimer(streamPatience)
	if req.Method == http.MethodGet {
		late = time.AfterFunc(streamPatience, cancel)
	}
	resp, err := l.follow(out)
	if !late.Stop() && err != nil && l.ctx.Err() == nil && req.Context().Err() == nil && req.Method == http.MethodGet {
		if err = fmt.Errorf("no stream within %v", streamPatience); l.kind == HTTP {
			resp, err = answer(req, http.StatusMethodNotAllowed, ""), nil // as it ought to have said
		}
	}
	if err != nil {
		release()
		return nil, err
	}
	body := &limitedBody{body: resp.Body, left: maxBody, release: release}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		body.left = -1 // the SDK bounds each event
	}
	resp.Body = body
	context.AfterFunc(l.ctx, func() { _ = body.Close() })
	return resp, nil
}

// address puts in what the SDK does not know.
func (l *link) address(req *http.Request) (*http.Request, error) {
	if !sameOrigin(req.URL, l.url) {
		return nil, fmt.Errorf("the service wants messages sent to another host, %s", req.URL.Host)
	}
	if l.kind == HTTP || req.Method == http.MethodGet {
		u := *l.url
		u.User = nil
		req.URL = &u
	}
	for name, value := range l.headers {
		if req.Header.Get(name) == "" { // the protocol's own stay
			req.Header.Set(name, value)
		}
	}
	if user := l.url.User; user != nil && req.Header.Get("Authorization") == "" {
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	return req, nil
}

// follow sends a request and once more wherever the service's own host says. The
// method stays: a message is a POST wherever it goes.
func (l *link) follow(req *http.Request) (*http.Response, error) {
	for redirects := 0; ; redirects++ {
		resp, err := l.base.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		switch resp.StatusCode {
		case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		default:
			return resp, nil
		}
		_ = resp.Body.Close()
		to, err := resp.Location()
		switch {
		case err != nil:
			return nil, fmt.Errorf("the service redirects to nowhere (%d)", resp.StatusCode)
		case redirects == maxRedirects:
			return nil, fmt.Errorf("the service redirects more than %d times", maxRedirects)
		case !sameOrigin(to, l.url):
			return nil, fmt.Errorf("the service redirects to %s://%s, where headers are not sent; put that into url", to.Scheme, to.Host)
		}
		req = req.Clone(req.Context())
		req.URL = to
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

func sameOrigin(a, b *url.URL) bool { return a.Scheme == b.Scheme && a.Host == b.Host }

// answer makes an answer the service did not give.
func answer(req *http.Request, status int, why string) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, why), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
}

// A limitedBody is the body of an answer, which fails beyond its limit.
type limitedBody struct {
	body    io.ReadCloser
	left    int64 // bytes; negative is no limit
	release func()
}

// Read implements [io.Reader].
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left < 0 {
		return b.body.Read(p)
	}
	// One byte more than is left tells too much from just enough.
	n, err := b.body.Read(p[:min(int64(len(p)), b.left+1)])
	if int64(n) > b.left {
		b.left = 0
		return 0, fmt.Errorf("the answer has more than %d bytes", maxBody)
	}
	b.left -= int64(n)
	return n, err
}

// Close implements [io.Closer]. It may be called more than once, and while Read
// waits.
func (b *limitedBody) Close() error {
	err := b.body.Close()
	b.release()
	return err
}
