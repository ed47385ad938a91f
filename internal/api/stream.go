package api

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"parley/internal/protocol"
)

const (
	// heartbeat is how long a stream is silent at most. Proxies end connections
	// on which nothing comes, often after 30 or 60 s.
	heartbeat = 15 * time.Second
	// patience is how long one write to a listener may take.
	patience = 10 * time.Second
)

// getEvents joins the listeners. What it returns is a stream and not an answer.
func (a *API) getEvents(q *query) (any, error) {
	var devices, kinds []string
	if err := q.lists(map[string]*[]string{"device": &devices, "kind": &kinds}); err != nil {
		return nil, err
	}
	wants, err := newEventFilter(devices, kinds)
	if err != nil {
		return nil, err
	}
	l, err := a.hub.join(q.caller.name, wants, q.r.Header.Get("Last-Event-ID"))
	if err != nil {
		a.stats.overload.Add(1)
		return nil, err
	}
	return l, nil
}

// newEventFilter checks what a client asks for.
func newEventFilter(devices, kinds []string) (eventFilter, error) {
	f := eventFilter{map[protocol.DeviceID]bool{}, map[string]bool{}}
	for _, s := range devices {
		id, err := parseDevice(s)
		if err != nil {
			p := problemOf(err)
			p.Field = "device"
			return f, p
		}
		f.devices[id] = true
	}
	for _, k := range kinds {
		if !isEventKind(k) {
			return f, badRequest("kind", fmt.Sprintf("there is no kind %q", clip(k)), "use some of "+strings.Join(eventKinds(), ", "))
		}
		f.kinds[k] = true
	}
	return f, nil
}

// stream sends events on the request's own goroutine until the request's context
// ends, a write fails or the hub ends.
func (l *listener) stream(w http.ResponseWriter, r *http.Request) {
	defer l.leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Accel-Buffering", "no") // nginx would keep events back
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}
	silence := time.NewTimer(heartbeat)
	defer silence.Stop()
	for ending := false; ; {
		if err := l.send(w); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				l.hub.log.Warn("api listener does not read; its stream is ended", "token", l.who, "source", source(r), "limit", patience)
			}
			return
		}
		if ending {
			return
		}
		silence.Reset(heartbeat)
		select {
		case <-r.Context().Done():
			return
		case <-l.hub.ended:
			ending = true // but first what is queued
		case <-l.wake:
		case <-silence.C:
		}
	}
}

// send writes what is queued. If that is nothing it writes a comment, and the id
// of the place that has been reached: events that were not wanted need not be
// looked through when the listener comes back.
func (l *listener) send(w http.ResponseWriter) error {
	out := http.NewResponseController(w)
	write := func(b []byte) error {
		// Instead of the server's limit, which is for all of an answer. A writer
		// without deadlines, as in a test, needs none.
		_ = out.SetWriteDeadline(time.Now().Add(patience))
		_, err := w.Write(b)
		return err
	}
	queue, reached := l.take()
	for _, n := range queue {
		if err := write(l.hub.frame(n)); err != nil {
			return err
		}
	}
	if len(queue) == 0 {
		if err := write([]byte(": still here\nid: " + l.hub.id(reached) + "\n\n")); err != nil {
			return err
		}
	}
	return out.Flush()
}
