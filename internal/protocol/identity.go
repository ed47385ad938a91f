package protocol

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// A DeviceID is a device's MAC address in lower-case colon form, such as
// "a0:85:e3:f4:49:34". It is the identity of a device everywhere in Parley.
type DeviceID string

// Errors of identity and credential parsing. They are wrapped with the value's
// fault; match them with errors.Is.
var (
	ErrDeviceID    = errors.New("not a MAC address")
	ErrClientID    = errors.New("not a device client id")
	ErrCredentials = errors.New("credentials refused")
)

// ParseDeviceID normalises a MAC address: colons, hyphens and underscores are
// accepted as separators and upper case is folded, because HTTP headers carry
// aa:bb:…, MQTT client ids carry aa_bb_…, and people type either.
func ParseDeviceID(s string) (DeviceID, error) {
	const form = "aa:bb:cc:dd:ee:ff"
	if len(s) != len(form) {
		return "", fmt.Errorf("%w: %d characters where %q has %d", ErrDeviceID, len(s), form, len(form))
	}
	b := []byte(strings.ToLower(s))
	for i, c := range b {
		if i%3 == 2 {
			if c != ':' && c != '_' && c != '-' {
				return "", fmt.Errorf("%w: character %d is no separator", ErrDeviceID, i+1)
			}
			b[i] = ':'
			continue
		}
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", fmt.Errorf("%w: character %d is no hexadecimal digit", ErrDeviceID, i+1)
		}
	}
	return DeviceID(b), nil
}

// Underscored is the id as MQTT topics and client ids spell it, aa_bb_cc_dd_ee_ff.
func (d DeviceID) Underscored() string { return strings.ReplaceAll(string(d), ":", "_") }

// A ClientID is an MQTT client id of a device in its parts:
// <group>@@@<mac>@@@<uuid>, the last part absent in the legacy form.
type ClientID struct {
	Group  string
	Device DeviceID
	UUID   string // "" in the legacy two-part form
}

const clientIDSeparator = "@@@"

// maxClientID bounds a client id in bytes; the longest in use has under 100.
const maxClientID = 256

// ParseClientID splits an MQTT client id. It returns an error wrapping
// [ErrClientID] for anything that is not two or three parts with a MAC second.
func ParseClientID(s string) (ClientID, error) {
	if len(s) > maxClientID {
		return ClientID{}, fmt.Errorf("%w: %d bytes, at most %d allowed", ErrClientID, len(s), maxClientID)
	}
	parts := strings.Split(s, clientIDSeparator)
	if len(parts) != 2 && len(parts) != 3 {
		return ClientID{}, fmt.Errorf("%w: want group@@@mac@@@uuid, got %d part(s)", ErrClientID, len(parts))
	}
	id, err := ParseDeviceID(parts[1])
	if err != nil {
		return ClientID{}, fmt.Errorf("%w: second part: %w", ErrClientID, err)
	}
	c := ClientID{Group: parts[0], Device: id}
	if len(parts) == 3 {
		c.UUID = parts[2]
	}
	return c, nil
}

// String is the client id as it goes over the wire.
func (c ClientID) String() string {
	s := c.Group + clientIDSeparator + c.Device.Underscored()
	if c.UUID != "" {
		s += clientIDSeparator + c.UUID
	}
	return s
}

// An Enrolment is what Parley learns of a device when it asks for its
// configuration over HTTP. It travels to the device inside the MQTT user name
// and comes back with every connection, so that no server has to remember it:
// the device may return months later, to another node.
type Enrolment struct {
	// Host is the host name or address the device reached Parley by. It
	// survives containers and port mapping, which the node cannot see.
	Host string `json:"host,omitempty"`
	// Agent is the device's User-Agent, "<board>/<firmware version>".
	Agent string `json:"agent,omitempty"`
	// IP is the address the device's request came from; the Node gateway's
	// user names carry it, and nothing here depends on it.
	IP string `json:"ip,omitempty"`
}

// maxUsername bounds an MQTT user name in bytes.
const maxUsername = 1024

// Username encodes the enrolment as an MQTT user name: base64 of a JSON object,
// as the Node gateway does.
func (e Enrolment) Username() string {
	b, err := json.Marshal(e)
	if err != nil {
		panic(err) // three strings always marshal
	}
	return base64.StdEncoding.EncodeToString(b)
}

// ParseUsername reads an enrolment back. Unknown members are ignored, so the
// user names of other servers are understood too.
func ParseUsername(s string) (Enrolment, error) {
	if len(s) > maxUsername {
		return Enrolment{}, fmt.Errorf("%w: user name of %d bytes, at most %d allowed", ErrCredentials, len(s), maxUsername)
	}
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		return Enrolment{}, fmt.Errorf("%w: user name is not base64", ErrCredentials)
	}
	var e Enrolment
	if err := json.Unmarshal(b, &e); err != nil {
		return Enrolment{}, fmt.Errorf("%w: user name is not base64 of a JSON object", ErrCredentials)
	}
	return e, nil
}

// Password signs a client id and user name: base64 of HMAC-SHA256 over
// "<client id>|<user name>", the scheme of the Node gateway, so that a fleet
// moves between the two without a new key.
func Password(key []byte, clientID, username string) string {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(clientID + "|" + username))
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// VerifyPassword reports, in constant time, whether password signs clientID
// and username under key.
func VerifyPassword(key []byte, clientID, username, password string) bool {
	return hmac.Equal([]byte(Password(key, clientID, username)), []byte(password))
}

// NewSessionID returns a session id nobody can guess. Devices echo it unescaped
// into every message, so it has only letters and digits.
func NewSessionID() string { return rand.Text() }

// SharedUplinkTopic is the topic devices of other servers publish to. It names
// no device: who sent a message is known from the connection.
const SharedUplinkTopic = "device-server"

// UplinkTopic is the topic Parley tells a device to publish to. It names the
// device, so that the identity survives a broker Parley does not own.
func UplinkTopic(id DeviceID) string { return SharedUplinkTopic + "/" + id.Underscored() }

// DownlinkTopic is the topic of everything sent to a device, as the Node
// gateway names it.
func DownlinkTopic(id DeviceID) string { return "devices/p2p/" + id.Underscored() }
