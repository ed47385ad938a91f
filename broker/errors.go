package broker

import "errors"

// Errors of [Link.Send], and reasons given to [Receiver.Disconnected]. Both are
// wrapped with detail; match them with errors.Is.
var (
	// ErrGone means the device is no longer connected. Nothing was sent.
	ErrGone = errors.New("device is gone")
	// ErrSlow means the device does not read: its queue was full, or a write did
	// not finish in time. It is disconnected, because a lost control message
	// leaves its state machine and ours apart.
	ErrSlow = errors.New("device reads too slowly")
	// ErrTooLarge means a message exceeds Limits.MaxPacket, or what an MQTT 5
	// client said it accepts.
	ErrTooLarge = errors.New("message too large")
)

// Reasons given to [Receiver.Disconnected] only.
var (
	// ErrTakenOver means the same device connected again.
	ErrTakenOver = errors.New("taken over by a new connection of the same device")
	// ErrShutdown means the broker is stopping.
	ErrShutdown = errors.New("broker is shutting down")
	// ErrClosed means [Link.Close] was called; its reason follows.
	ErrClosed = errors.New("closed by Parley")
	// ErrFlood means the device sent more packets than Limits.MessageRate allows.
	ErrFlood = errors.New("device sends too many messages")
	// ErrSilent means nothing came for one and a half times the keepalive.
	ErrSilent = errors.New("device is silent beyond its keepalive")
	// ErrProtocol means the device broke the MQTT protocol.
	ErrProtocol = errors.New("MQTT protocol violated")
	// ErrLost means the connection ended without a DISCONNECT packet.
	ErrLost = errors.New("connection lost")
)
