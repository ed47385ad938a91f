package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Limits of reading a web page.
const (
	fetchTimeout   = 10 * time.Second // all of it, redirects included
	dialTimeout    = 5 * time.Second
	maxRedirects   = 5
	maxBody        = 2 << 20  // bytes, after decompression
	maxHeader      = 64 << 10 // bytes
	maxPageText    = 16 << 10 // bytes for the model
	maxTitle       = 300      // bytes, besides
	maxFetches     = 8        // at once, for all devices together
	maxURL         = 2048     // bytes
	fetchUserAgent = "Parley/"
)

// Fetch says whether and how web pages are read. What a model asks for can come
// from anybody who wrote a page it has read before, so the address that is
// really dialled is judged, whatever names and redirects led there.
type Fetch struct {
	Enabled bool
	// Ports that may be dialled; empty means 80 and 443.
	Ports []uint16
	// Hosts that may be asked, redirects included: example.org itself, or
	// *.example.org with everything below it. Empty means all.
	Hosts []string
	// Policy judges each address that is about to be dialled. nil means
	// [PublicOnly], and no address of this machine.
	Policy func(netip.Addr) error
	// Resolver looks up names; nil means that of the machine.
	Resolver *net.Resolver
}

// Check reports the first fault.
func (f Fetch) Check() error {
	for i, host := range f.Hosts {
		name := strings.TrimPrefix(host, "*.")
		if name == "" || strings.ContainsAny(name, "*/:@ ") {
			return fmt.Errorf("hosts[%d]: %q is no host name; write example.org or *.example.org", i, host)
		}
	}
	for i, port := range f.Ports {
		if port == 0 {
			return fmt.Errorf("ports[%d]: 0 is no port; leave ports out for 80 and 443", i)
		}
	}
	return nil
}

// A fetcher reads web pages. It is safe for concurrent use.
type fetcher struct {
	ports     []uint16
	hosts     []string
	policy    func(netip.Addr) error
	userAgent string
	client    *http.Client
	slots     chan struct{} // one for each page being read; when full, the next is refused
	stats     *counters
	log       *slog.Logger
}

func newFetcher(cfg Fetch, version string, stats *counters, log *slog.Logger) (*fetcher, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("fetching of web pages: %w", err)
	}
	f := &fetcher{
		ports: cfg.Ports, policy: cfg.Policy, userAgent: fetchUserAgent + version,
		slots: make(chan struct{}, maxFetches), stats: stats, log: log,
	}
	for _, host := range cfg.Hosts {
		f.hosts = append(f.hosts, strings.ToLower(host))
	}
	if len(f.ports) == 0 {
		f.ports = []uint16{80, 443}
	}
	if f.policy == nil {
		f.policy = publicAndNotOurs
	}
	dialer := &net.Dialer{Timeout: dialTimeout, Resolver: cfg.Resolver, ControlContext: f.control}
	f.client = &http.Client{
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return refusal(fmt.Sprintf("the page redirects more than %d times", maxRedirects))
			}
			return f.checkURL(req.URL)
		},
		Transport: &http.Transport{
			// A proxy would dial in our place, and nobody would judge the
			// address. So there is none, whatever the environment says.
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSHandshakeTimeout:    dialTimeout,
			MaxResponseHeaderBytes: maxHeader,
			DisableKeepAlives:      true,
			ForceAttemptHTTP2:      true,
		},
	}
	return f, nil
}

func (f *fetcher) close() { f.client.CloseIdleConnections() }

// A refusal is an error that is for the model as it stands.
type refusal string

func (r refusal) Error() string { return string(r) }

func (t *Tools) fetchTools() []tool {
	if t.fetcher == nil {
		return nil
	}
	return []tool{{
		name:        "fetch_web_page",
		description: "Reads a page of the public web and returns its text, cut at 16 KiB.",
		schema: json.RawMessage(`{"type":"object","properties":{
			"url":{"type":"string","description":"http or https"}},"required":["url"]}`),
		run: func(ctx context.Context, _ caller, args arguments) (string, error) {
			address, err := args.text("url", maxURL)
			if err != nil {
				return "", err
			}
			return t.fetcher.fetch(ctx, address)
		},
	}}
}

// fetch returns the text of a page, with a line before it that says what it is.
func (f *fetcher) fetch(ctx context.Context, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", errors.New("url is not valid; give one such as https://example.org/page")
	}
	if err := f.checkURL(u); err != nil {
		return "", err
	}
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return "", errors.New("too many pages are being read at the moment; try again in a few seconds")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	p, err := f.get(ctx, u)
	if err != nil {
		return "", f.explain(ctx, u, err)
	}
	f.stats.fetched.Add(1)
	return p.String(), nil
}

// checkURL judges what can be judged before a name is looked up. It is asked for
// each redirect, too.
func (f *fetcher) checkURL(u *url.URL) error {
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return refusal("only http and https can be read")
	case u.User != nil:
		return refusal("a URL with a user name or a password in it is not read")
	case host == "":
		return refusal("the URL names no host; give one such as https://example.org/page")
	case !f.allowed(host):
		return refusal(fmt.Sprintf("%s is not among the hosts that the operator allows", clip(host, 100)))
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || !slices.Contains(f.ports, uint16(n)) {
		return refusal(fmt.Sprintf("port %s is not among those that may be used: %v", clip(port, 20), f.ports))
	}
	return nil
}

func (f *fetcher) allowed(host string) bool {
	return len(f.hosts) == 0 || slices.ContainsFunc(f.hosts, func(pattern string) bool {
		if domain, ok := strings.CutPrefix(pattern, "*"); ok {
			return strings.HasSuffix(host, domain)
		}
		return host == pattern
	})
}

// control is called with each address just before it is dialled. What a name
// resolved to before, or will resolve to next, does not matter.
func (f *fetcher) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	a, err := netip.ParseAddrPort(address)
	if err == nil && !slices.Contains(f.ports, a.Port()) {
		err = fmt.Errorf("port %d: %w", a.Port(), ErrNotPublic)
	}
	if err == nil {
		err = f.policy(a.Addr())
	}
	if err != nil {
		f.stats.fetchRefused.Add(1)
		f.log.Warn("web page refused: its address is not allowed", "address", address, "error", err)
		return addressError{err}
	}
	return nil
}

// An addressError is the error of an address that was not dialled.
type addressError struct{ error }

// Unwrap returns why.
func (e addressError) Unwrap() error { return e.error }

// publicAndNotOurs refuses what [PublicOnly] does, and the public addresses of
// this machine, whose firewall trusts it more than others.
func publicAndNotOurs(a netip.Addr) error {
	if err := PublicOnly(a); err != nil {
		return err
	}
	ours, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("the addresses of this machine are not known: %w", err)
	}
	for _, own := range ours {
		if n, ok := own.(*net.IPNet); ok && n.IP.Equal(a.AsSlice()) {
			return fmt.Errorf("%s: %w: it is this machine's", a, ErrNotPublic)
		}
	}
	return nil
}

func (f *fetcher) get(ctx context.Context, u *url.URL) (page, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return page{}, err
	}
	req.Header.Set("User-Agent", f.userAgent)
	req.Header.Set("Accept", "text/html, text/plain, application/json, text/*;q=0.5")
	res, err := f.client.Do(req)
	if err != nil {
		return page{}, err
	}
	defer res.Body.Close()
	if res.StatusCode < 200 || res.StatusCode > 299 {
		return page{}, refusal(fmt.Sprintf("the server of the page answered %d %s", res.StatusCode, http.StatusText(res.StatusCode)))
	}
	kind, err := kindOf(res.Header.Get("Content-Type"))
	if err != nil {
		return page{}, err
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return page{}, err
	}
	cut := len(body) > maxBody
	p, err := readPage(body[:min(len(body), maxBody)], kind)
	p.address, p.cut = res.Request.URL.Redacted(), p.cut || cut
	return p, err
}

// explain makes of an error one that a model can act on and that tells nothing
// of the network Parley is in.
func (f *fetcher) explain(ctx context.Context, u *url.URL, err error) error {
	var said refusal
	var address addressError
	var lookup *net.DNSError
	host := clip(u.Hostname(), 100)
	switch {
	case errors.As(err, &said):
		return said
	case errors.As(err, &address):
		return fmt.Errorf("%s is not a public web server, and is not read", host)
	case ctx.Err() != nil:
		return fmt.Errorf("%s did not answer in time", host)
	case errors.As(err, &lookup):
		return fmt.Errorf("the host name %s was not found", clip(lookup.Name, 100))
	}
	return fmt.Errorf("%s could not be read: it is not reachable, or does not speak HTTP", host)
}
