package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"parley/internal/protocol"
)

func TestConnectPacket(t *testing.T) {
	for p, keepalive := range map[Profile]uint16{FW24: 240, FW22: 240, FW18: 240, FW17: 120, FW162: 90, FW160: 90, FW15: 90} {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p}, func(b *bench) {
				synctest.Wait()
				c := b.control()[0].(*packets.ConnectPacket)
				if c.Keepalive != keepalive || c.ProtocolVersion != 4 || !c.CleanSession || c.WillFlag {
					t.Errorf("CONNECT %v", c)
				}
				if c.ClientIdentifier != "GID@@@aa_bb_cc_dd_ee_ff@@@u" || c.Username != "user" || string(c.Password) != "secret" {
					t.Errorf("CONNECT %v", c)
				}
				time.Sleep(time.Duration(keepalive) * time.Second)
				synctest.Wait()
				if n := len(b.control()); n != 3 {
					t.Errorf("%d packets in one keepalive, want CONNECT and two PINGREQ and no SUBSCRIBE", n)
				}
				b.open()
				if b.server.topic != "device-server/aa_bb_cc_dd_ee_ff" {
					t.Errorf("published to %q", b.server.topic)
				}
			})
		})
	}
}

func TestHelloMessage(t *testing.T) {
	const audio = `"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`
	for p, want := range map[Profile]string{
		FW24:  `{"type":"hello","version":3,"transport":"udp","features":{"mcp":true,"glyph_push":false},` + audio,
		FW18:  `{"type":"hello","version":3,"transport":"udp","features":{"mcp":true},` + audio,
		FW160: `{"type":"hello","version":3,"transport":"udp",` + audio,
	} {
		run(t, Options{Profile: p}, func(b *bench) {
			b.open()
			if got := b.server.messages[0].text; got != want {
				b.Errorf("%v: hello\n got %s\nwant %s", p, got, want)
			}
		})
	}
}

// The main task waits ten seconds for the reply to hello and does nothing else.
func TestHelloTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: newServer(t)}
		b.server.onHello = func() { b.say(call(1, "self.slow", `{}`)) }
		b.boot(Options{Tools: slow(0)})
		begin := time.Now()
		if err := b.Device.Open(context.Background()); !errors.Is(err, ErrEnded) || !errors.Is(err, ErrHello) {
			t.Fatalf("open: %v", err)
		}
		synctest.Wait()
		if got := b.diary.all(Failed)[0].Time.Sub(begin); got != 10040*ms {
			t.Errorf("gave up after %v", got)
		}
		time.Sleep(time.Second)
		b.expect(Idle)
		if got := b.diary.all(ToolCalled)[0].Time.Sub(begin); got < 10*time.Second {
			t.Errorf("a tool ran %v after hello, during the wait", got)
		}
		b.server.onHello = nil
		b.open() // a fresh hello
		same(t, "said", b.said(), []string{"hello", "mcp", "hello", "listen start auto"})
	})
}

// A reply that is no use is ignored by firmware since 2.4.0 and crashes older.
func TestBadHello(t *testing.T) {
	const key, nonce = `"key":"01000000000000000000000000000000"`, `"nonce":"01000000000000000000000000000000"`
	for _, m := range []string{
		`{"type":"hello"}`,
		`{"type":"hello","transport":"websocket","udp":{"server":"10.0.0.1","port":8884,` + key + `,` + nonce + `}}`,
		`{"type":"hello","transport":"udp"}`,
		`{"type":"hello","transport":"udp","udp":[]}`,
		`{"type":"hello","transport":"udp","udp":{"port":8884,` + key + `,` + nonce + `}}`,
		`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":"8884",` + key + `,` + nonce + `}}`,
		`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":0,` + key + `,` + nonce + `}}`,
		`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":65536,` + key + `,` + nonce + `}}`,
		`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":8884,"key":"01",` + nonce + `}}`,
		`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":8884,"key":"0100000000000000000000000000000x",` + nonce + `}}`,
		`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":8884,` + key + `}}`,
	} {
		for _, p := range []Profile{FW24, FW22} {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, server: newServer(t)}
				b.server.onHello = func() { b.say(m) }
				b.boot(Options{Profile: p})
				b.Toggle()
				time.Sleep(11 * time.Second)
				synctest.Wait()
				crashed := len(b.diary.all(Crashed))
				switch {
				case p == FW24 && (crashed != 0 || b.State() != Idle):
					t.Errorf("%v %s: %v, %d crashes; want a silent timeout", p, m, b.State(), crashed)
				case p == FW22 && (crashed != 1 || b.Report().Crashes != 1):
					t.Errorf("%v %s: %d crashes, want 1", p, m, crashed)
				}
			})
		}
	}
}

// goodbye needs the session's id; a missing one was enough through 2.2.6, and
// firmware before 2.2.2 answers with its own.
func TestGoodbye(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		message string
		state   State
		answer  bool
	}{
		{FW24, `{"type":"goodbye","session_id":"%s"}`, Idle, false},
		{FW24, `{"type":"goodbye","session_id":"other"}`, Listening, false},
		{FW24, `{"type":"goodbye"}`, Listening, false},
		{FW22, `{"type":"goodbye"}`, Idle, false},
		{FW22, `{"type":"goodbye","session_id":"other"}`, Listening, false},
		{FW18, `{"type":"goodbye","session_id":"%s"}`, Idle, true},
		{FW15, `{"type":"goodbye"}`, Idle, true},
		{Py, `{"type":"goodbye"}`, Idle, false},
	} {
		t.Run(c.profile.String(), func(t *testing.T) {
			run(t, Options{Profile: c.profile}, func(b *bench) {
				b.open()
				b.say(c.message)
				time.Sleep(time.Second)
				b.expect(c.state)
				if got := b.said()[len(b.said())-1] == "goodbye"; got != c.answer {
					t.Errorf("answered: %v, want %v", got, c.answer)
				}
				before := len(b.uplinks())
				time.Sleep(time.Second)
				synctest.Wait()
				if sends := len(b.uplinks()) > before; sends != (c.state == Listening) {
					t.Errorf("sends audio: %v", sends)
				}
			})
		})
	}
}

// The id of the last session is forgotten before each hello: a reply without one
// leaves the device with none.
func TestSessionIDForgotten(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		if got := b.SessionID(); got != "s1" {
			t.Errorf("session %q", got)
		}
		b.Toggle()
		time.Sleep(time.Second)
		b.server.onHello = func() {
			b.say(`{"type":"hello","transport":"udp","udp":{"server":"10.0.0.1","port":8884,"key":"01000000000000000000000000000000","nonce":"01000000000000000000000000000000"}}`)
		}
		b.Toggle()
		time.Sleep(time.Second)
		b.expect(Listening)
		if got := b.last().text; got != `{"session_id":"","type":"listen","state":"start","mode":"auto"}` {
			t.Errorf("said %s", got)
		}
	})
}

// Each session has a source port of its own, a new key and sequences from 1.
func TestSecondSession(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		first := b.server.from
		b.Toggle()
		time.Sleep(time.Second)
		b.expect(Idle)
		n := len(b.uplinks())
		b.open()
		synctest.Wait()
		if b.server.from == first {
			t.Errorf("both sessions from %v", first)
		}
		if u := b.uplinks()[n]; u.header.sequence != 1 {
			t.Errorf("second session begins with sequence %d", u.header.sequence)
		}
		b.speak()
		b.frame()
		time.Sleep(time.Second)
		b.tally(Report{Played: 1})
		same(t, "said", b.said(), []string{"hello", "listen start auto", "goodbye", "hello", "listen start auto"})
	})
}

// After 120 s without anything from the server the next use says hello again,
// without a goodbye.
func TestChannelTimeout(t *testing.T) {
	for wait, want := range map[time.Duration]string{119 * time.Second: "listen start manual", 121 * time.Second: "hello"} {
		run(t, Options{}, func(b *bench) {
			b.ButtonDown()
			time.Sleep(time.Second)
			b.ButtonUp()
			time.Sleep(wait - time.Second)
			n := len(b.said())
			b.ButtonDown()
			time.Sleep(time.Second)
			if got := b.said()[n]; got != want {
				b.Errorf("after %v: %q, want %q", wait, got, want)
			}
		})
	}
}

// A lost connection is retried once, after 60 s, if the device is idle then.
func TestReconnect(t *testing.T) {
	for _, c := range []struct {
		profile Profile
		busy    bool
		want    int // connections after 61 s
	}{{FW24, false, 2}, {FW24, true, 1}, {FW17, false, 1}} {
		t.Run(fmt.Sprint(c.profile, c.busy), func(t *testing.T) {
			run(t, Options{Profile: c.profile}, func(b *bench) {
				if c.busy {
					b.open()
				}
				b.Disconnect()
				time.Sleep(59 * time.Second)
				synctest.Wait()
				if n := len(b.diary.all(Connected)); n != 1 {
					t.Errorf("%d connections after 59 s", n)
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if n := len(b.diary.all(Connected)); n != c.want {
					t.Errorf("%d connections, want %d", n, c.want)
				}
				if c.busy {
					// Nothing has changed: it streams on until it must say something.
					b.expect(Listening)
					b.Toggle()
					time.Sleep(time.Second)
					b.expect(Idle)
				}
				time.Sleep(10 * time.Minute)
				b.open() // connects on demand where it must
				b.expect(Listening)
			})
		})
	}
}

func TestReboot(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		b.say(`{"type":"system","command":"reboot"}`)
		time.Sleep(3 * time.Second)
		b.expect(Idle)
		if n := len(b.diary.all(Connected)); n != 2 {
			t.Errorf("%d connections", n)
		}
		same(t, "said", b.said(), []string{"hello", "listen start auto", "goodbye"})
	})
}

// Messages a device does not know or cannot read are counted and change nothing.
func TestOddMessages(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.open()
		odd := []string{`{`, `[]`, `null`, `3`, `{}`, `{"type":1}`, `{"type":null}`, `{"type":"weather"}`, ``, "\x00"}
		for _, m := range odd {
			b.say(m)
		}
		harmless := []string{`{"type":"tts"}`, `{"type":"tts","state":"sentence_end"}`, `{"type":"tts","state":3}`,
			`{"type":"mcp"}`, `{"type":"mcp","payload":[]}`, `{"type":"llm"}`, `{"type":"system"}`, `{"type":"custom","payload":{}}`}
		for _, m := range harmless {
			b.say(m)
		}
		time.Sleep(time.Second)
		b.expect(Listening)
		r := b.Report()
		if r.BadMessages != int64(len(odd)) || r.ToolDropped != 2 {
			t.Errorf("%d bad messages of %d, %d dropped requests of 2", r.BadMessages, len(odd), r.ToolDropped)
		}
	})
}

func TestRefusedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: newServer(t)}
		b.Device = b.make(Options{MQTT: Credentials{Endpoint: "10.0.0.9", PublishTopic: "x"}})
		defer b.Device.Close()
		if err := b.Connect(context.Background()); err == nil {
			t.Error("connected to nobody")
		}
		if err := b.Device.Open(context.Background()); !errors.Is(err, ErrNotConnected) {
			t.Errorf("open: %v", err)
		}
	})
}

// Firmware up to 1.6.0 takes host:port for a host name.
func TestOldEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &bench{T: t, server: newServer(t)}
		for _, p := range []Profile{FW15, FW160, FW162, FW24} {
			d := b.make(Options{Profile: p, MQTT: Credentials{Endpoint: "10.0.0.1:8883"}})
			if err := d.Connect(context.Background()); (err != nil) != (p == FW15 || p == FW160) {
				t.Errorf("%v: %v", p, err)
			}
			d.Close()
		}
	})
}

func TestCloseWhileBusy(t *testing.T) {
	for name, busy := range map[string]func(b *bench){
		"hello":    func(b *bench) { b.server.onHello = func() {}; b.Toggle() },
		"tool":     func(b *bench) { b.say(call(1, "self.slow", `{}`)) },
		"speaking": func(b *bench) { b.open(); b.speak(); b.frames(5); b.stop() },
		"asking": func(b *bench) {
			b.server.wg.Go(func() {
				if _, err := b.Ask(context.Background(), make([]int16, 16000)); !errors.Is(err, ErrClosed) {
					t.Errorf("ask: %v", err)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Options{Profile: FW22, Tools: slow(time.Hour)}, func(b *bench) {
				busy(b)
				time.Sleep(time.Second)
				begin := time.Now()
				b.Device.Close()
				if d := time.Since(begin); d != 0 {
					t.Errorf("close took %v", d)
				}
				b.Device.Close() // again
				if err := b.Connect(context.Background()); !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
					t.Errorf("connect after close: %v", err)
				}
			})
		})
	}
}

// rounds answers OTA requests from a list.
type rounds struct {
	t        *testing.T
	replies  []string // "status body"
	requests []string
	headers  http.Header
}

func (r *rounds) RoundTrip(q *http.Request) (*http.Response, error) {
	r.requests = append(r.requests, q.Method+" "+q.URL.Path)
	r.headers = q.Header
	if len(r.replies) == 0 {
		r.t.Error("one request too many")
		return nil, io.EOF
	}
	var status int
	next := r.replies[0]
	r.replies = r.replies[1:]
	fmt.Sscan(next, &status)
	_, body, _ := strings.Cut(next, " ")
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: q}, nil
}

func TestBoot(t *testing.T) {
	const good = `200 {"mqtt":{"endpoint":"10.0.0.1:8883","client_id":"c","username":"u","password":"p","publish_topic":"up","subscribe_topic":"null","keepalive":120}}`
	for _, c := range []struct {
		name     string
		replies  []string
		requests int
		took     time.Duration
		fails    string
	}{
		{"at once", []string{good}, 1, 0, ""},
		{"activation", []string{`200 {"activation":{"code":"123456","message":"m","challenge":"c"}}`, "202 ", "500 ", "200 ", good}, 5, 13 * time.Second, ""},
		{"refused", []string{"404 "}, 1, 0, "404"},
		{"no JSON", []string{"200 <html>"}, 1, 0, "JSON"},
		{"no endpoint", []string{"200 {}"}, 1, 0, "endpoint"},
		{"long key", []string{`200 {"mqtt":{"endpoint":"h","a_rather_long_key":"x"}}`}, 1, 0, "boot loop"},
		{"scheme", []string{`200 {"mqtt":{"endpoint":"mqtt://h"}}`}, 1, 0, "port"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &bench{T: t, server: newServer(t)}
				web := &rounds{t: t, replies: c.replies}
				b.Device = b.make(Options{OTA: "http://h/xiaozhi/ota/", HTTP: &http.Client{Transport: web}})
				defer b.Device.Close()
				begin := time.Now()
				err := b.Connect(context.Background())
				if c.fails == "" && err != nil || c.fails != "" && (!errors.Is(err, ErrOTA) || !strings.Contains(err.Error(), c.fails)) {
					t.Fatalf("connect: %v, want %q", err, c.fails)
				}
				if len(web.requests) != c.requests || time.Since(begin) != c.took {
					t.Errorf("%v in %v", web.requests, time.Since(begin))
				}
				if web.headers.Get("Device-Id") != "aa:bb:cc:dd:ee:ff" || web.headers.Get("User-Agent") != "parley-simulator/2.4.2" ||
					web.headers.Get("Client-Id") != "00000000-0000-4000-8000-aabbccddeeff" {
					t.Errorf("headers %v", web.headers)
				}
				if err == nil {
					synctest.Wait()
					if p := b.control()[0].(*packets.ConnectPacket); p.ClientIdentifier != "c" || p.Keepalive != 120 {
						t.Errorf("CONNECT %v", p)
					}
				}
			})
		})
	}
}

// The default dialers use the real network.
func TestRealSockets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		for {
			p, err := packets.ReadPacket(c)
			if err != nil {
				return
			}
			switch p.(type) {
			case *packets.ConnectPacket:
				_ = packets.NewControlPacket(packets.Connack).Write(c)
			case *packets.PublishPacket:
				out := packets.NewControlPacket(packets.Publish).(*packets.PublishPacket)
				offer := protocol.UDPOffer{Server: "127.0.0.1", Port: u.LocalAddr().(*net.UDPAddr).Port, Nonce: [16]byte{1}}
				out.TopicName, out.Payload = "x", protocol.HelloReply("s", offer)
				_ = out.Write(c)
			}
		}
	})
	d, err := New(Options{ID: "aa:bb:cc:dd:ee:ff", DisplayWork: -1, MQTT: Credentials{Endpoint: l.Addr().String(), PublishTopic: "up"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Connect(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.Open(ctx); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, _, err := u.ReadFrom(buf); err != nil || n < headerLen || buf[0] != 1 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
