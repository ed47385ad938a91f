package builtin

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
	"unicode/utf8"

	"parley/internal/protocol"
)

// FuzzWhen reads times as models write them. What is accepted is in the future,
// not far, and shows the clock it was read as, unless clocks skip that.
func FuzzWhen(f *testing.F) {
	for _, text := range []string{"07:30", "7:30 pm", "tomorrow 07:30", "today at 9", "2026-11-22T07:30", "2026-11-22 07:30:05", "2026-11-22T07:30:00+05:30", "2027-03-28T02:30", "tomorrow 2:30 a.m."} {
		f.Add(text, int64(1_795_000_000), "Europe/Berlin")
		f.Add(text, int64(1_774_700_000), "Australia/Lord_Howe")
	}
	f.Fuzz(func(t *testing.T, text string, unix int64, name string) {
		loc, err := time.LoadLocation(name)
		if err != nil || unix < 0 || unix > 4e9 {
			return
		}
		now := time.Unix(unix, 0)
		m, err := parseWhen(text, now, loc)
		if err != nil {
			if !utf8.ValidString(err.Error()) && utf8.ValidString(text) {
				t.Errorf("the error is no UTF-8: %q", err)
			}
			return
		}
		if !m.at.After(now) || m.at.Sub(now) > maxAhead {
			t.Errorf("%q at %v is %v", text, now, m.at)
		}
		again, err := parseClock(m.clock.String())
		if err != nil || again != m.clock {
			t.Errorf("%q has the clock %v, which is read as %v, %v", text, m.clock, again, err)
		}
		if shown := clockOf(m.at.In(loc)); shown != m.clock {
			if begin, _ := m.at.In(loc).ZoneBounds(); !begin.Equal(m.at) {
				t.Errorf("%q is %v, which shows %v and skips nothing", text, m.at, shown)
			}
		}
		for _, often := range []repeat{daily, weekdays, weekly} {
			r := rule{often, m.clock, m.at.Weekday()}
			if next := r.next(now, loc); !next.IsZero() && !next.After(now) {
				t.Errorf("%s: %v is not after %v", often, next, now)
			}
		}
	})
}

// FuzzFile reads files of timers. What is kept can be written and read again,
// and a book can hold it and let it fall due.
func FuzzFile(f *testing.F) {
	for _, content := range []string{
		`{"version":1,"last":3,"entries":[{"id":3,"device":"a0:85:e3:f4:49:34","kind":"timer","text":"eggs","due":"2026-11-22T07:30:00Z"}]}`,
		`{"version":1,"entries":[{"id":3,"device":"a0:85:e3:f4:49:34","kind":"alarm","due":"2026-11-22T07:30:00Z","pending":"2026-11-21T07:30:00+01:00","repeat":"weekly","clock":"07:30","weekday":6}]}`,
		`{"version":1,"entries":[{"id":1,"device":"A0-85-E3-F4-49-34","kind":"reminder","text":"x","pending":"2026-11-22T07:30:00Z"},{"id":1}]}`,
		`{"version":2}`, `{"version":1,"last":-1,"entries":null}`, `[]`, ``,
	} {
		f.Add([]byte(content))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		last, records, fault := parseFile(content)
		written := encodeFile(last, records)
		last2, records2, fault2 := parseFile(written)
		if fault2 != nil || last2 != last || len(records2) != len(records) {
			t.Fatalf("%q (%v) was written as %q, which has %v", content, fault, written, fault2)
		}
		if again := encodeFile(last2, records2); !bytes.Equal(again, written) {
			t.Fatalf("%q became %q", written, again)
		}
		b := newBook(time.UTC, new(counters), discard())
		now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
		b.now = func() time.Time { return now }
		b.load(last, records)
		for range 3 {
			if wait, ok := b.tick(); ok && wait <= 0 {
				t.Fatalf("%q: the next thing is due in %v", written, wait)
			}
			for range b.employ() {
				for j, ok := b.take(); ok; j, ok = b.take() {
					for _, it := range j.items {
						b.settle(it, j.hellos, ErrAbsent)
					}
					b.done(j.device)
				}
			}
			now = now.Add(25 * time.Hour)
		}
	})
}

// FuzzArguments calls every tool that sets something with any arguments.
func FuzzArguments(f *testing.F) {
	for _, args := range []string{
		`{"minutes":5,"label":"eggs"}`, `{"time":"07:30","repeat":"weekdays"}`, `{"text":"x","in_minutes":1.5}`, `{"text":"x","at":"tomorrow 7"}`,
		`{"which":"all","kind":"timer"}`, `{"hours":1e308,"minutes":"-0"}`, `{"label":"\u0000\ud800"}`, `{"text":{"a":[1]}}`, `null`, `[]`, `{"time":5}`,
	} {
		f.Add([]byte(args))
	}
	tools := &Tools{cfg: Config{Location: time.UTC}, stats: new(counters), log: discard()}
	f.Fuzz(func(t *testing.T, raw []byte) {
		tools.book = newBook(time.UTC, tools.stats, tools.log)
		tools.store = &store{book: tools.book, stats: tools.stats, log: tools.log, saved: 1 << 60}
		for _, tool := range tools.timerTools() {
			args, err := parseArguments(raw, properties(tool.schema))
			if err != nil {
				continue
			}
			text, err := tool.run(t.Context(), caller{device: "a0:85:e3:f4:49:34"}, args)
			if err != nil {
				text = err.Error()
			}
			if text == "" {
				t.Errorf("%s says nothing to %q", tool.name, raw)
			}
		}
		_, last, records := tools.book.snapshot()
		if _, kept, fault := parseFile(encodeFile(last, records)); fault != nil || len(kept) != len(records) {
			t.Errorf("%q set what the file cannot hold: %v", raw, fault)
		}
	})
}

// FuzzPage reads bodies of all kinds.
func FuzzPage(f *testing.F) {
	f.Add([]byte("<title>A</title><h1>B</h1><p>C <a href=x>D</a><script>E</script>"), "text/html; charset=utf-8")
	f.Add([]byte("<ul><li>A<li>B</ul><table><tr><td>1<td>2</table>"), "text/html")
	f.Add([]byte("caf\xe9"), "text/plain; charset=iso-8859-1")
	f.Add([]byte(`{"a":1}`), "application/json")
	f.Add(bytes.Repeat([]byte("<div>"), 600), "text/html")
	f.Fuzz(func(t *testing.T, body []byte, contentType string) {
		kind, err := kindOf(contentType)
		if err != nil {
			return
		}
		p, err := readPage(body, kind)
		if err != nil {
			return
		}
		if !utf8.ValidString(p.text) || len(p.text) > maxPageText || !utf8.ValidString(p.title) || len(p.title) > maxTitle {
			t.Errorf("%q: %d bytes of text, title %q", body, len(p.text), p.title)
		}
	})
}

// FuzzStatus reads the status of devices.
func FuzzStatus(f *testing.F) {
	f.Add(`{"audio_speaker":{"volume":70}}`)
	f.Add(`{"audio_speaker":{"volume":"1e1"}}`)
	f.Add(`{"audio_speaker":[]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if n, ok := readStatus(text, [2]string{"audio_speaker", "volume"}); ok && (n < 0 || n > 100 || !json.Valid([]byte(text))) {
			t.Errorf("%q: %d", text, n)
		}
	})
}

// FuzzCaller reads params._meta.
func FuzzCaller(f *testing.F) {
	f.Add([]byte(`{"parley/device":"a0:85:e3:f4:49:34","parley/role":"x"}`))
	f.Add([]byte(`{"parley/device":5}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var meta map[string]any
		if json.Unmarshal(raw, &meta) != nil {
			return
		}
		who, err := callerOf(meta)
		if err == nil {
			if _, bad := protocol.ParseDeviceID(string(who.device)); bad != nil {
				t.Errorf("%q: %q", raw, who.device)
			}
		}
	})
}
