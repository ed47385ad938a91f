//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"parley/broker"
	"parley/internal/audio"
	"parley/internal/protocol"
	"parley/pipeline"
	"parley/pipeline/vad"
	"parley/udpaudio"
)

// A stage is one part of the way of a packet, measured alone.
type stage struct {
	Name   string
	Nanos  float64 // each
	Allocs float64 // each
}

// A bench is how a stage is measured.
type bench struct {
	name string
	run  func(*testing.B)
}

// runStages measures all stages once, in about the time given for each.
func runStages(each time.Duration) ([]stage, error) {
	benches, err := stageBenches()
	if err != nil {
		return nil, err
	}
	if err := benchTime(each); err != nil {
		return nil, err
	}
	var out []stage
	for _, b := range benches {
		r := testing.Benchmark(b.run)
		if r.N == 0 {
			return nil, fmt.Errorf("stage %q failed", b.name)
		}
		n := float64(r.N)
		out = append(out, stage{b.name, float64(r.T.Nanoseconds()) / n, float64(r.MemAllocs / uint64(r.N))})
	}
	return out, nil
}

func stageBenches() ([]bench, error) {
	sound, err := encode(audio.MicrophoneEncoding(), speechLike(audio.MicrophoneRate, 3*time.Second), audio.MicrophoneRate*60/1000)
	if err != nil {
		return nil, err
	}
	short, err := encode(audio.SpeakerEncoding(), speechLike(audio.SpeakerRate, 3*time.Second), audio.SpeakerRate*20/1000)
	if err != nil {
		return nil, err
	}
	datagram := newCaller(offer{}).next()
	datagram[0] = 1 // the type, which a nonce would hold
	return []bench{
		{"header: parse", func(b *testing.B) {
			for b.Loop() {
				if _, err := udpaudio.ParseHeader(datagram); err != nil {
					b.Fatal(err)
				}
			}
		}},
		{"cipher: 100 bytes", func(b *testing.B) {
			c, header, dst, src := udpaudio.NewCipher([16]byte{}), new([16]byte), make([]byte, 112), make([]byte, 100)
			for b.Loop() {
				c.XOR(dst, src, header)
			}
		}},
		{stageUp, benchUp},
		{stageMade, benchMade},
		{stageDown, benchDown},
		{"message of a device: parse", func(b *testing.B) {
			m := []byte(`{"session_id":"0123456789abcdef","type":"listen","state":"start","mode":"auto"}`)
			for b.Loop() {
				if _, err := protocol.ParseUplink(m); err != nil {
					b.Fatal(err)
				}
			}
		}},
		{"broker: send, over loopback TCP", func(b *testing.B) { benchBroker(b, true) }},
		{"broker: receive, over loopback TCP", func(b *testing.B) { benchBroker(b, false) }},
		{"uplink: decode 60 ms", func(b *testing.B) { benchDecode(b, sound) }},
		{"uplink: detect speech in 60 ms", benchDetect},
		{"uplink: 60 ms from Hear to endpointing, decoding and two goroutine switches included",
			func(b *testing.B) { benchHear(b, sound) }},
		{"downlink: encode 60 ms", benchEncode},
		{"downlink: 3 × 20 ms to 60 ms without a codec", func(b *testing.B) { benchMerge(b, short) }},
	}, nil
}

const (
	stageUp   = "up: a datagram from the socket to the receiver"
	stageMade = "making that datagram, which is not part of the server"
	stageDown = "down: Send to the socket"
)

// A line is a socket that hands out a caller's packets and takes anything.
type line struct {
	caller *caller
	left   int
	onLast func()
}

func (l *line) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	if l.left == 0 {
		l.onLast()
		return 0, netip.AddrPort{}, net.ErrClosed
	}
	l.left--
	return copy(b, l.caller.next()), lineAddr, nil
}

func (*line) WriteToUDPAddrPort(b []byte, _ netip.AddrPort) (int, error) { return len(b), nil }
func (*line) LocalAddr() net.Addr                                        { return net.UDPAddrFromAddrPort(lineAddr) }
func (*line) Close() error                                               { return nil }

var lineAddr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 8884)

type deaf struct{}

func (deaf) PathReady()                  {}
func (deaf) Audio(_, _ uint32, _ []byte) {}

// lineServer returns a channel of a server on a line, and what serves it its n
// packets.
func lineServer(b *testing.B, n int) (*udpaudio.Channel, func()) {
	l := &line{left: n}
	s := udpaudio.New(l, udpaudio.Config{}, slog.New(slog.DiscardHandler))
	c, err := s.Open(deaf{})
	if err != nil {
		b.Fatal(err)
	}
	key, nonce := c.Offer()
	l.caller = newCaller(offer{key, nonce})
	ctx, cancel := context.WithCancel(context.Background())
	l.onLast = cancel
	return c, func() {
		if err := s.Serve(ctx); err != nil {
			b.Fatal(err)
		}
		if got := s.Stats(); got.Delivered != uint64(n) {
			b.Fatalf("%d of %d delivered", got.Delivered, n)
		}
	}
}

func benchUp(b *testing.B) {
	_, serve := lineServer(b, b.N)
	b.ResetTimer()
	serve()
}

func benchMade(b *testing.B) {
	c, buffer := newCaller(offer{}), make([]byte, 128)
	for b.Loop() {
		copy(buffer, c.next())
	}
}

// benchDown sends after the server has ended, which channels survive.
func benchDown(b *testing.B) {
	c, serve := lineServer(b, 1)
	serve()
	opus := make([]byte, packetSize)
	for b.Loop() {
		if _, err := c.Send(opus); err != nil {
			b.Fatal(err)
		}
	}
}

// An exchange is a broker's handler that says what came.
type exchange struct {
	links chan *broker.Link
	got   chan struct{}
}

func (e exchange) Connect(l *broker.Link) broker.Receiver { e.links <- l; return e }
func (e exchange) Receive([]byte)                         { e.got <- struct{}{} }
func (exchange) Disconnected(error)                       {}

// benchBroker carries messages of 120 bytes one way.
func benchBroker(b *testing.B, down bool) {
	e := exchange{make(chan *broker.Link, 1), make(chan struct{}, 1)}
	limits := broker.Limits{ConnectRate: rate.Limit(-1), MessageRate: rate.Limit(-1)}
	server, err := broker.New(broker.Config{Listen: "127.0.0.1:0", Key: []byte(houseKey), Limits: limits}, e, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx) }()
	defer func() {
		cancel()
		if err := <-served; err != nil {
			b.Error(err)
		}
	}()
	p, err := dialRaw(ctx, server.Addr().String(), 1)
	if err != nil {
		b.Fatal(err)
	}
	defer p.conn.Close()
	link, message := <-e.links, make([]byte, 120)
	length := int64(2 + 2 + len(protocol.DownlinkTopic(p.id)) + len(message))
	b.ReportAllocs()
	for b.Loop() {
		if !down {
			if err := p.publish(string(message)); err != nil {
				b.Fatal(err)
			}
			<-e.got
			continue
		}
		if err := link.Send(message); err != nil {
			b.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, p.conn, length+1); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDecode(b *testing.B, sound [][]byte) {
	d, err := audio.NewDecoder(audio.MicrophoneRate)
	if err != nil {
		b.Fatal(err)
	}
	pcm := make([]int16, audio.MicrophoneRate*60/1000)
	for i := 0; b.Loop(); i++ {
		if _, err := d.Decode(sound[i%len(sound)], pcm); err != nil {
			b.Fatal(err)
		}
	}
}

func benchDetect(b *testing.B) {
	d, err := vad.New()
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	const n = audio.MicrophoneRate / 50
	pcm := speechLike(audio.MicrophoneRate, 3*time.Second)
	for i := 0; b.Loop(); i += 3 {
		for k := range 3 {
			at := (i + k) % (len(pcm) / n) * n
			d.Speech(pcm[at : at+n])
		}
	}
}

func benchEncode(b *testing.B) {
	e, err := audio.NewEncoder(audio.SpeakerEncoding())
	if err != nil {
		b.Fatal(err)
	}
	pcm, out := speechLike(audio.SpeakerRate, 3*time.Second), make([]byte, audio.MaxPayload)
	for i := 0; b.Loop(); i++ {
		at := i % (len(pcm) / audio.SpeakerFrame) * audio.SpeakerFrame
		if _, err := e.Encode(pcm[at:at+audio.SpeakerFrame], out); err != nil {
			b.Fatal(err)
		}
	}
}

func benchMerge(b *testing.B, short [][]byte) {
	var r audio.Repacketizer
	buffer := make([]byte, 0, audio.MaxPayload)
	for i := 0; b.Loop(); i += 3 {
		for k := range 3 {
			// A stream that changes its mode in the middle costs an encode.
			if err := r.Push(short[(i+k)%len(short)]); err != nil {
				r.Reset()
			}
		}
		buffer = r.AppendPacket(buffer[:0])
		r.Reset()
	}
}

// A judge is a detector that says when it has been asked about a packet.
type judge struct {
	frames int
	done   chan struct{}
}

func (j *judge) Speech([]int16) bool {
	if j.frames++; j.frames%3 == 0 {
		j.done <- struct{}{}
	}
	return false
}
func (*judge) Close() {}

// A mute is a conversation's device and its tools, neither of which is asked.
type mute struct{}

func (mute) Transcript(string)                                                      {}
func (mute) Start()                                                                 {}
func (mute) Sentence(string)                                                        {}
func (mute) Emotion(string, string)                                                 {}
func (mute) Play([]byte) error                                                      { return nil }
func (mute) Repeat() error                                                          { return nil }
func (mute) Stop()                                                                  {}
func (mute) End(string)                                                             {}
func (mute) Tools() []pipeline.Tool                                                 { return nil }
func (mute) Call(context.Context, pipeline.Call) (r pipeline.ToolResult, err error) { return r, nil }

// benchHear has a conversation hear what is not speech.
func benchHear(b *testing.B, sound [][]byte) {
	j := &judge{done: make(chan struct{}, 1)}
	synth, err := newSynthesizer(0, frame, false)
	if err != nil {
		b.Fatal(err)
	}
	providers := pipeline.Providers{
		ASR: recogniser{}, LLM: newTalker(0, 1), TTS: pipeline.BySentence(synth, audio.NewEncoderPool(1)), Tools: mute{},
	}
	c, err := pipeline.New(pipeline.DefaultConfig(), providers, j, mute{}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); c.Run(ctx) }()
	c.ListenStart(pipeline.Auto)
	sequence := uint32(0)
	hear := func() {
		c.Hear(sequence, sound[int(sequence)%len(sound)])
		sequence++
	}
	// A packet that overtakes the listen start is kept for a second, or dropped.
	for listening := false; !listening; {
		hear()
		select {
		case <-j.done:
			listening = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	for b.Loop() {
		hear()
		<-j.done
	}
	cancel()
	<-done
}
