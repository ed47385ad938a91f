package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/api"
	"parley/internal/protocol"
)

const hall = protocol.DeviceID("a0:85:e3:f4:49:35")

func TestEvents(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	s, place := w.listen("")
	if h := s.res.Header; h.Get("Cache-Control") != "no-store" || h.Get("X-Accel-Buffering") != "no" {
		t.Errorf("%v", h)
	}
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.FixedZone("", 7200))
	stages := map[string]any{"endpoint_ms": 310}
	for _, c := range []struct {
		event api.Event
		want  string
	}{
		{api.Event{Kind: api.EventConnected, At: at, Device: kitchen}, `{"kind":"connected","at":"2026-05-01T08:00:00Z","device":"a0:85:e3:f4:49:34"}`},
		{
			api.Event{Kind: api.EventNoAudio, At: at, Device: kitchen, SessionID: "S", Detail: "two\nlines\r <&> \u2028"},
			`{"kind":"no_audio","at":"2026-05-01T08:00:00Z","device":"a0:85:e3:f4:49:34","session_id":"S","detail":"two\nlines\r <&> \u2028"}`,
		},
		{api.Event{Kind: api.EventTurn, At: at, Device: hall, Data: stages}, `{"kind":"turn","at":"2026-05-01T08:00:00Z","device":"a0:85:e3:f4:49:35","data":{"endpoint_ms":310}}`},
		{api.Event{Kind: api.EventTurn, At: at, Device: hall, Data: json.RawMessage("{\n\"a\":\r\n1}")}, `{"kind":"turn","at":"2026-05-01T08:00:00Z","device":"a0:85:e3:f4:49:35","data":{"a":1}}`},
		{api.Event{Kind: api.EventSilent, At: at, Data: (*struct{})(nil)}, `{"kind":"silent","at":"2026-05-01T08:00:00Z"}`},
	} {
		w.api.Publish(c.event)
		b := s.block()
		if b.data != c.want || b.id == "" || b.id == place {
			t.Errorf("%s\nwant %s", b.data, c.want)
		}
		place = b.id
	}
	for _, kind := range []string{
		api.EventConnected, api.EventDisconnected, api.EventSessionOpened, api.EventSessionClosed,
		api.EventListening, api.EventSpeaking, api.EventSilent, api.EventNoAudio, api.EventTurn,
		api.EventNotification,
	} {
		before := time.Now()
		w.api.Publish(api.Event{Kind: kind, Device: kitchen, Detail: strings.Repeat("x", 1000)})
		if b := s.block(); b.kind != kind || len(b.event.Detail) != 512 || b.event.At.Before(before) {
			t.Errorf("%s: %+v", kind, b)
		}
	}
	if got := w.api.Stats(); got.Events != 15 || got.Listeners != 1 || got.Missed != 0 {
		t.Errorf("%+v", got)
	}
}

// TestEventsThatCannotBeTold: a slip of the program's costs the data or the event
// and not the stream, and is logged.
func TestEventsThatCannotBeTold(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	s, _ := w.listen("")
	for _, e := range []api.Event{
		{Kind: "missed"},
		{Kind: "turn\ndata: {}"},
		{Kind: api.EventTurn, At: time.Date(12026, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		w.api.Publish(e)
		w.api.Publish(api.Event{Kind: api.EventSilent})
		if b := s.block(); b.kind != api.EventSilent {
			t.Errorf("%+v gave %+v", e, b)
		}
		if lines := w.log.take(t); len(lines) != 1 || lines[0]["level"] != "ERROR" {
			t.Errorf("%+v: logged %v", e, lines)
		}
	}
	w = newWorld(t, api.Config{Tokens: tokens()})
	s, _ = w.listen("")
	for _, data := range []any{make(chan int), []int{1}, map[string]string{"a": strings.Repeat("x", api.MaxEventData)}} {
		w.api.Publish(api.Event{Kind: api.EventTurn, Device: kitchen, Data: data})
		if b := s.block(); b.kind != api.EventTurn || b.event.Data != nil {
			t.Errorf("%T gave %+v", data, b)
		}
		if lines := w.log.take(t); len(lines) != 1 || lines[0]["msg"] != "api event without its data" {
			t.Errorf("%T: logged %v", data, lines)
		}
	}
}

func TestEventsFiltered(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	all := []api.Event{
		{Kind: api.EventConnected, Device: kitchen},
		{Kind: api.EventConnected, Device: hall},
		{Kind: api.EventTurn, Device: kitchen},
		{Kind: api.EventTurn, Device: hall},
		{Kind: api.EventSilent, Device: hall},
	}
	for query, want := range map[string]string{
		"":                         "01234",
		"kind=turn":                "23",
		"kind=turn&kind=connected": "0123",
		"device=A0_85_E3_F4_49_35": "134",
		"device=a0:85:e3:f4:49:35&device=a0-85-e3-f4-49-34&kind=turn": "23",
		"device=a0:85:e3:f4:49:36":                                    "",
	} {
		s, place := w.listen(query)
		for i, e := range all {
			e.Detail = string(rune('0' + i))
			w.api.Publish(e)
		}
		for name, s := range map[string]*stream{"live": s, "resumed": w.ask(query, place)} {
			got := ""
			for len(got) < len(want) {
				got += s.block().event.Detail
			}
			s.close()
			if got != want {
				t.Errorf("%q %s: %q, want %q", query, name, got, want)
			}
		}
	}
	for query, field := range map[string]string{
		"device=kitchen": "device", "device=": "device", "kind=missed": "kind", "kind=": "kind", "kind=turn&kind=Turn": "kind",
		"role=kitchen": "role", "%zz": "",
	} {
		r := w.do(get, "/api/v1/events?"+query, reader, "")
		if got, _ := r.json["field"].(string); r.status != 400 || got != field {
			t.Errorf("%q: %d %s", query, r.status, r.body)
		}
	}
}

func TestEventsResume(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	s, place := w.listen("")
	ids := []string{place}
	for i := range 5 {
		w.publish(i, 1)
		ids = append(ids, s.block().id)
	}
	s.close()
	w.publish(5, 2) // nobody listens
	for n, id := range ids {
		s := w.ask("", id)
		for i := n; i < 7; i++ {
			if b := s.block(); b.event.Detail != numbered(i) {
				t.Errorf("after %s: %.40s", id, b.data)
			}
		}
		s.close()
	}
	// What is not held any more is owned up to.
	w.publish(7, api.HeldEvents)
	for id, want := range map[string]int{ids[5]: 2, ids[3]: 4, "0": 0, "other-3": 0, ids[1] + "9999": 0, "-": 0} {
		s := w.ask("", id)
		b := s.block()
		if _, known := b.event.Data["events"]; b.kind != "missed" || b.missed() != want || known != (want > 0) || b.id != "" {
			t.Errorf("after %s: %+v", id, b)
		}
		for i := range api.HeldEvents {
			if b := s.block(); b.event.Detail != numbered(7+i) {
				t.Fatalf("after %s, event %d: %.40s", id, i, b.data)
			}
		}
		s.close()
	}
	s = w.ask("", "0")
	w.publish(7+api.HeldEvents, 1) // and it goes on
	for range 1 + api.HeldEvents {
		s.block()
	}
	if b := s.block(); b.event.Detail != numbered(7+api.HeldEvents) {
		t.Errorf("%+v", b)
	}
}

// TestStreamsStayOpen: the server gives answers 30 s to be written, and proxies
// end what is silent.
func TestStreamsStayOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		began := time.Now()
		s, first := w.listen("kind=turn")
		for i := range 20 {
			w.publish(i, 10) // not wanted
			b := s.block()
			if since := time.Since(began); since != time.Duration(i+1)*15*time.Second || b.comment == "" || b.id == first {
				t.Fatalf("after %v: %+v", since, b)
			}
			first = b.id
		}
		// An event puts the next comment off.
		time.Sleep(10 * time.Second)
		w.api.Publish(api.Event{Kind: api.EventTurn, Device: kitchen})
		if b := s.block(); b.kind != api.EventTurn || time.Since(began) != 310*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), b)
		}
		if b := s.block(); b.comment == "" || time.Since(began) != 325*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), b)
		}
		s.close()
		// The comments have led past what was not wanted.
		w.publish(0, api.HeldEvents-1)
		if b := w.ask("", first).block(); b.kind != api.EventTurn {
			t.Errorf("%+v", b)
		}
	})
}

// fill publishes until the listener's writes wait and its queue has overflowed.
func fill(w *world) {
	for i := range 1000 {
		w.publish(i, 1)
		synctest.Wait() // the listener has taken it, unless it waits in a write
	}
}

func TestSlowListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		slow, _ := w.listen("")
		fill(w)
		other, _ := w.listen("")
		time.Sleep(9 * time.Second)
		next := 0
		b := slow.block()
		for ; b.kind != "missed"; b = slow.block() {
			if b.event.Detail != numbered(next) {
				t.Fatalf("event %d: %.40s", next, b.data)
			}
			next++
		}
		n := b.missed()
		if next < api.ListenerQueue+1 || n == 0 || next+n != 1000 || b.id != "" {
			t.Errorf("%d events, then %+v", next, b)
		}
		if s := w.api.Stats(); s.Missed != uint64(n) || s.Listeners != 2 {
			t.Errorf("%+v, missed %d", s, n)
		}
		w.publish(1000, 1)
		for _, s := range []*stream{slow, other} {
			if b := s.block(); b.event.Detail != numbered(1000) {
				t.Errorf("%+v", b)
			}
			if b := s.block(); b.comment == "" { // no more than that
				t.Errorf("%+v", b)
			}
		}
	})
}

func TestListenerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		s, _ := w.listen("")
		fill(w)
		time.Sleep(10*time.Second - time.Nanosecond)
		synctest.Wait()
		if n := w.api.Stats().Listeners; n != 1 {
			t.Errorf("%d listeners before the time", n)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if n := w.api.Stats().Listeners; n != 0 {
			t.Fatalf("%d listeners after it", n)
		}
		if lines := w.log.take(t); len(lines) != 1 || lines[0]["token"] != "dashboard" || lines[0]["source"] != "10.0.0.2" {
			t.Errorf("logged %v", lines)
		}
		for err := error(nil); err == nil; {
			_, err = s.read()
		}
	})
}

func TestListenersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		var streams []*stream
		for range api.MaxListeners {
			s, _ := w.listen("")
			streams = append(streams, s)
		}
		for range 2 {
			if r := w.do(get, "/api/v1/events", reader, ""); r.status != 503 || r.code() != "server_busy" {
				t.Errorf("%d %s", r.status, r.body)
			}
		}
		if s := w.api.Stats(); s.Listeners != api.MaxListeners || s.Overload != 2 {
			t.Errorf("%+v", s)
		}
		streams[0].close()
		synctest.Wait()
		streams[0], _ = w.listen("")
		w.publish(0, 1)
		for _, s := range streams {
			if b := s.block(); b.event.Detail != numbered(0) {
				t.Errorf("%+v", b)
			}
			s.close()
		}
		synctest.Wait()
		if n := w.api.Stats().Listeners; n != 0 {
			t.Errorf("%d listeners are left", n)
		}
	})
}

func TestStreamsEndWithTheServer(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *world){
		"Shutdown": func(t *testing.T, w *world) {
			w.server.RegisterOnShutdown(w.api.EndEvents)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			began := time.Now()
			if err := w.server.Shutdown(ctx); err != nil || time.Since(began) > time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		},
		"Close": func(t *testing.T, w *world) {
			if err := w.server.Close(); err != nil {
				t.Error(err)
			}
		},
		"EndEvents": func(t *testing.T, w *world) {
			w.api.EndEvents()
			w.api.EndEvents()
			if r := w.do(get, "/api/v1/events", reader, ""); r.status != 503 || r.code() != "server_busy" {
				t.Errorf("%d %s", r.status, r.body)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newVirtual(t, api.Config{Tokens: tokens()})
				s, _ := w.listen("")
				end(t, w)
				if _, err := s.read(); err == nil {
					_, err = s.read() // a last comment may have come
					if name != "Close" && !errors.Is(err, io.EOF) {
						t.Errorf("%v", err)
					}
				}
				synctest.Wait()
				if n := w.api.Stats().Listeners; n != 0 {
					t.Errorf("%d listeners are left", n)
				}
			})
		})
	}
}

// TestWhatIsQueuedIsSentBeforeTheEnd with listeners who are so slow that the end
// finds their queues full.
func TestWhatIsQueuedIsSentBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		var streams []*stream
		for range 8 {
			s, _ := w.listen("")
			streams = append(streams, s)
		}
		fill(w)
		w.api.EndEvents()
		for _, s := range streams {
			events := 0
			b, err := s.read()
			for ; err == nil; b, err = s.read() {
				switch b.kind {
				case "": // a comment
				case "missed":
					events += b.missed()
				default:
					events++
				}
			}
			if events != 1000 || !errors.Is(err, io.EOF) {
				t.Errorf("%d events, then %v", events, err)
			}
		}
	})
}

// TestPublishFromAnywhere is for the race detector: many publish while listeners
// come, read and go.
func TestPublishFromAnywhere(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	const each = 20
	keep, _ := w.listen("")
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for range each {
				w.api.Publish(api.Event{Kind: api.EventTurn, Device: kitchen, Data: map[string]any{"packets": 1}})
			}
		})
		busy.Go(func() {
			for range 5 {
				s := w.ask("", "0")
				s.block()
				s.close()
			}
		})
	}
	seen := map[string]bool{}
	for range 4 * each {
		seen[keep.block().id] = true
	}
	busy.Wait()
	if len(seen) != 4*each || seen[""] {
		t.Errorf("%d events", len(seen))
	}
}

func TestWhoMayListen(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	for token, want := range map[string]int{"": 401, operator: 403, admin: 403} {
		if r := w.do(get, "/api/v1/events", token, ""); r.status != want {
			t.Errorf("%q: %d %s", token, r.status, r.body)
		}
	}
	if r := w.do(post, "/api/v1/events", reader, ""); r.status != 405 || r.header.Get("Allow") != get {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// TestHeadOfAStreamEnds: the mux passes HEAD on to what serves GET.
func TestHeadOfAStreamEnds(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	r := w.do(http.MethodHead, "/api/v1/events", reader, "")
	if r.status != 200 || r.header.Get("Content-Type") != "text/event-stream" {
		t.Errorf("%d %v", r.status, r.header)
	}
	if n := w.api.Stats().Listeners; n != 0 {
		t.Errorf("%d listeners", n)
	}
}
