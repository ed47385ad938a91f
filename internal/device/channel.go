package device

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"parley/internal/protocol"
)

// Time limits of the audio channel.
const (
	// helloTimeout is how long the main task waits for the reply to hello.
	helloTimeout = 10 * time.Second
	// channelTimeout is the silence after which a channel is thought dead, when
	// the user next wants it (Protocol::IsTimeout).
	channelTimeout = 120 * time.Second
)

// A session is what one hello has set up. Device.mu guards it.
type session struct {
	id          string
	codec       codec
	addr        string // where uplink audio goes
	conn        net.Conn
	frame       int    // of the downlink, ms; kept from session to session
	sent        uint32 // sequence of the last uplink packet
	window      window
	lastHeard   time.Time // anything valid from the server
	broken      bool      // a network error has made it unusable
	replies     int       // tts starts acted on
	sentences   int       // sentence_starts received
	fresh       bool      // no audio since the last tts start message
	interrupted bool      // the user interrupted, and no tts start came since
}

// channelOpen is the firmware's IsAudioChannelOpened.
func (d *Device) channelOpen() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session.conn != nil && !d.session.broken && time.Since(d.session.lastHeard) <= channelTimeout
}

// openChannel says hello and blocks the main task until it is answered, ten
// seconds at most.
func (d *Device) openChannel() bool {
	if !d.linked() {
		if err := d.dial(d.ctx); err != nil {
			d.fail(err)
			return false
		}
	}
	d.mu.Lock()
	d.session.id, d.session.broken = "", false
	d.mu.Unlock()
	select {
	case <-d.hello:
	default:
	}
	if !d.publish(d.helloMessage()) {
		return false
	}
	timer := time.NewTimer(helloTimeout)
	defer timer.Stop()
	select {
	case <-d.hello:
	case <-timer.C:
		d.fail(ErrHello)
		return false
	case <-d.ctx.Done():
		return false
	}
	if err := d.openUDP(); err != nil {
		d.fail(err)
		return false
	}
	d.emit(Event{Kind: Opened, Text: d.SessionID()})
	if d.traits.py {
		d.setState(Listening)
	}
	return true
}

// openUDP connects a new socket, so that every session has its own source port.
func (d *Device) openUDP() error {
	d.mu.Lock()
	addr, old := d.session.addr, d.session.conn
	d.mu.Unlock()
	if old != nil {
		old.Close()
	}
	ctx, cancel := context.WithTimeout(d.ctx, networkTimeout)
	defer cancel()
	conn, err := d.opts.DialUDP(ctx, addr)
	if err != nil {
		return fmt.Errorf("device: open audio to %s: %w", addr, err)
	}
	d.mu.Lock()
	d.session.conn = conn
	d.session.lastHeard = time.Now()
	d.mu.Unlock()
	if !d.spawn(func() { d.readAudio(conn) }) {
		conn.Close()
		return ErrClosed
	}
	return nil
}

// closeChannel is the firmware's CloseAudioChannel: the device becomes idle in a
// later pass.
func (d *Device) closeChannel(goodbye bool) {
	d.mu.Lock()
	conn, id := d.session.conn, d.session.id
	d.session.conn = nil
	d.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	if goodbye {
		d.publish(`{"session_id":"` + id + `","type":"goodbye"}`)
	}
	d.emit(Event{Kind: Closed})
	d.schedule(func() { d.setState(Idle) })
	if d.traits.py {
		d.mu.Lock()
		l := d.link
		d.mu.Unlock()
		if l != nil {
			d.drop(l)
			d.emit(Event{Kind: Disconnected})
		}
	}
}

// helloMessage is the device's hello as its profile writes it.
func (d *Device) helloMessage() string {
	features := ""
	if d.traits.features {
		list := `"mcp":true`
		if d.opts.ServerAEC {
			list = `"aec":true,` + list
		}
		if d.traits.glyphPush {
			list += `,"glyph_push":false`
		}
		features = `"features":{` + list + `},`
	}
	return `{"type":"hello","version":3,"transport":"udp",` + features +
		`"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":` +
		strconv.FormatInt(d.opts.Frame.Milliseconds(), 10) + `}}`
}

// The device's other messages; the session id is copied unescaped, as every
// firmware does.

func (d *Device) sendListen(state string, m protocol.Mode) {
	mode := ""
	if m != "" {
		mode = `,"mode":"` + string(m) + `"`
	}
	d.publish(`{"session_id":"` + d.SessionID() + `","type":"listen","state":"` + state + `"` + mode + `}`)
}

func (d *Device) sendText(state, text string) {
	d.publish(`{"session_id":"` + d.SessionID() + `","type":"listen","state":"` + state + `","text":"` + text + `"}`)
}

func (d *Device) sendAbort(reason string) {
	if reason != "" {
		reason = `,"reason":"` + reason + `"`
	}
	d.publish(`{"session_id":"` + d.SessionID() + `","type":"abort"` + reason + `}`)
}

// sendAudio sends what the microphone has queued, on the main task.
func (d *Device) sendAudio() {
	for {
		p, ok := d.mic.take()
		if !ok {
			return
		}
		d.sendPacket(p.payload, p.timestamp)
	}
}

// sendPacket seals and sends one uplink packet, and forgets it where there is no
// channel.
func (d *Device) sendPacket(payload []byte, timestamp uint32) {
	d.mu.Lock()
	conn := d.session.conn
	if conn == nil {
		d.mu.Unlock()
		return
	}
	d.session.sent++
	d.counts.Sent++
	ts := &timestamp
	if d.traits.nonceTimestamps {
		ts = nil
	}
	packet := d.session.codec.seal(payload, ts, d.session.sent)
	d.mu.Unlock()
	// A datagram that cannot be sent is lost like any other.
	_, _ = conn.Write(packet)
}
