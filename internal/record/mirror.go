package record

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/pion/rtp"

	"parley/internal/protocol"
)

const (
	// MirrorSessions is how many sessions are mirrored at once. The n-th, from
	// 0, takes the four ports from Mirror's + 4n: RTP and RTCP of what the
	// device says, and the same of what Parley says. Nothing is sent to the
	// RTCP ports, but players open them (RFC 3550 §11).
	MirrorSessions = 16
	portsEach      = 4

	// payloadType is a dynamic one (RFC 3551 §6), and the one browsers give to
	// Opus.
	payloadType = 111
	// clockRate is that of timestamps in Hz, whatever the audio's (RFC 7587
	// §4.1).
	clockRate = 48000

	// ticks is how many of them pass in a tick.
	ticks = clockRate * uint32(tick/time.Microsecond) / 1e6

	rtpHeader = 12 // bytes
)

var errNoPorts = fmt.Errorf("%d sessions are being mirrored", MirrorSessions)

// A mirror sends sessions to a loopback address as RTP. Its methods may be
// called concurrently.
type mirror struct {
	first netip.AddrPort
	conn  *net.UDPConn // not connected: nobody may be listening, and that is no error

	mu    sync.Mutex
	taken [MirrorSessions]bool
}

func openMirror(first netip.AddrPort) (*mirror, error) {
	ip := first.Addr().Unmap()
	switch last := int(first.Port()) + MirrorSessions*portsEach - 1; {
	case !ip.IsLoopback() || ip.Zone() != "":
		return nil, fmt.Errorf("%w: %s is not a loopback address: what is mirrored is not encrypted; use 127.0.0.1 or ::1 and a tunnel such as ssh", ErrMirror, first.Addr())
	case first.Port() == 0 || first.Port()%2 != 0:
		return nil, fmt.Errorf("%w: port %d: RTP takes even ports (RFC 3550 §11)", ErrMirror, first.Port())
	case last > 65535:
		return nil, fmt.Errorf("%w: port %d: the last of %d ports would be %d", ErrMirror, first.Port(), MirrorSessions*portsEach, last)
	}
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMirror, err)
	}
	return &mirror{first: netip.AddrPortFrom(ip, first.Port()), conn: conn}, nil
}

func (m *mirror) close() { _ = m.conn.Close() } // nothing is left to be sent

// open takes ports for a session and writes its SDP file.
func (m *mirror) open(files *store, name string, device protocol.DeviceID, session string) (*stream, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	slot := 0
	for m.taken[slot] {
		if slot++; slot == MirrorSessions {
			return nil, errNoPorts
		}
	}
	s := &stream{mirror: m, slot: slot, path: filepath.Join(files.dir, name+description)}
	for d := range s.ways {
		w := &s.ways[d]
		port := m.first.Port() + uint16(slot*portsEach+2*d)
		w.to = netip.AddrPortFrom(m.first.Addr(), port)
		w.base = rand.Uint32()
		w.header = rtp.Header{
			Version: 2, PayloadType: payloadType,
			SequenceNumber: uint16(rand.Uint32()), SSRC: rand.Uint32(), // random (RFC 3550 §5.1)
		}
	}
	f, err := files.create(name + description)
	if err != nil {
		return nil, fmt.Errorf("write SDP file: %w", err)
	}
	_, err = f.WriteString(s.sdp(device, session))
	if err := errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(s.path) // it is of no use, and the error is reported
		return nil, fmt.Errorf("write SDP file: %w", err)
	}
	m.taken[slot] = true
	return s, nil
}

// A stream is one session on the mirror. Only the tap's goroutine uses it.
type stream struct {
	mirror *mirror
	slot   int
	path   string // of the SDP file
	ways   [directions]way
	buffer [rtpHeader + maxPacket]byte
}

// A way is one direction of a stream.
type way struct {
	to     netip.AddrPort
	header rtp.Header // of the next packet
	base   uint32     // the timestamp at the tap's opening
}

// send sends one packet. Its timestamp says where it belongs; that it may not
// arrive is UDP's way, and no error.
func (s *stream) send(p placed) {
	w := &s.ways[p.direction]
	w.header.Marker = p.fresh // the beginning of a talk spurt (RFC 7587 §4.1)
	w.header.Timestamp = w.base + uint32(p.at/tick)*ticks
	n, err := w.header.MarshalTo(s.buffer[:])
	if err != nil {
		return // a header without extensions always fits
	}
	n += copy(s.buffer[n:], p.opus)
	_, _ = s.mirror.conn.WriteToUDPAddrPort(s.buffer[:n], w.to)
	w.header.SequenceNumber++
}

// close gives the ports back and removes the SDP file.
func (s *stream) close() {
	_ = os.Remove(s.path) // at worst a description of ports nobody sends to
	s.mirror.mu.Lock()
	s.mirror.taken[s.slot] = false
	s.mirror.mu.Unlock()
}

// sdp describes the stream (RFC 8866, RFC 7587 §7). The channels are two
// whatever the audio has; what it has is in fmtp.
func (s *stream) sdp(device protocol.DeviceID, session string) string {
	family := "IP4"
	if s.mirror.first.Addr().Is6() {
		family = "IP6"
	}
	address := family + " " + s.mirror.first.Addr().String()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\r\n", args...) }
	line("v=0")
	line("o=- %d 1 IN %s", rand.Uint32(), address)
	line("s=Parley %s %s", device, session)
	line("c=IN %s", address)
	line("t=0 0")
	for d, title := range [directions]string{up: "device", down: "parley"} {
		w := &s.ways[d]
		line("m=audio %d RTP/AVP %d", w.to.Port(), payloadType)
		line("i=%s", title)
		line("a=rtpmap:%d opus/%d/2", payloadType, clockRate)
		line("a=fmtp:%d sprop-stereo=0", payloadType)
		line("a=ptime:60")
		line("a=ssrc:%d cname:parley-%s", w.header.SSRC, title)
	}
	return b.String()
}
