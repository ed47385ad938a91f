package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"

	"parley/internal/protocol"
)

// pahoClient connects a real client of MQTT 3.1.1, as py-xiaozhi is one. What it
// gets without a matching subscription goes to the returned channel.
func pahoClient(t *testing.T, b *Embedded, id protocol.DeviceID) (paho.Client, chan string) {
	t.Helper()
	got := make(chan string, 64)
	o := paho.NewClientOptions().AddBroker("tcp://"+b.Addr().String()).
		SetClientID(clientID(id)).SetUsername(protocol.Enrolment{Host: "parley.local", Agent: "bread-compact/2.4.2"}.Username()).
		SetPassword("anything").SetProtocolVersion(4).SetAutoReconnect(false).SetCleanSession(false).
		SetWill(protocol.DownlinkTopic(macB), "will", 1, true).
		SetDefaultPublishHandler(func(_ paho.Client, m paho.Message) { got <- m.Topic() + " " + string(m.Payload()) })
	c := paho.NewClient(o)
	wait(t, c.Connect())
	t.Cleanup(func() { c.Disconnect(0) })
	return c, got
}

func wait(t *testing.T, tok paho.Token) {
	t.Helper()
	if !tok.WaitTimeout(time.Minute) {
		t.Fatal("no answer within a minute")
	}
	if err := tok.Error(); err != nil {
		t.Fatal(err)
	}
}

func TestDeliversWithoutSubscription(t *testing.T) {
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0"}, r)
	_, got := pahoClient(t, b, macA)
	l := r.next(t, "connect").link
	for i := range 10 {
		if err := l.Send(fmt.Appendf(nil, "message %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		if want, g := fmt.Sprintf("devices/p2p/a0_85_e3_00_00_01 message %d", i), <-got; g != want {
			t.Fatalf("got %q, want %q", g, want)
		}
	}
}

// A client that subscribes, as py-xiaozhi does with QoS 1, hears everything once.
func TestDeliversOnceToSubscriber(t *testing.T) {
	for _, slash := range []string{"", "/"} {
		r := newRecorder()
		b := start(t, Config{Listen: "127.0.0.1:0"}, r)
		c, got := pahoClient(t, b, macA)
		l := r.next(t, "connect").link
		sub := c.Subscribe(slash+protocol.DownlinkTopic(macA), 1, nil)
		wait(t, sub)
		if qos := sub.(*paho.SubscribeToken).Result()[slash+protocol.DownlinkTopic(macA)]; qos != 1 {
			t.Errorf("SUBACK grants %d, want 1", qos)
		}
		for _, m := range []string{"one", "two", "end"} {
			if err := l.Send([]byte(m)); err != nil {
				t.Fatal(err)
			}
		}
		var all []string
		for len(all) < 3 {
			all = append(all, strings.TrimPrefix(<-got, protocol.DownlinkTopic(macA)+" "))
		}
		if s := strings.Join(all, " "); s != "one two end" {
			t.Errorf("heard %q, want each message once", s)
		}
		wait(t, c.Unsubscribe(slash+protocol.DownlinkTopic(macA)))
	}
}

// Every QoS is acknowledged and delivered once; nothing reaches another device,
// now or, retained, later.
func TestUplink(t *testing.T) {
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0"}, r)
	a, _ := pahoClient(t, b, macA)
	la := r.next(t, "connect").link
	other, heard := pahoClient(t, b, macB)
	r.next(t, "connect")
	wait(t, other.Subscribe(protocol.DownlinkTopic(macB), 0, nil))

	d := la.Device()
	if d.ID != macA || d.ClientID != clientID(macA) || d.Enrolment.Host != "parley.local" ||
		d.Signed || d.TLS || d.Local.String() != b.Addr().String() || !d.Remote.Addr().IsLoopback() {
		t.Errorf("device %+v", d)
	}
	for qos := range byte(3) {
		for _, topic := range []string{protocol.SharedUplinkTopic, protocol.UplinkTopic(macA)} {
			for _, retained := range []bool{false, true} {
				want := fmt.Sprint(topic, qos, retained)
				wait(t, a.Publish(topic, qos, retained, want))
				if e := r.next(t, "receive"); e.payload != want || e.link != la {
					t.Errorf("received %q from %v, want %q from %v", e.payload, e.link.Device().ID, want, macA)
				}
			}
		}
	}
	// Foreign topics are acknowledged and dropped, and do not disconnect.
	for _, topic := range []string{protocol.DownlinkTopic(macB), protocol.UplinkTopic(macB), "$SYS/x", "x"} {
		wait(t, a.Publish(topic, 0, true, "foreign"))
	}
	wait(t, a.Publish(protocol.DownlinkTopic(macB), 1, true, "foreign"))
	wait(t, a.Publish(protocol.DownlinkTopic(macB), 2, true, "foreign"))
	wait(t, a.Publish(protocol.SharedUplinkTopic, 1, false, "end"))
	if e := r.next(t, "receive"); e.payload != "end" {
		t.Errorf("received %q, want the message after the foreign ones", e.payload)
	}
	if s := b.Stats(); s.Denied != 6 || s.Received != 13 || s.Connected != 2 {
		t.Errorf("stats %+v, want 6 denied, 13 received, 2 connected", s)
	}
	// The will is not sent, to subscribers of now or of later.
	a.Disconnect(250) // ms to send DISCONNECT in
	wantReason(t, r.next(t, "disconnected").reason, nil)
	wait(t, other.Subscribe("null", 0, nil))
	select {
	case m := <-heard:
		t.Errorf("device B heard %q", m)
	default:
	}
}

func TestSubscriptions(t *testing.T) {
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0"}, r)
	c, _ := pahoClient(t, b, macA)
	r.next(t, "connect")
	for _, f := range []string{"#", "+", "+/#", "devices/p2p/#", "devices/p2p/+", "devices/+/a0_85_e3_00_00_01",
		protocol.DownlinkTopic(macB), "$SYS/#", "$SYS/broker/version", "$share/g/#",
		"$share/g/" + protocol.DownlinkTopic(macA), protocol.UplinkTopic(macA), protocol.SharedUplinkTopic} {
		tok := c.Subscribe(f, 0, nil)
		if !tok.WaitTimeout(time.Minute) {
			t.Fatal("no SUBACK within a minute")
		}
		for _, code := range tok.(*paho.SubscribeToken).Result() {
			if code != 0x80 {
				t.Errorf("subscription to %q: code %#x, want 0x80", f, code)
			}
		}
	}
	for _, f := range []string{"null", protocol.DownlinkTopic(macA), "/" + protocol.DownlinkTopic(macA)} {
		wait(t, c.Subscribe(f, 2, nil))
	}
	if !c.IsConnected() {
		t.Error("disconnected")
	}
}
