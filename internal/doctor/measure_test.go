package doctor

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"parley/internal/audio"
)

const step = time.Millisecond

// sentAt is n packets, 60 ms apart.
func sentAt(n int) []time.Time {
	out := make([]time.Time, n)
	for i := range out {
		out[i] = noon.Add(time.Duration(i) * packetTime)
	}
	return out
}

func TestFigures(t *testing.T) {
	sent := sentAt(4)
	back := func(number, seq uint32, trip time.Duration) arrival {
		return arrival{number, seq, sent[number].Add(trip)}
	}
	for name, c := range map[string]struct {
		arrived []arrival
		want    figures
	}{
		"nothing": {nil, figures{Sent: 4, LostThere: 4}},
		"all": {[]arrival{back(0, 1, 10*step), back(1, 2, 20*step), back(2, 3, 40*step), back(3, 4, 10*step)},
			figures{Sent: 4, Least: 10 * step, Median: 20 * step, Most: 40 * step, Jitter: 20 * step}},
		"lost there": {[]arrival{back(0, 1, step), back(3, 2, step)}, figures{Sent: 4, LostThere: 2, Least: step, Median: step, Most: step}},
		"lost back":  {[]arrival{back(0, 1, step), back(3, 4, step)}, figures{Sent: 4, LostBack: 2, Least: step, Median: step, Most: step}},
		"swapped": {[]arrival{back(0, 1, step), back(2, 3, step), back(1, 2, step), back(3, 4, step)},
			figures{Sent: 4, Swapped: 1, Least: step, Median: step, Most: step}},
		"repeated": {[]arrival{back(0, 1, step), back(0, 1, 2*step), back(1, 2, step), back(2, 3, step), back(3, 4, step)},
			figures{Sent: 4, Repeated: 1, Least: step, Median: step, Most: step}},
		"numbered from a billion": {[]arrival{back(0, 1e9, step)}, figures{Sent: 4, LostBack: 3, Least: step, Median: step, Most: step}},
		"never sent":              {[]arrival{{77, 1, noon}}, figures{Sent: 4, LostThere: 4, Repeated: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (&line{sent: sent, arrived: c.arrived}).figures(); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestWhatFiguresMean(t *testing.T) {
	good := figures{Sent: 50, Least: 5 * step, Median: 8 * step, Most: 30 * step}
	with := func(change func(*figures)) figures {
		f := good
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		f      figures
		want   Verdict
		remedy string
	}{
		"good":     {good, OK, ""},
		"lossy":    {with(func(f *figures) { f.LostBack = 2 }), Warn, "Wi-Fi"},
		"broken":   {with(func(f *figures) { f.LostThere = 6 }), Fail, "access point"},
		"jittery":  {with(func(f *figures) { f.Most = 250 * step }), Warn, "at least 300ms"},
		"shuffled": {with(func(f *figures) { f.Swapped = 1 }), Warn, "late"},
		"far":      {with(func(f *figures) { f.Least, f.Median, f.Most = 450*step, 500*step, 510*step }), Warn, "nearer"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Report
			c.f.report(&r)
			if f := found(t, r, "quality", c.want); !strings.Contains(f.Remedy, c.remedy) {
				t.Errorf("remedy %q", f.Remedy)
			}
		})
	}
}

// TestTheSoundIsSilence asserts that what is sent is Opus of 60 ms, mono, and
// silent, whatever its number.
func TestTheSoundIsSilence(t *testing.T) {
	decoder, err := audio.NewDecoder(16000)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint32{0, 1, 49, 1<<32 - 1} {
		p := sound(n)
		if got, ok := soundNumber(p); !ok || got != n {
			t.Errorf("number %d, %v; want %d", got, ok, n)
		}
		info, err := audio.Inspect(p)
		if err != nil || info.Duration() != packetTime || info.Stereo {
			t.Errorf("%+v, %v", info, err)
		}
		pcm := make([]int16, 16000)
		m, err := decoder.Decode(p, pcm)
		if err != nil || m != 960 {
			t.Fatalf("%d samples, %v", m, err)
		}
		for _, s := range pcm[:m] {
			if s < -1 || s > 1 {
				t.Fatalf("a sample of %d", s)
			}
		}
	}
}

func TestHowAReportReads(t *testing.T) {
	var r Report
	r.ok("ports", "free")
	r.warn("clock", "set it", "slow")
	if got := r.Conclusion(); !strings.Contains(got, "warnings") || !r.Healthy() {
		t.Errorf("conclusion %q", got)
	}
	r.fail("audio", "open it\n\x1b[2J", "closed\rnow")
	const want = `ok    ports       free
warn  clock       slow
                  -> set it
fail  audio       closed now
                  -> open it [2J

verdict: closed now: open it [2J
`
	if got := text(t, r); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	b, err := json.Marshal(r)
	if err != nil || !bytes.HasPrefix(b, []byte(`{"healthy":false,"conclusion":"closed now: open it [2J","findings":[{"check":"ports","verdict":"ok","found":"free"},`)) {
		t.Errorf("got %s, %v", b, err)
	}
	if b, err = json.Marshal(Report{}); err != nil || string(b) != `{"healthy":true,"conclusion":"this works","findings":[]}` {
		t.Errorf("got %s, %v", b, err)
	}
}

func TestOTARepliesThatHurt(t *testing.T) {
	const good = `"endpoint":"h:1883","publish_topic":"t"`
	for name, c := range map[string]struct {
		reply string
		want  Verdict
		text  string
	}{
		"good":          {`{"mqtt":{` + good + `}}`, OK, "broker h:1883"},
		"default port":  {`{"mqtt":{"endpoint":"h"}}`, OK, "broker h"},
		"no JSON":       {`<html>`, Fail, "no JSON"},
		"no mqtt":       {`{"firmware":{}}`, Fail, "no mqtt section"},
		"scheme":        {`{"mqtt":{"endpoint":"mqtt://h:1883"}}`, Fail, "boot loop"},
		"IPv6":          {`{"mqtt":{"endpoint":"[::1]:1883"}}`, Fail, "boot loop"},
		"no host":       {`{"mqtt":{"endpoint":":1883"}}`, Fail, "no host"},
		"long key":      {`{"mqtt":{` + good + `,"sixteen_letters_":"x"}}`, Fail, "mqtt.sixteen_letters_"},
		"wrong type":    {`{"mqtt":{"endpoint":5}}`, Fail, "type"},
		"keepalive":     {`{"mqtt":{` + good + `,"keepalive":"60"}}`, Warn, "keepalive"},
		"activation":    {`{"mqtt":{` + good + `},"activation":{"code":"123456"}}`, Warn, "activated"},
		"version":       {`{"mqtt":{` + good + `},"firmware":{"version":"v1.2","url":"http://x"}}`, Fail, `"v1.2"`},
		"unused":        {`{"mqtt":{` + good + `},"firmware":{"version":"v1.2","url":""}}`, OK, ""},
		"forced":        {`{"mqtt":{` + good + `},"firmware":{"version":"1.2","url":"http://x","force":1}}`, Warn, "force"},
		"another clock": {`{"mqtt":{` + good + `},"server_time":{"timestamp":1}}`, Warn, "clock"},
	} {
		t.Run(name, func(t *testing.T) {
			var r Report
			b := readBoot(&r, []byte(c.reply), noon)
			if f := found(t, r, "ota reply", c.want); !strings.Contains(f.Found, c.text) || c.want != OK && f.Remedy == "" {
				t.Errorf("found %q, remedy %q", f.Found, f.Remedy)
			}
			if b == nil && r.Healthy() {
				t.Error("the visit ends without a fault")
			}
		})
	}
}

// FuzzReadBoot asserts that no reply is believed that a device does not survive,
// and that there always is a finding.
func FuzzReadBoot(f *testing.F) {
	f.Add([]byte(`{"mqtt":{"endpoint":"h:1883","keepalive":60},"server_time":{"timestamp":1e300},"firmware":{"version":"..","url":"x"}}`))
	f.Add([]byte(`{"mqtt":{"endpoint":"h:99999999999999999999"}}`))
	f.Fuzz(func(t *testing.T, reply []byte) {
		var r Report
		b := readBoot(&r, reply, noon)
		if len(r.Findings) == 0 {
			t.Error("no finding")
		}
		if b == nil {
			return
		}
		if addr, _ := b.address(); endpointProblem(b.MQTT.Endpoint) != "" || addr == "" {
			t.Errorf("endpoint %q is believed", b.MQTT.Endpoint)
		}
	})
}

// FuzzOffer asserts that an answer to hello is refused or complete, and that any
// datagram is survived with it.
func FuzzOffer(f *testing.F) {
	const key = "00112233445566778899aabbccddeeff"
	c, err := newCodec(key, "01000000aabbccdd0000000000000000")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"type":"hello","transport":"udp","session_id":"s","udp":{"server":"h","port":8884,"key":"`+key+`","nonce":"`+key+`"}}`), c.seal(sound(7), 1))
	f.Add([]byte(`{"transport":"udp","udp":{"server":"h","port":1e99,"key":"","nonce":""}}`), []byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, hello, datagram []byte) {
		var m message
		var s offer
		if json.Unmarshal(hello, &m) == nil && s.take(m) == nil && (s.codec == nil || s.host == "" || s.port < 1 || s.port > 65535) {
			t.Errorf("believed %s", hello)
		}
		if _, payload, ok := c.open(bytes.Clone(datagram)); ok {
			soundNumber(payload)
		}
	})
}

// A tape is a connection that plays what it was given, and then ends.
type tape struct {
	net.Conn
	bytes.Reader
}

func (t *tape) Read(p []byte) (int, error)      { return t.Reader.Read(p) }
func (t *tape) SetReadDeadline(time.Time) error { return nil }

// FuzzLink asserts that whatever a broker sends, reading ends, and no message is
// longer than allowed.
func FuzzLink(f *testing.F) {
	f.Add([]byte{0x20, 2, 0, 0, 0x30, 7, 0, 1, 't', '{', '}', ' ', ' '})
	f.Add([]byte{0x30, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{0x32, 4, 0, 1, 't', 0})
	f.Fuzz(func(t *testing.T, sent []byte) {
		conn := &tape{}
		conn.Reset(sent)
		l := &link{conn: conn, in: bufio.NewReader(conn)}
		for range len(sent) + 1 {
			m, err := l.next(time.Time{})
			if err != nil {
				return
			}
			if len(m) > maxMessage {
				t.Fatalf("a message of %d bytes", len(m))
			}
		}
		t.Fatal("more messages than bytes")
	})
}

func TestSealAndOpen(t *testing.T) {
	c, err := newCodec("00112233445566778899aabbccddeeff", "01000000aabbccdd0000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	p := c.seal(sound(7), 9)
	if bytes.Contains(p, []byte(soundMark)) {
		t.Error("the payload is not encrypted")
	}
	seq, payload, ok := c.open(p)
	if n, mine := soundNumber(payload); !ok || seq != 9 || !mine || n != 7 {
		t.Errorf("sequence %d, number %d, %v %v", seq, n, ok, mine)
	}
	for name, change := range map[string]func([]byte) []byte{
		"type": func(p []byte) []byte { p[0] = 2; return p }, "cut": func(p []byte) []byte { return p[:len(p)-1] }, "short": func(p []byte) []byte { return p[:15] },
	} {
		if _, _, ok := c.open(change(c.seal(sound(7), 9))); ok {
			t.Errorf("%s: accepted, though devices drop it", name)
		}
	}
}
