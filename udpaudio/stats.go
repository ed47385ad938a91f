package udpaudio

import (
	"net/netip"
	"sync/atomic"
)

// An outcome is what became of a received datagram.
type outcome uint8

const (
	delivered outcome = iota
	dropShort
	dropLong
	dropType
	dropLength
	dropUnknown
	dropReflected
	dropClosed
	dropReplayed
	dropOld
	dropAhead
	dropImplausible
	dropForeign
	outcomes // how many there are
)

// A tally counts outcomes. It may be used concurrently.
type tally [outcomes]atomic.Uint64

func (t *tally) drops() Drops {
	return Drops{
		Short:       t[dropShort].Load(),
		Long:        t[dropLong].Load(),
		Type:        t[dropType].Load(),
		Length:      t[dropLength].Load(),
		UnknownSSRC: t[dropUnknown].Load(),
		Reflected:   t[dropReflected].Load(),
		Closed:      t[dropClosed].Load(),
		Replayed:    t[dropReplayed].Load(),
		Old:         t[dropOld].Load(),
		Ahead:       t[dropAhead].Load(),
		Implausible: t[dropImplausible].Load(),
		Foreign:     t[dropForeign].Load(),
	}
}

// Drops count datagrams that were not delivered, by reason.
type Drops struct {
	Short       uint64 // shorter than a header
	Long        uint64 // longer than [MaxDatagram]
	Type        uint64 // of another type than audio
	Length      uint64 // payload_len is not what follows the header
	UnknownSSRC uint64 // of no open session; a device streaming on after a restart, or a scan
	Reflected   uint64 // a packet of the server's own
	Closed      uint64 // of a session closed at that moment
	Replayed    uint64 // sequence number seen before
	Old         uint64 // 64 or more behind the newest
	Ahead       uint64 // 2^15 or more ahead of the newest
	Implausible uint64 // not Opus, or not of this session's shape: forged, damaged or a wrong key
	Foreign     uint64 // from an address not, or not yet, believed
}

// Total returns the sum of the drops.
func (d Drops) Total() uint64 {
	return d.Short + d.Long + d.Type + d.Length + d.UnknownSSRC + d.Reflected + d.Closed +
		d.Replayed + d.Old + d.Ahead + d.Implausible + d.Foreign
}

// Stats count what a server has done since it was made. Every datagram read is
// delivered, dropped or, up to two a channel, held until its address is
// believed.
type Stats struct {
	Channels   int    // open now
	Delivered  uint64 // to receivers
	Dropped    Drops
	Sent       uint64
	SendErrors uint64
	ReadErrors uint64 // of the socket
	Moves      uint64 // changes of a device's address
}

// ChannelStats count what happened to one channel. The drops before a channel
// is found are only in [Stats].
type ChannelStats struct {
	Path      netip.AddrPort // where packets are sent to; not valid before the first has come
	Delivered uint64
	Dropped   Drops
	// Lost is how many sequence numbers up to the newest were not delivered, or
	// not yet. Some clients count by two, and seem to lose as many as arrive.
	Lost       uint64
	Sent       uint64
	Repeated   uint64 // packets sent a second time
	SendErrors uint64
	Moves      uint64
}
