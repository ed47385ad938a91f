//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"parley/internal/protocol"
	"parley/udpaudio"
)

// An arrival is one downlink packet: its sequence number, and when the kernel
// had it, which on loopback is when the server sent it. Nothing that happens in
// this process moves that time.
type arrival struct {
	sequence uint32
	at       time.Duration // since 1970
}

// wall is now on the clock of arrivals.
func wall() time.Duration { return time.Duration(time.Now().UnixNano()) }

// A track holds what came for one device.
type track struct {
	mu     sync.Mutex
	keep   bool
	kept   []arrival
	last   arrival
	waiter chan arrival // takes the next one; room for it
}

func (t *track) add(a arrival) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.sequence <= t.last.sequence {
		return // sent once more, against loss
	}
	t.last = a
	if t.keep {
		t.kept = append(t.kept, a)
	}
	if t.waiter != nil {
		t.waiter <- a
		t.waiter = nil
	}
}

// next returns a channel that gets the next arrival.
func (t *track) next() <-chan arrival {
	c := make(chan arrival, 1)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiter = c
	return c
}

// newest is the last arrival.
func (t *track) newest() arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// record begins or ends keeping arrivals, and returns those kept.
func (t *track) record(on bool) []arrival {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.kept
	t.keep, t.kept = on, nil
	return kept
}

// A sink is the one UDP socket of all devices of a fleet.
type sink struct {
	conn *net.UDPConn
	done chan struct{}

	mu     sync.RWMutex
	tracks map[uint32]*track // by SSRC
}

// newSink opens the socket and reads it until close.
func newSink() (*sink, error) {
	conn, err := udpaudio.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
	})
	if err := errors.Join(err, failed); err != nil {
		return nil, errors.Join(fmt.Errorf("time stamps of packets: %w", err), conn.Close())
	}
	s := &sink{conn: conn, done: make(chan struct{}), tracks: make(map[uint32]*track)}
	go s.read()
	return s, nil
}

func (s *sink) read() {
	defer close(s.done)
	buffer, oob := make([]byte, udpaudio.MaxDatagram+1), make([]byte, 128)
	for {
		n, extra, _, _, err := s.conn.ReadMsgUDPAddrPort(buffer, oob)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		h, err := udpaudio.ParseHeader(buffer[:n])
		if err != nil {
			continue // it is then missing where it is looked for
		}
		s.mu.RLock()
		t := s.tracks[h.SSRC]
		s.mu.RUnlock()
		if at, ok := stamp(oob[:extra]); ok && t != nil {
			t.add(arrival{h.Sequence, at})
		}
	}
}

// stamp finds the kernel's time of reception among the control messages.
func stamp(oob []byte) (time.Duration, bool) {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return 0, false
	}
	for _, m := range messages {
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SO_TIMESTAMPNS && len(m.Data) >= 16 {
			seconds, nanos := binary.NativeEndian.Uint64(m.Data), binary.NativeEndian.Uint64(m.Data[8:])
			return time.Duration(seconds)*time.Second + time.Duration(nanos), true
		}
	}
	return 0, false
}

// track is where the packets of a session go from now on.
func (s *sink) track(ssrc uint32) *track {
	t := new(track)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tracks[ssrc] = t
	return t
}

// send sends one packet of a device.
func (s *sink) send(b []byte, to netip.AddrPort) error {
	_, err := s.conn.WriteToUDPAddrPort(b, to)
	return err
}

// close ends the reader and waits for it.
func (s *sink) close() {
	s.conn.Close()
	<-s.done
}

// frame is what a packet lasts.
const frame = protocol.DownlinkFrame * time.Millisecond

// origin returns where the grid of a reply begins: packets are due every 60 ms,
// and the one that came earliest for its number was on time. No packet is
// earlier than its place, so this never makes the others look better than they
// were. It must not be asked about the first packets of a reply, which the
// server sends ahead of the loudspeaker.
func origin(arrivals []arrival) time.Duration {
	first := time.Duration(1<<63 - 1)
	for _, a := range arrivals {
		first = min(first, a.at-time.Duration(a.sequence)*frame)
	}
	return first
}

// lateness returns how long after its place in the grid each packet came.
func lateness(arrivals []arrival, origin time.Duration) []time.Duration {
	late := make([]time.Duration, 0, len(arrivals))
	for _, a := range arrivals {
		late = append(late, a.at-time.Duration(a.sequence)*frame-origin)
	}
	return late
}

// gaps counts the sequence numbers that are missing between the lowest and the
// highest.
func gaps(arrivals []arrival) int {
	if len(arrivals) == 0 {
		return 0
	}
	bySequence := func(a, b arrival) int { return int(int64(a.sequence) - int64(b.sequence)) }
	low, high := slices.MinFunc(arrivals, bySequence), slices.MaxFunc(arrivals, bySequence)
	return int(high.sequence-low.sequence) + 1 - len(arrivals)
}
