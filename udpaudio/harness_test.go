package udpaudio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"parley/internal/simnet"
)

var serverAddr = netip.MustParseAddrPort("10.0.0.1:8884")

// A delivery is one call of Receiver.Audio.
type delivery struct {
	sequence, timestamp uint32
	opus                string
}

// A recorder is a Receiver that remembers.
type recorder struct {
	mu    sync.Mutex
	calls []delivery
	ready int
	early bool // Audio before PathReady
}

func (r *recorder) PathReady() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready++
}

func (r *recorder) Audio(sequence, timestamp uint32, opus []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.early = r.early || r.ready != 1
	r.calls = append(r.calls, delivery{sequence, timestamp, string(opus)})
	clear(opus) // it is only ours during the call
}

func (r *recorder) sequences() []uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var s []uint32
	for _, c := range r.calls {
		s = append(s, c.sequence)
	}
	return s
}

// speech is a plausible 60 ms packet of n bytes whose content depends on i.
func speech(i uint32, n int) []byte {
	p := make([]byte, n)
	for j := range p {
		p[j] = byte(i) + byte(j)*3
	}
	p[0] = 3 << 3 // SILK narrowband 60 ms, mono, one frame
	return p
}

// sealUp makes a device's packet the way a device does: by the standard
// library's CTR mode, and with the header copied from the nonce.
func sealUp(key, nonce [16]byte, sequence, timestamp uint32, opus []byte) []byte {
	h := nonce
	binary.BigEndian.PutUint16(h[2:], uint16(len(opus)))
	binary.BigEndian.PutUint32(h[8:], timestamp)
	binary.BigEndian.PutUint32(h[12:], sequence)
	b := make([]byte, HeaderSize+len(opus))
	copy(b, h[:])
	standardCTR(key, h, b[HeaderSize:], opus)
	return b
}

// openDown reads a server's packet the way a device does.
func openDown(t *testing.T, key [16]byte, b []byte) (Header, []byte) {
	t.Helper()
	h, err := ParseHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	opus := make([]byte, len(b)-HeaderSize)
	standardCTR(key, [16]byte(b), opus, b[HeaderSize:])
	return h, opus
}

// A world is a server on a simulated network with one open channel.
type world struct {
	t       *testing.T
	network *simnet.Network
	server  *Server
	channel *Channel
	heard   *recorder
	key     [16]byte
	nonce   [16]byte
}

// inWorld runs f in virtual time with a served server, ends it after f, and
// checks that every datagram is accounted for.
func inWorld(t *testing.T, f func(w *world)) {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1) // the same keys and SSRCs in every run
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, network: simnet.New(1), heard: new(recorder)}
		conn, err := w.network.ListenUDP(serverAddr)
		if err != nil {
			t.Fatal(err)
		}
		w.server = New(conn, Config{}, slog.New(slog.DiscardHandler))
		w.channel = w.open(w.heard)
		w.key, w.nonce = w.channel.Offer()
		ctx, cancel := context.WithCancel(t.Context())
		served := make(chan error)
		go func() { served <- w.server.Serve(ctx) }()
		f(w)
		synctest.Wait()
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		w.channel.Close()
		stats, network := w.server.Stats(), w.network.Stats()
		if got, want := stats.Delivered+stats.Dropped.Total(), network.Sent-network.Lost+network.Duplicated-stats.Sent; got != want || network.Overflowed != 0 {
			t.Errorf("%d datagrams accounted for of %d: %+v, %+v", got, want, stats, network)
		}
		if w.heard.early {
			t.Error("Audio without PathReady before it, or with two")
		}
	})
}

func (w *world) open(r Receiver) *Channel {
	w.t.Helper()
	c, err := w.server.Open(r)
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// dial returns a socket at another address for each host number.
func (w *world) dial(host byte) *simnet.UDPConn {
	w.t.Helper()
	c, err := w.network.DialUDP(netip.AddrFrom4([4]byte{192, 168, 1, host}), serverAddr, simnet.Path{}, simnet.Path{})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// send sends a valid packet of the channel from d and waits until it is handled.
func (w *world) send(d *simnet.UDPConn, sequence uint32) {
	w.t.Helper()
	w.sendRaw(d, w.seal(sequence))
}

func (w *world) seal(sequence uint32) []byte {
	return sealUp(w.key, w.nonce, sequence, 0, speech(sequence, 90))
}

func (w *world) sendRaw(d *simnet.UDPConn, b []byte) {
	w.t.Helper()
	if _, err := d.Write(b); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// wantHeard checks the sequence numbers delivered so far.
func (w *world) wantHeard(what string, want ...uint32) {
	w.t.Helper()
	if got := w.heard.sequences(); !slices.Equal(got, want) {
		w.t.Errorf("%s: delivered %v, want %v", what, got, want)
	}
}

// wantPath checks where the channel's packets go: to d and to nobody else.
func (w *world) wantPath(what string, d *simnet.UDPConn, others ...*simnet.UDPConn) {
	w.t.Helper()
	if got, want := w.channel.Stats().Path, d.LocalAddr().(*net.UDPAddr).AddrPort(); got != want {
		w.t.Errorf("%s: path %v, want %v", what, got, want)
	}
	opus := speech(0, 120)
	if _, err := w.channel.Send(opus); err != nil {
		w.t.Errorf("%s: %v", what, err)
	}
	b := w.read(d)
	if b == nil {
		w.t.Errorf("%s: nothing sent to %v", what, d.LocalAddr())
		return
	}
	if _, got := openDown(w.t, w.key, b); !bytes.Equal(got, opus) {
		w.t.Errorf("%s: got %x", what, got)
	}
	for _, other := range others {
		if b := w.read(other); b != nil {
			w.t.Errorf("%s: %d bytes sent to %v", what, len(b), other.LocalAddr())
		}
	}
}

// read returns what waits for d, or nil. It takes no time.
func (w *world) read(d *simnet.UDPConn) []byte {
	w.t.Helper()
	synctest.Wait()
	d.SetReadDeadline(time.Now().Add(1)) // a nanosecond of virtual time
	b := make([]byte, 2048)
	n, err := d.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return b[:n]
}
