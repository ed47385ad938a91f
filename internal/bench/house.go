//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"parley/broker"
	"parley/internal/audio"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/internal/sweep"
	"parley/pipeline"
	"parley/udpaudio"
)

// houseKey signs the credentials of measured devices: signatures are checked, as
// on a server that is not open.
const houseKey = "a key for measurements, known to all"

// A houseConfig says how the providers of a house behave.
type houseConfig struct {
	Recogniser, Model, Voice time.Duration // what each takes
	Sentences                int           // of a reply
	Sentence                 time.Duration // of each
	PCM                      bool          // the voice gives PCM instead of Opus
}

// A house is a whole server: the real broker and audio sockets on loopback, real
// sessions and conversations with the policy of the built-in configuration, and
// logs that are written and thrown away. Only the limits on how often one
// address may connect and one device may greet are lifted, since all load comes
// from one.
type house struct {
	stop     context.CancelFunc
	work     sync.WaitGroup
	sessions *session.Server
	audio    *udpaudio.Server
	mqtt     net.Addr
}

func openHouse(cfg houseConfig) (*house, error) {
	synth, err := newSynthesizer(cfg.Voice, cfg.Sentence, cfg.PCM)
	if err != nil {
		return nil, err
	}
	conn, err := udpaudio.Listen("127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	h := &house{audio: udpaudio.New(conn, udpaudio.Config{}, log)}

	policy := pipeline.DefaultConfig()
	policy.Silence = time.Hour // devices that only greet are to stay
	role := &session.Role{
		Name: "measured", Policy: policy, NewDetector: newDetector,
		ASR: recogniser{cfg.Recogniser}, LLM: newTalker(cfg.Model, cfg.Sentences),
		TTS: pipeline.BySentence(synth, audio.NewEncoderPool(0)),
	}
	sc := session.DefaultConfig()
	sc.UDPHost, sc.UDPPort = "127.0.0.1", conn.LocalAddr().(*net.UDPAddr).Port
	sc.Roles = func(protocol.DeviceID) *session.Role { return role }
	sc.HelloRate, sc.HelloBurst = 1e6, 1e6
	sc.AudioWithin = time.Hour
	h.sessions = session.New(sc, h.audio, log)

	// MaxDevices leaves room for those whose end has not been noticed yet.
	limits := broker.Limits{ConnectRate: rate.Limit(-1), MaxPending: 1 << 15, MaxDevices: 1 << 16}
	b, err := broker.New(broker.Config{Listen: "127.0.0.1:0", Key: []byte(houseKey), Limits: limits}, h.sessions, log)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	h.mqtt = b.Addr()
	var ctx context.Context
	ctx, h.stop = context.WithCancel(context.Background())
	h.work.Go(func() { _ = h.audio.Serve(ctx) }) // their ends show in what is measured
	h.work.Go(func() { _ = b.Serve(ctx) })
	h.work.Go(func() { sweep.Run(ctx, func() uint64 { return uint64(b.Stats().Accepted) }) })
	return h, nil
}

// close ends the house and waits for it.
func (h *house) close() {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	h.sessions.Drain(now)
	h.stop()
	h.work.Wait()
}

// houseCounts are what a house has counted and used.
type houseCounts struct {
	usage
	Devices, Sessions uint64
	Failed            uint64 // turns
	Delivered         uint64 // audio packets to conversations
	Dropped           udpaudio.Drops
	Refused           uint64 // datagrams, the sum of Dropped
}

func (h *house) counts() (houseCounts, error) {
	u, err := measureSelf()
	s, a := h.sessions.Stats(), h.audio.Stats()
	return houseCounts{
		usage: u, Devices: s.Devices, Sessions: s.Sessions, Failed: s.TurnsFailed,
		Delivered: a.Delivered, Dropped: a.Dropped, Refused: a.Dropped.Total(),
	}, err
}

// serverActions are what a worker can do as a server. It has one of each kind
// at a time; opening replaces.
func serverActions() map[string]action {
	var h *house
	var r *relay
	none := errors.New("nothing is open")
	return map[string]action{
		"house": does(func(c houseConfig) (string, error) {
			if h != nil {
				h.close()
			}
			var err error
			if h, err = openHouse(c); err != nil {
				return "", err
			}
			return h.mqtt.String(), nil
		}),
		"house counts": does(func(struct{}) (houseCounts, error) {
			if h == nil {
				return houseCounts{}, none
			}
			return h.counts()
		}),
		"relay": does(func(devices int) (*relayOffer, error) {
			if r != nil {
				r.close()
			}
			var o *relayOffer
			var err error
			r, o, err = newRelay(devices)
			return o, err
		}),
		"relay counts": does(func(struct{}) (relayCounts, error) {
			if r == nil {
				return relayCounts{}, none
			}
			return r.counts()
		}),
		// collect gives memory that is not used back to the kernel.
		"collect": does(func(struct{}) (usage, error) {
			for range 3 { // stacks halve once a collection
				debug.FreeOSMemory()
			}
			return measureSelf()
		}),
		"usage":  does(func(struct{}) (usage, error) { return measureSelf() }),
		"stages": does(runStages),
	}
}
