package session_test

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"parley/broker"
	"parley/internal/audio"
	"parley/internal/device"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/internal/simnet"
	"parley/pipeline"
	"parley/udpaudio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ms = time.Millisecond

var (
	serverIP = netip.MustParseAddr("10.0.0.1")
	mqttAddr = netip.AddrPortFrom(serverIP, 1883)
	udpAddr  = netip.AddrPortFrom(serverIP, 8884)
)

// A house is a whole server on a simulated network: the real broker, the real
// audio server, real sessions and conversations, and providers of exact delays.
type house struct {
	t        *testing.T
	net      *simnet.Network
	sessions *session.Server
	broker   *broker.Embedded
	audio    *udpaudio.Server
	asr      *words
	llm      *script
	tts      *letters
	stop     func()

	mu     sync.Mutex
	traces []pipeline.Trace
}

func newHouse(t *testing.T, change func(*session.Config, *session.Role)) *house {
	t.Helper()
	h := &house{
		t: t, net: simnet.New(1), asr: &words{text: "hello there", delay: 100 * ms},
		llm: &script{delay: 100 * ms, text: "Hello yourself. It is a fine day."}, tts: &letters{delay: 50 * ms},
	}
	log := slog.New(slog.DiscardHandler)
	socket, err := h.net.ListenUDP(udpAddr)
	if err != nil {
		t.Fatal(err)
	}
	h.audio = udpaudio.New(socket, udpaudio.Config{}, log)
	role := &session.Role{
		Name: "test", Policy: pipeline.DefaultConfig(), ASR: h.asr, LLM: h.llm,
		TTS:         pipeline.BySentence(h.tts, audio.NewEncoderPool(1)),
		NewDetector: func() (pipeline.Detector, error) { return loudness{}, nil },
	}
	cfg := session.DefaultConfig()
	cfg.UDPPort = int(udpAddr.Port())
	cfg.Roles = func(protocol.DeviceID) *session.Role { return role }
	cfg.OnTurn = func(_ protocol.DeviceID, tr pipeline.Trace) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.traces = append(h.traces, tr)
	}
	if change != nil {
		change(&cfg, role)
	}
	h.sessions = session.New(cfg, h.audio, log)
	listener, err := h.net.ListenTCP(mqttAddr)
	if err != nil {
		t.Fatal(err)
	}
	if h.broker, err = broker.New(broker.Config{Listener: listener}, h.sessions, log); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		if err := h.audio.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	work.Go(func() {
		if err := h.broker.Serve(ctx); err != nil {
			t.Error(err)
		}
	})
	h.stop = sync.OnceFunc(func() {
		grace, done := context.WithTimeout(context.Background(), 5*time.Second)
		h.sessions.Drain(grace)
		done()
		cancel()
		work.Wait()
	})
	t.Cleanup(h.stop)
	return h
}

// turns are the turns that have ended by now.
func (h *house) turns() []pipeline.Trace {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]pipeline.Trace(nil), h.traces...)
}

// A line is how one device's packets travel.
type line struct{ mqttUp, mqttDown, udpUp, udpDown simnet.Path }

// device connects a simulated device with a number.
func (h *house) device(n byte, l line, change func(*device.Options)) *device.Device {
	h.t.Helper()
	ip := netip.AddrFrom4([4]byte{10, 0, 1, n})
	id := protocol.DeviceID("02:00:00:00:00:" + string("0123456789abcdef"[n>>4]) + string("0123456789abcdef"[n&15]))
	o := device.Options{
		ID: id, Decode: true,
		MQTT: device.Credentials{
			Endpoint: mqttAddr.String(), ClientID: protocol.ClientID{Group: "G", Device: id, UUID: "u"}.String(),
			Username: protocol.Enrolment{}.Username(), Password: "x", PublishTopic: protocol.SharedUplinkTopic,
		},
		DialMQTT: func(ctx context.Context, _ string) (net.Conn, error) {
			return h.net.DialTCP(ctx, ip, mqttAddr, l.mqttUp, l.mqttDown)
		},
		DialUDP: func(_ context.Context, addr string) (net.Conn, error) {
			to, err := netip.ParseAddrPort(addr)
			if err != nil {
				return nil, err
			}
			return h.net.DialUDP(ip, to, l.udpUp, l.udpDown)
		},
	}
	if change != nil {
		change(&o)
	}
	d, err := device.New(o)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(d.Close)
	if err := d.Connect(h.t.Context()); err != nil {
		h.t.Fatal(err)
	}
	return d
}

// watchUDP keeps the audio connections a device opens.
func (h *house) watchUDP(o *device.Options, conns *[]*simnet.UDPConn) {
	dial := o.DialUDP
	o.DialUDP = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if u, ok := c.(*simnet.UDPConn); ok {
			*conns = append(*conns, u)
		}
		return c, err
	}
}

// ask speaks a second of loud audio and returns the answer.
func (h *house) ask(d *device.Device) (device.Answer, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), 2*time.Minute)
	defer cancel()
	return d.Ask(ctx, tone(time.Second))
}

// tone is speech to the loudness detector.
func tone(d time.Duration) []int16 {
	pcm := make([]int16, int(d.Seconds()*pipeline.SampleRate))
	for i := range pcm {
		pcm[i] = int16(12000 * math.Sin(2*math.Pi*300*float64(i)/pipeline.SampleRate))
	}
	return pcm
}

// loudness is a detector for tones.
type loudness struct{}

func (loudness) Close() {}
func (loudness) Speech(frame []int16) bool {
	for _, s := range frame {
		if s > 3000 || s < -3000 {
			return true
		}
	}
	return false
}

// words hears the same text in everything.
type words struct {
	text  string
	delay time.Duration
}

func (w *words) Transcribe(ctx context.Context, in <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) {
		for {
			select {
			case _, ok := <-in:
				if !ok {
					time.Sleep(w.delay)
					yield(pipeline.Transcript{Text: w.text, Final: true}, nil)
					return
				}
			case <-ctx.Done():
				yield(pipeline.Transcript{}, ctx.Err())
				return
			}
		}
	}
}

// script calls one tool, if it has one, and says its text.
type script struct {
	delay time.Duration
	text  string
	tool  string
	args  string
	seen  *[]pipeline.Message // the messages of the last request
}

func (s *script) Chat(ctx context.Context, req *pipeline.Request) iter.Seq2[pipeline.Delta, error] {
	return func(yield func(pipeline.Delta, error) bool) {
		if s.seen != nil {
			*s.seen = req.Messages
		}
		time.Sleep(s.delay)
		if s.tool != "" && req.Messages[len(req.Messages)-1].Role != pipeline.RoleTool {
			for _, t := range req.Tools {
				if strings.Contains(t.Name, s.tool) {
					yield(pipeline.Delta{Call: &pipeline.Call{ID: "1", Name: t.Name, Args: []byte(s.args)}}, nil)
					return
				}
			}
			yield(pipeline.Delta{}, errors.New("the tool is not offered"))
			return
		}
		yield(pipeline.Delta{Text: s.text}, nil)
	}
}

// letters speaks a packet for every letter.
type letters struct{ delay time.Duration }

func (l *letters) Synthesize(ctx context.Context, sentence string) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		select {
		case <-time.After(l.delay):
		case <-ctx.Done():
			yield(pipeline.Audio{}, ctx.Err())
			return
		}
		for range sentence {
			if !yield(pipeline.Audio{Opus: spoken}, nil) {
				return
			}
		}
	}
}

// spoken is 60 ms of synthesized sound.
var spoken = func() []byte {
	e, err := audio.NewEncoder(audio.SpeakerEncoding())
	if err != nil {
		panic(err)
	}
	pcm := make([]int16, 24000*60/1000)
	for i := range pcm {
		pcm[i] = int16(8000 * math.Sin(2*math.Pi*500*float64(i)/24000))
	}
	out := make([]byte, 1275)
	n, err := e.Encode(pcm, out)
	if err != nil {
		panic(err)
	}
	return out[:n]
}()

// virtual runs a test in virtual time.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}
