package record

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"parley/internal/protocol"
)

// Errors of [New] and [Recorder.Open]. They are wrapped with what is at fault;
// match them with errors.Is.
var (
	ErrDir     = errors.New("record: unusable directory")
	ErrMirror  = errors.New("record: unusable mirror address")
	ErrSession = errors.New("record: unusable session name")
	ErrClosed  = errors.New("record: the recorder is closed")
)

// Defaults of [Config].
const (
	DefaultMaxDuration = 30 * time.Minute
	DefaultMaxTotal    = 1 << 30 // bytes: 50 hours in which both sides talk all the time
)

// A Config says where recordings go and how much of them is kept.
type Config struct {
	// Dir is the directory of recordings and of the mirror's SDP files. It is
	// made, for nobody but the user Parley runs as, if it does not exist.
	Dir string
	// MaxDuration is how much of a session is recorded; the rest is not. 0
	// means [DefaultMaxDuration].
	MaxDuration time.Duration
	// MaxTotal is how many bytes recordings may take together. To make room the
	// oldest are removed; if only those being written are left, they stop. 0
	// means [DefaultMaxTotal].
	MaxTotal int64
	// Mirror is the loopback address and even port, such as "127.0.0.1:5004",
	// that sessions are sent to as RTP while they last, or "". Each session
	// takes four ports; see [MirrorSessions].
	Mirror string
	// MirrorOnly leaves no recordings: sessions can be followed and are gone.
	MirrorOnly bool
}

// Stats counts what a [Recorder] has done since it was made.
type Stats struct {
	Open       int    // taps not closed
	Files      uint64 // recordings begun
	Bytes      uint64 // written to recordings
	Removed    uint64 // old recordings removed to make room
	Failed     uint64 // recordings ended by an error of the disk
	Cut        uint64 // recordings ended by MaxDuration or MaxTotal
	Packets    uint64 // taken into the timeline
	Dropped    uint64 // lost because a tap's queue was full
	Bad        uint64 // not Opus, or too large; the gap is filled
	Late       uint64 // repeated, or after their place in the order was gone
	Ahead      uint64 // more audio than time has passed
	Unmirrored uint64 // sessions not mirrored because all ports were taken
}

// counters is Stats as it is counted.
type counters struct {
	files, bytes, removed, failed, cut, packets, dropped, bad, late, ahead, unmirrored atomic.Uint64
}

// A Recorder records and mirrors the sessions of a process. Its methods may be
// called concurrently.
type Recorder struct {
	cfg    Config
	log    *slog.Logger
	store  *store
	mirror *mirror // nil without one
	stats  counters

	packets sync.Pool // of *packet

	taps sync.WaitGroup // their goroutines

	mu     sync.Mutex
	closed bool
	open   map[*Tap]struct{}
}

// New returns a recorder, or an error wrapping [ErrDir] or [ErrMirror] that says
// what to change: the directory must be writable and the mirror's address a
// loopback one, because what is sent there is not encrypted.
func New(cfg Config, log *slog.Logger) (*Recorder, error) {
	if cfg.MaxDuration == 0 {
		cfg.MaxDuration = DefaultMaxDuration
	}
	if cfg.MaxTotal == 0 {
		cfg.MaxTotal = DefaultMaxTotal
	}
	r := &Recorder{cfg: cfg, log: log, open: map[*Tap]struct{}{}}
	r.packets.New = func() any { return new(packet) }
	var err error
	if r.store, err = openStore(cfg.Dir, cfg.MaxTotal, &r.stats, log); err != nil {
		return nil, err
	}
	if cfg.Mirror == "" {
		return r, nil
	}
	addr, err := netip.ParseAddrPort(cfg.Mirror)
	if err != nil {
		return nil, fmt.Errorf("%w: %w: want an address and a port, such as 127.0.0.1:5004", ErrMirror, err)
	}
	if r.mirror, err = openMirror(addr); err != nil {
		return nil, err
	}
	return r, nil
}

// Open begins to listen in on a session. No file is made before the first
// packet. The error wraps [ErrSession] if the ids cannot be part of a file's
// name, and is [ErrClosed] after Close. Close the tap when the session ends.
func (r *Recorder) Open(device protocol.DeviceID, session string) (*Tap, error) {
	name, err := fileName(time.Now(), device, session)
	if err != nil {
		return nil, err
	}
	t := &Tap{
		recorder: r, name: name, device: device, session: session, opened: time.Now(),
		log:   r.log.With("device", string(device), "session_id", session),
		queue: make(chan *packet, queueLength), ended: make(chan struct{}),
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, ErrClosed
	}
	r.open[t] = struct{}{}
	r.taps.Go(t.run) // ends after Tap.Close
	return t, nil
}

// Close ends all taps and waits until their files are complete, or until ctx
// ends, whose error it then returns: a disk that hangs is waited for no longer.
func (r *Recorder) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	for t := range r.open {
		t.end()
	}
	r.mu.Unlock()
	done := make(chan struct{})
	go func() { // ends with the last tap
		r.taps.Wait()
		if r.mirror != nil {
			r.mirror.close()
		}
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("record: recordings are not complete: %w", ctx.Err())
	}
}

// Stats returns the counts so far.
func (r *Recorder) Stats() Stats {
	r.mu.Lock()
	open := len(r.open)
	r.mu.Unlock()
	s := &r.stats
	return Stats{
		Open: open, Files: s.files.Load(), Bytes: s.bytes.Load(), Removed: s.removed.Load(),
		Failed: s.failed.Load(), Cut: s.cut.Load(), Packets: s.packets.Load(), Dropped: s.dropped.Load(),
		Bad: s.bad.Load(), Late: s.late.Load(), Ahead: s.ahead.Load(), Unmirrored: s.unmirrored.Load(),
	}
}

// forget is called by a tap that has ended.
func (r *Recorder) forget(t *Tap) {
	r.mu.Lock()
	delete(r.open, t)
	r.mu.Unlock()
}
