package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
)

// DownlinkSampleRate and DownlinkFrame describe the only audio every client in
// the field plays: 24 kHz mono, one Opus frame of 60 ms a packet. Firmware up
// to 1.5.2 ignores any other frame duration.
const (
	DownlinkSampleRate = 24000 // Hz
	DownlinkFrame      = 60    // ms
	UplinkSampleRate   = 16000 // Hz
)

// A UDPOffer is where a device shall send its audio, and with which key.
type UDPOffer struct {
	Server string   // host name or IPv4 address
	Port   int      // 1 to 65535
	Key    [16]byte // AES-128
	Nonce  [16]byte // the first header, as devices copy it
}

// HelloReply answers a hello over MQTT. All members are always written: firmware
// before 2.4.0 crashes where one is missing.
func HelloReply(sessionID string, udp UDPOffer) []byte {
	type offer struct {
		Server     string `json:"server"`
		Port       int    `json:"port"`
		Encryption string `json:"encryption"`
		Key        string `json:"key"`
		Nonce      string `json:"nonce"`
	}
	return encode(struct {
		Type        string      `json:"type"`
		Version     int         `json:"version"`
		Transport   string      `json:"transport"`
		SessionID   string      `json:"session_id"`
		AudioParams AudioParams `json:"audio_params"`
		UDP         offer       `json:"udp"`
	}{
		"hello", 3, "udp", sessionID,
		AudioParams{Format: "opus", SampleRate: DownlinkSampleRate, Channels: 1, FrameDuration: DownlinkFrame},
		offer{udp.Server, udp.Port, "aes-128-ctr", hex.EncodeToString(udp.Key[:]), hex.EncodeToString(udp.Nonce[:])},
	})
}

type speech struct {
	Type      string `json:"type"`
	SessionID string `json:"session_id"`
	State     string `json:"state,omitempty"`
	Text      string `json:"text,omitempty"`
	Emotion   string `json:"emotion,omitempty"`
}

// STT shows the user's words on the device.
func STT(sessionID, text string) []byte {
	return encode(speech{Type: "stt", SessionID: sessionID, Text: text})
}

// TTSStart moves the device to speaking; audio sent before it has acted on this
// is dropped there.
func TTSStart(sessionID string) []byte {
	return encode(speech{Type: "tts", SessionID: sessionID, State: "start"})
}

// TTSSentence shows the sentence whose audio follows.
func TTSSentence(sessionID, text string) []byte {
	return encode(speech{Type: "tts", SessionID: sessionID, State: "sentence_start", Text: text})
}

// TTSStop ends speaking. Audio the device has not played yet is lost on several
// firmware versions, so it is sent when the last frame has been heard.
func TTSStop(sessionID string) []byte {
	return encode(speech{Type: "tts", SessionID: sessionID, State: "stop"})
}

// Emotion changes the device's face; text is an emoji some clients show.
func Emotion(sessionID, emotion, text string) []byte {
	return encode(speech{Type: "llm", SessionID: sessionID, Emotion: emotion, Text: text})
}

// Goodbye ends the session with exactly this id.
func Goodbye(sessionID string) []byte {
	return encode(speech{Type: "goodbye", SessionID: sessionID})
}

// Alert shows a message with a face and a short sound. All three are required
// by firmware.
func Alert(status, message, emotion string) []byte {
	return encode(struct {
		Type    string `json:"type"`
		Status  string `json:"status"`
		Message string `json:"message"`
		Emotion string `json:"emotion"`
	}{"alert", status, message, emotion})
}

// Reboot restarts the device, a second later; an open session is ended before.
func Reboot() []byte {
	return encode(struct {
		Type    string `json:"type"`
		Command string `json:"command"`
	}{"system", "reboot"})
}

// SpeakRequest asks an idle device to open a session and go to speaking, because
// there is something to tell its user; text is a preview for its screen. The
// device greets, sends a packet so that a NAT knows it, and then says
// [TypeSpeakReady]. Firmware before 2.5 ignores it.
func SpeakRequest(sessionID, text string) []byte {
	return encode(speech{Type: "speak_request", SessionID: sessionID, Text: text})
}

// MCP wraps a JSON-RPC message, which must be a JSON object: anything else is
// dropped by devices.
func MCP(sessionID string, payload json.RawMessage) []byte {
	return encode(struct {
		Type      string          `json:"type"`
		SessionID string          `json:"session_id,omitempty"`
		Payload   json.RawMessage `json:"payload"`
	}{"mcp", sessionID, payload})
}

// encode writes compact JSON and leaves <, > and & as they are: devices have
// small buffers, and no device shows HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("protocol: " + err.Error()) // only MCP payloads could fail, and they are valid JSON by contract
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
