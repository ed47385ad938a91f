package home

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"parley/internal/protocol"
)

// Bounds of what voice devices publish and are asked.
const (
	// flushEvery is the least time between two publications of one device. All
	// devices share it, so a busy house costs five bursts a second.
	flushEvery = 200 * time.Millisecond
	// maxWords bounds what was said, in characters: Home Assistant takes no
	// state above 255.
	maxWords = 250
	// maxSay bounds a text to speak, in bytes.
	maxSay = 4 << 10
	// commandWorkers carry out commands, each those of its own devices;
	// maxCommands wait for each.
	commandWorkers = 4
	maxCommands    = 16
	// commandTimeout bounds one command.
	commandTimeout = 15 * time.Second
)

// A Device is a voice device as Home Assistant shows it.
type Device struct {
	ID       protocol.DeviceID
	Name     string // empty: "Voice" and the end of its address
	Board    string
	Firmware string
	Area     string // the room it is in, if anybody said so
	// HasVolume offers a volume to set.
	HasVolume bool
}

// A State is what a voice device is doing.
type State string

// The states of a voice device.
const (
	Idle      State = "idle"
	Listening State = "listening"
	Thinking  State = "thinking"
	Speaking  State = "speaking"
)

// A fleet is the voice devices of this Parley on the bus.
type fleet struct {
	cfg      *Config
	bus      Bus
	log      *slog.Logger
	counters *Counters
	wake     chan struct{} // something is to be published
	timer    *time.Timer
	workers  [commandWorkers]chan command
	running  sync.WaitGroup
	cancel   context.CancelFunc
	last     time.Time // of the last flush

	mu      sync.Mutex
	devices map[protocol.DeviceID]*member
	dirty   map[protocol.DeviceID]bool
}

// A member is what is to be known of one device, and what was published of it.
// Both are by topic below the device's.
type member struct {
	device Device
	stale  bool // the announcement is to be published
	want   map[string]string
	sent   map[string]string
}

// A command is what Home Assistant asks of a device.
type command struct {
	id      protocol.DeviceID
	say     string
	percent int // -1 for say
}

func newFleet(cfg *Config, bus Bus, log *slog.Logger, counters *Counters) *fleet {
	f := &fleet{
		cfg: cfg, bus: bus, log: log, counters: counters, wake: make(chan struct{}, 1),
		timer:   time.NewTimer(time.Hour),
		devices: map[protocol.DeviceID]*member{}, dirty: map[protocol.DeviceID]bool{},
	}
	f.timer.Stop()
	for i := range f.workers {
		f.workers[i] = make(chan command, maxCommands)
	}
	return f
}

// Announce shows a device to Home Assistant, or shows what has changed of it, and
// that it is online. Like the methods below it returns at once, publishes
// nothing that has not changed, and does nothing unless Config.Announce is set.
func (h *Home) Announce(d Device) {
	h.fleet.update(d.ID, func(m *member) {
		m.stale = m.stale || m.device != d
		m.device = d
		m.want["online"] = "online"
		if m.want["state"] == "" {
			m.want["state"] = string(Idle)
		}
	})
}

// Offline shows that a device has gone. It is still known.
func (h *Home) Offline(id protocol.DeviceID) {
	h.fleet.change(id, func(m *member) {
		m.want["online"], m.want["state"] = "offline", string(Idle)
	})
}

// State shows what a device is doing. A device that was never announced is left
// alone, here and below.
func (h *Home) State(id protocol.DeviceID, s State) {
	h.fleet.change(id, func(m *member) { m.want["state"] = string(s) })
}

// Volume shows a device's volume in percent.
func (h *Home) Volume(id protocol.DeviceID, percent int) {
	h.fleet.change(id, func(m *member) { m.want["volume"] = strconv.Itoa(min(max(percent, 0), 100)) })
}

// LastWords shows what was last said to a device and what it answered, if
// Config.LastWords is set.
func (h *Home) LastWords(id protocol.DeviceID, heard, answered string) {
	if !h.cfg.LastWords {
		return
	}
	h.fleet.change(id, func(m *member) { m.want["heard"], m.want["answered"] = words(heard), words(answered) })
}

// words makes a text a state: on one line, and short.
func words(text string) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "")), " ")
	if r := []rune(text); len(r) > maxWords {
		text = string(r[:maxWords-1]) + "…"
	}
	return text
}

// update changes what is to be known of a device, and remembers a new one.
func (f *fleet) update(id protocol.DeviceID, change func(*member)) {
	if !f.cfg.Announce {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.devices[id]
	if m == nil {
		m = &member{want: map[string]string{}, sent: map[string]string{}}
		f.devices[id] = m
		f.counters.Devices.Add(1)
	}
	change(m)
	f.touch(id)
}

// change is update of a device that is known.
func (f *fleet) change(id protocol.DeviceID, change func(*member)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.devices[id]; m != nil {
		change(m)
		f.touch(id)
	}
}

// touch has a device published. The caller holds mu.
func (f *fleet) touch(id protocol.DeviceID) {
	f.dirty[id] = true
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// republish publishes the announcements of all devices again: Home Assistant has
// started.
func (f *fleet) republish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, m := range f.devices {
		m.stale = true
		f.touch(id)
	}
}

// owns reports whether a discovery object is one of ours.
func (f *fleet) owns(object string) bool { return strings.HasPrefix(object, f.cfg.Base+"_") }

// start runs the workers until stop.
func (f *fleet) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	for _, queue := range f.workers {
		// Ends when stop closes its queue; stop waits for it.
		f.running.Go(func() {
			for c := range queue {
				f.carryOut(ctx, c)
			}
		})
	}
	f.publish(f.cfg.Base+"/status", "online")
}

// stop says that Parley is offline, and with it every device.
func (f *fleet) stop() {
	f.timer.Stop()
	f.publish(f.cfg.Base+"/status", "offline")
	f.cancel()
	for _, queue := range f.workers {
		close(queue)
	}
	f.running.Wait()
}

// schedule has the devices that changed published when flushEvery is over since
// the last time. Only Home's goroutine calls it, and flush.
func (f *fleet) schedule() { f.timer.Reset(max(0, flushEvery-time.Since(f.last))) }

// flush publishes what has changed of the devices that are due, in order of their
// addresses.
func (f *fleet) flush() {
	f.last = time.Now()
	f.mu.Lock()
	ids := slices.Sorted(maps.Keys(f.dirty))
	clear(f.dirty)
	var out []message
	for _, id := range ids {
		out = append(out, f.pending(id, f.devices[id])...)
	}
	f.mu.Unlock()
	for _, m := range out {
		f.publish(m.topic, m.payload)
	}
}

// pending lists what of a device is not published yet, its announcement first,
// and counts it as published. The caller holds mu.
func (f *fleet) pending(id protocol.DeviceID, m *member) []message {
	var out []message
	if m.stale {
		m.stale = false
		out = append(out, message{topic: discoveryOf(f.cfg, id), payload: describeDevice(f.cfg, m.device)})
	}
	for _, leaf := range slices.Sorted(maps.Keys(m.want)) {
		if value := m.want[leaf]; m.sent[leaf] != value {
			m.sent[leaf] = value
			out = append(out, message{topic: deviceTopic(f.cfg, id, leaf), payload: value})
		}
	}
	return out
}

// publish publishes a retained message.
func (f *fleet) publish(topic, payload string) {
	if err := f.bus.Publish(topic, []byte(payload), true); err != nil {
		f.log.Warn("home cannot publish the state of a device", "topic", topic, "error", err)
	}
}

// command gives a command to the worker of its device. Retained ones are old and
// are not obeyed. The caller is Home's goroutine.
func (f *fleet) command(it *item) {
	rest, ok := strings.CutPrefix(it.topic, f.cfg.Base+"/")
	mac, leaf, found := strings.Cut(rest, "/")
	id, err := protocol.ParseDeviceID(mac)
	if !ok || !found || err != nil || it.retained {
		return
	}
	c := command{id: id, percent: -1}
	switch leaf {
	case "say":
		if c.say = strings.TrimSpace(it.payload); c.say == "" || len(c.say) > maxSay {
			return
		}
		c.say = strings.ToValidUTF8(c.say, "")
	case "volume/set":
		v, err := strconv.ParseFloat(strings.TrimSpace(it.payload), 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return
		}
		c.percent = int(v + 0.5)
	}
	f.mu.Lock()
	known := f.devices[id] != nil
	f.mu.Unlock()
	if !known {
		return
	}
	f.counters.Commands.Add(1)
	select {
	case f.workers[int(mac[len(mac)-1])%commandWorkers] <- c:
	default:
		f.counters.Overrun.Add(1)
		f.log.Warn("home command was dropped: too many wait", "device", id, "waiting", maxCommands)
	}
}

// carryOut does what a command asks, and logs if it could not.
func (f *fleet) carryOut(ctx context.Context, c command) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	var err error
	what := "say"
	if c.percent >= 0 {
		what = "volume"
		if err = f.cfg.House.SetVolume(ctx, c.id, c.percent); err == nil {
			// Home Assistant shows the old value until it is told.
			f.change(c.id, func(m *member) { m.want["volume"] = strconv.Itoa(c.percent) })
		}
	} else {
		err = f.cfg.House.Say(ctx, c.id, c.say)
	}
	if err != nil {
		f.log.Warn("home command failed", "device", c.id, "command", what, "error", err)
	}
}
