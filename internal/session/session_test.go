package session_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/device"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/internal/simnet"
	"parley/pipeline"
)

const answer = "Hello yourself. It is a fine day."

// mustHear asserts that the answer was heard whole.
func mustHear(t *testing.T, d *device.Device, a device.Answer, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (answer %q, alerts %q)", err, a.Sentences, a.Alerts)
	}
	if got := strings.Join(a.Sentences, " "); got != answer {
		t.Errorf("heard %q, want %q", got, answer)
	}
	r := d.Report()
	if r.Clipped() != 0 || r.Undecodable != 0 || r.Malformed != 0 || r.Queued != 0 {
		t.Errorf("clipped %d (state %d, start %d, stop %d, overflow %d), report %+v",
			r.Clipped(), r.ClippedState, r.ClippedStart, r.ClippedStop, r.ClippedOverflow, r)
	}
}

func TestEveryClientInEveryModeHearsEveryWord(t *testing.T) {
	for _, p := range device.Profiles() {
		for _, m := range []protocol.Mode{protocol.ModeAuto, protocol.ModeManual, protocol.ModeRealtime} {
			t.Run(fmt.Sprint(p, " ", m), func(t *testing.T) {
				virtual(t, func(t *testing.T) {
					h := newHouse(t, nil)
					d := h.device(1, line{}, func(o *device.Options) { o.Profile, o.Mode = p, m })
					const turns = 20
					for range turns {
						a, err := h.ask(d)
						mustHear(t, d, a, err)
						if a.Transcript != "hello there" {
							t.Errorf("transcript %q", a.Transcript)
						}
					}
					if r := d.Report(); r.Underruns != 0 || int(r.Played) != turns*len(strings.ReplaceAll(answer, ". ", ".")) {
						t.Errorf("underruns %d, played %d", r.Underruns, r.Played)
					}
					h.stop()
				})
			})
		}
	}
}

func TestATurnOverTheNetworkCostsTheNetworkAndTheProviders(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		d := h.device(1, line{}, func(o *device.Options) { o.Mode = protocol.ModeManual })
		if _, err := h.ask(d); err != nil {
			t.Fatal(err)
		}
		tr := h.turns()[0]
		// The tail after the button, recogniser, model, voice.
		if got, want := tr.VoiceToVoice(), 100*ms+100*ms+100*ms+50*ms; got != want {
			t.Errorf("voice to voice %v, want exactly %v", got, want)
		}
	})
}

func TestToolsOfTheDevice(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.llm.tool, h.llm.args = "set_volume", `{"volume":50}`
		d := h.device(1, line{}, nil)
		synctest.Wait()
		a, err := h.ask(d)
		mustHear(t, d, a, err)
		if len(a.Calls) != 1 || a.Calls[0].Name != "self.audio_speaker.set_volume" || !strings.Contains(a.Calls[0].Args, "50") {
			t.Errorf("calls %+v", a.Calls)
		}
		tr := h.turns()[0]
		if len(tr.Tools) != 1 || tr.Tools[0].Failed || tr.Tools[0].Result != "true" {
			t.Errorf("traced %+v", tr.Tools)
		}
	})
}

func TestToolsARoleDeniesAreNotOffered(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, func(_ *session.Config, r *session.Role) { r.Deny = []string{"self.audio_speaker.*"} })
		h.llm.tool = "set_volume"
		d := h.device(1, line{}, nil)
		synctest.Wait()
		a, _ := h.ask(d)
		if len(a.Calls) != 0 {
			t.Errorf("calls %+v", a.Calls)
		}
		if tr := h.turns(); len(tr) != 1 || tr[0].Err == nil {
			t.Errorf("turns %+v", tr)
		}
	})
}

func TestAbortByButton(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		h.llm.text = strings.Repeat("one two three four. ", 30)
		d := h.device(1, line{}, nil)
		go func() {
			time.Sleep(6 * time.Second)
			d.Abort()
		}()
		if _, err := h.ask(d); err != nil {
			t.Fatal(err)
		}
		r := d.Report()
		if r.Clipped() != 0 || r.Played < 30 {
			t.Errorf("clipped %d, played %d", r.Clipped(), r.Played)
		}
		if tr := h.turns(); len(tr) != 1 || tr[0].CancelledBy != "abort" {
			t.Errorf("turns %+v", tr)
		}
		// The device listens again, and is answered.
		h.llm.text = answer
		a, err := h.ask(d)
		if err != nil || strings.Join(a.Sentences, " ") != answer {
			t.Errorf("after the abort: %v, %q", err, a.Sentences)
		}
	})
}

func TestAWakeWordThenAQuestion(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		d := h.device(1, line{}, nil)
		d.Wake("hi parley", tone(2*time.Second))
		time.Sleep(time.Second)
		a, err := h.ask(d)
		mustHear(t, d, a, err)
		if tr := h.turns(); len(tr) != 1 {
			t.Errorf("%d turns: the wake word was taken for a question", len(tr))
		}
	})
}

func TestSilenceEndsWithGoodbye(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		d := h.device(1, line{}, nil)
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := h.sessions.Stats(); s.Sessions != 1 || s.Devices != 1 {
			t.Fatalf("stats %+v", s)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		if s := h.sessions.Stats(); s.Sessions != 0 || s.Devices != 1 {
			t.Errorf("after the silence: %+v", s)
		}
		if d.State() != device.Idle {
			t.Errorf("the device is %v", d.State())
		}
		// The next question opens a new session.
		a, err := h.ask(d)
		mustHear(t, d, a, err)
	})
}

func TestShutdownLetsASentenceEndAndSaysGoodbye(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		quiet := h.device(1, line{}, nil)
		if err := quiet.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		speaking := h.device(2, line{}, nil)
		type result struct {
			a   device.Answer
			err error
		}
		done := make(chan result, 1)
		go func() {
			a, err := h.ask(speaking)
			done <- result{a, err}
		}()
		time.Sleep(2500 * ms) // in the middle of the answer
		h.stop()
		r := <-done
		mustHear(t, speaking, r.a, r.err)
		time.Sleep(time.Second) // the devices act on their goodbyes
		if quiet.State() != device.Idle || speaking.State() != device.Idle {
			t.Errorf("after the shutdown the devices are %v and %v", quiet.State(), speaking.State())
		}
		if s := h.sessions.Stats(); s.Sessions != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestTheSecondHelloReplacesTheSession(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		d := h.device(1, line{}, nil)
		if err := d.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.Disconnect() // the network drops; the device notices when it next speaks up
		time.Sleep(time.Second)
		synctest.Wait()
		if s := h.sessions.Stats(); s.Sessions != 0 || s.Devices != 0 {
			t.Errorf("after the drop: %+v", s)
		}
	})
}

func TestADeviceThatIsNotHeardIsTold(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, func(c *session.Config, _ *session.Role) { c.UDPPort = 9 }) // nobody there
		d := h.device(1, line{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		a, err := d.Ask(ctx, tone(time.Second))
		if err == nil || len(a.Alerts) != 1 {
			t.Errorf("error %v, alerts %q", err, a.Alerts)
		}
		if s := h.sessions.Stats(); s.NoAudio != 1 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestNetworks(t *testing.T) {
	both := func(p simnet.Path) line { return line{p, p, p, p} }
	for name, l := range map[string]line{
		"LAN":                  both(simnet.Path{Delay: ms}),
		"Wi-Fi with jitter":    both(simnet.Path{Delay: 5 * ms, Jitter: 50 * ms}),
		"4G":                   both(simnet.Path{Delay: 300 * ms}),
		"MQTT slower than UDP": {mqttUp: simnet.Path{Delay: 500 * ms}, mqttDown: simnet.Path{Delay: 100 * ms}},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(t *testing.T) {
				h := newHouse(t, nil)
				d := h.device(1, l, nil)
				a, err := h.ask(d)
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(a.Sentences, " "); got != answer {
					t.Errorf("heard %q", got)
				}
				r := d.Report()
				t.Logf("played %d, clipped %d, lost %d, late %d, underruns %d", r.Played, r.Clipped(), r.Lost, r.Late, r.Underruns)
				if r.Clipped() != 0 {
					t.Errorf("clipped: %+v", r)
				}
			})
		})
	}
}

// TestHostileNeighbour has one device converse while others send everything
// that is broken. Nothing changes for it.
func TestHostileNeighbour(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		d := h.device(1, line{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.molest(ctx)
		}()
		for range 5 {
			a, err := h.ask(d)
			mustHear(t, d, a, err)
		}
		if r := d.Report(); r.Underruns != 0 || r.Lost != 0 || r.Late != 0 {
			t.Errorf("underruns %d, lost %d, late %d", r.Underruns, r.Lost, r.Late)
		}
		cancel()
		<-ended
		s := h.sessions.Stats()
		if s.BadMessages == 0 || h.audio.Stats().Dropped.Total() == 0 || s.TurnsFailed != 0 {
			t.Errorf("the neighbour was not hostile: %+v, %+v", s, h.audio.Stats())
		}
	})
}

// molest sends broken input until ctx ends.
func (h *house) molest(ctx context.Context) {
	r := rand.New(rand.NewPCG(1, 2))
	udp, err := h.net.DialUDP(netip.MustParseAddr("10.0.9.9"), udpAddr, simnet.Path{}, simnet.Path{})
	if err != nil {
		h.t.Error(err)
		return
	}
	defer udp.Close()
	garbage := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	for i := byte(0); ctx.Err() == nil; i++ {
		for range 50 {
			b := garbage(r.IntN(1400))
			if len(b) > 16 && r.IntN(2) == 0 {
				b[0], b[2], b[3] = 1, byte((len(b)-16)>>8), byte(len(b)-16)
			}
			_, _ = udp.Write(b) // a full queue is as good
		}
		h.brokenMQTT(ctx, r, garbage)
		select {
		case <-time.After(100 * ms):
		case <-ctx.Done():
		}
	}
}

// brokenMQTT opens a connection of another device and abuses it.
func (h *house) brokenMQTT(ctx context.Context, r *rand.Rand, garbage func(int) []byte) {
	conn, err := h.net.DialTCP(ctx, netip.MustParseAddr("10.0.9.9"), mqttAddr, simnet.Path{}, simnet.Path{})
	if err != nil {
		return // the broker limits connections of one address: so much the better
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	connect := mqttConnect("G@@@02:00:00:00:00:ff@@@x")
	if r.IntN(3) == 0 {
		_, _ = conn.Write(connect[:r.IntN(len(connect))]) // truncated
		return
	}
	if _, err := conn.Write(connect); err != nil {
		return
	}
	_, _ = conn.Read(make([]byte, 4))
	for _, payload := range [][]byte{
		[]byte(`{"type":`), []byte(`[1,2]`), []byte(`{"type":"hello","audio_params":"x"}`), []byte(`{"type":5}`),
		[]byte(`{"type":"hello","version":{}}`), []byte(`{"type":"listen","state":"start","mode":7}`), nil,
		[]byte(`{"type":"mcp","payload":{"jsonrpc":"2.0","id":null,"result":1}}`), garbage(1000),
		[]byte(strings.Repeat(`{"type":"hello"`, 4000)), make([]byte, 1<<20),
	} {
		if _, err := conn.Write(mqttPublish("device-server", payload)); err != nil {
			return
		}
	}
}

func mqttConnect(clientID string) []byte {
	body := append([]byte{0, 4, 'M', 'Q', 'T', 'T', 4, 2, 0, 60, 0, byte(len(clientID))}, clientID...)
	return append([]byte{0x10, byte(len(body))}, body...)
}

func mqttPublish(topic string, payload []byte) []byte {
	n := 2 + len(topic) + len(payload)
	head := []byte{0x30}
	for n >= 128 {
		head = append(head, byte(n)|0x80)
		n >>= 7
	}
	head = append(head, byte(n), 0, byte(len(topic)))
	return append(append(head, topic...), payload...)
}

func TestWhatWasSaidIsRememberedInTheNextSession(t *testing.T) {
	virtual(t, func(t *testing.T) {
		h := newHouse(t, nil)
		var seen []pipeline.Message
		d := h.device(1, line{}, nil)
		if _, err := h.ask(d); err != nil {
			t.Fatal(err)
		}
		time.Sleep(70 * time.Second) // goodbye
		h.llm.text = "Again."
		h.llm.seen = &seen
		if _, err := h.ask(d); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range seen {
			got = append(got, m.Text)
		}
		if len(got) != 4 || got[2] != answer || got[3] != "hello there" {
			t.Errorf("the model saw %q", got)
		}
	})
}
