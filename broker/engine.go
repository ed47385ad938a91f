package broker

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
)

// maxInflight bounds the QoS 2 messages of one device that await their PUBREL.
const maxInflight = 64

// newEngine returns a mochi server that neither listens, reads nor runs its event
// loop: sessions hand it packets, and it validates, acknowledges and answers
// them. The loop would only serve $SYS topics, whose statistics stop the world
// once a second, and what outlives a connection, which is nothing here. Its
// reader and writer would cost two goroutines and 20 KiB of stack a device.
func newEngine(log *slog.Logger) (*mqtt.Server, error) {
	engine := mqtt.New(&mqtt.Options{
		Logger:                   slog.New(engineLog{log.Handler()}),
		ClientNetReadBufferSize:  16, // not used, and this is the least bufio makes
		ClientNetWriteBufferSize: 16,
		Capabilities: &mqtt.Capabilities{
			MaximumClients:             math.MaxInt64, // sit enforces Limits.MaxDevices
			MaximumClientWritesPending: 1,             // nothing is routed, so nothing waits there
			ReceiveMaximum:             maxInflight,
			MaximumInflight:            maxInflight,
			MaximumQos:                 2,
		},
	})
	h := &hook{ignore: packets.CodeSuccessIgnore}
	if err := engine.AddHook(h, nil); err != nil {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return engine, nil
}

// An engineConn is what the engine takes for the connection of a client. It
// writes to the link's queue and leaves closing to the session's end.
type engineConn struct {
	net.Conn
	link *Link
}

// Write queues one packet of the engine's own: an acknowledgement, a PINGRESP. A
// DISCONNECT is left to the session's end: the engine also sends it to clients
// of MQTT 3, which knows none from a server.
func (c engineConn) Write(p []byte) (int, error) {
	if p[0] == firstDisconnect {
		return len(p), nil
	}
	if err := c.link.conn.enqueue(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close is called when the engine has processed a DISCONNECT or found a fault;
// the session notices when the packet has been processed.
func (c engineConn) Close() error { return nil }

// A hook is where the engine asks and tells us things, always on the reader
// goroutine of the connection concerned.
type hook struct {
	mqtt.HookBase
	ignore error // packets.CodeSuccessIgnore, boxed once
}

// ID names the hook in the engine's log.
func (*hook) ID() string { return "parley" }

// Provides lists the hooks implemented here.
func (*hook) Provides(b byte) bool { return b == mqtt.OnACLCheck || b == mqtt.OnPublish }

// linkOf is the link of a client; the engine has no client without one.
func linkOf(cl *mqtt.Client) *Link { return cl.Net.Conn.(engineConn).link }

// OnACLCheck allows the device its own topics. Subscriptions are granted and
// lead nowhere: nothing is ever routed by topic. A refused subscription becomes
// 0x80 or 0x87 in the SUBACK; a refused publication becomes 0x87 in the PUBACK of
// MQTT 5. In 3.1.1 the engine would disconnect, so OnPublish drops it instead.
func (*hook) OnACLCheck(cl *mqtt.Client, topic string, write bool) bool {
	l := linkOf(cl)
	if write {
		return l.mayPublish(topic) || !l.v5
	}
	if l.maySubscribe(topic) {
		return true
	}
	l.session.deny("subscription", topic)
	return false
}

// OnPublish delivers a message. Whatever it is, the engine shall acknowledge it
// and neither route nor retain it.
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	if l := linkOf(cl); l.mayPublish(pk.TopicName) {
		l.session.receive(pk.Payload)
	}
	return pk, h.ignore
}

// engineLog passes the engine's own log on as debug lines, its errors as
// warnings, and leaves out the packets it likes to print: they hold what people
// said.
type engineLog struct{ slog.Handler }

func (h engineLog) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, engineLevel(l))
}

func (h engineLog) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, engineLevel(r.Level), "mqtt engine: "+r.Message, r.PC)
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "pk", "packet", "will":
		default:
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

func (h engineLog) WithAttrs(as []slog.Attr) slog.Handler {
	return engineLog{h.Handler.WithAttrs(as)}
}

func (h engineLog) WithGroup(name string) slog.Handler {
	return engineLog{h.Handler.WithGroup(name)}
}

func engineLevel(l slog.Level) slog.Level {
	if l >= slog.LevelError {
		return slog.LevelWarn
	}
	return slog.LevelDebug
}
