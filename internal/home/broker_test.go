package home_test

import (
	"context"
	"encoding/json"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	paho "github.com/eclipse/paho.mqtt.golang"
	mochi "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"parley/internal/home"
)

// mochiBus is the bus of a real broker.
type mochiBus struct {
	server *mochi.Server
	next   atomic.Int64
}

func (b *mochiBus) Publish(topic string, payload []byte, retain bool) error {
	return b.server.Publish(topic, payload, retain, 0)
}

func (b *mochiBus) Subscribe(filter string, f func(home.Message)) (func(), error) {
	id := int(b.next.Add(1))
	err := b.server.Subscribe(filter, id, func(_ *mochi.Client, _ packets.Subscription, p packets.Packet) {
		f(home.Message{Topic: p.TopicName, Payload: p.Payload, Retained: p.FixedHeader.Retain})
	})
	return func() { _ = b.server.Unsubscribe(filter, id) }, err
}

// allow is a broker's hook that lets everybody do everything.
type allow struct{ mochi.HookBase }

func (*allow) ID() string { return "allow" }
func (*allow) Provides(b byte) bool {
	return b == mochi.OnConnectAuthenticate || b == mochi.OnACLCheck
}
func (*allow) OnConnectAuthenticate(*mochi.Client, packets.Packet) bool { return true }
func (*allow) OnACLCheck(*mochi.Client, string, bool) bool              { return true }

// startBroker runs a broker on loopback and returns its address.
func startBroker(t *testing.T) (*mochiBus, string) {
	t.Helper()
	server := mochi.New(&mochi.Options{InlineClient: true, Logger: discard()})
	if err := server.AddHook(new(allow), nil); err != nil {
		t.Fatal(err)
	}
	tcp := listeners.NewTCP(listeners.Config{ID: "t", Address: "127.0.0.1:0"})
	if err := server.AddListener(tcp); err != nil {
		t.Fatal(err)
	}
	if err := server.Serve(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return &mochiBus{server: server}, tcp.Address()
}

// connect is a lamp's own client, with its last will. cut ends its connection
// without a word, as when its power is cut.
func connect(t *testing.T, address, will string) (lamp paho.Client, cut func()) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	o := paho.NewClientOptions().AddBroker("tcp://"+address).SetClientID("lamp").SetAutoReconnect(false).SetWill(will, "Offline", 1, true)
	o.SetCustomOpenConnectionFn(func(*url.URL, paho.ClientOptions) (net.Conn, error) { return conn, nil })
	lamp = paho.NewClient(o)
	if token := lamp.Connect(); token.Wait() && token.Error() != nil {
		t.Fatal(token.Error())
	}
	return lamp, func() { conn.Close() }
}

// eventually waits for what another process of the broker does; the limit is only
// met by a test that fails.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// TestLampOnARealBroker: a lamp logs in, announces itself, is switched on once,
// and vanishes when its connection breaks.
func TestLampOnARealBroker(t *testing.T) {
	bus, address := startBroker(t)
	lamp, cut := connect(t, address, "tele/lamp/LWT")
	publish := func(topic, payload string) {
		if token := lamp.Publish(topic, 1, true, payload); token.Wait() && token.Error() != nil {
			t.Fatal(token.Error())
		}
	}
	var commands []string
	var mu sync.Mutex
	lamp.Subscribe("cmnd/lamp/#", 1, func(_ paho.Client, m paho.Message) {
		mu.Lock()
		commands = append(commands, m.Topic()+" "+string(m.Payload()))
		mu.Unlock()
		lamp.Publish("stat/lamp/RESULT", 1, false, `{"POWER":"`+string(m.Payload())+`"}`)
	}).Wait()
	publish("tele/lamp/LWT", "Online")
	publish("homeassistant/switch/lamp/config", `{"name":"Kitchen Light","~":"lamp","cmd_t":"cmnd/~","cmd_t":"cmnd/lamp/POWER","stat_t":"stat/lamp/RESULT","val_tpl":"{{value_json.POWER}}","avty_t":"tele/lamp/LWT","pl_avail":"Online","pl_not_avail":"Offline"}`)

	h, err := home.New(home.Config{Discover: true, Confirm: 10 * time.Second}, bus, discard())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx) })
	defer func() {
		cancel()
		running.Wait()
	}()
	source := h.Source()
	eventually(t, "discovery", func() bool { return len(source.Tools()) > 0 })
	res, err := source.Call(t.Context(), "home_turn_on", json.RawMessage(`{"name":"the kitchen light"}`))
	if err != nil || res.Text != `{"confirmed":true,"name":"kitchen light","text":"The kitchen light is on."}` {
		t.Errorf("%+v, %v", res, err)
	}
	mu.Lock()
	if len(commands) != 1 || commands[0] != "cmnd/lamp/POWER ON" {
		t.Errorf("the lamp was told %q", commands)
	}
	mu.Unlock()
	cut()
	eventually(t, "going offline", func() bool { return len(source.Tools()) == 0 })
	lamp.Disconnect(0)
}
