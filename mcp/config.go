package mcp

import (
	"strings"
	"sync/atomic"
	"time"

	"parley/internal/protocol"
)

// Defaults of [Config].
const (
	// DefaultCallTimeout is how long an ordinary tool may take, as in the Node
	// gateway.
	DefaultCallTimeout = 10 * time.Second
	// DefaultSlowTimeout is how long a tool may take that photographs and
	// uploads: the upload alone waits for a vision model.
	DefaultSlowTimeout = 30 * time.Second
	// DefaultResultLimit bounds a result in bytes; a model reads all of it.
	DefaultResultLimit = 64 << 10
)

// Limits on what a device may make Parley hold or do.
const (
	// answerTimeout bounds initialize and each page of tools/list. A device
	// answers neither while it waits for the reply to its hello (10 s), so
	// this must be longer.
	answerTimeout = 15 * time.Second
	// maxPages, maxTools and maxListBytes bound a listing. The fullest
	// firmware has some 40 tools in 3 pages of 8,000 bytes.
	maxPages     = 64
	maxTools     = 512
	maxListBytes = 1 << 20
	// maxToolName bounds a tool's name in bytes; a longer one is left out.
	maxToolName = 256
	// maxWaiting bounds the calls that wait behind the running one. They run
	// one at a time, so more could not be answered in useful time.
	maxWaiting = 8
	// maxArguments bounds a call's arguments in bytes: a device parses the
	// whole message in its RAM.
	maxArguments = 16 << 10
	// maxAttempts bounds how often a silent device is asked for its tools
	// before it is left in peace. Firmware before MCP (≤ 1.6) never answers.
	maxAttempts = 6
	// firstRetry is the pause after the first failed attempt; it doubles.
	firstRetry = 2 * time.Second
)

// A Config says how to treat devices. Zero values mean the defaults.
type Config struct {
	CallTimeout time.Duration // of one tool, from sending to answer
	SlowTimeout time.Duration // of a tool that takes or shows a picture
	ResultLimit int           // bytes of text in a Result
	ImageLimit  int           // bytes of pictures in a Result, all together
	Vision      Vision        // where the device's camera uploads to, if anywhere
	// VisionFor, if set, is asked in place of Vision, so that each device may
	// have a token of its own. It must return promptly.
	VisionFor func(protocol.DeviceID) Vision
	Version   string    // of Parley, told to devices in initialize
	Counters  *Counters // may be shared by many devices
}

// Vision tells a device with a camera where to send its pictures. The device
// keeps it in RAM, so it is told on every connection.
type Vision struct {
	URL   string `json:"url"`
	Token string `json:"token,omitempty"` // sent back as a bearer token
}

// Counters count what passes between Parley and its devices. They only rise.
type Counters struct {
	Calls      atomic.Uint64 // tools/call requests sent
	Timeouts   atomic.Uint64 // requests of any kind not answered in time
	Busy       atomic.Uint64 // calls refused with ErrBusy
	Malformed  atomic.Uint64 // messages of a device that are no JSON-RPC
	Salvaged   atomic.Uint64 // broken replies of which the error could be read
	Notices    atomic.Uint64 // notifications of devices
	Unexpected atomic.Uint64 // messages nobody waits for: late, doubled or made up
	Discovered atomic.Uint64 // devices that have told their tools
	Abandoned  atomic.Uint64 // devices given up on after maxAttempts
}

func (c Config) withDefaults() Config {
	if c.CallTimeout <= 0 {
		c.CallTimeout = DefaultCallTimeout
	}
	if c.SlowTimeout <= 0 {
		c.SlowTimeout = DefaultSlowTimeout
	}
	if c.ResultLimit <= 0 {
		c.ResultLimit = DefaultResultLimit
	}
	if c.ImageLimit <= 0 {
		c.ImageLimit = DefaultImageLimit
	}
	if c.Version == "" {
		c.Version = "unknown"
	}
	if c.Counters == nil {
		c.Counters = new(Counters)
	}
	return c
}

// visionFor is where the device's camera uploads to.
func (c *Config) visionFor(id protocol.DeviceID) Vision {
	if c.VisionFor != nil {
		return c.VisionFor(id)
	}
	return c.Vision
}

// limit is the time the named tool may take. Names are matched by parts,
// because boards and clients prefix them as they like: self.camera.take_photo,
// take_photo, self.screen.snapshot, take_screenshot.
func (c *Config) limit(tool string) time.Duration {
	for _, part := range []string{"camera", "take_photo", "screenshot", "screen.snapshot", "screen.preview_image"} {
		if strings.Contains(tool, part) {
			return c.SlowTimeout
		}
	}
	return c.CallTimeout
}
