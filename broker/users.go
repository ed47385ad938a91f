package broker

import (
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/time/rate"
)

// A Secret is a password. Printed, logged or marshalled it is "***".
type Secret []byte

const redacted = "***"

// Format writes "***", whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// MarshalText returns "***".
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// A User is whom home clients log in as: lamps, Zigbee2MQTT, Home Assistant. Any
// number of clients may be connected as one user.
type User struct {
	// Name is what the client gives as its user name: 1 to 128 bytes, and none of
	// "+", "#", "/", "$" and "%", so that it can stand in a topic.
	Name string
	// Password must not be empty.
	Password Secret
	// Publish and Subscribe are the topic filters the user's clients may publish
	// to and hear. "+" and "#" are wildcards as in MQTT, %u stands for the user's
	// name and %c for the client id. An empty list allows nothing. No filter
	// reaches the topics of voice devices or those that begin with "$".
	Publish, Subscribe []string
}

const maxUserName = 128 // bytes

func (u *User) validate() error {
	forbidden := func(r rune) bool { return strings.ContainsRune("+#/$%", r) || unicode.IsControl(r) }
	switch {
	case u.Name == "" || len(u.Name) > maxUserName:
		return fmt.Errorf("name of %d bytes; give it 1 to %d", len(u.Name), maxUserName)
	case !utf8.ValidString(u.Name) || strings.ContainsFunc(u.Name, forbidden):
		return fmt.Errorf("name %q holds a character that cannot stand in a topic; leave out + # / $ %% and control characters", u.Name)
	case len(u.Password) == 0:
		return fmt.Errorf("%s has no password; set one", u.Name)
	}
	for _, rule := range []struct {
		field   string
		filters []string
	}{{"Publish", u.Publish}, {"Subscribe", u.Subscribe}} {
		for _, f := range rule.filters {
			switch {
			case !validFilter(f):
				return fmt.Errorf("%s: %s filter %q is no topic filter; + and # stand alone between slashes, # last", u.Name, rule.field, f)
			case reserved(f):
				return fmt.Errorf("%s: %s filter %q is for topics of voice devices or of the broker, which no home client has; remove it", u.Name, rule.field, f)
			}
		}
	}
	return nil
}

func validateUsers(users []User) error {
	seen := make(map[string]bool, len(users))
	for i := range users {
		if err := users[i].validate(); err != nil {
			return fmt.Errorf("broker: Users[%d]: %w", i, err)
		}
		if seen[users[i].Name] {
			return fmt.Errorf("broker: Users[%d]: %s is there twice; remove one", i, users[i].Name)
		}
		seen[users[i].Name] = true
	}
	return nil
}

// errPassword says nothing of the password, which may be right but for one letter.
var errPassword = errors.New("wrong password")

// checkPassword compares in time that says nothing of the password, not even its
// length.
func (u *User) checkPassword(password []byte) error {
	want, got := sha256.Sum256(u.Password), sha256.Sum256(password)
	if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
		return fmt.Errorf("%w for user %s", errPassword, u.Name)
	}
	return nil
}

// HomeLimits bound what home clients can take. A zero field means its default.
type HomeLimits struct {
	// MaxClients is the number of home clients connected at once, and of sessions
	// kept for absent ones, together. For one client more, the absent session
	// nearest its end makes room. Default 1,000.
	MaxClients int
	// MaxPacket is the size in bytes of the largest packet from a client, and so
	// of the largest message. Default 256 KiB: what Home Assistant announces about
	// a camera or a climate has up to some 10 KiB, a snapshot much more.
	MaxPacket int
	// MaxQueued and MaxQueuedBytes bound the messages that wait to be written to
	// one client, or are kept for it while it is away; the bytes include those it
	// has not acknowledged. Retained messages it just subscribed to are counted
	// apart: at most twice MaxRetained. A connected client that exceeds a bound is
	// dropped, an absent one misses what is new. Defaults 1,000 and 4 MiB.
	MaxQueued, MaxQueuedBytes int
	// MaxInflight is the number of messages of QoS 1 and 2 that one client may
	// have unacknowledged, each way. Default 64.
	MaxInflight int
	// MaxSubscriptions is the number of filters of one client, and of one packet.
	// Default 512.
	MaxSubscriptions int
	// MaxRetained, MaxRetainedBytes and MaxRetainedPayload bound the retained
	// messages: their number, their bytes with topics and properties, and one
	// payload. What exceeds them is delivered, but not retained. Defaults 10,000,
	// 16 MiB and 256 KiB.
	MaxRetained, MaxRetainedBytes, MaxRetainedPayload int
	// SessionExpiry is the longest time a session is kept for a client that is
	// away. Clients of MQTT 3.1.1 that ask for a session get all of it. Default
	// 1 h.
	SessionExpiry time.Duration
	// MessageRate and MessageBurst bound the packets of one client, in packets
	// per second; a filter counts as a packet, and acknowledgements of what it was
	// sent are free. A client that sends more is read more slowly. Defaults 500
	// and 2,000: Zigbee2MQTT announces everything it knows when it starts. A
	// negative rate means no limit.
	MessageRate  rate.Limit
	MessageBurst int
}

func (l HomeLimits) withDefaults() HomeLimits {
	l.MaxClients = cmp.Or(l.MaxClients, 1000)
	l.MaxPacket = cmp.Or(l.MaxPacket, 256<<10)
	l.MaxQueued = cmp.Or(l.MaxQueued, 1000)
	l.MaxQueuedBytes = cmp.Or(l.MaxQueuedBytes, 4<<20)
	l.MaxInflight = cmp.Or(l.MaxInflight, 64)
	l.MaxSubscriptions = cmp.Or(l.MaxSubscriptions, 512)
	l.MaxRetained = cmp.Or(l.MaxRetained, 10_000)
	l.MaxRetainedBytes = cmp.Or(l.MaxRetainedBytes, 16<<20)
	l.MaxRetainedPayload = cmp.Or(l.MaxRetainedPayload, 256<<10)
	l.SessionExpiry = cmp.Or(l.SessionExpiry, time.Hour)
	l.MessageRate = noLimitIfNegative(cmp.Or(l.MessageRate, 500))
	l.MessageBurst = cmp.Or(l.MessageBurst, 2000)
	return l
}

// maxInflightLimit leaves packet ids free, of which there are 65,535.
const maxInflightLimit = 1 << 15

func (l HomeLimits) validate() error {
	for _, f := range []struct {
		name string
		v    int
	}{
		{"MaxClients", l.MaxClients}, {"MaxPacket", l.MaxPacket}, {"MaxQueued", l.MaxQueued},
		{"MaxQueuedBytes", l.MaxQueuedBytes}, {"MaxInflight", l.MaxInflight},
		{"MaxSubscriptions", l.MaxSubscriptions}, {"MaxRetained", l.MaxRetained},
		{"MaxRetainedBytes", l.MaxRetainedBytes}, {"MaxRetainedPayload", l.MaxRetainedPayload},
		{"SessionExpiry", int(l.SessionExpiry)}, {"MessageBurst", l.MessageBurst},
	} {
		if f.v < 0 {
			return fmt.Errorf("broker: Limits.Home.%s is negative; leave it 0 for the default", f.name)
		}
	}
	if l.MaxPacket > maxRemaining {
		return fmt.Errorf("broker: Limits.Home.MaxPacket is %d bytes; at most %d are possible", l.MaxPacket, maxRemaining)
	}
	if l.MaxInflight > maxInflightLimit {
		return fmt.Errorf("broker: Limits.Home.MaxInflight is %d messages; at most %d are possible", l.MaxInflight, maxInflightLimit)
	}
	return nil
}
