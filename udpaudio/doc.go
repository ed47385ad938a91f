// Package udpaudio carries Opus audio between a server and its devices: the
// UDP half of the XiaoZhi protocol. A [Server] owns one socket; a [Channel] is
// one session on it, from its hello to its goodbye, with a key of its own.
//
// # A packet
//
// Both directions use the same layout, all numbers big-endian:
//
//	 0       1       2               4               8
//	+-------+-------+---------------+---------------+
//	| type  | flags | payload_len   | ssrc          |
//	+-------+-------+---------------+---------------+
//	| timestamp                     | sequence      |
//	+-------------------------------+---------------+
//	| payload: one Opus packet, AES-128-CTR         |
//	+-----------------------------------------------+
//
// The counter block the cipher starts from is the header itself, as
// transmitted. It is not RTP, although the names of the fields come from there.
//
// To follow a packet up, read server.go, packet.go, table.go, channel.go
// (receive), window.go, cipher.go, opus.go and, if it comes from a new address,
// path.go; to follow one down, channel.go (Send), packet.go and cipher.go.
//
// # What is promised
//
// The protocol has no authentication tag, and nothing a server does can add
// one. What this package does promise:
//
//   - Nobody is answered who has not sent a valid packet of an open session.
//   - A packet is delivered at most once, and none that is more than 64 behind
//     the newest or 2^15 ahead of it.
//   - The server's own packets, sent back to it, are recognised and dropped.
//   - A channel sends to the address of its first valid packet until three
//     valid packets in a row, each newer than any from there, have come from
//     one other address; none of the three is delivered before. It moves at
//     most once a second, and not within a second of a packet from elsewhere
//     that decrypts to nonsense.
//   - Downlink keystream is never used twice, nor for the uplink, whatever
//     sequences and timestamps a device chooses short of wrapping them.
//
// What it cannot promise: "valid" means that the SSRC, 32 random bits, is that
// of an open session, the sequence number is fresh, and the plaintext begins
// like Opus of the session's frame duration. Somebody who cannot see the
// traffic has to guess the first and cannot. Somebody who can see it passes the
// last with random bytes once in 85 times when frames are 60 ms, once in 12 when
// they are 20 ms, and with certainty by altering a packet of the device behind its first byte,
// which changes the same bits of the audio, or by sending an empty one. So an
// attacker on the path can drop, garble and inject uplink audio, and by
// forwarding a device's packets from an address of his own have the downlink
// sent there; he cannot read it. He can read some of the uplink: stock firmware
// sends timestamp 0 with every packet, so that the counter blocks of
// consecutive packets of equal length overlap, which the server cannot change.
// Where that matters, use a transport with TLS.
package udpaudio
