package mcp

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Limits on what a device may say of its own accord.
const (
	// maxNotices bounds the notifications that wait for the subscribers; further
	// ones are dropped.
	maxNotices = 16
	// pongPause is the least time from one answered ping to the next.
	pongPause = time.Second
)

// methodPing is the only request of a device that is answered.
const methodPing = "ping"

// A notice is a notification on its way to the subscribers.
type notice struct {
	method string
	params json.RawMessage // nil if absent or null
}

// A subscriber is one of Subscribe's.
type subscriber struct {
	f func(method string, params json.RawMessage)
}

// Subscribe has f called for every notification of the device, in order, until
// cancel is called; a call under way then may still be going on. f may take its
// time, but must return: Close waits for it. While it runs, 16 notifications
// wait, and further ones are dropped and counted.
func (d *Device) Subscribe(f func(method string, params json.RawMessage)) (cancel func()) {
	s := &subscriber{f}
	d.mu.Lock()
	defer d.mu.Unlock()
	// Copied, as deliver may be using the old one.
	d.subscribers = append(append([]*subscriber(nil), d.subscribers...), s)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		var left []*subscriber
		for _, other := range d.subscribers {
			if other != s {
				left = append(left, other)
			}
		}
		d.subscribers = left
	}
}

// uninvited takes a request or notification of the device.
func (d *Device) uninvited(method string, id, params json.RawMessage) {
	if id != nil {
		d.request(method, id)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.cfg.Counters.Notices.Add(1)
	if method == notifyToolsChanged {
		d.relistLocked()
	}
	switch {
	case len(d.subscribers) == 0:
	case len(d.notices) == maxNotices:
		d.cfg.Counters.Unexpected.Add(1)
	default:
		d.notices = append(d.notices, notice{method, params})
		if !d.delivering {
			// Ends when nothing waits; Close waits for it.
			d.delivering = true
			d.worker.Go(d.deliver)
		}
	}
}

// deliver hands notices to the subscribers until none waits.
func (d *Device) deliver() {
	for {
		d.mu.Lock()
		if d.closed || len(d.notices) == 0 {
			d.notices, d.delivering = nil, false
			d.mu.Unlock()
			return
		}
		n, subscribers := d.notices[0], d.subscribers
		d.notices = d.notices[1:]
		d.mu.Unlock()
		for _, s := range subscribers {
			s.f(n.method, n.params)
		}
	}
}

// request answers a ping, and counts any other request: devices do not wait for
// answers.
func (d *Device) request(method string, id json.RawMessage) {
	answer, err := pong(id)
	d.mu.Lock()
	now := time.Now()
	ok := method == methodPing && err == nil && !d.closed && now.Sub(d.ponged) >= pongPause
	if ok {
		d.ponged = now
	}
	d.mu.Unlock()
	if !ok {
		d.cfg.Counters.Unexpected.Add(1)
		return
	}
	_ = d.send(answer) // the device will ask again
}

// pong is the answer to the ping with this id, a number or a string.
func pong(id json.RawMessage) (json.RawMessage, error) {
	var value any
	if err := json.Unmarshal(id, &value); err != nil {
		return nil, err
	}
	made, err := jsonrpc.MakeID(value)
	if err != nil {
		return nil, err
	}
	return jsonrpc.EncodeMessage(&jsonrpc.Response{ID: made, Result: json.RawMessage("{}")})
}

// relistLocked sees that the tools are listed again, at once or refreshPause
// after the last listing.
func (d *Device) relistLocked() {
	if d.relist != nil {
		return // due already
	}
	d.relist = time.AfterFunc(max(0, refreshPause-time.Since(d.listed)), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.relist = nil
		if !d.closed {
			d.stale = true
			d.wantLocked()
		}
	})
}

// Salvage takes a message of the device that is not JSON. Firmware puts the text
// of an error into its reply without escaping it, so that a quotation mark in it
// breaks the whole message. If the message names the one request that is awaited,
// that request ends with what can be read of the error; everything else about it
// is unknown. It never blocks.
func (d *Device) Salvage(message []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	id, why, ok := salvage(message)
	if !ok || d.pending == nil || d.pending.id != id {
		d.cfg.Counters.Malformed.Add(1)
		return
	}
	d.cfg.Counters.Salvaged.Add(1)
	quoted, err := json.Marshal(why)
	if err != nil {
		quoted = json.RawMessage(`"unreadable"`) // a string always has a form
	}
	d.finishLocked(d.pending, answer{reply: reply{id: id, err: quoted}})
}

// unreadable stands for an error of which nothing can be read.
const unreadable = "the device's answer is unreadable"

// salvage finds the id of a broken error reply, which is the first "id" in it,
// and the text of its error.
func salvage(message []byte) (id int32, why string, ok bool) {
	rest := string(message)
	if _, after, found := strings.Cut(rest, `"payload"`); found {
		rest = after // what comes before may have an "id" of its own
	}
	_, rest, found := strings.Cut(rest, `"id"`)
	if !found {
		return 0, "", false
	}
	rest, found = strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), ":")
	if !found {
		return 0, "", false
	}
	rest = strings.TrimLeft(rest, " \t\r\n")
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	n, err := strconv.ParseInt(rest[:digits], 10, 32)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, "", false
	}
	rest = strings.TrimLeft(rest[digits:], " \t\r\n")
	if rest == "" || rest[0] != ',' && rest[0] != '}' {
		return 0, "", false // 1.5, 1e3
	}
	_, rest, found = strings.Cut(rest, `"error"`)
	if !found {
		return 0, "", false
	}
	return int32(n), salvageText(rest), true
}

// salvageText is what can be read of a broken error member.
func salvageText(rest string) string {
	_, rest, found := strings.Cut(rest, `"message"`)
	if !found {
		return unreadable
	}
	_, rest, found = strings.Cut(rest, `"`)
	if !found {
		return unreadable
	}
	rest = strings.TrimRight(rest, "} \t\r\n\x00")
	rest = strings.TrimSuffix(rest, `"`)
	rest = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(clip(rest, maxErrorText), "\uFFFD"))
	if rest = strings.TrimSpace(rest); rest == "" {
		return unreadable
	}
	return rest
}
