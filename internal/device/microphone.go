package device

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"parley/internal/protocol"
)

// Constants of the firmware's microphone.
const (
	// micWarmup is the pause after the microphone is switched on, in which it
	// hears nothing (MIC_WARMUP, audio_service.cc).
	micWarmup = 120 * time.Millisecond
	// maxSendQueue is MAX_SEND_PACKETS_IN_QUEUE.
	maxSendQueue = 40
	// prerollLimit is the audio before a wake word that is kept.
	prerollLimit = 2 * time.Second
)

// A micPacket is an encoded frame on its way to the socket.
type micPacket struct {
	payload   []byte
	timestamp uint32
}

// A sound is something said: PCM that is in the air from start on whether or not
// anyone listens, or packets that wait for the microphone.
type sound struct {
	start   time.Time
	pcm     []int16
	packets [][]byte
	tail    int           // how many of packets are silence nobody waits for
	said    chan struct{} // of packets: closed when only the tail is left
}

// A microphone turns what is said into packets while it is on. start and stop
// belong to the main task; the rest may be called concurrently. While it is on
// it has one goroutine, which stop ends and waits for.
type microphone struct {
	device *Device
	frame  time.Duration

	cancel context.CancelFunc // nil: off
	done   chan struct{}

	mu      sync.Mutex
	on      bool
	live    bool // warm: what is said now is heard
	queue   []micPacket
	dropped int64
	air     []*sound
}

func newMicrophone(d *Device) *microphone {
	return &microphone{device: d, frame: d.opts.Frame}
}

func (m *microphone) start() {
	if m.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.device.ctx)
	done := make(chan struct{})
	if !m.device.spawn(func() { defer close(done); m.run(ctx) }) {
		cancel()
		return
	}
	m.cancel, m.done = cancel, done
	m.mu.Lock()
	m.on = true
	m.mu.Unlock()
}

func (m *microphone) stop() {
	if m.cancel == nil {
		return
	}
	m.cancel()
	<-m.done
	m.cancel = nil
	m.mu.Lock()
	m.on, m.live = false, false
	m.mu.Unlock()
}

func (m *microphone) running() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.on
}

// run encodes a frame each frame time. Frames follow the clock of the start, so
// that a late goroutine catches up and drifts nowhere.
func (m *microphone) run(ctx context.Context) {
	timer := time.NewTimer(micWarmup)
	defer timer.Stop()
	at := time.Now().Add(micWarmup)
	enc := newMicEncoder(!m.device.opts.Decode, m.frame)
	noise := rand.New(rand.NewPCG(1, 2))
	for warm := false; ; warm = true {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if !warm {
			m.mu.Lock()
			m.live = true
			m.mu.Unlock()
			m.device.emit(Event{Kind: Microphone})
		} else {
			m.hear(enc, noise, at)
			at = at.Add(m.frame)
		}
		timer.Reset(time.Until(at.Add(m.frame)))
	}
}

// hear encodes and queues the frame that began at at.
func (m *microphone) hear(enc *micEncoder, noise *rand.Rand, at time.Time) {
	pcm, payload := m.listen(at)
	if payload == nil {
		if a := int(m.device.opts.Noise); a > 0 {
			for i := range pcm {
				pcm[i] = clamp(int(pcm[i]) + noise.IntN(2*a+1) - a)
			}
		}
		payload = enc.encode(pcm)
	}
	p := micPacket{payload: payload}
	if m.device.opts.ServerAEC {
		p.timestamp = m.device.speaker.echo()
	}
	m.mu.Lock()
	if len(m.queue) >= maxSendQueue {
		m.queue = m.queue[1:]
		m.dropped++
	}
	m.queue = append(m.queue, p)
	m.mu.Unlock()
	m.device.post(evSendAudio)
}

// listen is the frame that began at at: PCM, or a packet that was said as one.
// PCM is nil in silence.
func (m *microphone) listen(at time.Time) (pcm []int16, payload []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	keep := m.air[:0]
	for _, s := range m.air {
		if s.packets != nil {
			if payload == nil {
				payload, s.packets = s.packets[0], s.packets[1:]
				if len(s.packets) == s.tail {
					close(s.said)
				}
				if len(s.packets) == 0 {
					continue
				}
			}
			keep = append(keep, s)
			continue
		}
		offset := int(at.Sub(s.start) * protocol.UplinkSampleRate / time.Second)
		if offset >= len(s.pcm) {
			continue // over
		}
		keep = append(keep, s)
		samples := int(m.frame * protocol.UplinkSampleRate / time.Second)
		if offset <= -samples {
			continue // not yet
		}
		if pcm == nil {
			pcm = make([]int16, samples)
		}
		for i := max(0, -offset); i < samples && offset+i < len(s.pcm); i++ {
			pcm[i] = clamp(int(pcm[i]) + int(s.pcm[offset+i]))
		}
	}
	clear(m.air[len(keep):])
	m.air = keep
	return pcm, payload
}

// say puts a sound into the air. It takes the place of silence that was still to
// be sent.
func (m *microphone) say(s *sound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.air = slices.DeleteFunc(m.air, func(o *sound) bool { return o.packets != nil && len(o.packets) <= o.tail })
	m.air = append(m.air, s)
}

// unsay takes back a sound nobody waits for any more.
func (m *microphone) unsay(s *sound) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.air = slices.DeleteFunc(m.air, func(o *sound) bool { return o == s })
}

// take is the next packet to send.
func (m *microphone) take() (micPacket, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.queue) == 0 {
		return micPacket{}, false
	}
	p := m.queue[0]
	m.queue = m.queue[1:]
	return p, true
}

// discard empties the send queue, as the firmware does at a wake word.
func (m *microphone) discard() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.queue = nil
}

func (m *microphone) report(r *Report) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.SendDropped = m.dropped
}

func clamp(v int) int16 { return int16(min(max(v, -32768), 32767)) }
