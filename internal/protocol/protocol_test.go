package protocol

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// The vector was made with
//
//	printf '%s' "$CLIENT|$USER" | openssl dgst -sha256 -hmac test-key -binary | base64
const (
	vectorClient   = "GID_test@@@a0_85_e3_f4_49_34@@@7b94d69a-9808-4c59-9c9b-704333b38aff"
	vectorUser     = "eyJpcCI6IjEuMi4zLjQifQ==" // {"ip":"1.2.3.4"}
	vectorPassword = "zD8tCpKjNI4Q/5BLfNIwdw+vmuhvHQn4EBnaRBkjFVc="
)

func TestCredentialsAreTheGateways(t *testing.T) {
	key := []byte("test-key")
	if got := Password(key, vectorClient, vectorUser); got != vectorPassword {
		t.Errorf("password %s, want %s", got, vectorPassword)
	}
	if !VerifyPassword(key, vectorClient, vectorUser, vectorPassword) {
		t.Error("the vector is refused")
	}
	for name, ok := range map[string]bool{
		"another key":      VerifyPassword([]byte("other"), vectorClient, vectorUser, vectorPassword),
		"another client":   VerifyPassword(key, vectorClient+"x", vectorUser, vectorPassword),
		"another user":     VerifyPassword(key, vectorClient, vectorUser+"x", vectorPassword),
		"another password": VerifyPassword(key, vectorClient, vectorUser, vectorPassword[1:]),
		"no password":      VerifyPassword(key, vectorClient, vectorUser, ""),
	} {
		if ok {
			t.Errorf("%s is accepted", name)
		}
	}
	e, err := ParseUsername(vectorUser)
	if err != nil || e.IP != "1.2.3.4" {
		t.Errorf("user name: %+v, %v", e, err)
	}
}

func TestEnrolmentComesBack(t *testing.T) {
	want := Enrolment{Host: "voice.local", Agent: "esp-box/2.4.2", IP: "10.0.0.7"}
	got, err := ParseUsername(want.Username())
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "!", "bm90IGpzb24=", strings.Repeat("A", 2000), "WzFd"} {
		if _, err := ParseUsername(bad); !errors.Is(err, ErrCredentials) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func TestDeviceIDs(t *testing.T) {
	for _, s := range []string{"A0:85:E3:F4:49:34", "a0_85_e3_f4_49_34", "a0-85-e3-f4-49-34"} {
		id, err := ParseDeviceID(s)
		if err != nil || id != "a0:85:e3:f4:49:34" || id.Underscored() != "a0_85_e3_f4_49_34" {
			t.Errorf("%q: %q, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "a0:85:e3:f4:49", "a0:85:e3:f4:49:3g", "a085:e3:f4:49:340", "a0.85.e3.f4.49.34", "ä0:85:e3:f4:49:3"} {
		if id, err := ParseDeviceID(s); !errors.Is(err, ErrDeviceID) {
			t.Errorf("%q: %q, %v", s, id, err)
		}
	}
}

func TestClientIDs(t *testing.T) {
	for s, want := range map[string]ClientID{
		vectorClient:                       {"GID_test", "a0:85:e3:f4:49:34", "7b94d69a-9808-4c59-9c9b-704333b38aff"},
		"GID_test@@@a0_85_e3_f4_49_34":     {"GID_test", "a0:85:e3:f4:49:34", ""},
		"g@@@a0_85_e3_f4_49_34@@@anything": {"g", "a0:85:e3:f4:49:34", "anything"},
	} {
		got, err := ParseClientID(s)
		if err != nil || got != want || got.String() != s {
			t.Errorf("%q: %+v, %v, back %q", s, got, err, got)
		}
	}
	for _, s := range []string{"", "mqtt-explorer", "g@@@x", "g@@@a0_85_e3_f4_49_34@@@u@@@v", strings.Repeat("g", 300)} {
		if _, err := ParseClientID(s); !errors.Is(err, ErrClientID) {
			t.Errorf("%.20q: %v", s, err)
		}
	}
}

func TestSessionIDsAreUnguessableAndPlain(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewSessionID()
		if seen[id] || len(id) < 22 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789") != "" {
			t.Fatalf("session id %q", id)
		}
		seen[id] = true
	}
}

func TestUplinkAsClientsSendIt(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want func(Uplink) bool
	}{
		"hello of firmware 2.4": {
			`{"type":"hello","version":3,"transport":"udp","features":{"mcp":true,"glyph_push":false},"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`,
			func(u Uplink) bool {
				return u.Type == TypeHello && u.Version == 3 && u.Features.MCP && u.AudioParams.FrameDuration == 60
			},
		},
		"hello with a version in quotes": {`{"type":"hello","version":"1.0","audio_params":{}}`, func(u Uplink) bool { return u.Version == 1 }},
		"hello of nobody's version":      {`{"type":"hello","version":"x"}`, func(u Uplink) bool { return u.Version == 0 }},
		"hello with features unknown":    {`{"type":"hello","features":{"new":{"a":1}},"more":[1]}`, func(u Uplink) bool { return u.Type == TypeHello }},
		"listen":                         {`{"session_id":"","type":"listen","state":"start","mode":"auto"}`, func(u Uplink) bool { return u.State == ListenStart && u.Mode == ModeAuto }},
		"detect":                         {`{"session_id":"s","type":"listen","state":"detect","text":"你好小智"}`, func(u Uplink) bool { return u.Text == "你好小智" && u.SessionID == "s" }},
		"abort":                          {`{"type":"abort","reason":"wake_word_detected"}`, func(u Uplink) bool { return u.Reason != "" }},
		"mcp":                            {`{"type":"mcp","payload":{"id":1}}`, func(u Uplink) bool { return string(u.Payload) == `{"id":1}` }},
		"something new":                  {`{"type":"iot","states":[]}`, func(u Uplink) bool { return u.Type == "iot" }},
		"null members":                   {`{"type":"hello","features":null,"session_id":null,"version":null}`, func(u Uplink) bool { return u.Type == TypeHello }},
	} {
		u, err := ParseUplink([]byte(c.text))
		if err != nil || !c.want(u) {
			t.Errorf("%s: %+v, %v", name, u, err)
		}
	}
}

func TestFaultsOfUplinkNameTheMember(t *testing.T) {
	for text, want := range map[string]string{
		``:                                  "not JSON",
		`{"type":"hello"`:                   "not JSON",
		`{"type":"listen","text":"a"b"}`:    "not JSON at byte 28",
		`[1]`:                               "is a JSON array; send an object",
		`5`:                                 "is a JSON number; send an object",
		`{}`:                                `"type" is missing`,
		`{"type":5}`:                        `"type" is a JSON number; send a string`,
		`{"type":"hello","audio_params":1}`: `"audio_params" is a JSON number; send an object`,
		`{"type":"hello","audio_params":{"frame_duration":"60"}}`: `"audio_params.frame_duration" is a JSON string; send a whole number`,
		`{"type":"hello","features":{"mcp":1}}`:                   `"features.mcp" is a JSON number; send true or false`,
	} {
		_, err := ParseUplink([]byte(text))
		if !errors.Is(err, ErrMessage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// FuzzParseUplink checks that nothing a device sends can do more than be
// refused, and that what is accepted has a type.
func FuzzParseUplink(f *testing.F) {
	f.Add([]byte(`{"type":"hello","version":3,"audio_params":{"frame_duration":60}}`))
	f.Add([]byte(`{"type":"listen","state":"detect","text":"\ud800"}`))
	f.Add([]byte(`{"type":"mcp","payload":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := ParseUplink(b)
		if err != nil && !errors.Is(err, ErrMessage) {
			t.Errorf("error %v wraps no ErrMessage", err)
		}
		if err == nil && u.Type == "" {
			t.Error("a message without a type")
		}
	})
}

// FuzzParseClientID checks that what is accepted is read back as the same.
func FuzzParseClientID(f *testing.F) {
	f.Add(vectorClient)
	f.Add("g@@@a0_85_e3_f4_49_34")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseClientID(s)
		if err != nil {
			return
		}
		again, err := ParseClientID(c.String())
		if err != nil || again.Device != c.Device || again.Group != c.Group {
			t.Errorf("%q is %+v and then %+v, %v", s, c, again, err)
		}
	})
}

// FuzzParseUsername checks that reading never fails otherwise than by its error.
func FuzzParseUsername(f *testing.F) {
	f.Add(vectorUser)
	f.Fuzz(func(t *testing.T, s string) {
		if _, err := ParseUsername(s); err != nil && !errors.Is(err, ErrCredentials) {
			t.Errorf("error %v wraps no ErrCredentials", err)
		}
	})
}

func TestDownlinkIsWhatFirmwareReads(t *testing.T) {
	offer := UDPOffer{Server: "voice.local", Port: 8884}
	for i := range offer.Key {
		offer.Key[i], offer.Nonce[i] = byte(i), byte(0xf0+i)
	}
	for want, got := range map[string][]byte{
		`{"type":"hello","version":3,"transport":"udp","session_id":"S","audio_params":{"format":"opus","sample_rate":24000,"channels":1,"frame_duration":60},"udp":{"server":"voice.local","port":8884,"encryption":"aes-128-ctr","key":"000102030405060708090a0b0c0d0e0f","nonce":"f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"}}`: HelloReply("S", offer),
		`{"type":"stt","session_id":"S","text":"a <b> & \"c\""}`:                STT("S", `a <b> & "c"`),
		`{"type":"tts","session_id":"S","state":"start"}`:                       TTSStart("S"),
		`{"type":"tts","session_id":"S","state":"sentence_start","text":"你好。"}`: TTSSentence("S", "你好。"),
		`{"type":"tts","session_id":"S","state":"stop"}`:                        TTSStop("S"),
		`{"type":"llm","session_id":"S","text":"🙂","emotion":"happy"}`:          Emotion("S", "happy", "🙂"),
		`{"type":"goodbye","session_id":"S"}`:                                   Goodbye("S"),
		`{"type":"alert","status":"Error","message":"","emotion":"sad"}`:        Alert("Error", "", "sad"),
		`{"type":"mcp","payload":{"jsonrpc":"2.0"}}`:                            MCP("", json.RawMessage(`{"jsonrpc":"2.0"}`)),
	} {
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestFirmware(t *testing.T) {
	for agent, at := range map[string]bool{
		"esp-box/2.4.0": true, "esp-box/2.4.2": true, "esp-box/2.10": true, "esp-box/3": true,
		"esp-box/2.3.9": false, "esp-box/2.4": false, "esp-box/1.8.5": false,
		"bread-compact-wifi/py-xiaozhi-2.5.0": false, "esp-box/v2.5.0": false, "": false, "esp-box/": false, "a/2.-1": false,
	} {
		f, ok := ParseFirmware(agent)
		if got := ok && f.AtLeast(2, 4, 0); got != at {
			t.Errorf("%q at least 2.4.0: %t (%+v, %t)", agent, got, f, ok)
		}
	}
}

func TestTopics(t *testing.T) {
	const id DeviceID = "a0:85:e3:f4:49:34"
	if got := UplinkTopic(id) + " " + DownlinkTopic(id); got != "device-server/a0_85_e3_f4_49_34 devices/p2p/a0_85_e3_f4_49_34" {
		t.Error(got)
	}
}
