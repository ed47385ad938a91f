package device

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"parley/internal/protocol"
)

// A Device is one simulated device, switched on from [New] to [Device.Close].
// Its methods may be called concurrently.
type Device struct {
	opts   Options
	traits traits
	ctx    context.Context // ends at Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // every goroutine the device has started

	speaker *speaker
	mic     *microphone
	tools   *toolbox
	main    mainTask
	hello   chan struct{} // capacity 1: the hello reply has been read

	emitting sync.Mutex // held while OnEvent runs, so that events come one at a time

	mu       sync.Mutex
	closed   bool
	creds    Credentials
	link     *link
	state    State
	mode     protocol.Mode
	session  session
	exchange *exchange
	changed  chan struct{} // closed and replaced when anything an await looks at has changed
	counts   Report        // what is not counted in speaker and mic
}

// Errors of a device's methods.
var (
	// ErrClosed means the device was switched off.
	ErrClosed = errors.New("device: closed")
	// ErrNotConnected means that MQTT is not connected.
	ErrNotConnected = errors.New("device: MQTT is not connected")
	// ErrEnded means the server or an error ended the session before a reply
	// was complete.
	ErrEnded = errors.New("device: the session ended before the reply was complete")
	// ErrBusy means that another Ask or Open is under way.
	ErrBusy = errors.New("device: another Ask or Open is under way")
	// ErrHello means that the server did not answer hello in time, or not
	// usefully: to the device that is the same.
	ErrHello = errors.New("device: no usable reply to hello within 10 s")
)

// New switches a device on. It does nothing until it is connected. The error
// wraps [ErrOptions].
func New(o Options) (*Device, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	tools, err := newToolbox(o.Tools)
	if err != nil {
		return nil, fmt.Errorf("%w: Tools: %w", ErrOptions, err)
	}
	d := &Device{
		opts: o, traits: o.Profile.traits(), creds: o.MQTT, mode: o.Mode, state: Starting,
		tools: tools, hello: make(chan struct{}, 1), changed: make(chan struct{}),
	}
	d.main.wake = make(chan struct{}, 1)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.speaker = newSpeaker(d.traits)
	if o.Decode {
		d.speaker.decode = new(frameDecoder).decode
		d.speaker.hear = d.heard
	}
	d.speaker.started = func(at time.Time, p packet) { d.emit(Event{Kind: FirstSound, Time: at}) }
	d.speaker.emptied = func() { d.post(evDrained) }
	d.speaker.silent = func() { d.emit(Event{Kind: Silent}) }
	d.mic = newMicrophone(d)
	d.spawn(func() { d.speaker.run(d.ctx) })
	d.spawn(d.runMain)
	return d, nil
}

// spawn starts a goroutine Close waits for. It reports whether it did: a closed
// device starts nothing.
func (d *Device) spawn(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.wg.Go(f)
	return true
}

// Close switches the device off as a pulled plug does: connections break, nothing
// is said. It returns when every goroutine of the device has ended.
func (d *Device) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel() // which closes the connections, too
	d.wg.Wait()
}

// Connect boots the device: it asks the OTA URL for its configuration, where it
// has one, and connects MQTT; py-xiaozhi connects at the start of each
// conversation instead. An activation the server demands is waited for. Connect
// on a connected device connects again and leaves its conversation alone.
func (d *Device) Connect(ctx context.Context) error {
	ctx, cancel := d.within(ctx)
	defer cancel()
	if d.opts.OTA != "" {
		c, err := d.boot(ctx)
		if err != nil {
			return err
		}
		d.mu.Lock()
		d.creds = c
		d.mu.Unlock()
	}
	if !d.traits.py {
		if err := d.dial(ctx); err != nil {
			return err
		}
	}
	return d.do(ctx, func() {
		if d.State() == Starting {
			d.setState(Idle)
		}
	})
}

// within is ctx, which also ends when the device is closed.
func (d *Device) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(d.ctx, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }
}

// dial connects MQTT and starts its reader, which owns the connection.
func (d *Device) dial(ctx context.Context) error {
	d.mu.Lock()
	c := d.creds
	d.mu.Unlock()
	l, err := openLink(ctx, d.opts.DialMQTT, d.address(c.Endpoint), c, d.traits)
	if err != nil {
		return err
	}
	d.mu.Lock()
	old := d.link
	d.link = l
	d.mu.Unlock()
	if old != nil {
		old.conn.Close()
	}
	if !d.spawn(func() { d.readLink(l) }) {
		l.conn.Close()
		return ErrClosed
	}
	d.opts.Log.Debug("device connected", "device_id", d.opts.ID, "endpoint", c.Endpoint)
	d.emit(Event{Kind: Connected})
	return nil
}

// address is where a profile connects for an endpoint: firmware up to 1.6.0 takes
// the whole string for a host name and always uses port 8883.
func (d *Device) address(endpoint string) string {
	host, port, found := strings.Cut(endpoint, ":")
	if !found || !d.traits.endpointPort {
		return endpoint + ":8883"
	}
	return host + ":" + port
}

// readLink reads messages until the connection ends.
func (d *Device) readLink(l *link) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.conn.Close() })()
	var pinger sync.WaitGroup
	pinger.Go(func() { l.ping(ctx) })
	err := l.receive(d.receive)
	cancel()
	l.conn.Close()
	pinger.Wait()

	d.mu.Lock()
	lost := d.link == l
	if lost {
		d.link = nil
	}
	d.mu.Unlock()
	if !lost || d.ctx.Err() != nil {
		return
	}
	d.opts.Log.Debug("device lost its connection", "device_id", d.opts.ID, "error", err)
	d.emit(Event{Kind: Disconnected, Err: err})
	if d.traits.reconnects {
		d.reconnect()
	}
}

// reconnectAfter is MQTT_RECONNECT_INTERVAL_MS.
const reconnectAfter = 60 * time.Second

// reconnect is the firmware's timer: once, and only if the device is idle when
// it fires.
func (d *Device) reconnect() {
	if d.pause(reconnectAfter) && d.State() == Idle && !d.linked() {
		if err := d.dial(d.ctx); err != nil {
			d.opts.Log.Debug("device could not reconnect", "device_id", d.opts.ID, "error", err)
		}
	}
}

// drop closes a connection of the device's own accord.
func (d *Device) drop(l *link) {
	d.mu.Lock()
	if d.link == l {
		d.link = nil
	}
	d.mu.Unlock()
	l.conn.Close()
}

func (d *Device) linked() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link != nil
}

// Disconnect breaks the MQTT connection, as a lost network does. Audio goes on.
func (d *Device) Disconnect() {
	d.mu.Lock()
	l := d.link
	d.mu.Unlock()
	if l != nil {
		l.conn.Close()
	}
}

// publish sends a message. A failure is the firmware's network error: the channel
// becomes unusable and the device idle.
func (d *Device) publish(message string) bool {
	d.mu.Lock()
	l := d.link
	d.mu.Unlock()
	err := ErrNotConnected
	if l != nil {
		err = l.publish([]byte(message))
	}
	if err != nil {
		d.fail(err)
		return false
	}
	return true
}

// fail raises the firmware's error event.
func (d *Device) fail(err error) {
	d.mu.Lock()
	d.session.broken = true
	d.mu.Unlock()
	d.emit(Event{Kind: Failed, Err: err})
	d.post(evError)
}

// pause waits and reports whether the device is still on.
func (d *Device) pause(t time.Duration) bool {
	if t <= 0 {
		return d.ctx.Err() == nil
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.ctx.Done():
		return false
	}
}

// State is the device's state now.
func (d *Device) State() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state
}

// ID is the device's identity.
func (d *Device) ID() protocol.DeviceID { return d.opts.ID }

// SessionID is the id of the session now, or of the last one, or "".
func (d *Device) SessionID() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session.id
}

// emit tells what happened to whoever waits and to OnEvent.
func (d *Device) emit(e Event) {
	d.emitting.Lock()
	defer d.emitting.Unlock()
	if e.Time.IsZero() {
		e.Time = time.Now()
	}
	d.mu.Lock()
	e.State = d.state
	if d.exchange != nil {
		d.exchange.observe(e)
	}
	close(d.changed)
	d.changed = make(chan struct{})
	d.mu.Unlock()
	if d.opts.OnEvent != nil {
		d.opts.OnEvent(e)
	}
}

// await waits until what holds. what is called with d.mu held and must be quick.
func (d *Device) await(ctx context.Context, what func() bool) error {
	for {
		d.mu.Lock()
		ok, changed := what(), d.changed
		d.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-d.ctx.Done():
			return ErrClosed
		}
	}
}

// Report is what became of the audio so far.
func (d *Device) Report() Report {
	d.mu.Lock()
	r := d.counts
	d.mu.Unlock()
	d.main.mu.Lock()
	r.Overrun = d.main.overrun
	d.main.mu.Unlock()
	d.speaker.report(&r)
	d.mic.report(&r)
	return r
}
