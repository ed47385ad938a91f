// Package openaiapi is the client side of OpenAI-compatible HTTP services: one
// POST with a key, an answer that is read as it arrives, and errors that say
// what to do about them.
//
// It exists because the three endpoints a voice needs are three POSTs, and the
// client libraries are wrong for them in ways that matter here; see
// docs/dependencies.md. What differs between the endpoints stays with the
// providers that use them.
package openaiapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// DefaultBaseURL is where requests go when no base URL is given.
	DefaultBaseURL = "https://api.openai.com/v1"

	// DefaultConnect bounds a TCP connect and, separately, a TLS handshake. A
	// speaking person notices a pause of two seconds; five is where another
	// provider is the better bet.
	DefaultConnect = 5 * time.Second

	// idleConnTimeout is how long an unused connection is kept, so that the next
	// turn of a conversation finds it open. Most servers keep theirs for 60 to
	// 120 s.
	idleConnTimeout = 90 * time.Second

	// pingAfter is how long a connection may be silent before it is tested.
	pingAfter = 15 * time.Second

	// maxIdleConnsPerHost is how many unused connections are kept for one
	// HTTP/1.1 host: about the turns that overlap when 200 devices talk.
	maxIdleConnsPerHost = 32

	// MaxResponse bounds any response body in bytes. The longest sensible one
	// is a minute of 24 kHz PCM (2.9 MB) or a completion sent token by token
	// (300 bytes of JSON each).
	MaxResponse = 16 << 20
)

// A Config says where a service is and how its errors name it.
type Config struct {
	// Table is the provider's table in config.toml, such as "llm.openai"; errors
	// name it.
	Table string
	// BaseURL is the service's address up to and with its version, such as
	// "http://127.0.0.1:11434/v1". Empty is [DefaultBaseURL]. A query is kept.
	BaseURL string
	// APIKey is sent as a bearer token; empty sends none, as local servers want.
	APIKey string
	// Model is the model asked for; a 404 names it.
	Model string
	// HTTP is the client to use; nil is a new one with [DefaultConnect].
	HTTP *http.Client
}

// A Client posts to one service. It is safe for concurrent use and holds nothing
// but idle connections, which close by themselves.
type Client struct {
	cfg  Config
	base *url.URL
	http *http.Client
}

// New returns a client, or an error that names the setting that is wrong.
func New(cfg Config) (*Client, error) {
	if cfg.BaseURL == "" {
		cfg.BaseURL = DefaultBaseURL
	}
	base, err := url.Parse(cfg.BaseURL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("[%s]: base_url is not a URL; write it like %q", cfg.Table, DefaultBaseURL)
	case base.Scheme != "http" && base.Scheme != "https", base.Host == "":
		return nil, fmt.Errorf("[%s]: base_url %q has no http:// or https:// and host; write it like %q",
			cfg.Table, base.Redacted(), DefaultBaseURL)
	case base.User != nil:
		return nil, fmt.Errorf("[%s]: base_url carries a user or password; put the secret into api_key", cfg.Table)
	}
	if strings.ContainsFunc(cfg.APIKey, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, fmt.Errorf("[%s]: api_key holds a space or line break; remove it", cfg.Table)
	}
	if cfg.HTTP == nil {
		cfg.HTTP = NewHTTPClient(0)
	}
	// Redirects are never followed: net/http turns a redirected POST into a GET,
	// and the words of a conversation belong to the host that was configured.
	noRedirects := *cfg.HTTP
	noRedirects.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{cfg: cfg, base: base, http: &noRedirects}, nil
}

// NewHTTPClient returns an HTTP client with a transport of its own: HTTP/2 where
// the server has it, connections kept between turns. connect bounds a TCP connect
// and, separately, a TLS handshake; 0 is [DefaultConnect]. There is no time limit
// on answers: the request's context has it.
func NewHTTPClient(connect time.Duration) *http.Client {
	if connect <= 0 {
		connect = DefaultConnect
	}
	dialer := &net.Dialer{Timeout: connect, KeepAlive: pingAfter}
	return &http.Client{Transport: &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSHandshakeTimeout: connect,
		ForceAttemptHTTP2:   true,
		MaxIdleConnsPerHost: maxIdleConnsPerHost,
		IdleConnTimeout:     idleConnTimeout,
		// A silently dead connection would otherwise swallow every turn that is
		// multiplexed on it until TCP gives up.
		HTTP2: &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: connect},
	}}
}

// Host returns the host name of the base URL, without a port.
func (c *Client) Host() string { return c.base.Hostname() }

// PostJSON posts v as JSON to path, which is relative to the base URL, and
// returns the response once its header is in, as [Client.Post] does.
func (c *Client) PostJSON(ctx context.Context, path string, v any) (*Response, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("[%s]: encode request: %w", c.cfg.Table, err)
	}
	return c.Post(ctx, path, "application/json", body)
}

// Post posts body to path and returns the response once its header is in and
// says success; any other status is an [*Error]. The caller closes the body,
// which is bounded by [MaxResponse] and fails when ctx ends.
func (c *Client) Post(ctx context.Context, path, contentType string, body []byte) (*Response, error) {
	target := c.base.JoinPath(path)
	inner, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(inner, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("[%s]: make request: %w", c.cfg.Table, err)
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("User-Agent", "parley")
	if c.cfg.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.cfg.APIKey)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		cancel()
		return nil, c.unreachable(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer cancel()
		defer resp.Body.Close()
		return nil, c.refused(resp, path)
	}
	return &Response{
		ContentType: resp.Header.Get("Content-Type"),
		body:        resp.Body,
		limited:     io.LimitedReader{R: resp.Body, N: MaxResponse},
		client:      c,
		ctx:         ctx,
		cancel:      cancel,
	}, nil
}

// unreachable explains an error of sending the request. The transport's own
// error is kept for errors.Is, without the URL it repeats, whose query may hold
// a secret.
func (c *Client) unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	at := c.base.Scheme + "://" + c.base.Host + c.base.Path
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		return fmt.Errorf("[%s]: cannot reach base_url %s: %w; is the service running there?", c.cfg.Table, at, err)
	}
	return fmt.Errorf("[%s]: request to base_url %s failed: %w", c.cfg.Table, at, err)
}
