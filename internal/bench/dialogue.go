//go:build linux

package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// endPackets is how many silent packets end an utterance: endpointing waits for
// half a second of silence, and nine packets of 60 ms are the first to hold it.
// Silence is sent as packets without sound, which no decoder blurs, so this is
// exact.
const endPackets = 9

// turns has all devices speak and listen, turn after turn, and returns for each
// window the time from the packet that ends the user's speech to the first
// packet of the reply, less what the providers took.
func (f *fleet) turns(d span) ([]quantiles, error) {
	start := time.Now()
	// The first turn of each device is not counted.
	settled := start.Add(4 * time.Second)
	end := settled.Add(time.Duration(d.Windows) * d.Each)
	var mu sync.Mutex
	added := make([][]time.Duration, d.Windows)
	errs := make([]error, len(f.phones))
	var wg sync.WaitGroup
	for i, p := range f.phones {
		wg.Go(func() {
			time.Sleep(time.Until(start.Add(3 * time.Second * time.Duration(i) / time.Duration(len(f.phones)))))
			for time.Now().Before(end) {
				took, err := p.converse(f.speech)
				if err != nil {
					errs[i] = fmt.Errorf("device %d: %w", i, err)
					return
				}
				mu.Lock()
				if w := int(time.Since(settled) / d.Each); time.Now().After(settled) && w < d.Windows {
					added[w] = append(added[w], took)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	out := make([]quantiles, d.Windows)
	for w := range added {
		out[w] = quantilesOf(added[w])
		if out[w].Count == 0 {
			errs = append(errs, errors.New("a window without a turn: make it longer"))
		}
	}
	return out, firstOf(errs)
}

// converse has one turn: it speaks, falls silent, and returns how long after the
// packet that ended its speech the first packet of the reply came, less what the
// providers took. It waits for the end of the reply.
func (p *phone) converse(speech [][]byte) (time.Duration, error) {
	if err := p.listen(); err != nil {
		return 0, err
	}
	ticker := time.NewTicker(frame)
	defer ticker.Stop()
	for _, opus := range speech {
		<-ticker.C
		if err := p.say(opus); err != nil {
			return 0, err
		}
	}
	select {
	case <-p.texts: // of an earlier reply
	default:
	}
	first := p.track.next()
	var asked time.Duration
	deadline := time.Now().Add(patience)
	for n := 1; ; n++ {
		select {
		case <-ticker.C:
		case a := <-first:
			if asked == 0 {
				return 0, fmt.Errorf("a reply came before the end of speech, at packet %d", n)
			}
			text, err := await(p.texts, p.closed)
			if err != nil {
				return 0, fmt.Errorf("the text of a reply: %w", err)
			}
			providers, err := confessed(text)
			if err != nil {
				return 0, fmt.Errorf("the reply %q does not say how long it took: %w", text, err)
			}
			_, err = await(p.stops, p.closed)
			return a.at - asked - providers, err
		}
		if n == endPackets {
			asked = wall()
		}
		if err := p.say(silence); err != nil {
			return 0, err
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("reply: %w", errLate)
		}
	}
}

// interruptions says how many devices to interrupt in each window.
type interruptions struct {
	Windows, Devices int
}

// interrupted is what came of the aborts of one window.
type interrupted struct {
	Tail quantiles // from the abort to the last packet after it, 0 if there is none
	Stop quantiles // from the abort to tts stop
}

// aborts interrupts devices that are speaking, at 100 a second, and has them
// speak again.
func (f *fleet) aborts(n interruptions) ([]interrupted, error) {
	out := make([]interrupted, n.Windows)
	for w := range out {
		chosen := f.shuffled()[:min(n.Devices, len(f.phones))]
		tails, stops := make([]time.Duration, len(chosen)), make([]time.Duration, len(chosen))
		errs := make([]error, len(chosen))
		var wg sync.WaitGroup
		for i, p := range chosen {
			wg.Go(func() { tails[i], stops[i], errs[i] = p.interrupt() })
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		if err := firstOf(errs); err != nil {
			return nil, err
		}
		out[w] = interrupted{quantilesOf(tails), quantilesOf(stops)}
	}
	return out, nil
}

// interrupt aborts a reply, looks on for longer than the server sends ahead,
// and asks for another.
func (p *phone) interrupt() (tail, stop time.Duration, err error) {
	if _, err := await(p.track.next(), p.closed); err != nil {
		return 0, 0, fmt.Errorf("%s is not spoken to: %w", p.id, err)
	}
	time.Sleep(rand.N(frame)) // at any moment between two packets
	select {
	case <-p.stops: // of an earlier reply
	default:
	}
	at := wall()
	if err := p.abort(); err != nil {
		return 0, 0, err
	}
	stopped, err := await(p.stops, p.closed)
	if err != nil {
		return 0, 0, fmt.Errorf("tts stop after an abort: %w", err)
	}
	time.Sleep(4 * frame)
	tail = max(0, p.track.newest().at-at)
	return tail, stopped - at, p.ask()
}

// hellos has every device greet again, one after another, so many times, and
// returns how long the replies took.
func (f *fleet) hellos(times int) ([]quantiles, error) {
	out := make([]quantiles, times)
	for w := range out {
		var took []time.Duration
		for _, p := range f.shuffled() {
			from := time.Now()
			if err := p.hello(); err != nil {
				return nil, err
			}
			took = append(took, time.Since(from))
		}
		out[w] = quantilesOf(took)
	}
	return out, nil
}

// firstOf returns the first error: what befalls one device befalls most.
func firstOf(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
