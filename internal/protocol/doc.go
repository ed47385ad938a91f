// Package protocol holds the words a device and Parley exchange: the JSON
// messages, the device's identity, its credentials, its topics and its session
// ids. It does no I/O and keeps no state, so every other package may import it.
//
// The wire is described for maintainers in docs/protocol.md. Two rules shape
// this package. What a device sends is read leniently, because firmware in the
// field sends numbers as strings, unescaped text and messages nobody knows. What
// is sent to a device is written strictly, because old firmware crashes on a
// hello with a missing member.
package protocol
