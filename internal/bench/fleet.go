//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"parley/internal/audio"
	"parley/udpaudio"
)

// A fleet is the devices of a load worker.
type fleet struct {
	sink   *sink
	phones []*phone
	speech [][]byte // what a microphone sends of a second of speech
	known  int      // devices made so far, so that each is new
}

func newFleet() (*fleet, error) {
	s, err := newSink()
	if err != nil {
		return nil, err
	}
	f := &fleet{sink: s}
	// A steady tone is no speech to an encoder: it would send silence instead.
	microphone := audio.MicrophoneEncoding()
	microphone.DTX = false
	f.speech, err = encode(microphone, loud(audio.MicrophoneRate, 1200*time.Millisecond), audio.MicrophoneRate*60/1000)
	if err != nil {
		s.close()
		return nil, err
	}
	return f, nil
}

// a boarding says which server a fleet is to connect to, and how.
type boarding struct {
	MQTT    string
	Devices int
	Hello   bool // and open a session each
}

// abreast is how many devices connect at a time.
const abreast = 64

// connect adds devices and returns how many of them a second it took.
func (f *fleet) connect(b boarding) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	phones, errs := make([]*phone, b.Devices), make([]error, abreast)
	start := time.Now()
	var wg sync.WaitGroup
	for lane := range abreast {
		wg.Go(func() {
			for i := lane; i < b.Devices; i += abreast {
				p, err := dialPhone(ctx, b.MQTT, f.known+i, f.sink)
				if err != nil {
					errs[lane] = err
					return
				}
				phones[i] = p
				if !b.Hello {
					continue
				}
				if errs[lane] = p.open(); errs[lane] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(start)
	f.known += b.Devices
	for _, p := range phones {
		if p != nil {
			f.phones = append(f.phones, p)
		}
	}
	return float64(b.Devices) / took.Seconds(), firstOf(errs)
}

// disconnect breaks all connections.
func (f *fleet) disconnect(struct{}) (any, error) {
	var wg sync.WaitGroup
	for _, p := range f.phones {
		wg.Go(p.close)
	}
	wg.Wait()
	f.phones = nil
	return nil, nil
}

// ask has every device ask for a reply, spread over a time.
func (f *fleet) ask(over time.Duration) (any, error) {
	start := time.Now()
	for i, p := range f.phones {
		time.Sleep(time.Until(start.Add(over * time.Duration(i) / time.Duration(len(f.phones)))))
		if err := p.ask(); err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
	}
	return nil, nil
}

// A span of time that is measured: so many windows of such a length.
type span struct {
	Windows int
	Each    time.Duration
}

// A window is what came to all devices in a part of the time.
type window struct {
	Late    quantiles
	Frames  int
	Missing int // packets that never came, or had not come by the end
}

// watch looks at the replies of all devices, which must be speaking, and have
// been for longer than the server sends ahead.
func (f *fleet) watch(s span) ([]window, error) {
	all := make([][][]arrival, s.Windows)
	for _, p := range f.phones {
		p.track.record(true)
	}
	for w := range all {
		time.Sleep(s.Each)
		for _, p := range f.phones {
			all[w] = append(all[w], p.track.record(w < s.Windows-1))
		}
	}
	origins := make([]time.Duration, len(f.phones))
	for i := range f.phones {
		var whole []arrival
		for w := range all {
			whole = append(whole, all[w][i]...)
		}
		origins[i] = origin(whole)
	}
	out := make([]window, s.Windows)
	for w, devices := range all {
		var late []time.Duration
		for i, arrivals := range devices {
			late = append(late, lateness(arrivals, origins[i])...)
			out[w].Missing += gaps(arrivals) + max(0, int(s.Each/frame)-1-len(arrivals)-gaps(arrivals))
		}
		out[w].Frames, out[w].Late = len(late), quantilesOf(late)
	}
	return out, nil
}

// captured returns where the audio goes and the last packet each device has
// sent, which must be one of silence, as somebody on the path would know them.
func (f *fleet) captured(struct{}) (hostility, error) {
	var h hostility
	for _, p := range f.phones {
		h.Audio = p.to.String()
		h.Captured = append(h.Captured, append([]byte(nil), p.caller.datagram[:udpaudio.HeaderSize+len(silence)]...))
	}
	return h, nil
}

// sent returns how many audio packets the devices have sent.
func (f *fleet) sent(struct{}) (uint64, error) {
	n := uint64(0)
	for _, p := range f.phones {
		n += p.sent.Load()
	}
	return n, nil
}

// shuffled is the fleet in random order.
func (f *fleet) shuffled() []*phone {
	phones := append([]*phone(nil), f.phones...)
	rand.Shuffle(len(phones), func(i, j int) { phones[i], phones[j] = phones[j], phones[i] })
	return phones
}

// loadActions are what a worker can do as the load.
func loadActions() (map[string]action, error) {
	f, err := newFleet()
	if err != nil {
		return nil, err
	}
	var g *generator
	var s *saturator
	return map[string]action{
		"connect":    does(f.connect),
		"disconnect": does(f.disconnect),
		"ask":        does(f.ask),
		"watch":      does(f.watch),
		"turns":      does(f.turns),
		"aborts":     does(f.aborts),
		"hellos":     does(f.hellos),
		"captured":   does(f.captured),
		"sent":       does(f.sent),
		"flood":      does(flood),
		"generator": does(func(o relayOffer) (any, error) {
			if g != nil {
				if err := g.close(); err != nil {
					return nil, err
				}
			}
			var err error
			if g, err = newGenerator(o); err != nil {
				return nil, err
			}
			return nil, g.greet()
		}),
		"lossless": does(func(each time.Duration) (float64, error) { return g.lossless(each) }),
		"saturator": does(func(o relayOffer) (any, error) {
			if s != nil {
				if err := s.close(); err != nil {
					return nil, err
				}
			}
			var err error
			s, err = newSaturator(o)
			return nil, err
		}),
		"saturate": does(func(what saturation) (any, error) { return s.run(what) }),
	}, nil
}
