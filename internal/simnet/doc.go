// Package simnet is a network in memory, for tests: UDP datagrams and TCP
// streams between addresses that exist nowhere, with delay, jitter, loss,
// duplication, reordering and NAT rebinding.
//
// Its goroutines wait only on condition variables, channels and package time,
// so inside a testing/synctest bubble every delay takes no time and is exact
// to the nanosecond; outside a bubble the same network runs in real time. A
// [Network] used in a bubble must be made in that bubble.
//
// The impairments of a link are drawn from a generator of its own, seeded from
// the seed of the network, the local address and the number of links that
// address had opened before. What happens to one device's packets therefore
// does not depend on how the goroutines of other devices are scheduled.
//
// It is an instrument, not a simulator of congestion: bandwidth is unlimited,
// and TCP has no slow start, no acknowledgements to lose and no Nagle delay.
package simnet
