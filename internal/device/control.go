package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"
)

// A message is a downlink message before anything is known of it.
type message map[string]json.RawMessage

// text is a member that must be a string.
func (m message) text(name string) (string, bool) {
	var s *string
	if json.Unmarshal(m[name], &s) != nil || s == nil {
		return "", false
	}
	return *s, true
}

// number is a member that must be a number.
func (m message) number(name string) (float64, bool) {
	var f *float64
	if json.Unmarshal(m[name], &f) != nil || f == nil {
		return 0, false
	}
	return *f, true
}

// object is a member that must be an object.
func (m message) object(name string) (message, bool) {
	var o message
	if json.Unmarshal(m[name], &o) != nil || o == nil {
		return nil, false
	}
	return o, true
}

// receive reads one message, on the connection's reader as the firmware does on
// its MQTT task. What touches the state is scheduled for the main task.
func (d *Device) receive(payload []byte) {
	var m message
	err := json.Unmarshal(payload, &m)
	kind, ok := m.text("type")
	d.mu.Lock()
	d.counts.Messages++
	if err != nil || !ok {
		d.counts.BadMessages++
		d.mu.Unlock()
		return
	}
	d.session.lastHeard = time.Now()
	d.mu.Unlock()

	d.emit(describe(kind, m)) // before anything it causes
	switch kind {
	case "hello":
		d.receiveHello(m)
	case "goodbye":
		d.receiveGoodbye(m)
	case "tts":
		state, _ := m.text("state")
		d.receiveSpeech(state)
	case "mcp":
		if d.traits.mcp {
			d.receiveMCP(m["payload"])
		}
	case "system":
		if command, _ := m.text("command"); command == "reboot" {
			d.schedule(d.reboot)
		}
	case "speak_request":
		if d.opts.SpeakRequest {
			d.schedule(d.speakRequested)
		}
	case "stt", "llm", "alert", "custom":
	default:
		d.mu.Lock()
		d.counts.BadMessages++
		d.mu.Unlock()
	}
}

// describe is the event of a message.
func describe(kind string, m message) Event {
	e := Event{Kind: Message, Type: kind}
	e.Text, _ = m.text("text")
	switch kind {
	case "tts":
		e.Detail, _ = m.text("state")
	case "llm":
		e.Detail, _ = m.text("emotion")
	case "alert":
		e.Detail, _ = m.text("status")
		e.Text, _ = m.text("message")
	case "system":
		e.Detail, _ = m.text("command")
	case "goodbye":
		e.Text, _ = m.text("session_id")
	}
	return e
}

// receiveSpeech notes what decides, at once, what becomes of audio, and leaves
// the rest to the main task.
func (d *Device) receiveSpeech(state string) {
	d.mu.Lock()
	switch state {
	case "start":
		d.session.interrupted, d.session.fresh = false, true
		d.session.sentences++
	case "sentence_start":
		d.session.sentences++
	}
	d.mu.Unlock()
	if state == "sentence_start" {
		d.speaker.sentenceStarts()
	}
	switch state {
	case "start":
		d.schedule(func() {
			d.mu.Lock()
			d.session.replies++
			d.mu.Unlock()
			d.speechStarts()
		})
	case "stop":
		d.schedule(d.speechStops)
	}
}

// receiveGoodbye ends the session it names.
func (d *Device) receiveGoodbye(m message) {
	id, ok := m.text("session_id")
	if ok && id != d.SessionID() || !ok && !d.traits.goodbyeAnyID {
		return
	}
	d.schedule(func() {
		d.closeChannel(d.traits.goodbyeEchoed)
	})
}

// errHello is wrapped by what is wrong with a hello reply.
var errHello = errors.New("device: bad hello")

// receiveHello sets up a session. A reply it cannot use is ignored in silence
// since firmware 2.4.0, and crashes older ones.
func (d *Device) receiveHello(m message) {
	err := d.readHello(m)
	if err != nil {
		d.opts.Log.Debug("device refused a hello", "device_id", d.opts.ID, "error", err)
		if !d.traits.strictHello {
			d.crash(err)
		}
		return
	}
	signal(d.hello)
}

func (d *Device) readHello(m message) error {
	if t, _ := m.text("transport"); t != "udp" {
		return fmt.Errorf("%w: transport is %q, not udp", errHello, t)
	}
	udp, ok := m.object("udp")
	if !ok {
		return fmt.Errorf("%w: udp is no object", errHello)
	}
	server, ok1 := udp.text("server")
	port, ok2 := udp.number("port")
	key, ok3 := udp.text("key")
	nonce, ok4 := udp.text("nonce")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return fmt.Errorf("%w: udp needs server, port, key and nonce", errHello)
	}
	if port < 1 || port > 65535 {
		return fmt.Errorf("%w: port %v", errHello, port)
	}
	c, err := newCodec(key, nonce)
	if err != nil {
		return fmt.Errorf("%w: %w", errHello, err)
	}
	id, hasID := m.text("session_id")
	params, _ := m.object("audio_params")

	d.mu.Lock()
	defer d.mu.Unlock()
	s := &d.session
	if hasID {
		s.id = id
	}
	if frame, ok := params.number("frame_duration"); ok && !d.traits.fixedFrame {
		s.frame = int(frame)
	}
	if s.frame <= 0 || d.traits.fixedFrame {
		s.frame = 60
	}
	s.codec, s.sent, s.window = c, 0, newWindow()
	s.interrupted, s.fresh = false, false
	s.addr = net.JoinHostPort(server, strconv.Itoa(int(port)))
	return nil
}

// crash is a device that meets a message it does not survive: it falls silent
// until it is connected again.
func (d *Device) crash(err error) {
	d.mu.Lock()
	d.counts.Crashes++
	l, conn := d.link, d.session.conn
	d.link, d.session.conn = nil, nil
	d.state = Starting
	d.mu.Unlock()
	if l != nil {
		l.conn.Close()
	}
	if conn != nil {
		conn.Close()
	}
	d.emit(Event{Kind: Crashed, Err: err})
}

// rebootAfter is the firmware's pause before esp_restart.
const rebootAfter = time.Second

// reboot says goodbye and comes back.
func (d *Device) reboot() {
	if d.channelOpen() {
		d.closeChannel(true)
	}
	d.emit(Event{Kind: Rebooting})
	if !d.pause(rebootAfter) {
		return
	}
	d.mu.Lock()
	l := d.link
	d.mu.Unlock()
	if l != nil {
		d.drop(l)
	}
	d.spawn(func() {
		if err := d.Connect(d.ctx); err != nil {
			d.emit(Event{Kind: Failed, Err: err})
		}
	})
}
