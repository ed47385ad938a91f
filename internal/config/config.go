package config

import (
	"fmt"
	"strconv"
	"time"
)

// Config is a whole configuration, as the file has it with defaults filled in
// and secrets read. It is not changed after [Load] returns it, so any number of
// goroutines may read it.
//
// The field comments give units and bounds; config.toml tells an operator what
// the keys are for.
type Config struct {
	Log     Log             `toml:"log"`
	MQTT    MQTT            `toml:"mqtt"`
	UDP     UDP             `toml:"udp"`
	HTTP    HTTP            `toml:"http"`
	OTA     OTA             `toml:"ota"`
	Session Session         `toml:"session"`
	Speech  Speech          `toml:"speech"`
	Limits  Limits          `toml:"limits"`
	Record  Record          `toml:"record"`
	MCP     MCP             `toml:"mcp"`
	Tools   Tools           `toml:"tools"`
	Vision  Vision          `toml:"vision"`
	API     API             `toml:"api"`
	Home    Home            `toml:"home"`
	ASR     map[string]ASR  `toml:"asr"`
	LLM     map[string]LLM  `toml:"llm"`
	TTS     map[string]TTS  `toml:"tts"`
	Role    map[string]Role `toml:"role"`
	// Device is keyed by MAC address in lower-case colon form.
	Device map[string]Device `toml:"device"`
}

// Log says what is logged and how.
type Log struct {
	Level  string `toml:"level"`  // debug, info, warn or error
	Format string `toml:"format"` // text or json
}

// MQTT is the embedded broker.
type MQTT struct {
	Listen         string        `toml:"listen"`          // host:port
	TLSListen      string        `toml:"tls_listen"`      // host:port; used when there is a certificate
	TLSCertificate string        `toml:"tls_certificate"` // PEM file
	TLSKey         string        `toml:"tls_key"`         // PEM file
	Key            Secret        `toml:"key"`             // signs credentials; unset: open enrolment on private networks
	ConnectTimeout time.Duration `toml:"connect_timeout"` // 100ms to 1m, TCP accept to CONNECT complete
	MaxPacket      int           `toml:"max_packet"`      // bytes, 8 KiB to 16 MiB
	MaxClients     int           `toml:"max_clients"`     // 1 to 1,000,000
	ConnectRate    float64       `toml:"connect_rate"`    // CONNECTs a second from one address
	ConnectBurst   int           `toml:"connect_burst"`
	MessageRate    float64       `toml:"message_rate"` // messages a second from one device
	MessageBurst   int           `toml:"message_burst"`
	Keepalive      time.Duration `toml:"keepalive"` // whole seconds, 10s to 10m; told to devices
	User           []MQTTUser    `toml:"user"`
	Tool           []MQTTTool    `toml:"tool"`
}

// UDP is the audio socket.
type UDP struct {
	Listen  string `toml:"listen"`  // host:port
	Address string `toml:"address"` // host name or IPv4 told to devices; "": the one each device used itself
	Port    int    `toml:"port"`    // told to devices; 0: the port of Listen
}

// HTTP is the server for device bootstrap, health and metrics.
type HTTP struct {
	Listen string `toml:"listen"` // host:port
}

// OTA is what a device is told when it asks for its configuration.
type OTA struct {
	MQTTEndpoint string `toml:"mqtt_endpoint"` // host:port; "": the host of the request and the port of mqtt.listen
	Timezone     string `toml:"timezone"`      // minutes east of UTC, or an IANA name; "": the server's
	Public       bool   `toml:"public"`        // enrol devices from public addresses
}

// Location returns the time zone devices are set to. [Load] has checked that
// there is no error.
func (o OTA) Location() (*time.Location, error) {
	if o.Timezone == "" {
		return time.Local, nil
	}
	if minutes, err := strconv.Atoi(o.Timezone); err == nil {
		if minutes < -12*60 || minutes > 14*60 {
			return nil, fmt.Errorf("%d minutes is no time zone", minutes)
		}
		return time.FixedZone("UTC"+o.Timezone+"min", minutes*60), nil
	}
	return time.LoadLocation(o.Timezone)
}

// Session bounds one open audio channel.
type Session struct {
	SilenceTimeout time.Duration `toml:"silence_timeout"` // 5s to 1h
	AudioTimeout   time.Duration `toml:"audio_timeout"`   // 1s to 1m, until missing uplink audio is reported
	Drain          time.Duration `toml:"drain"`           // 0s to 1m, for sentences to end at shutdown
	HelloRate      float64       `toml:"hello_rate"`      // a second from one device
	HelloBurst     int           `toml:"hello_burst"`
}

// Speech is the timing of a conversation and the quality of its audio.
type Speech struct {
	Lead          time.Duration `toml:"lead"`           // 60ms to 1.8s of audio sent ahead of playing
	StartHold     time.Duration `toml:"start_hold"`     // 0s to 1s between tts start and first audio
	StopMargin    time.Duration `toml:"stop_margin"`    // 0s to 1s between last frame heard and tts stop
	VADStart      time.Duration `toml:"vad_start"`      // 20ms to 1s of speech before it counts
	PreRoll       time.Duration `toml:"pre_roll"`       // 0s to 2s kept from before speech began
	EndpointMin   time.Duration `toml:"endpoint_min"`   // 100ms to 10s, after words that are plainly complete
	EndpointMax   time.Duration `toml:"endpoint_max"`   // EndpointMin to 30s, after words that plainly are not
	BargeIn       time.Duration `toml:"barge_in"`       // 60ms to 5s of speech before it interrupts
	Resume        time.Duration `toml:"resume"`         // 200ms to 10s without words, then an interrupted answer goes on
	MaxUtterance  time.Duration `toml:"max_utterance"`  // 1s to 60s
	Filler        string        `toml:"filler"`         // said when tools take long; "": nothing
	FillAfter     time.Duration `toml:"fill_after"`     // 500ms to 30s
	NotUnderstood string        `toml:"not_understood"` // when a recogniser rejects what it heard
	Apology       string        `toml:"apology"`        // when no provider could answer
	ApologyAudio  string        `toml:"apology_audio"`  // Ogg Opus file of it; "": the built-in recording, English
}

// Limits bound providers, tools and memory.
type Limits struct {
	Connect    time.Duration `toml:"connect"`     // 100ms to 1m, to a provider
	First      time.Duration `toml:"first"`       // 100ms to 2m, until a provider's first item
	Idle       time.Duration `toml:"idle"`        // 100ms to 5m, between a provider's items
	Tool       time.Duration `toml:"tool"`        // 100ms to 5m, one call
	ToolSlow   time.Duration `toml:"tool_slow"`   // Tool to 10m, one call of a camera or screen
	ToolRounds int           `toml:"tool_rounds"` // 0 to 20 in one turn
	ToolResult int           `toml:"tool_result"` // bytes, 1 KiB to 1 MiB
	ToolImages int           `toml:"tool_images"` // bytes of the pictures of a result, 1 KiB to 16 MiB
	History    int           `toml:"history"`     // messages, 2 to 1,000
	Encoders   int           `toml:"encoders"`    // at work at once, 0 to 1,024; 0: one a core
}

// Record says where the sessions of roles with record = true go.
type Record struct {
	Dir         string        `toml:"dir"`          // made if missing, readable by its owner only
	MaxDuration time.Duration `toml:"max_duration"` // 1s to 24h, of one recording
	MaxTotal    int           `toml:"max_total"`    // bytes of all recordings, at least 1 MiB; the oldest go first
	Mirror      string        `toml:"mirror"`       // host:port of the loopback interface; "": no mirror
	MirrorOnly  bool          `toml:"mirror_only"`  // keep no files
}

// A Role binds what a conversation needs. After [Load] each stage lists the
// tables to try, in order, and at least one.
type Role struct {
	Prompt   string   `toml:"prompt"`
	Language string   `toml:"language"` // BCP 47, such as "en" or "zh-CN"; "": providers decide
	Engine   string   `toml:"engine"`   // conversation or echo
	Provider string   `toml:"provider"` // the table of this name for each stage that lists none
	ASR      []string `toml:"asr"`
	LLM      []string `toml:"llm"`
	TTS      []string `toml:"tts"`
	// ToolsAllow and ToolsDeny are globs as of path.Match on the names devices
	// give their tools; a denial wins.
	ToolsAllow []string `toml:"tools_allow"`
	ToolsDeny  []string `toml:"tools_deny"`
	Record     bool     `toml:"record"` // keep the sound of sessions, see [Record]
	// ByVoice lets users of any device switch it to this role by asking for it.
	ByVoice bool `toml:"by_voice"`
	// Vision lists the tables of [llm] that are shown a device's pictures. After
	// [Load] it is what the file says, else those of LLM that take pictures.
	Vision []string `toml:"vision"`
}

// A Device is what one device has of its own.
type Device struct {
	Role string `toml:"role"`
}

// DefaultRole is the name of the role of every device that no [device] table
// names.
const DefaultRole = "default"

// RoleOf returns the role of a device and its name. The device is a MAC address
// in lower-case colon form.
func (c *Config) RoleOf(device string) (name string, role Role) {
	name = DefaultRole
	if d, ok := c.Device[device]; ok {
		name = d.Role
	}
	return name, c.Role[name]
}
