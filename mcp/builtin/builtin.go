package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/protocol"
	"parley/mcp"
)

// Label is what the client of these tools is called in logs, and what its
// member of a [mcp.Set] should be called.
const Label = "parley"

// callTimeout bounds a call: adjust_volume asks a device twice, at 10 s each.
const callTimeout = 25 * time.Second

// maxInFlight bounds the calls of all devices at once: a thousand that set a timer
// in one second.
const maxInFlight = 1024

// restartPause is how long the server stays down if its session ends by itself,
// which only a fault in it can cause.
const restartPause = time.Second

// ErrAbsent is what [House.Deliver] returns for a device that is not connected.
var ErrAbsent = errors.New("device not connected")

// A House is what the tools need of the rest of Parley. Its methods are called
// from many goroutines at once.
type House interface {
	// Deliver brings a notice to a device by the best way there is now, and
	// says which it took. It returns an error wrapping [ErrAbsent] if the
	// device is not connected; any other error means that the notice did not
	// arrive now and may be tried again. For one device it is called for one
	// notice at a time, with a context that ends after 30 s.
	Deliver(ctx context.Context, device protocol.DeviceID, n Notice) (Way, error)
	// EndConversation ends the device's conversation when the answer that is
	// being given has been played. It returns at once.
	EndConversation(device protocol.DeviceID) error
	// Roles lists the roles the device may take, in the order of the
	// configuration.
	Roles(device protocol.DeviceID) []string
	// SwitchRole gives the device another of its roles, from its next session
	// until it is switched again.
	SwitchRole(device protocol.DeviceID, role string) error
	// Call runs a tool of the device itself, as [mcp.Device.Call] does.
	Call(ctx context.Context, device protocol.DeviceID, tool string, args json.RawMessage) (mcp.Result, error)
	// HasTool reports whether the device has told of a tool of this name. It
	// returns at once.
	HasTool(device protocol.DeviceID, tool string) bool
}

// A Way is how a notice reached a device.
type Way string

// The ways, the best first.
const (
	Spoken Way = "spoken" // in the channel that was open
	Called Way = "called" // the device was asked to open one, and it is spoken there
	Shown  Way = "shown"  // as an alert on the screen, with the device's short sound
)

// A Kind is what was set.
type Kind string

// The kinds.
const (
	Timer    Kind = "timer"
	Alarm    Kind = "alarm"
	Reminder Kind = "reminder"
)

// A Notice is something that is due.
type Notice struct {
	ID    int64 // unique for ever; the same in each attempt to deliver it
	Kind  Kind
	Label string    // what the user called it, or is to be reminded of; may be empty
	Text  string    // the sentence to say, from [Words]
	Due   time.Time // when it was due
	Late  bool      // that was a minute ago or longer, and Text says so
	// Lost may be called once, from any goroutine, if the way that Deliver
	// reported came to nothing: the notice is then tried again. It returns at once.
	Lost func()
}

// A Config says how the tools behave. Dir must be set.
type Config struct {
	// Dir is the data directory, made if need be. What is set lies in
	// Dir/timers.json.
	Dir string
	// Location is the time zone of alarms and of what is said; nil is that of
	// the machine.
	Location *time.Location
	// Roles are the names of all roles there are, for a description. Which of
	// them a device may take, the House says.
	Roles []string
	// Words are what is said when something is due. Empty ones are English.
	Words Words
	// Fetch says whether and how web pages are read.
	Fetch Fetch
	// Version of Parley, for the server's name and the user agent.
	Version string
	// Counters count calls, as with any other server; may be nil.
	Counters *mcp.ClientCounters
}

// Tools are Parley's own tools. All methods are safe for concurrent use.
type Tools struct {
	cfg       Config
	house     House
	log       *slog.Logger
	words     Words
	book      *book
	store     *store
	scheduler *scheduler
	fetcher   *fetcher // nil if off
	server    *sdk.Server
	client    *mcp.Client
	stats     *counters
}

// New checks cfg and reads what was set before. A file that cannot be understood
// is set aside under another name, with an error in the log; the error returned
// is about the configuration, or a directory or file that cannot be used.
func New(cfg Config, house House, log *slog.Logger) (*Tools, error) {
	cfg.Location = cmp.Or(cfg.Location, time.Local)
	cfg.Version = cmp.Or(cfg.Version, "unknown")
	words, err := cfg.Words.complete()
	if err != nil {
		return nil, err
	}
	t := &Tools{cfg: cfg, house: house, log: log, words: words, stats: new(counters)}
	t.book = newBook(cfg.Location, t.stats, log)
	if t.store, err = openStore(cfg.Dir, t.book, t.stats, log); err != nil {
		return nil, err
	}
	t.scheduler = &scheduler{book: t.book, house: house, words: words, stats: t.stats, log: log}
	if cfg.Fetch.Enabled {
		if t.fetcher, err = newFetcher(cfg.Fetch, cfg.Version, t.stats, log); err != nil {
			return nil, err
		}
	}
	t.server = sdk.NewServer(&sdk.Implementation{Name: Label, Version: cfg.Version}, nil)
	for _, tool := range t.tools() {
		t.server.AddTool(&sdk.Tool{Name: tool.name, Description: tool.description, InputSchema: tool.schema}, t.handler(tool))
	}
	t.client = mcp.NewClient(mcp.ClientConfig{
		Label: Label, CallTimeout: callTimeout, Version: cfg.Version, TellCaller: true, Counters: cfg.Counters,
		MaxInFlight: maxInFlight,
	}, log)
	return t, nil
}

// Run serves the tools and delivers what is due until ctx ends. It returns when
// everything it started is gone and what is set has been written; the error is
// that of the last writing. It may be called once.
func (t *Tools) Run(ctx context.Context) error {
	// The store outlives the rest, which may still have something to write.
	keep, stop := context.WithCancel(context.WithoutCancel(ctx))
	var written error
	var storing, work sync.WaitGroup
	storing.Go(func() { written = t.store.run(keep) })
	work.Go(func() { t.scheduler.run(ctx) })
	work.Go(func() { t.serve(ctx) })
	work.Wait()
	stop()
	storing.Wait()
	if t.fetcher != nil {
		t.fetcher.close()
	}
	return written
}

// serve keeps a session between the server and its client.
func (t *Tools) serve(ctx context.Context) {
	for ctx.Err() == nil {
		session, end := context.WithCancel(ctx)
		ours, theirs := sdk.NewInMemoryTransports()
		var serving sync.WaitGroup
		serving.Go(func() { // ends with the session, or with ctx
			defer end()
			_ = t.server.Run(session, ours)
		})
		err := t.client.Serve(session, theirs)
		end()
		serving.Wait()
		if ctx.Err() != nil {
			return
		}
		t.log.Error("own tools restarted: their session ended", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(restartPause):
		}
	}
}

// Source offers the tools while [Tools.Run] runs. Calls need a [mcp.Caller] in
// their context.
func (t *Tools) Source() mcp.Source { return t.client }

// Ready reports whether the tools are being served.
func (t *Tools) Ready() bool { return t.client.Ready() }

// Hide returns a function that reports which tools are of no use to a device:
// those that need tools the device lacks, and the change of roles where there is
// one role. It suits [mcp.Member].
func (t *Tools) Hide(device protocol.DeviceID) func(tool string) bool {
	return func(tool string) bool {
		switch tool {
		case "adjust_volume":
			return !t.house.HasTool(device, setVolume)
		case "adjust_screen":
			return !t.house.HasTool(device, setBrightness) && !t.house.HasTool(device, setTheme)
		case "switch_role":
			return len(t.house.Roles(device)) < 2
		}
		return false
	}
}

// Connected says that a device is there: it has said hello, or has connected.
// What is due for it and was not delivered is tried now. It returns at once.
func (t *Tools) Connected(device protocol.DeviceID) { t.book.connected(device) }

// tools lists the tools that are configured.
func (t *Tools) tools() []tool {
	return slices.Concat(t.timeTools(), t.timerTools(), t.deviceTools(), t.talkTools(), t.fetchTools())
}

// errNoCaller is for calls that did not come through [mcp.WithCaller].
var errNoCaller = errors.New("this tool works for a device, and the call names none")
