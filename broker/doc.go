// Package broker is the MQTT side of Parley: devices come and go, messages
// arrive, messages are sent. It knows nothing of what the messages say.
//
// [Embedded] is a broker for two classes of clients, and speaks MQTT 3.1, 3.1.1
// and 5 on a plain and a TLS listener. Its gate decides, once and in one place,
// which class a connection is of: whoever gives the name of a configured [User]
// is a home client or nobody, and everybody else is a voice device or nobody.
// Nothing passes from one class to the other.
//
// # Voice devices
//
// For devices it is deliberately less than a general broker:
//
//   - Who a message is from is known from its connection, never from a topic or
//     a payload: stock firmware publishes to one topic shared by all devices.
//   - Nothing is routed from one client to another. A device's publications go
//     to the [Receiver] of its [Link], and what is sent on a Link goes to that
//     one connection. Firmware since 0.9.9 never subscribes, so delivery cannot
//     depend on a subscription, and a client that does subscribe (py-xiaozhi)
//     must not hear everything twice.
//   - Sessions are clean, wills and retained flags are accepted and ignored.
//
// The protocol engine is mochi-mqtt. It validates, acknowledges and answers, and
// it is given only what it handles well: this package accepts connections, reads
// and judges the CONNECT packet before the engine has a client for it, reads and
// decodes every later packet, and puts a bounded queue that never blocks under
// everything written. The comments say which fault of the engine each part
// answers.
//
// # Home clients
//
// For lamps, Zigbee2MQTT or Home Assistant it is a general broker: subscriptions
// with wildcards, retained messages, wills, QoS 0 to 2, sessions that outlive a
// connection, each within limits and within the filters of the user. The process
// has a place of its own among them, the [Bus]. Retained messages and sessions
// live in memory only. Shared subscriptions and topic aliases are not offered,
// and there is no $SYS.
//
// The engine has no part in this but for the coding of packets; the hub's comment
// says why. A home client is one connection with one reader, like a device's; its
// session holds what is to be written, and the connection takes it from there
// when there is room.
//
// # Limits
//
// Every limit is a field of [Limits] with its unit and default. A peer that
// exceeds one is disconnected, or read more slowly where that serves it better,
// counted in [Stats] and named in one log line; nobody else notices.
package broker
