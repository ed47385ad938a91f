package simnet

import (
	"container/heap"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"
)

// firstPort is where ports chosen by the network begin: the dynamic range of
// RFC 6335 §6.
const firstPort = 49152

// Errors of listening and dialing, wrapped with the address at fault.
var (
	ErrAddress   = errors.New("simnet: not an address of a host")
	ErrAddrInUse = errors.New("simnet: address already in use")
	ErrNoPort    = errors.New("simnet: no free port")
)

// A Path is what one direction of a link does to what passes. The zero Path
// passes everything at once.
//
// Probabilities are from 0 to 1; values outside are as good as the nearer end.
type Path struct {
	// Delay is how long everything takes.
	Delay time.Duration
	// Jitter is the most that is added to Delay, uniformly from 0. Each
	// datagram has its own, so that jitter larger than the distance of two
	// datagrams reorders them, as it does in life. Streams stay in order.
	Jitter time.Duration
	// Loss is the probability that a datagram is lost. On a TCP stream, where
	// nothing is lost, each loss costs a retransmission after 200 ms; with a
	// Loss of 1 nothing arrives until the path changes.
	Loss float64
	// Duplicate is the probability that a datagram arrives twice, each copy
	// with its own jitter. Streams ignore it.
	Duplicate float64
	// Reorder is the probability that a datagram is held back by ReorderBy, so
	// that those sent after it overtake it. Streams ignore it.
	Reorder   float64
	ReorderBy time.Duration
}

// Stats count what the datagrams of a network came to. Streams are not in it.
type Stats struct {
	Sent        uint64 // by programs
	Delivered   uint64 // into the queue of a socket, copies included
	Lost        uint64 // by the Loss of a path
	Duplicated  uint64 // by the Duplicate of a path
	HeldBack    uint64 // by the Reorder of a path
	Overflowed  uint64 // arrived at a socket whose queue was full
	Unreachable uint64 // nobody at the address, or a socket connected to another
}

// A Network is a set of hosts and what lies between them. All methods of it
// and of its connections may be called concurrently.
//
// One mutex guards all of it: the work done under it is some hundred
// nanoseconds a datagram, and no order of locks has to be remembered.
type Network struct {
	mu        sync.Mutex
	seed      uint64
	udp       map[netip.AddrPort]udpEndpoint
	listeners map[netip.AddrPort]*listener
	streams   map[netip.AddrPort]bool // local addresses of dialed TCP connections
	links     map[netip.Addr]uint64   // links opened so far
	ports     map[netip.Addr]uint16   // the port chosen last
	events    events
	order     uint64      // of the next event
	timer     *time.Timer // fires when the first event is due
	stats     Stats
}

// New returns an empty network. Two networks with the same seed treat the same
// traffic the same way.
func New(seed uint64) *Network {
	return &Network{
		seed:      seed,
		udp:       make(map[netip.AddrPort]udpEndpoint),
		listeners: make(map[netip.AddrPort]*listener),
		streams:   make(map[netip.AddrPort]bool),
		links:     make(map[netip.Addr]uint64),
		ports:     make(map[netip.Addr]uint16),
	}
}

// Stats returns the counters so far.
func (n *Network) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stats
}

// An event is something that happens at a moment. Events due at the same
// moment happen in the order they were planned.
type event struct {
	due   time.Time
	order uint64
	do    func() // called with Network.mu held
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	if e[i].due.Equal(e[j].due) {
		return e[i].order < e[j].order
	}
	return e[i].due.Before(e[j].due)
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

// after plans do for the moment delay from now. The caller holds mu and calls
// run before it lets go, unless it is itself an event.
func (n *Network) after(delay time.Duration, do func()) {
	heap.Push(&n.events, event{due: time.Now().Add(max(delay, 0)), order: n.order, do: do})
	n.order++
}

// run lets everything happen that is due, and sets the timer for the rest. The
// caller holds mu. The timer is the only thing of a network that acts by
// itself; it is set only while something is on its way.
func (n *Network) run() {
	for len(n.events) > 0 && !n.events[0].due.After(time.Now()) {
		heap.Pop(&n.events).(event).do()
	}
	if len(n.events) == 0 {
		return
	}
	wait := time.Until(n.events[0].due)
	if n.timer == nil {
		n.timer = time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.run()
		})
		return
	}
	n.timer.Reset(wait)
}

// A link is one direction of a path with its own dice.
type link struct {
	path Path
	dice *rand.Rand
}

// newLinks returns the two directions of a link opened from local.
func (n *Network) newLinks(local netip.Addr, up, down Path) (*link, *link) {
	h := fnv.New64a()
	h.Write(local.AsSlice())
	count := n.links[local]
	n.links[local]++
	return &link{up, rand.New(rand.NewPCG(n.seed^h.Sum64(), 2*count))},
		&link{down, rand.New(rand.NewPCG(n.seed^h.Sum64(), 2*count+1))}
}

// A passage is what a path does to one datagram.
type passage struct {
	lost, duplicated, heldBack bool
	first, second              time.Duration // the copies' delays, ReorderBy apart
}

// pass rolls the dice for one datagram: always the same number of times, so
// that changing one probability leaves the other outcomes as they were.
func (l *link) pass() passage {
	p := l.path
	lost, dup, held := l.dice.Float64(), l.dice.Float64(), l.dice.Float64()
	first, second := l.dice.Float64(), l.dice.Float64()
	v := passage{lost: lost < p.Loss, duplicated: dup < p.Duplicate, heldBack: held < p.Reorder}
	v.first = p.Delay + time.Duration(first*float64(p.Jitter))
	v.second = p.Delay + time.Duration(second*float64(p.Jitter))
	return v
}

// checkHost returns addr in its plain form, or an error if no host can have it.
func checkHost(addr netip.Addr) (netip.Addr, error) {
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return netip.Addr{}, fmt.Errorf("%w: %v; give one such as 10.0.0.1", ErrAddress, addr)
	}
	return addr.Unmap(), nil
}

// freePort returns addr with a port of the dynamic range that is not taken:
// the one after the port chosen last, so that a port is not used again soon.
// The caller holds mu.
func (n *Network) freePort(addr netip.Addr, taken func(netip.AddrPort) bool) (netip.AddrPort, error) {
	port := n.ports[addr]
	for range 1<<16 - firstPort {
		if port++; port < firstPort {
			port = firstPort // the first time, and after 65535
		}
		if a := netip.AddrPortFrom(addr, port); !taken(a) {
			n.ports[addr] = port
			return a, nil
		}
	}
	return netip.AddrPort{}, fmt.Errorf("%w at %v", ErrNoPort, addr)
}
