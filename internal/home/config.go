package home

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"parley/internal/protocol"
)

// A Bus carries messages between Parley and the clients of a broker. It is safe
// for concurrent use.
type Bus interface {
	// Publish sends a message; it must not wait for a slow client.
	Publish(topic string, payload []byte, retain bool) error
	// Subscribe calls f for every message that matches filter, retained ones
	// first, until cancel is called. f does not block.
	Subscribe(filter string, f func(Message)) (cancel func(), err error)
}

// A Message is one that a [Bus] delivers.
type Message struct {
	Topic    string
	Payload  []byte // valid during the call
	Retained bool   // it is older than the subscription
}

// A House is what Home Assistant's commands to a voice device need of Parley.
// Its methods may take as long as their context allows.
type House interface {
	// Say makes a device speak.
	Say(ctx context.Context, id protocol.DeviceID, text string) error
	// SetVolume sets a device's volume in percent.
	SetVolume(ctx context.Context, id protocol.DeviceID, percent int) error
}

// Defaults of [Config].
const (
	// DefaultPrefix is Home Assistant's own default.
	DefaultPrefix = "homeassistant"
	// DefaultBase is the first level of the topics of voice devices.
	DefaultBase = "parley"
	// DefaultConfirm is how long a command waits for the state that shows it.
	DefaultConfirm = 2 * time.Second
	// DefaultReplyWait is how long a [Custom] waits for its reply.
	DefaultReplyWait = 5 * time.Second
)

// Bounds on what the clients of a broker may make Parley hold.
const (
	// MaxEntities bounds the entities that are known. Later ones are not.
	MaxEntities = 2000
	// MaxPayload bounds an announcement and a state, in bytes. Longer ones are
	// ignored.
	MaxPayload = 64 << 10
	// maxComponents bounds the entities of one device-based announcement.
	maxComponents = 256
	// maxAvailability bounds the topics that decide if an entity is online.
	maxAvailability = 8
	// maxFeeds bounds the topics that are followed: four an entity.
	maxFeeds = 8000
	// maxKept bounds, in bytes, a message that is kept for an entity announced
	// after it. Longer ones are asked for again.
	maxKept = 4 << 10
	// maxQueue and maxQueueBytes bound what waits for Home's goroutine. A broker
	// that starts delivers everything retained at once.
	maxQueue      = 16384
	maxQueueBytes = 32 << 20
	// maxTopic bounds a topic in bytes.
	maxTopic = 512
	// maxName bounds the name of an entity, a device or an area in characters.
	maxName = 64
)

// Config configures a [Home]. Zero values mean the defaults.
type Config struct {
	// Discover makes tools of what is announced below Prefix.
	Discover bool
	// Prefix is the topic prefix of discovery.
	Prefix string
	// Confirm is how long a command waits for the entity to report the state it
	// asked for; 100 ms to 10 s.
	Confirm time.Duration
	// Tools are further tools.
	Tools []Custom
	// Announce shows voice devices to Home Assistant; it needs House.
	Announce bool
	// LastWords publishes what was last said to a device and what it answered,
	// for everyone on the broker to read.
	LastWords bool
	// Base is the first level of the topics of voice devices.
	Base string
	// Version of Parley, for the announcements.
	Version string
	// House carries out what Home Assistant asks of a voice device.
	House House
}

// check fills in defaults and reports what is wrong.
func (c *Config) check() error {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Base == "" {
		c.Base = DefaultBase
	}
	if c.Confirm == 0 {
		c.Confirm = DefaultConfirm
	}
	for _, t := range []struct{ name, topic string }{{"prefix", c.Prefix}, {"base", c.Base}} {
		if err := checkTopic(t.topic); err != nil {
			return fmt.Errorf("home: %s: %w", t.name, err)
		}
	}
	if strings.ContainsFunc(c.Base, func(r rune) bool { return r > 0x7f || !isNameByte(byte(r)) && r != '-' }) {
		return fmt.Errorf("home: base is %q; use letters, digits, - and _", c.Base)
	}
	if c.Confirm < 100*time.Millisecond || c.Confirm > 10*time.Second {
		return fmt.Errorf("home: confirm is %v; it must be between 100 ms and 10 s", c.Confirm)
	}
	if c.Announce && c.House == nil {
		return fmt.Errorf("home: announce needs a House to carry out commands")
	}
	return nil
}

// checkTopic says what is wrong with a topic to publish to.
func checkTopic(topic string) error {
	switch {
	case topic == "":
		return fmt.Errorf("the topic is empty; name one")
	case len(topic) > maxTopic:
		return fmt.Errorf("the topic has %d bytes; at most %d are allowed", len(topic), maxTopic)
	case strings.HasPrefix(topic, "$"):
		return fmt.Errorf("the topic %.64q begins with $, which is the broker's own; choose another", topic)
	case strings.ContainsAny(topic, "+#"):
		return fmt.Errorf("the topic %.64q has a wildcard; name one topic", topic)
	case !cleanText(topic):
		return fmt.Errorf("the topic %.64q has control characters or is no UTF-8", topic)
	}
	return nil
}

// Counters are the figures of a [Home]. They only rise, except for the first
// three.
type Counters struct {
	Entities  atomic.Int64 // known now
	Available atomic.Int64 // of them online
	Devices   atomic.Int64 // voice devices announced

	Messages  atomic.Uint64 // taken from the bus
	Dropped   atomic.Uint64 // because the queue was full
	Malformed atomic.Uint64 // announcements that could not be used
	Refused   atomic.Uint64 // entities and topics beyond the bounds
	Templates atomic.Uint64 // states that a template made nothing of
	Calls     atomic.Uint64 // tool calls
	Confirmed atomic.Uint64 // commands whose state came
	Sent      atomic.Uint64 // commands whose state did not come, or never does
	Commands  atomic.Uint64 // to voice devices, from the bus
	Overrun   atomic.Uint64 // of them dropped because too many waited
}
