package device

import "time"

// A Report counts, since the device was made, what became of the audio. Every
// received packet is in exactly one of Played, Queued and the dropped counts.
type Report struct {
	Received int64 // datagrams that came to the device's socket
	Played   int64 // frames the speaker gave
	Queued   int64 // packets now waiting for the speaker
	Sounding time.Duration

	// Lost counts sequence numbers that never arrived. The network did it.
	Lost int64
	// Duplicate and Late were dropped by the sequence rule. Older firmware plays
	// a repeat of the last packet, which is then counted in Repeated only.
	Duplicate, Late, Repeated int64
	// Malformed were dropped for their length or type.
	Malformed int64
	// Undecodable were refused by the decoder.
	Undecodable int64

	// Clipped audio arrived in good order and was never heard, by cause.
	ClippedState    int64 // the device was not speaking
	ClippedStart    int64 // wiped by the reset that follows tts start
	ClippedStop     int64 // discarded with the queue by tts stop
	ClippedOverflow int64 // the queue was full

	// Interrupted audio was dropped because the user had interrupted it: nobody
	// is to blame.
	Interrupted int64

	// Underruns are gaps inside a sentence because the next packet was late,
	// UnderrunTime their sum. Pauses are the gaps between sentences.
	Underruns    int64
	UnderrunTime time.Duration
	Pauses       int64
	PauseTime    time.Duration

	Sent        int64 // audio packets sent
	SendDropped int64 // microphone packets dropped because the main task was busy too long

	Messages    int64 // MQTT messages received
	BadMessages int64 // of these, not understood
	Overrun     int64 // work for the main task dropped because too much was waiting
	ToolCalls   int64
	ToolDropped int64 // MCP requests the firmware ignores
	Crashes     int64
}

// Clipped is all audio that arrived and was never heard through no fault of the
// network or the user: the measure of a server's timing.
func (r Report) Clipped() int64 {
	return r.ClippedState + r.ClippedStart + r.ClippedStop + r.ClippedOverflow
}
