package broker

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
)

var testKey = []byte("a key of the operator's")

// signed is the content of a CONNECT packet with valid credentials.
func signed(id string) hello {
	user := protocol.Enrolment{Host: "voice.example.org", Agent: "bread-compact/2.4.2"}.Username()
	return hello{clientID: id, username: user, password: protocol.Password(testKey, id, user), keepalive: 240}
}

func TestCredentials(t *testing.T) {
	good := signed(clientID(macA))
	legacy := "GID_test@@@" + macA.Underscored()
	otherKey := good
	otherKey.password = protocol.Password([]byte("another"), good.clientID, good.username)
	otherDevice := good
	otherDevice.clientID = clientID(macB)
	notBase64 := good
	notBase64.username = "not base64!"
	notBase64.password = protocol.Password(testKey, good.clientID, notBase64.username)
	for _, c := range []struct {
		name   string
		h      hello
		v3, v5 byte
		why    Refusal // "" if let in
	}{
		{"signed", good, 0, 0, ""},
		{"signed legacy id", signed(legacy), 0, 0, ""},
		{"key of another server", otherKey, 4, 0x86, RefusedCredentials},
		{"credentials of another device", otherDevice, 4, 0x86, RefusedCredentials},
		{"user name not base64", notBase64, 4, 0x86, RefusedCredentials},
		{"no password", hello{clientID: good.clientID, username: good.username}, 5, 0x87, RefusedCredentials},
		{"legacy id without password", hello{clientID: legacy}, 5, 0x87, RefusedCredentials},
		{"empty client id", hello{}, 2, 0x85, RefusedClientID},
		{"not a MAC", hello{clientID: "g@@@laptop@@@u"}, 2, 0x85, RefusedClientID},
		{"one part", hello{clientID: "mqttx_1234"}, 2, 0x85, RefusedClientID},
		{"four parts", hello{clientID: clientID(macA) + "@@@x"}, 2, 0x85, RefusedClientID},
	} {
		for _, version := range []byte{3, 4, 5} {
			t.Run(c.name+"/"+string('0'+version), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, r, log := newPipeListener(), newRecorder(), new(logBuffer)
					b := startLogging(t, Config{Listener: l, Key: testKey}, r, log.logger())
					c.h.version = version
					conn := l.dial(t, "203.0.113.9:50000") // a key lets devices in from anywhere
					code := c.v3
					if version == 5 {
						code = c.v5
					}
					if c.why != "" {
						refused(t, conn, c.h, code)
						synctest.Wait()
						if n := b.Stats().Refused[c.why]; n != 1 || len(b.Stats().Refused) != 1 {
							t.Errorf("refused %v, want one for %q", b.Stats().Refused, c.why)
						}
						if s := log.String(); !strings.Contains(s, `reason=`+string(c.why)) || strings.Contains(s, c.h.password) && c.h.password != "" {
							t.Errorf("log %q, want the reason and not the password", s)
						}
						return
					}
					join(t, conn, c.h)
					if d := r.next(t, "connect").link.Device(); !d.Signed || d.ID != macA || d.Enrolment.Host != "voice.example.org" {
						t.Errorf("device %+v", d)
					}
				})
			})
		}
	}
}

func TestOpenEnrolment(t *testing.T) {
	for from, local := range map[string]bool{
		"192.168.7.2:1": true, "10.0.0.1:1": true, "172.16.5.4:1": true, "127.0.0.1:1": true, "169.254.3.3:1": true,
		"100.64.0.1:1": true, "100.127.255.254:1": true, "[fd00::1]:1": true, "[fe80::1]:1": true, "[::1]:1": true,
		"[::ffff:192.168.1.1]:1": true,
		"8.8.8.8:1":              false, "100.63.255.255:1": false, "100.128.0.0:1": false, "172.32.0.1:1": false,
		"[2001:db8::1]:1": false, "[::ffff:8.8.8.8]:1": false,
	} {
		t.Run(from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, r, log := newPipeListener(), newRecorder(), new(logBuffer)
				b := startLogging(t, Config{Listener: l}, r, log.logger())
				h := hello{clientID: clientID(macA), username: "another server's", password: "x"}
				if local {
					join(t, l.dial(t, from), h)
					if d := r.next(t, "connect").link.Device(); d.Signed || d.Enrolment != (protocol.Enrolment{}) {
						t.Errorf("device %+v, want unsigned and no enrolment", d)
					}
					return
				}
				refused(t, l.dial(t, from), h, 5)
				synctest.Wait()
				if b.Stats().Refused[RefusedPublic] != 1 || !strings.Contains(log.String(), "set a signature key") {
					t.Errorf("refused %v, log %q", b.Stats().Refused, log)
				}
			})
		})
	}
}

// Whatever is not a CONNECT packet ends the connection, at the latest after the
// connect timeout, and before more than the packet's first bytes were read.
func TestNoConnect(t *testing.T) {
	big := signed(clientID(macA))
	big.username = strings.Repeat("x", 2048)
	unknown := signed(clientID(macA))
	unknown.version = 6
	bad := signed(clientID(macA)).packet()
	bad[len(bad)-1-len(signed(clientID(macA)).password)] ^= 0x7F // a length inside the packet
	whole := signed(clientID(macA)).packet()
	for _, c := range []struct {
		name  string
		bytes []byte
		why   Refusal
		after time.Duration
	}{
		{"nothing", nil, RefusedTimeout, 5 * time.Second},
		{"half a header", whole[:1], RefusedTimeout, 5 * time.Second},
		{"half a length", []byte{0x10, 0x80}, RefusedTimeout, 5 * time.Second},
		{"all but one byte", whole[:len(whole)-1], RefusedTimeout, 5 * time.Second},
		{"too large", big.packet()[:3], RefusedTooLarge, 0},
		{"endless length", []byte{0x10, 0xFF, 0xFF}, RefusedTooLarge, 0},
		{"level 6", unknown.packet(), RefusedVersion, 0},
		{"PUBLISH first", publish("device-server", "{}")[:2], RefusedMalformed, 0},
		{"TLS on the plain port", []byte{0x16, 0x03}, RefusedMalformed, 0},
		{"HTTP", []byte("GE"), RefusedMalformed, 0},
		{"inner length", bad, RefusedMalformed, 0},
		{"empty CONNECT", []byte{0x10, 0}, RefusedMalformed, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, r := newPipeListener(), newRecorder()
				b := start(t, Config{Listener: l, Key: testKey}, r)
				begin := time.Now()
				p := newPeer(t, l.dial(t, "10.0.0.1:1"))
				if c.bytes != nil {
					p.write(c.bytes...)
				}
				if c.why == RefusedVersion {
					if ack := p.next(0x20); ack.body[1] != 1 {
						t.Errorf("CONNACK code %d, want 1", ack.body[1])
					}
				}
				p.ended()
				if took := time.Since(begin); took != c.after {
					t.Errorf("ended after %v, want %v", took, c.after)
				}
				synctest.Wait()
				if s := b.Stats(); s.Refused[c.why] != 1 || s.Pending != 0 {
					t.Errorf("refused %v, pending %d, want one for %q, 0 pending", s.Refused, s.Pending, c.why)
				}
			})
		})
	}
}

// The largest credentials package protocol accepts fit into the default limit.
func TestLargestConnectFits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		start(t, Config{Listener: l, Key: testKey}, r)
		id := clientID(macA)
		id += strings.Repeat("u", 256-len(id))
		user := protocol.Enrolment{Host: strings.Repeat("h", 755)}.Username()
		if len(user) != 1024 {
			t.Fatalf("user name of %d bytes, want 1024", len(user))
		}
		join(t, l.dial(t, "8.8.8.8:1"), hello{version: 5, clientID: id, username: user, password: protocol.Password(testKey, id, user)})
	})
}

// MQTT 5: what is not offered is said, and a longer session is turned down.
func TestConnackProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		start(t, Config{Listener: l}, r)
		p := newPeer(t, l.dial(t, "10.0.0.1:1"))
		p.write(hello{version: 5, clientID: clientID(macA), unclean: true, will: true, props: []byte{
			0x11, 0, 0, 0x0E, 0x10, // session expiry: 3,600 s
			0x27, 0, 0, 0, 60, // maximum packet size: 60 bytes
		}}.packet()...)
		ack := p.next(0x20)
		want := map[byte]string{
			0x11: "\x00\x00\x00\x00", 0x21: "\x00\x40", 0x25: "\x00", 0x27: "\x00\x01\x00\x00",
			0x28: "\x00", 0x29: "\x00", 0x2A: "\x00",
		}
		if ack.body[0] != 0 || ack.body[1] != 0 {
			t.Errorf("CONNACK %x, want no session and code 0", ack.body)
		}
		props := ack.body[3:]
		for len(props) > 0 {
			v := want[props[0]]
			if v == "" || !strings.HasPrefix(string(props[1:]), v) {
				t.Fatalf("properties %x: at %x want one of %q", ack.body[3:], props, want)
			}
			delete(want, props[0])
			props = props[1+len(v):]
		}
		if len(want) > 0 {
			t.Errorf("properties missing: %q", want)
		}
		// What is larger than the client said it takes is not sent.
		link := r.next(t, "connect").link
		if err := link.Send([]byte("{}")); err != nil {
			t.Error(err)
		}
		if m := p.next(0x30); string(m.body[len(m.body)-3:]) != "\x00{}" {
			t.Errorf("PUBLISH %q", m.body)
		}
		wantReason(t, link.Send(make([]byte, 60)), ErrTooLarge)
	})
}
