//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"parley/udpaudio"
)

// hostility is what an attacker has and is to do.
type hostility struct {
	Audio    string   // the server's address
	Captured [][]byte // one packet of each session, as seen on the path
	For      time.Duration
}

// flood sends hostile packets as fast as it can, from an address of its own, and
// returns how many. None may be accepted:
//
//   - of a session that does not exist, otherwise perfect;
//   - captured, sent again;
//   - captured, with the mark of the server's own packets;
//   - of an open session, too far ahead;
//   - cut short.
func flood(h hostility) (uint64, error) {
	conn, err := net.Dial("udp", h.Audio)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	known := make(map[uint32]bool)
	for _, c := range h.Captured {
		known[binary.BigEndian.Uint32(c[4:])] = true
	}
	packet := make([]byte, udpaudio.HeaderSize+packetSize)
	sent := uint64(0)
	for end := time.Now().Add(h.For); time.Now().Before(end); {
		for i, captured := range h.Captured {
			b := packet[:copy(packet, captured)]
			switch i % 5 {
			case 0:
				b = packet[:cap(packet)]
				b[2], b[3] = 0, packetSize
				for binary.BigEndian.PutUint32(b[4:], rand.Uint32()); known[binary.BigEndian.Uint32(b[4:])]; {
					binary.BigEndian.PutUint32(b[4:], rand.Uint32())
				}
			case 1:
			case 2:
				b[1] |= udpaudio.FlagDownlink
			case 3:
				binary.BigEndian.PutUint32(b[12:], binary.BigEndian.Uint32(b[12:])+1<<15+rand.Uint32N(1<<20))
			case 4:
				b = b[:udpaudio.HeaderSize-1]
			}
			if _, err := conn.Write(b); err == nil {
				sent++
			} else if !errors.Is(err, syscall.ENOBUFS) && !errors.Is(err, syscall.ECONNREFUSED) {
				return sent, err
			}
		}
	}
	return sent, nil
}
