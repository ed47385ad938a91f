// Package broker is the MQTT side of Parley: devices come and go, messages
// arrive, messages are sent. It knows nothing of what the messages say.
//
// [Embedded] is a broker for devices only. It speaks MQTT 3.1, 3.1.1 and 5 on a
// plain and a TLS listener, and it is deliberately less than a general broker:
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
// # Limits
//
// Every limit is a field of [Limits] with its unit and default. A peer that
// exceeds one is disconnected, counted in [Stats] and named in one log line;
// nobody else notices.
package broker
