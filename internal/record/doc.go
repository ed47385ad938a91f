// Package record lets people listen in on a session: afterwards, from an Ogg
// Opus file with both directions in it, and live, over RTP on the machine
// Parley runs on. Nothing is decoded or encoded: what is heard is what went over
// the wire.
//
// A [Recorder] is the process's; a [Tap] is a session's. Packets are copied into
// a bounded queue and handled on a goroutine of the tap, so a slow disk costs a
// recording and never a conversation.
//
// # Time
//
// Both directions share the clock that starts with the tap. Where nothing was
// sent, or packets were lost, silence stands in the file, so that the two
// tracks stay in step with the clock and with each other:
//
//   - An Ogg position may only advance by what packets hold (RFC 7845 §4), so
//     gaps are filled with packets. The first 120 ms are packets with empty
//     frames, which ask the decoder to conceal a loss (RFC 7845 §4.1) as the
//     listener's own would; beyond that they are coded digital silence.
//   - What a device says arrives unevenly. Packets are held for 400 ms, put in
//     the order of their sequence numbers, and a gap counts only if no later
//     packet of that time shows that the network held them up.
//   - What Parley says is sent ahead of time and stands where a device plays it:
//     at once, or after what it is still playing.
package record
