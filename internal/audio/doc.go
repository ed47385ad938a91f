// Package audio holds everything that touches sound: the Opus codec, Opus
// packets taken apart and put together without the codec, sample-rate
// conversion, WAV and Ogg.
//
// All PCM is mono, signed 16 bit. Rates are in Hz, lengths of PCM in samples
// unless a name says otherwise.
package audio

import "time"

const (
	// SpeakerRate is the rate of audio sent to devices, in Hz. Most boards
	// play 24 kHz natively and the others resample.
	SpeakerRate = 24000
	// MicrophoneRate is the rate of audio devices send, in Hz.
	MicrophoneRate = 16000
	// FrameDuration is the length of every packet sent to a device. Firmware
	// ≤ 1.5.2 plays no other, whatever hello says.
	FrameDuration = 60 * time.Millisecond
	// SpeakerFrame is the length of a packet sent to a device, in samples.
	SpeakerFrame = SpeakerRate * int(FrameDuration/time.Millisecond) / 1000
	// MinPayload is the length of the shortest packet sent to a device, in
	// bytes. Firmware < 2.4.0 drops shorter ones: it compares the datagram with
	// the size of the string object that holds it (24 bytes, 16 of them header)
	// where it means the size of the header.
	MinPayload = 8
	// MaxPayload is the length of the longest packet sent to a device, in
	// bytes, so that a datagram with its 16-byte header stays within 1,400
	// bytes and is not fragmented on any path in use.
	MaxPayload = 1400 - 16
)
