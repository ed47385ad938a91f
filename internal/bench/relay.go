//go:build linux

package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"parley/udpaudio"
)

// A relay is a worker's audio server that returns every packet to the device it
// came from, and beside it the measure of it: a socket whose loop makes the same
// two system calls a packet and does nothing between them.
type relay struct {
	stop   context.CancelFunc
	work   sync.WaitGroup
	audio  *udpaudio.Server
	echoes []*echo
	bare   *net.UDPConn
	bared  atomic.Uint64
}

// An echo is the receiver of one channel.
type echo struct {
	channel *udpaudio.Channel
	failed  atomic.Uint64
}

func (*echo) PathReady() {}

func (e *echo) Audio(_, _ uint32, opus []byte) {
	if _, err := e.channel.Send(opus); err != nil {
		e.failed.Add(1)
	}
}

// An offer is what a device is told about its channel.
type offer struct {
	Key, Nonce [16]byte
}

// relayOffer says where a relay listens.
type relayOffer struct {
	Audio, Bare string // addresses
	Offers      []offer
}

// relayCounts are a relay's counters, and what its process has used.
type relayCounts struct {
	usage
	Echoed, Bare, Refused uint64 // packets
}

// newRelay opens both sockets and a channel for each device.
func newRelay(devices int) (*relay, *relayOffer, error) {
	conn, err := udpaudio.Listen("127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	bare, err := udpaudio.Listen("127.0.0.1:0")
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &relay{stop: stop, audio: udpaudio.New(conn, udpaudio.Config{}, slog.New(slog.DiscardHandler)), bare: bare}
	o := &relayOffer{Audio: conn.LocalAddr().String(), Bare: bare.LocalAddr().String()}
	for range devices {
		e := new(echo)
		// The channel is set before Serve: nothing is delivered earlier.
		if e.channel, err = r.audio.Open(e); err != nil {
			stop()
			return nil, nil, errors.Join(err, conn.Close(), bare.Close())
		}
		r.echoes = append(r.echoes, e)
		key, nonce := e.channel.Offer()
		o.Offers = append(o.Offers, offer{key, nonce})
	}
	r.work.Go(func() { _ = r.audio.Serve(ctx) }) // its end shows in the counters
	r.work.Go(r.serveBare)
	return r, o, nil
}

// serveBare is the loop that the relay is compared with.
func (r *relay) serveBare() {
	buffer := make([]byte, udpaudio.MaxDatagram+1)
	for {
		n, from, err := r.bare.ReadFromUDPAddrPort(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if _, err := r.bare.WriteToUDPAddrPort(buffer[:n], from); err == nil {
			r.bared.Add(1)
		}
	}
}

// counts are the counters so far.
func (r *relay) counts() (relayCounts, error) {
	u, err := measureSelf()
	s := r.audio.Stats()
	c := relayCounts{usage: u, Echoed: s.Sent, Bare: r.bared.Load(), Refused: s.Dropped.Total()}
	for _, e := range r.echoes {
		c.Refused += e.failed.Load()
	}
	return c, err
}

// close ends both loops and waits for them.
func (r *relay) close() {
	r.stop()
	r.bare.Close()
	r.work.Wait()
}
