//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"parley/udpaudio"
)

// packetSize is the Opus payload of measured packets, in bytes: 60 ms at the 13
// to 16 kbit/s that devices and the default voice have.
const packetSize = 100

// A caller makes the packets of one simulated device, one after another, with
// sequence numbers that never repeat.
type caller struct {
	cipher   *udpaudio.Cipher
	sequence uint32
	datagram [udpaudio.HeaderSize + (udpaudio.MaxPayload+15)/16*16]byte
	plain    [packetSize]byte
}

func newCaller(o offer) *caller {
	c := &caller{cipher: udpaudio.NewCipher(o.Key)}
	copy(c.datagram[:], o.Nonce[:])
	c.plain[0] = silk60
	return c
}

// silk60 is the first byte of an Opus packet of one mono SILK frame of 60 ms at
// 16 kHz: RFC 6716 §3.1, configuration 11.
const silk60 = 11 << 3

// next returns the next packet, valid until the call after.
func (c *caller) next() []byte { return c.seal(c.plain[:]) }

// seal makes a packet of opus, valid until the call after.
func (c *caller) seal(opus []byte) []byte {
	c.sequence++
	binary.BigEndian.PutUint16(c.datagram[2:], uint16(len(opus)))
	binary.BigEndian.PutUint32(c.datagram[12:], c.sequence)
	c.cipher.XOR(c.datagram[udpaudio.HeaderSize:], opus, (*[udpaudio.HeaderSize]byte)(c.datagram[:]))
	return c.datagram[:udpaudio.HeaderSize+len(opus)]
}

// A generator sends the packets of many callers to a relay.
type generator struct {
	relay   relayOffer
	callers []*caller
	conns   []net.Conn // one for each caller, to the relay
	got     atomic.Uint64
	readers sync.WaitGroup
}

func newGenerator(o relayOffer) (*generator, error) {
	g := &generator{relay: o}
	for _, one := range o.Offers {
		conn, err := net.Dial("udp", o.Audio)
		if err != nil {
			return nil, errors.Join(err, g.close())
		}
		g.callers = append(g.callers, newCaller(one))
		g.conns = append(g.conns, conn)
		g.readers.Go(func() {
			buffer := make([]byte, udpaudio.MaxDatagram+1)
			for {
				if _, err := conn.Read(buffer); errors.Is(err, net.ErrClosed) {
					return
				} else if err == nil {
					g.got.Add(1)
				}
			}
		})
	}
	return g, nil
}

// close ends the readers and waits for them.
func (g *generator) close() error {
	var all error
	for _, c := range g.conns {
		all = errors.Join(all, c.Close())
	}
	g.readers.Wait()
	return all
}

// greet has each device's first packet answered, so that all addresses are known
// before anything is counted.
func (g *generator) greet() error {
	for i, c := range g.conns {
		if _, err := c.Write(g.callers[i].next()); err != nil {
			return err
		}
	}
	for range 100 {
		if g.got.Load() == uint64(len(g.conns)) {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("of %d devices %d are echoed", len(g.conns), g.got.Load())
}

// A trial is what came of one rate.
type trial struct {
	Rate float64 // packets sent a second
	Lost float64 // the part of them that did not come back
}

// offer sends at a rate for d, a burst every ms, and counts what comes back.
func (g *generator) offer(rate float64, d time.Duration) (trial, error) {
	before, start, sent := g.got.Load(), time.Now(), 0
	for time.Since(start) < d {
		due := int(rate * time.Since(start).Seconds())
		for ; sent < due; sent++ {
			i := sent % len(g.conns)
			if _, err := g.conns[i].Write(g.callers[i].next()); err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return trial{}, err
			}
		}
		time.Sleep(time.Millisecond)
	}
	took := time.Since(start)
	time.Sleep(50 * time.Millisecond) // for those under way
	back := float64(g.got.Load() - before)
	return trial{Rate: float64(sent) / took.Seconds(), Lost: max(0, 1-back/float64(sent))}, nil
}

// lossless returns the highest rate at which no more than one packet in a
// thousand is lost, in packets a second, found by halving.
func (g *generator) lossless(each time.Duration) (float64, error) {
	low, high, best := 0.0, 400_000.0, 0.0
	for range 8 {
		t, err := g.offer((low+high)/2, each)
		if err != nil {
			return 0, err
		}
		if t.Lost <= 0.001 {
			best = max(best, t.Rate)
			low = (low + high) / 2
		} else {
			high = (low + high) / 2
		}
	}
	return best, nil
}

// A saturator sends as fast as it can and reads nothing, so that one system call
// here faces two at the server, and the server is what is short.
type saturator struct {
	callers     []*caller
	audio, bare net.Conn // one address for all callers
}

func newSaturator(o relayOffer) (*saturator, error) {
	s := new(saturator)
	for _, one := range o.Offers {
		s.callers = append(s.callers, newCaller(one))
	}
	var err error
	if s.audio, err = net.Dial("udp", o.Audio); err != nil {
		return nil, err
	}
	if s.bare, err = net.Dial("udp", o.Bare); err != nil {
		return nil, errors.Join(err, s.audio.Close())
	}
	return s, nil
}

// saturation says what a saturator is to do.
type saturation struct {
	Bare bool // send to the bare socket instead of the relay
	For  time.Duration
}

// run sends for a while. The packets are sealed for the bare socket, too.
func (s *saturator) run(what saturation) (any, error) {
	conn := s.audio
	if what.Bare {
		conn = s.bare
	}
	for end := time.Now().Add(what.For); time.Now().Before(end); {
		for _, c := range s.callers {
			if _, err := conn.Write(c.next()); err != nil && !errors.Is(err, syscall.ENOBUFS) {
				return nil, err
			}
		}
	}
	return nil, nil
}

func (s *saturator) close() error { return errors.Join(s.audio.Close(), s.bare.Close()) }
