package main

import (
	"encoding/json"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	paho "github.com/eclipse/paho.mqtt.golang"

	"parley/internal/config"
	"parley/internal/device"
	"parley/internal/protocol"
)

const homePassword = "house-password"

// homeUsers are the users of a home.
const homeUsers = `
[[mqtt.user]]
name = "zigbee"
password = "house-password"
publish = ["homeassistant/#", "zigbee2mqtt/#"]
subscribe = ["zigbee2mqtt/#"]

[[mqtt.user]]
name = "tasmota"
password = "house-password"
publish = ["homeassistant/#", "tele/#", "stat/#"]
subscribe = ["cmnd/#"]

[[mqtt.user]]
name = "assistant"
password = "house-password"
publish = ["#"]
subscribe = ["#"]
`

// A housemate is a client of the home: a bridge, a lamp, Home Assistant.
type housemate struct {
	paho.Client
	t *testing.T

	mu    sync.Mutex
	conn  net.Conn
	heard []string // topic and payload
}

// move lets a housemate in; set may change its options.
func move(t *testing.T, n *node, user string, set func(*paho.ClientOptions)) *housemate {
	t.Helper()
	m := &housemate{t: t}
	o := paho.NewClientOptions().AddBroker("tcp://" + n.broker.Addr().String()).SetClientID(user).SetUsername(user).
		SetPassword(homePassword).SetProtocolVersion(4).SetAutoReconnect(false).SetOrderMatters(true)
	o.SetCustomOpenConnectionFn(func(u *url.URL, _ paho.ClientOptions) (net.Conn, error) {
		c, err := net.Dial("tcp", u.Host)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.conn = c
		return c, err
	})
	if set != nil {
		set(o)
	}
	m.Client = paho.NewClient(o)
	m.done(m.Connect())
	t.Cleanup(func() { m.Disconnect(0) })
	return m
}

// done waits until the broker has what it was sent.
func (m *housemate) done(token paho.Token) {
	m.t.Helper()
	if !token.WaitTimeout(patience) || token.Error() != nil {
		m.t.Fatalf("mqtt: %v", token.Error())
	}
}

// tell publishes a retained message.
func (m *housemate) tell(topic, payload string) {
	m.t.Helper()
	m.done(m.Publish(topic, 1, true, payload))
}

// order publishes a message that is not kept.
func (m *housemate) order(topic, payload string) {
	m.t.Helper()
	m.done(m.Publish(topic, 1, false, payload))
}

// listen notes what comes on topics; answer, if not nil, is called for each.
func (m *housemate) listen(filter string, answer func(topic, payload string)) {
	m.t.Helper()
	m.done(m.Subscribe(filter, 1, func(_ paho.Client, msg paho.Message) {
		m.mu.Lock()
		m.heard = append(m.heard, msg.Topic()+" "+string(msg.Payload()))
		m.mu.Unlock()
		if answer != nil {
			answer(msg.Topic(), string(msg.Payload()))
		}
	}))
}

// all lists what was heard so far.
func (m *housemate) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.heard)
}

// last is what was heard last on a topic.
func (m *housemate) last(topic string) string {
	for _, h := range slices.Backward(m.all()) {
		if payload, ok := strings.CutPrefix(h, topic+" "); ok {
			return payload
		}
	}
	return ""
}

// fail breaks the connection as a power cut does.
func (m *housemate) fail() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conn.Close()
}

// announce publishes the samples of a file of the home's, but for those below the
// topics left out.
func (m *housemate) announce(file string, without ...string) {
	m.t.Helper()
	samples, err := os.ReadFile("../../internal/home/testdata/" + file)
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(samples)) {
		topic, payload, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if !ok || topic == "#" || slices.ContainsFunc(without, func(part string) bool { return strings.Contains(topic, part) }) {
			continue
		}
		m.tell(topic, payload)
	}
}

// awaitHome waits until a tool of the home knows a name, or does not.
func awaitHome(t *testing.T, n *node, tool, name string, known bool) {
	t.Helper()
	until(t, tool+" of "+name, func() bool {
		for _, own := range n.sources.home.Source().Tools() {
			if own.Name == tool && strings.Contains(string(own.Schema), `"`+name+`"`) {
				return known
			}
		}
		return !known
	})
}

// aHome is a node with Zigbee2MQTT, which has a lamp that answers, and Tasmota.
func aHome(t *testing.T, extra string, change func(*config.Config)) (n *node, zigbee, tasmota *housemate) {
	t.Helper()
	n, _ = startFile(t, configure(t, homeUsers+extra), change)
	zigbee = move(t, n, "zigbee", nil)
	zigbee.listen("zigbee2mqtt/+/set", func(topic, payload string) {
		if topic == "zigbee2mqtt/kitchen_lamp/set" {
			var order struct{ State string }
			if json.Unmarshal([]byte(payload), &order) == nil {
				zigbee.Publish("zigbee2mqtt/kitchen_lamp", 1, true, `{"brightness":254,"state":"`+order.State+`"}`)
			}
		}
	})
	tasmota = move(t, n, "tasmota", func(o *paho.ClientOptions) { o.SetWill("tele/coffee/LWT", "Offline", 1, true) })
	tasmota.listen("cmnd/#", func(topic, payload string) {
		if topic == "cmnd/coffee/POWER" {
			tasmota.Publish("stat/coffee/RESULT", 1, false, `{"POWER":"`+payload+`"}`)
		}
	})
	zigbee.announce("zigbee2mqtt.txt")
	tasmota.announce("tasmota.txt", "9F74BF") // which has a kitchen light, too
	awaitHome(t, n, "home_turn_on", "kitchen lamp", true)
	awaitHome(t, n, "home_turn_on", "coffee machine", true)
	return n, zigbee, tasmota
}

// TestHome switches and asks the home by words.
func TestHome(t *testing.T) {
	t.Parallel()
	n, zigbee, tasmota := aHome(t, "", rules(t, ""))
	p := connect(t, n, kitchen, nil)
	says(p, "turn on the kitchen light", "The kitchen lamp is on.")
	if got := zigbee.all(); !slices.Equal(got, []string{`zigbee2mqtt/kitchen_lamp/set {"state":"ON"}`}) {
		t.Errorf("zigbee2mqtt was told %q", got)
	}
	says(p, "turn on the coffee machine", "The coffee machine is on.")
	if got := tasmota.all(); !slices.Equal(got, []string{"cmnd/coffee/POWER ON"}) {
		t.Errorf("tasmota was told %q", got)
	}
	says(p, "how warm is the living room", "The living room sensor temperature is 21.5 degrees Celsius.")

	zigbee.tell("zigbee2mqtt/kitchen_lamp/availability", `{"state":"offline"}`)
	tasmota.fail()
	awaitHome(t, n, "home_turn_on", "kitchen lamp", false)
	awaitHome(t, n, "home_turn_on", "coffee machine", false)
	says(p, "turn on the kitchen light", "I could not switch on the kitchen light.")
	says(p, "turn on the coffee machine", "I could not switch on the coffee machine.")
	if got := zigbee.all(); len(got) != 1 {
		t.Errorf("zigbee2mqtt was told %q", got)
	}
}

// TestALockNeedsItsName offers the lock to the role that allows it by name, and to
// no other. A voice device is in no way a home client.
func TestALockNeedsItsName(t *testing.T) {
	t.Parallel()
	n, zigbee, _ := aHome(t, `
[role.keeper]
tools_allow = ["*", "home_unlock"]

[device."`+study+`"]
role = "keeper"
`, rules(t, `
[[rule]]
match = ["unlock the front door"]
call = "home_unlock"
arguments = { name = "front door lock" }
answer = "It is open."
`))
	anybody, keeper := connect(t, n, kitchen, nil), connect(t, n, study, nil)
	says(anybody, "unlock the front door", "This device cannot do that.")
	if got := zigbee.all(); len(got) != 0 {
		t.Errorf("zigbee2mqtt was told %q", got)
	}
	says(keeper, "unlock the front door", "It is open.")
	if got := zigbee.all(); !slices.Equal(got, []string{"zigbee2mqtt/front_door_lock/set UNLOCK"}) {
		t.Errorf("zigbee2mqtt was told %q", got)
	}
	trespass(t, n, zigbee)
}

// trespass is a voice device that tries what home clients may.
func trespass(t *testing.T, n *node, zigbee *housemate) {
	t.Helper()
	id := parseMAC(t, "02:00:00:00:00:a9")
	before := len(zigbee.all())
	m := move(t, n, "trespasser", func(o *paho.ClientOptions) {
		o.SetClientID(protocol.ClientID{Group: "GID_parley", Device: id, UUID: "x"}.String()).
			SetUsername(protocol.Enrolment{}.Username()).SetPassword("open")
	})
	heard := make(chan string, 16)
	for _, filter := range []string{"#", "homeassistant/#", "zigbee2mqtt/#"} {
		m.Subscribe(filter, 1, func(_ paho.Client, msg paho.Message) { heard <- msg.Topic() }).WaitTimeout(patience)
	}
	m.Publish("zigbee2mqtt/kitchen_lamp/set", 1, false, `{"state":"OFF"}`).WaitTimeout(patience)
	m.Publish("homeassistant/light/x/config", 1, true, `{"name":"x"}`).WaitTimeout(patience)
	zigbee.order("zigbee2mqtt/end/set", "")
	until(t, "the end", func() bool { return contains(zigbee.all(), "zigbee2mqtt/end/set") })
	if got := zigbee.all()[before:]; len(got) != 1 {
		t.Errorf("zigbee2mqtt was told %q", got)
	}
	for len(heard) > 0 {
		if topic := <-heard; !strings.HasPrefix(topic, "devices/p2p/") {
			t.Errorf("a voice device heard %s", topic)
		}
	}
}

// TestVoiceDevicesInHomeAssistant shows a voice device to Home Assistant, which
// has it speak and sets its volume.
func TestVoiceDevicesInHomeAssistant(t *testing.T) {
	t.Parallel()
	n, _ := startFile(t, configure(t, homeUsers+"[home]\nannounce = true\nlast_words = true\n"), rules(t, ""))
	ha := move(t, n, "assistant", nil)
	ha.listen("homeassistant/#", nil)
	ha.listen("parley/#", nil)
	p := connect(t, n, kitchen, nil)
	const base = "parley/02_00_00_00_00_a1/"
	shows := func(leaf, want string) {
		t.Helper()
		until(t, leaf+" "+want, func() bool { return ha.last(base+leaf) == want })
	}
	shows("online", "online")
	shows("volume", "70")
	var announced struct {
		Device     struct{ Mdl string } `json:"dev"`
		Components map[string]struct {
			Platform string `json:"p"`
			Command  string `json:"cmd_t"`
		} `json:"cmps"`
	}
	if err := json.Unmarshal([]byte(ha.last("homeassistant/device/parley_0200000000a1/config")), &announced); err != nil {
		t.Fatal(err)
	}
	if c := announced.Components; c["say"].Command != base+"say" || c["volume"].Command != base+"volume/set" || c["say"].Platform != "notify" || announced.Device.Mdl == "" {
		t.Errorf("announced as %+v", announced)
	}

	open(p)
	shows("state", "listening")
	from := p.now()
	ha.order(base+"say", "Dinner is ready.")
	if said, _ := p.hears(from); !slices.Equal(said, []string{"Dinner is ready."}) {
		t.Errorf("it says %q", said)
	}
	from = p.now()
	ha.order(base+"volume/set", "33")
	if e, _ := p.await("the volume", from, is(device.ToolCalled)); e.Tool != volumeTool || e.Text != `{"volume":33}` {
		t.Errorf("it was told %s %s", e.Tool, e.Text)
	}
	shows("volume", "33")
	says(p, "set the volume to forty", "The volume is now 40.")
	shows("volume", "40")
	says(p, "are you there", "Yes, I hear you.")
	shows("heard", "are you there")
	shows("answered", "Yes, I hear you.")
	if !slices.Contains(ha.all(), base+"state speaking") {
		t.Error("it was never shown speaking")
	}
	p.hangUp()
	shows("state", "idle")
	p.Close()
	shows("online", "offline")
}
