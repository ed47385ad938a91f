package access

import (
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// failures limits what refused requests cost, by address: an answer in words and a
// line in the log. Valid tokens are never held up by it, because many users may
// share an address, and guessing is not what it protects from: a signature has 256
// bits. Its methods are safe for concurrent use.
type failures struct {
	mu      sync.Mutex
	byAddr  map[netip.Addr]*rate.Limiter
	cleaned time.Time
}

// allow reports whether one more failure of a is within the rate. An IPv6 address
// counts as its /64, which is what one host gets.
func (f *failures) allow(a netip.Addr, now time.Time) bool {
	if a = a.Unmap().WithZone(""); a.Is6() {
		a = netip.PrefixFrom(a, 64).Masked().Addr()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.byAddr[a]
	if l == nil {
		f.makeRoom(now)
		if f.byAddr == nil {
			f.byAddr = map[netip.Addr]*rate.Limiter{}
		}
		l = rate.NewLimiter(failureRate, failureBurst)
		f.byAddr[a] = l
	}
	return l.AllowN(now, 1)
}

// makeRoom forgets the addresses whose allowance is full again, at most once a
// second unless the table is full, and then an arbitrary one if need be.
func (f *failures) makeRoom(now time.Time) {
	if full := len(f.byAddr) >= maxAddresses; !full && now.Sub(f.cleaned) < time.Second {
		return
	}
	f.cleaned = now
	for a, l := range f.byAddr {
		if l.TokensAt(now) >= failureBurst {
			delete(f.byAddr, a)
		}
	}
	for a := range f.byAddr {
		if len(f.byAddr) < maxAddresses {
			return
		}
		delete(f.byAddr, a)
	}
}
