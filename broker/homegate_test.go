package broker

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"parley/internal/protocol"
)

// Who names a user is that user's client, or nobody; everybody else is a device,
// or nobody.
func TestTwoClasses(t *testing.T) {
	device := signed(clientID(macA))
	wrong := asUser("admin", "ha")
	wrong.password = "open sesam"
	none := asUser("admin", "ha")
	none.password = ""
	nobody := asUser("nobody", clientID(macA))
	posing := asUser("admin", clientID(macA)) // a device's client id
	stolen := device
	stolen.username = "admin" // a device's password
	noID, noIDKept := asUser("admin", ""), asUser("admin", "")
	noIDKept.unclean = true
	long := asUser("admin", strings.Repeat("x", 257))
	elsewhere := asUser("lamp", "l1")
	elsewhere.last = &lastWord{topic: "lamps/lamp/l2/state", payload: "gone"}
	devices := asUser("admin", "ha")
	devices.last = &lastWord{topic: protocol.DownlinkTopic(macA), payload: "gone"}
	method := asUser("admin", "ha")
	method.props = property(0x15, "SCRAM-SHA-1") // which MQTT 3 cannot ask for
	for _, c := range []struct {
		name   string
		h      hello
		class  string // home, device, or "" if refused
		v3, v5 byte
		why    Refusal
	}{
		{"user", asUser("admin", "ha"), "home", 0, 0, ""},
		{"user with a device's client id", posing, "home", 0, 0, ""},
		{"user without client id", noID, "home", 0, 0, ""},
		{"device", device, "device", 0, 0, ""},
		{"wrong password", wrong, "", 4, 0x86, RefusedCredentials},
		{"no password", none, "", 4, 0x86, RefusedCredentials},
		{"device's password", stolen, "", 4, 0x86, RefusedCredentials},
		{"unknown user", nobody, "", 4, 0x86, RefusedCredentials},
		{"authentication method", method, "", 0, 0x8C, RefusedCredentials},
		{"session without client id", noIDKept, "", 2, 0, RefusedClientID},
		{"long client id", long, "", 2, 0x85, RefusedClientID},
		{"will for another's topic", elsewhere, "", 5, 0x87, RefusedWill},
		{"will for a device", devices, "", 5, 0x87, RefusedWill},
	} {
		for _, version := range []byte{3, 4, 5} {
			if version == 5 && c.h.unclean || version < 5 && c.h.props != nil {
				continue // MQTT 5 gives it a client id; MQTT 3 has no properties
			}
			t.Run(fmt.Sprint(c.name, "/", version), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					l, r, log := newPipeListener(), newRecorder(), new(logBuffer)
					b := startLogging(t, homeConfig(l), r, log.logger())
					c.h.version = version
					conn := l.dial(t, "192.168.7.9:50000")
					switch c.class {
					case "":
						refused(t, conn, c.h, map[bool]byte{false: c.v3, true: c.v5}[version == 5])
						synctest.Wait()
						if s := b.Stats(); s.Refused[c.why] != 1 || s.Home.Sessions != 0 {
							t.Errorf("stats %+v, want one refused for %q", s, c.why)
						}
					case "home":
						joinHome(t, conn, c.h)
					case "device":
						join(t, conn, c.h)
						r.next(t, "connect")
					}
					synctest.Wait()
					s := b.Stats()
					if s.Home.Connected != int64(map[bool]int{true: 1}[c.class == "home"]) ||
						s.Connected != int64(map[bool]int{true: 1}[c.class == "device"]) || len(r.events) > 0 {
						t.Errorf("stats %+v, want one %s", s, c.class)
					}
					if strings.Contains(log.String(), homePassword) || strings.Contains(log.String(), "sesam") {
						t.Error("the log holds a password")
					}
				})
			})
		}
	}
}

// A lamp's password is no password for the Internet: from there a home client
// needs TLS, which a pipe without it is not.
func TestHomeClientsFromOutside(t *testing.T) {
	for from, welcome := range map[string]bool{
		"192.168.7.2:1": true, "127.0.0.1:1": true, "[fd00::1]:1": true,
		"203.0.113.9:1": false, "[2001:db8::1]:1": false, "[::ffff:8.8.8.8]:1": false,
	} {
		t.Run(from, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, log := newPipeListener(), new(logBuffer)
				b := startLogging(t, homeConfig(l), newRecorder(), log.logger())
				if welcome {
					joinHome(t, l.dial(t, from), asUser("admin", "ha"))
					return
				}
				refused(t, l.dial(t, from), asUser("admin", "ha"), 5)
				synctest.Wait()
				if s := b.Stats(); s.Refused[RefusedPublic] != 1 || s.Home.Sessions != 0 || !strings.Contains(log.String(), "TLS") {
					t.Errorf("stats %+v, log %q", s, log)
				}
			})
		})
	}
}

// Without users there is no second class, and the broker is as it was.
func TestNoUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newPipeListener()
		b := start(t, Config{Listener: l, Key: testKey}, newRecorder())
		if b.Home() != nil {
			t.Error("a bus without users")
		}
		refused(t, l.dial(t, "10.0.0.1:1"), asUser("admin", "ha"), 2)
		if s := b.Stats().Home; s != (HomeStats{}) {
			t.Errorf("stats %+v", s)
		}
	})
}

// Devices and home clients hear nothing of each other, whatever they try.
func TestClassesDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := newPipeListener(), newRecorder()
		b := start(t, homeConfig(l), r)
		home := joinHome(t, l.dial(t, "10.0.0.1:1"), asUser("admin", "ha"))
		home.mustSubscribe("#", 1)
		home.mustSubscribe("+/+/+", 1)
		device := join(t, l.dial(t, "10.0.0.2:1"), signed(clientID(macA)))
		link := r.next(t, "connect").link
		if _, err := b.Home().Subscribe("#", func(m Message) { t.Errorf("the bus heard %q", m.Topic) }); err != nil {
			t.Fatal(err)
		}

		for _, topic := range []string{protocol.SharedUplinkTopic, protocol.UplinkTopic(macA)} {
			device.write(publish(topic, "uplink")...)
			r.next(t, "receive")
		}
		device.write(publish("home/lamp", "from a device")...)
		if err := link.Send([]byte("downlink")); err != nil {
			t.Fatal(err)
		}
		device.next(0x30)
		// The device subscribes to its own topic, and to all.
		device.write(frame(0x82, append(appendString([]byte{0, 1}, "#"), 0))...)
		if ack := device.next(firstSuback); ack.body[2] != 0x80 {
			t.Errorf("a device's SUBSCRIBE to #: code %#x", ack.body[2])
		}
		device.ping()
		home.quiet()

		for _, topic := range []string{protocol.DownlinkTopic(macA), "/" + protocol.DownlinkTopic(macA),
			protocol.UplinkTopic(macA), protocol.SharedUplinkTopic, "devices/p2p", "$SYS/broker/version", "$share/g/x"} {
			home.send(topic, "spoofed", 1, true, 1)
			home.next(firstPuback)
			if err := b.Home().Publish(topic, []byte("spoofed"), true); err == nil {
				t.Errorf("the bus published to %q", topic)
			}
			for _, f := range []string{topic, topic + "/#", topic + "/+"} {
				if code := home.subscribe(f, 0); code != 0x80 {
					t.Errorf("SUBSCRIBE %q: code %#x, want 0x80", f, code)
				}
				if _, err := b.Home().Subscribe(f, func(Message) {}); err == nil {
					t.Errorf("the bus subscribed to %q", f)
				}
			}
		}
		home.quiet()
		device.ping()
		if s := b.Stats(); s.Home.Received != 0 || s.Home.Retained != 0 || s.Received != 2 || len(r.events) != 0 {
			t.Errorf("stats %+v, want nothing from home and two messages of the device", s)
		}
	})
}

func TestUserConfig(t *testing.T) {
	good := User{Name: "ha", Password: Secret("x")}
	for want, u := range map[string]User{
		"":                         good,
		"give it 1":                {Password: Secret("x")},
		"cannot stand":             {Name: "a/b", Password: Secret("x")},
		"has no password":          {Name: "ha"},
		"Publish filter \"a#\"":    {Name: "ha", Password: Secret("x"), Publish: []string{"a#"}},
		"Subscribe filter \"#/a\"": {Name: "ha", Password: Secret("x"), Subscribe: []string{"#/a"}},
		"which no home client has": {Name: "ha", Password: Secret("x"), Subscribe: []string{"devices/p2p/+"}},
		"is there twice":           {Name: "admin", Password: Secret("x")},
	} {
		cfg := homeConfig(newPipeListener())
		cfg.Users = append(cfg.Users, u)
		b, err := New(cfg, quiet{}, slog.New(slog.DiscardHandler))
		switch {
		case want == "" && err == nil:
			_ = b.Close()
		case want == "" || err == nil || !strings.Contains(err.Error(), want):
			t.Errorf("error %v, want %q", err, want)
		}
	}
	cfg := homeConfig(newPipeListener())
	for _, l := range []HomeLimits{{MaxQueued: -1}, {MaxPacket: 1 << 28}, {MaxInflight: 1 << 16}} {
		cfg.Limits.Home = l
		if _, err := New(cfg, quiet{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "Limits.Home.") {
			t.Errorf("%+v: error %v", l, err)
		}
	}
	if s := fmt.Sprintf("%v %+v %s %q %x %#v", good, good, good.Password, good.Password, good.Password, good.Password); strings.Contains(s, "x\"") || !strings.Contains(s, "***") {
		t.Errorf("printed as %s", s)
	}
	if s, err := json.Marshal(good); err != nil || !strings.Contains(string(s), `"Password":"***"`) {
		t.Errorf("marshalled as %s, %v", s, err)
	}
}
