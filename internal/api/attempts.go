package api

import (
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Limits on wrong tokens from one address. A person who mistypes one does not
// notice; ten years of guessing at this rate are 53 million of 62¹⁶ tokens.
const (
	failureEvery = 6 * time.Second
	failureBurst = 10
)

// maxSources bounds the table of addresses that failed lately; a full one takes
// about 1 MiB.
const maxSources = 8192

// attempts limits wrong tokens by address. An address is forgotten when its
// allowance is full again, when forgetting it changes nothing; if the table is
// full of others, an arbitrary one is. Its methods are safe for concurrent use.
type attempts struct {
	mu      sync.Mutex
	sources map[netip.Addr]*rate.Limiter
	cleaned time.Time
}

// exhausted reports whether a may try no token now.
func (t *attempts) exhausted(a netip.Addr, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.sources[network(a)]
	return l != nil && l.TokensAt(now) < 1
}

// failed counts a wrong token from a.
func (t *attempts) failed(a netip.Addr, now time.Time) {
	a = network(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.sources[a]
	if l == nil {
		t.makeRoom(now)
		l = rate.NewLimiter(rate.Every(failureEvery), failureBurst)
		t.sources[a] = l
	}
	l.AllowN(now, 1)
}

// makeRoom forgets what it can, at most once a second unless the table is full.
func (t *attempts) makeRoom(now time.Time) {
	if t.sources == nil {
		t.sources = map[netip.Addr]*rate.Limiter{}
	}
	if now.Sub(t.cleaned) >= time.Second {
		t.cleaned = now
		for a, l := range t.sources {
			if l.TokensAt(now) >= failureBurst {
				delete(t.sources, a)
			}
		}
	}
	for a := range t.sources {
		if len(t.sources) < maxSources {
			return
		}
		delete(t.sources, a)
	}
}

// network is what counts as one source: an IPv4 address, or the /64 of an IPv6
// one, which is what one host gets.
func network(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// source is the address a request came from. Behind a proxy on this machine it
// is the one the proxy appended to X-Forwarded-For; a proxy elsewhere counts as
// the source itself, since anybody could have sent the header.
func source(r *http.Request) netip.Addr {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	if !peer.Addr().Unmap().IsLoopback() {
		return peer.Addr().Unmap()
	}
	via := strings.Join(r.Header.Values("X-Forwarded-For"), ",")
	if client, err := netip.ParseAddr(strings.TrimSpace(via[strings.LastIndexByte(via, ',')+1:])); err == nil {
		return client.Unmap()
	}
	return peer.Addr().Unmap()
}
