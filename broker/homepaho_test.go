package broker

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
)

// pahoHome connects a real client of MQTT 3.1.1 as a home client.
func pahoHome(t *testing.T, url, user, id string, set func(*paho.ClientOptions)) paho.Client {
	t.Helper()
	o := paho.NewClientOptions().AddBroker(url).SetClientID(id).SetUsername(user).SetPassword(homePassword).
		SetProtocolVersion(4).SetAutoReconnect(false).SetTLSConfig(&tls.Config{InsecureSkipVerify: true})
	if set != nil {
		set(o)
	}
	c := paho.NewClient(o)
	wait(t, c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return c
}

// Real clients, plain and over TLS: discovery, commands, states and wills as
// Zigbee2MQTT and Home Assistant use them.
func TestHomePaho(t *testing.T) {
	cert, key := writeCertificate(t, t.TempDir(), "home.example.org", 1)
	b := start(t, Config{Listen: "127.0.0.1:0", TLSListen: "127.0.0.1:0", CertificateFile: cert, KeyFile: key, Users: homeUsers()}, quiet{})
	for _, url := range []string{"tcp://" + b.Addr().String(), "ssl://" + b.TLSAddr().String()} {
		got := make(chan string, 64)
		hear := func(_ paho.Client, m paho.Message) {
			got <- fmt.Sprint(m.Topic(), " ", string(m.Payload()), " ", m.Retained())
		}
		expect := func(want string) {
			t.Helper()
			if g := <-got; g != want {
				t.Errorf("heard %q, want %q", g, want)
			}
		}
		lamp := pahoHome(t, url, "lamp", "l1", func(o *paho.ClientOptions) {
			o.SetWill("lamps/lamp/l1/online", "offline", 1, true)
		})
		config := repeatJSON(200 << 10)
		wait(t, lamp.Publish("lamps/lamp/l1/config", 1, true, config))
		wait(t, lamp.Publish("lamps/lamp/l1/online", 2, true, "online"))
		wait(t, lamp.Subscribe("cmnd/l1/#", 1, func(c paho.Client, m paho.Message) {
			c.Publish("lamps/lamp/l1/state", 0, true, m.Payload())
		}))
		ha := pahoHome(t, url, "admin", "ha", func(o *paho.ClientOptions) { o.SetCleanSession(false) })
		wait(t, ha.Subscribe("lamps/+/+/config", 2, hear))
		expect("lamps/lamp/l1/config " + config + " true")
		wait(t, ha.Subscribe("lamps/+/+/online", 0, hear)) // QoS 0: nothing is left to acknowledge on leaving
		expect("lamps/lamp/l1/online online true")
		wait(t, ha.Subscribe("lamps/+/+/state", 2, hear))
		for qos := range byte(3) {
			wait(t, ha.Publish("cmnd/l1/power", qos, false, fmt.Sprint("ON", qos)))
			expect(fmt.Sprintf("lamps/lamp/l1/state ON%d false", qos))
		}
		other := lamp.Subscribe("#", 0, hear)
		other.WaitTimeout(time.Minute)
		if code := other.(*paho.SubscribeToken).Result()["#"]; code != 0x80 {
			t.Errorf("SUBSCRIBE to #: code %#x", code)
		}
		// The lamp's power fails: a second client takes its place and vanishes.
		h := asUser("lamp", "l1")
		h.last = &lastWord{topic: "lamps/lamp/l1/online", payload: "offline", retain: true}
		joinHome(t, dialTCP(t, b), h).vanish()
		expect("lamps/lamp/l1/online offline false") // of the one taken over
		expect("lamps/lamp/l1/online offline false")
		// Home Assistant restarts, and misses nothing that matters.
		ha.Disconnect(250)
		if err := b.Home().Publish("lamps/lamp/l1/state", []byte("while away"), true); err != nil {
			t.Fatal(err)
		}
		ha = pahoHome(t, url, "admin", "ha", func(o *paho.ClientOptions) {
			o.SetCleanSession(false).SetDefaultPublishHandler(hear)
		})
		expect("lamps/lamp/l1/state while away false")
		ha.Disconnect(250)
		joinHome(t, dialTCP(t, b), asUser("admin", "ha")).leave() // forget the session
		for _, topic := range []string{"config", "online", "state"} {
			if err := b.Home().Publish("lamps/lamp/l1/"+topic, nil, true); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Zigbee2MQTT starts: thousands of retained messages at once, from one client,
// and another hears every one. This is the burst and a little more.
func TestHomeFlood(t *testing.T) {
	const n = 2200
	b := start(t, Config{Listen: "127.0.0.1:0", Users: homeUsers()}, quiet{})
	url := "tcp://" + b.Addr().String()
	done := make(chan struct{})
	count := 0
	ha := pahoHome(t, url, "admin", "ha", nil)
	wait(t, ha.Subscribe("#", 0, func(paho.Client, paho.Message) {
		if count++; count == n {
			close(done)
		}
	}))
	z2m := pahoHome(t, url, "admin", "z2m", nil)
	var last paho.Token
	for i := range n {
		last = z2m.Publish(fmt.Sprintf("homeassistant/light/%d/config", i), byte(i%2), true, repeatJSON(500))
	}
	wait(t, last)
	<-done
	if s := b.Stats().Home; s.Received != n || s.Retained != n || s.Connected != 2 || s.Dropped != 0 {
		t.Errorf("stats %+v", s)
	}
}

// Over real TCP a client that does not read is found out, and nobody else is
// concerned.
func TestSlowHomeClientTCP(t *testing.T) {
	b := start(t, Config{Listen: "127.0.0.1:0", Users: homeUsers()}, quiet{})
	slow := dialTCP(t, b)
	defer slow.Close()
	if _, err := slow.Write(append(asUser("admin", "slow").packet(), frame(0x82, append(appendString([]byte{0, 1}, "#"), 0))...)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(slow, make([]byte, 9)); err != nil { // CONNACK, SUBACK
		t.Fatal(err)
	}
	good := joinHome(t, dialTCP(t, b), asUser("admin", "good"))
	good.mustSubscribe("t", 0)
	payload := make([]byte, 200<<10)
	for b.Stats().Home.Slow == 0 {
		if err := b.Home().Publish("t", payload, false); err != nil {
			t.Fatal(err)
		}
		good.heard()
	}
	good.ping()
}

// Mosquitto's own clients, of MQTT 3.1.1 and 5.
func TestMosquitto(t *testing.T) {
	sub, err := exec.LookPath("mosquitto_sub") //nolint:misspell // the program's name
	if err != nil {
		t.Skip("not installed; make test installs it on Debian:", err)
	}
	pub, err := exec.LookPath("mosquitto_pub") //nolint:misspell // the program's name
	if err != nil {
		t.Skip("not installed; make test installs it on Debian:", err)
	}
	b := start(t, Config{Listen: "127.0.0.1:0", Users: homeUsers(), Limits: Limits{ConnectRate: -1}}, quiet{})
	host, port, _ := net.SplitHostPort(b.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, version := range []string{"mqttv31", "mqttv311", "mqttv5"} {
		for _, qos := range []string{"0", "1", "2"} {
			login := []string{"-h", host, "-p", port, "-V", version, "-u", "admin", "-P", homePassword, "-q", qos}
			say := func(args ...string) {
				t.Helper()
				if out, err := exec.CommandContext(ctx, pub, append(login, args...)...).CombinedOutput(); err != nil {
					t.Fatalf("publishing %v: %v %s", args, err, out)
				}
			}
			say("-t", "m/retained", "-m", "kept", "-r")
			s := exec.CommandContext(ctx, sub, append(login, "-t", "m/#", "-C", "3", "-v", "--id", "s", "--will-topic", "w", "--will-payload", "x")...)
			out, err := s.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			for i, want := range []string{"m/retained kept", "m/live one", "m/live two"} {
				if !lines.Scan() || lines.Text() != want {
					t.Errorf("%s, QoS %s: line %d is %q, want %q", version, qos, i, lines.Text(), want)
				}
				if i < 2 {
					say("-t", "m/live", "-m", strings.Fields("one two")[i])
				}
			}
			if err := s.Wait(); err != nil {
				t.Errorf("the subscriber: %v", err)
			}
			say("-t", "m/retained", "-n", "-r")
		}
	}
	bad := exec.CommandContext(ctx, pub, "-h", host, "-p", port, "-u", "admin", "-P", "wrong", "-t", "m", "-m", "x")
	var exit *exec.ExitError
	if err := bad.Run(); !errors.As(err, &exit) {
		t.Errorf("a wrong password: %v", err)
	}
}
