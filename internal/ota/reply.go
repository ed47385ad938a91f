package ota

import (
	"net"
	"strconv"
	"strings"
	"time"

	"parley/internal/protocol"
)

// The answer to a device. Its mqtt members become NVS keys on the device, which
// must not be longer than 15 characters; there is no activation member, because
// clients take its mere presence as "not activated"; no section is ever null.
type answer struct {
	MQTT       *mqttSection    `json:"mqtt,omitempty"`
	ServerTime serverTime      `json:"server_time"`
	Firmware   firmwareSection `json:"firmware"`
}

type mqttSection struct {
	Endpoint       string `json:"endpoint"`
	ClientID       string `json:"client_id"`
	Username       string `json:"username"`
	Password       string `json:"password"`
	PublishTopic   string `json:"publish_topic"`
	SubscribeTopic string `json:"subscribe_topic"`
	Keepalive      int    `json:"keepalive"` // s; as a string it would be ignored
}

type serverTime struct {
	Timestamp int64 `json:"timestamp"`       // ms since 1970 UTC
	Offset    int   `json:"timezone_offset"` // minutes east of UTC
}

type firmwareSection struct {
	Version string `json:"version"`
	URL     string `json:"url"`
}

// unsigned is the password where there is no key. Some clients need one that is
// not empty (py-xiaozhi 2.1.1).
const unsigned = "unsigned"

// noTopic keeps clients from subscribing: every message is delivered to them
// anyway. Firmware before 1.0 misbehaves without the member, and py-xiaozhi
// subscribes to anything but this word.
const noTopic = "null"

// tlsPort is the only port firmware up to 1.6.0 connects to.
const tlsPort = "8883"

// reply makes the answer for d, which asked for host and came from address. Its
// MQTT section is nil when no endpoint is known; the device then goes on with
// what it has stored.
func (h *Handler) reply(d device, host, address string, now time.Time) answer {
	now = now.In(h.cfg.Location)
	_, offset := now.Zone()
	a := answer{
		ServerTime: serverTime{now.UnixMilli(), offset / 60},
		Firmware:   firmwareSection{Version: d.version.String()},
	}
	endpoint := h.endpoint(d, host)
	if endpoint == "" {
		return a
	}
	client := protocol.ClientID{Group: Group, Device: d.id, UUID: d.client}.String()
	username := protocol.Enrolment{Host: host, Agent: d.agent, IP: address}.Username()
	password := unsigned
	if len(h.cfg.Key) > 0 {
		password = protocol.Password(h.cfg.Key, client, username)
	}
	a.MQTT = &mqttSection{
		Endpoint: endpoint, ClientID: client, Username: username, Password: password,
		PublishTopic: protocol.UplinkTopic(d.id), SubscribeTopic: noTopic,
		Keepalive: int(h.cfg.Keepalive / time.Second),
	}
	return a
}

// endpoint is where d finds the broker. Firmware up to 1.6.0 takes all of it for
// a host name and connects to port 8883 with TLS; the port could be read since
// 1.6.2.
func (h *Handler) endpoint(d device, host string) string {
	port := strconv.Itoa(h.cfg.MQTTPort)
	if h.cfg.Endpoint != "" {
		var err error
		if host, port, err = net.SplitHostPort(h.cfg.Endpoint); err != nil {
			return ""
		}
	}
	if host == "" {
		return ""
	}
	if !d.version.onlyTLS() {
		return host + ":" + port
	}
	if port != tlsPort {
		h.log.Warn("firmware up to 1.6.0 connects with TLS on port 8883 only", "device", d.id, "agent", d.agent,
			"remedy", "update the firmware, or serve TLS on 8883 with a public certificate")
	}
	return host
}

// A version is a firmware version by its numbers; nil when it is unknown.
type version []int

// Bounds of versions. Devices convert each number with std::stoi, which throws
// beyond 32 bits.
const (
	maxNumbers = 4
	maxDigits  = 9
)

// parseVersion reads the numbers a version begins with, after an optional v, and
// ignores what follows, such as "-beta".
func parseVersion(s string) version {
	var v version
	s = strings.TrimPrefix(s, "v")
	for len(v) < maxNumbers {
		digits := s[:len(s)-len(strings.TrimLeft(s, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil || len(digits) > maxDigits {
			return v
		}
		v = append(v, n)
		var more bool
		if s, more = strings.CutPrefix(s[len(digits):], "."); !more {
			return v
		}
	}
	return v
}

// String is the version in the form firmware can read: a leading v or an empty
// number makes it restart for ever. An unknown version is 0.0.0, which is newer
// than none.
func (v version) String() string {
	if v == nil {
		return "0.0.0"
	}
	numbers := make([]string, len(v))
	for i, n := range v {
		numbers[i] = strconv.Itoa(n)
	}
	return strings.Join(numbers, ".")
}

// onlyTLS reports firmware up to 1.6.0. What is unknown is taken for newer.
func (v version) onlyTLS() bool {
	if v == nil {
		return false
	}
	for i, last := range []int{1, 6, 0} {
		n := 0
		if i < len(v) {
			n = v[i]
		}
		if n != last {
			return n < last
		}
	}
	return true
}
