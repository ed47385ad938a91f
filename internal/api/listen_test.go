package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"parley/internal/api"
)

// A stream is an open stream of events. Its bytes are read only when a test asks
// for a block.
type stream struct {
	world *world
	res   *http.Response
	lines *bufio.Reader
	hang  context.CancelFunc
}

// A block is what Server-Sent Events have between two empty lines.
type block struct {
	comment, id, kind, data string
	event                   received
}

// received is an event as clients see it.
type received struct {
	Kind, Device, Detail string
	SessionID            string `json:"session_id"`
	At                   time.Time
	Data                 map[string]any
}

// missed is how many events the block says are missing.
func (b block) missed() int {
	n, _ := b.event.Data["events"].(float64)
	return int(n)
}

// ask opens a stream; query and since may be "". It waits until the server has
// the listener: its headers come after that.
func (w *world) ask(query, since string) *stream {
	w.t.Helper()
	ctx, hang := context.WithCancel(w.t.Context())
	req, err := http.NewRequestWithContext(ctx, get, w.url+"/api/v1/events?"+query, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+reader)
	if since != "" {
		req.Header.Set("Last-Event-ID", since)
	}
	res, err := w.client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { res.Body.Close() })
	w.spec.check(w.t, req, reply{status: res.StatusCode, header: res.Header})
	if res.StatusCode != 200 {
		w.t.Fatal(res.Status)
	}
	s := &stream{w, res, bufio.NewReader(res.Body), hang}
	w.t.Cleanup(s.close)
	return s
}

// listen opens a stream and returns it with the place it begins at.
func (w *world) listen(query string) (s *stream, place string) {
	w.t.Helper()
	s = w.ask(query, "")
	b := s.block()
	if b.comment == "" || b.id == "" || b.data != "" {
		w.t.Fatalf("a stream begins with %+v", b)
	}
	return s, b.id
}

func (s *stream) close() {
	s.hang()
	s.res.Body.Close()
}

// read returns the next block. The error is that of the connection.
func (s *stream) read() (block, error) {
	s.world.t.Helper()
	var b block
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return b, err
		}
		if line == "\n" {
			break
		}
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		target := map[string]*string{"": &b.comment, "id": &b.id, "event": &b.kind, "data": &b.data}[name]
		if !ok || target == nil || *target != "" {
			s.world.t.Fatalf("line %q", line)
		}
		*target = value
	}
	if b.data != "" {
		s.world.spec.valid(s.world.t, json.RawMessage(`{"$ref":"#/components/schemas/Event"}`), "event", reply{body: b.data})
		if err := json.Unmarshal([]byte(b.data), &b.event); err != nil || b.event.Kind != b.kind {
			s.world.t.Errorf("%v: %+v", err, b)
		}
	}
	return b, nil
}

// block is read where the stream must go on.
func (s *stream) block() block {
	s.world.t.Helper()
	b, err := s.read()
	if err != nil {
		s.world.t.Fatal(err)
	}
	return b
}

// publish tells of n events, with a detail that counts from first.
func (w *world) publish(first, n int) {
	for i := range n {
		w.api.Publish(api.Event{Kind: api.EventListening, Device: kitchen, Detail: numbered(first + i)})
	}
}

// numbered is a long detail that begins with a number.
func numbered(n int) string {
	return string(append([]byte{byte('0' + n/1000), byte('0' + n/100%10), byte('0' + n/10%10), byte('0' + n%10)}, strings.Repeat(".", 400)...))
}
