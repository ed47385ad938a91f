package device

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"testing"
)

// fuzzed is a device without a network, speaking in a session of its own.
func fuzzed(t *testing.T, p Profile) (*Device, net.Conn) {
	t.Helper()
	refuse := func(context.Context, string) (net.Conn, error) { return nil, errors.New("no network") }
	d, err := New(Options{ID: "aa:bb:cc:dd:ee:ff", MQTT: Credentials{Endpoint: "h"}, Profile: p, Decode: true, DialMQTT: refuse, DialUDP: refuse})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	conn, other := net.Pipe()
	t.Cleanup(func() { conn.Close(); other.Close() })
	c, err := newCodec("000102030405060708090a0b0c0d0e0f", "01000000000000000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.state = Speaking
	d.session.conn, d.session.codec, d.session.frame, d.session.window = conn, c, 60, newWindow()
	d.mu.Unlock()
	return d, conn
}

// FuzzMessage: no message of a server breaks a device of any profile.
func FuzzMessage(f *testing.F) {
	for _, m := range []string{
		`{"type":"hello","transport":"udp","session_id":"s","audio_params":{"frame_duration":60},"udp":{"server":"10.0.0.1","port":8884,"key":"01000000000000000000000000000000","nonce":"01000000000000000000000000000000"}}`,
		`{"type":"tts","state":"start"}`, `{"type":"tts","state":"stop"}`, `{"type":"goodbye","session_id":""}`,
		`{"type":"mcp","payload":{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"self.reboot","withUserTools":true}}}`,
		`{"type":"mcp","payload":{"jsonrpc":"2.0","id":-1e300,"method":"tools/call","params":{"name":"self.audio_speaker.set_volume","arguments":{"volume":1e300}}}}`,
		`{"type":"alert","status":"s","message":"m","emotion":"e"}`, `{"type":["x"]}`, `null`, `[`,
	} {
		f.Add(uint8(0), []byte(m))
		f.Add(uint8(7), []byte(m))
	}
	f.Fuzz(func(t *testing.T, profile uint8, m []byte) {
		if bytes.Contains(m, []byte("reboot")) {
			return // comes back after a second
		}
		d, _ := fuzzed(t, Profiles()[int(profile)%len(Profiles())])
		d.receive(m)
		if r := d.Report(); r.Messages != 1 {
			t.Errorf("%d messages", r.Messages)
		}
	})
}

// FuzzDatagram: no datagram breaks a device, and each is accounted for.
func FuzzDatagram(f *testing.F) {
	f.Add(uint8(0), []byte("\x01\x80\x00\x08aaaa\x00\x00\x00\x3c\x00\x00\x00\x0112345678"))
	f.Add(uint8(1), []byte("\x01\x00\x00\x00aaaa\x00\x00\x00\x00\xff\xff\xff\xff12345678"))
	f.Add(uint8(7), []byte("\x02\x00\xff\xffaaaa\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, profile uint8, datagram []byte) {
		d, conn := fuzzed(t, Profiles()[int(profile)%len(Profiles())])
		d.receiveAudio(conn, datagram)
		d.receiveAudio(conn, datagram)
		d.Close()
		r := d.Report()
		if r.Received != 2 || r.Played+r.Queued+r.Duplicate+r.Late+r.Malformed+r.Undecodable+r.Clipped() < 1 {
			t.Errorf("report %+v", r)
		}
	})
}

// FuzzMQTT: no bytes of a broker break a connection's reader, or make it hold
// more than a message.
func FuzzMQTT(f *testing.F) {
	f.Add([]byte("\x30\x05\x00\x01ahi\xd0\x00"))
	f.Add([]byte("\x32\x07\x00\x01a\x00\x01hi"))
	f.Add([]byte("\x30\xff\xff\xff\xff\x7f"))
	f.Add([]byte("\x30\xff\xff\xff\x7f"))
	f.Add([]byte("\x20\x02\x00\x00"))
	f.Add([]byte("\x90\x00\x40\x01"))
	f.Fuzz(func(t *testing.T, b []byte) {
		client, server := net.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 512)
			for { // the acknowledgements
				if _, err := server.Read(buf); err != nil {
					return
				}
			}
		}()
		l := &link{conn: client, in: bufio.NewReader(bytes.NewReader(b))}
		if err := l.receive(func(m []byte) {
			if len(m) > maxMessage {
				t.Errorf("message of %d bytes", len(m))
			}
		}); err == nil {
			t.Error("ended without an error")
		}
		client.Close()
		server.Close()
		<-done
	})
}
