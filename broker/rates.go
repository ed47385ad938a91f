package broker

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// maxAddresses bounds the table of addresses that connected lately. A full table
// takes about 1 MiB.
const maxAddresses = 8192

// addressRates limits connections by address. It remembers an address until its
// allowance is full again, when forgetting it changes nothing; if the table is
// full of addresses that are still busy, an arbitrary one is forgotten. Its
// methods are safe for concurrent use.
type addressRates struct {
	limit rate.Limit
	burst int

	mu      sync.Mutex
	byAddr  map[netip.Addr]*rate.Limiter
	cleaned time.Time
}

func (r *addressRates) init(limit rate.Limit, burst int) {
	r.limit, r.burst = limit, burst
	r.byAddr = make(map[netip.Addr]*rate.Limiter)
}

// allow reports whether one more connection from a is within the rate. An IPv6
// address counts as its /64, which is what one host gets. Addresses the listener
// does not know are one address.
func (r *addressRates) allow(a netip.Addr, now time.Time) bool {
	if r.limit == rate.Inf {
		return true
	}
	if a = a.WithZone(""); a.Is6() && !a.Is4In6() {
		a = netip.PrefixFrom(a, 64).Masked().Addr()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.byAddr[a]
	if l == nil {
		r.makeRoom(now)
		l = rate.NewLimiter(r.limit, r.burst)
		r.byAddr[a] = l
	}
	return l.AllowN(now, 1)
}

// makeRoom forgets what it can, at most once a second unless the table is full.
func (r *addressRates) makeRoom(now time.Time) {
	full := len(r.byAddr) >= maxAddresses
	if now.Sub(r.cleaned) >= time.Second {
		r.cleaned = now
		for a, l := range r.byAddr {
			if l.TokensAt(now) >= float64(r.burst) {
				delete(r.byAddr, a)
			}
		}
		full = len(r.byAddr) >= maxAddresses
	}
	if !full {
		return
	}
	for a := range r.byAddr {
		delete(r.byAddr, a)
		return
	}
}
