package device

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a toolbox with one tool that takes its time.
func slow(d time.Duration) []Tool {
	return []Tool{{Name: "self.slow", Description: "Takes its time.", Duration: d,
		Call: func(context.Context, Args) (any, error) { return "done", nil }}}
}

// call is a tools/call as a server sends it.
func call(id int, name, args string) string {
	return request1(fmt.Sprintf(`"id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s}`, id, name, args))
}

func request1(members string) string {
	return `{"type":"mcp","payload":{"jsonrpc":"2.0",` + members + `}}`
}

func contains(s, part string) bool { return strings.Contains(s, part) }

// answer is the payload of the device's reply to m, or "" where it has none.
func (b *bench) answer(m string) string {
	b.Helper()
	n := len(b.said())
	b.say(m)
	time.Sleep(10 * time.Second)
	synctest.Wait()
	if len(b.said()) == n {
		return ""
	}
	const before = `{"session_id":"","type":"mcp","payload":`
	text := b.last().text
	if !strings.HasPrefix(text, before) {
		b.Fatalf("reply %s", text)
	}
	return strings.TrimSuffix(strings.TrimPrefix(text, before), "}")
}

// Requests the firmware drops, and what it says to those it does not.
func TestRequests(t *testing.T) {
	const initialized = `{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"parley-simulator","version":"2.4.2"}}}`
	for _, c := range []struct{ request, want string }{
		{request1(`"id":1,"method":"initialize","params":{}`), initialized},
		{request1(`"id":1,"method":"initialize"`), initialized},
		{request1(`"id":1.9,"method":"initialize"`), initialized},
		{request1(`"id":1,"method":"initialize","params":null`), ""},
		{request1(`"id":1,"method":"initialize","params":[]`), ""},
		{request1(`"id":"1","method":"initialize"`), ""},
		{request1(`"id":null,"method":"initialize"`), ""},
		{request1(`"method":"initialize"`), ""},
		{request1(`"id":1`), ""},
		{request1(`"id":1,"method":3`), ""},
		{request1(`"id":1,"result":{}`), ""},
		{request1(`"method":"notifications/initialized"`), ""},
		{`{"type":"mcp","payload":{"jsonrpc":"1.0","id":1,"method":"initialize"}}`, ""},
		{`{"type":"mcp","payload":{"id":1,"method":"initialize"}}`, ""},
		{`{"type":"mcp","payload":[` + initialized + `]}`, ""},
		{request1(`"id":9999999999,"method":"ping"`), `{"jsonrpc":"2.0","id":2147483647,"error":{"message":"Method not implemented: ping"}}`},
		{request1(`"id":1,"method":"say \"hi\""`), `{"jsonrpc":"2.0","id":1,"error":{"message":"Method not implemented: say "hi""}}`},
		{request1(`"id":1,"method":"tools/call","params":{}`), `{"jsonrpc":"2.0","id":1,"error":{"message":"Missing name"}}`},
		{request1(`"id":1,"method":"tools/call","params":{"name":"x","arguments":[]}`), `{"jsonrpc":"2.0","id":1,"error":{"message":"Invalid arguments"}}`},
		{call(1, "self.none", `{}`), `{"jsonrpc":"2.0","id":1,"error":{"message":"Unknown tool: self.none"}}`},
		{call(1, "self.audio_speaker.set_volume", `{"volume":30}`), ok1("true")},
		{call(1, "self.audio_speaker.set_volume", `{"volume":30.7,"more":1}`), ok1("true")},
		{call(1, "self.audio_speaker.set_volume", `{}`), fail1("Missing valid argument: volume")},
		{call(1, "self.audio_speaker.set_volume", `{"volume":"30"}`), fail1("Missing valid argument: volume")},
		{call(1, "self.audio_speaker.set_volume", `{"volume":-1}`), fail1("Value is below minimum allowed: 0")},
		{call(1, "self.audio_speaker.set_volume", `{"volume":101}`), fail1("Value exceeds maximum allowed: 100")},
		{call(1, "self.screen.set_theme", `{"theme":"dark"}`), ok1("true")},
		{call(1, "self.screen.set_theme", `{"theme":"pink"}`), ok1("false")},
		{call(1, "self.upgrade_firmware", `{}`), ok1("true")}, // user-only, and url not required
		{request1(`"id":1,"method":"tools/list","params":{"cursor":"self.none"}`), fail1("Failed to add tool  because of payload size limit")},
	} {
		run(t, Options{}, func(b *bench) {
			if got := b.answer(c.request); got != c.want {
				b.Errorf("%s\n got %s\nwant %s", c.request, got, c.want)
			}
		})
	}
}

func ok1(text string) string {
	return `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + text + `"}],"isError":false}}`
}

func fail1(text string) string {
	return `{"jsonrpc":"2.0","id":1,"error":{"message":"` + text + `"}}`
}

// The tools have a state of their own.
func TestToolState(t *testing.T) {
	run(t, Options{}, func(b *bench) {
		b.answer(call(1, "self.audio_speaker.set_volume", `{"volume":33}`))
		b.answer(call(2, "self.screen.set_brightness", `{"brightness":11}`))
		b.answer(call(3, "self.screen.set_theme", `{"theme":"dark"}`))
		got := b.answer(call(4, "self.get_device_status", `{}`))
		for _, want := range []string{`\"volume\":33`, `\"brightness\":11`, `\"theme\":\"dark\"`} {
			if !contains(got, want) {
				t.Errorf("status %s has no %s", got, want)
			}
		}
		calls := b.diary.all(ToolCalled)
		if len(calls) != 4 || calls[0].Tool != "self.audio_speaker.set_volume" || calls[0].Text != `{"volume":33}` || calls[0].Result != "true" {
			t.Errorf("events %v", calls)
		}
	})
}

// py-xiaozhi takes string ids and writes proper errors; firmware before 1.7 has
// no tools at all.
func TestRequestsByProfile(t *testing.T) {
	run(t, Options{Profile: Py}, func(b *bench) {
		b.open()
		b.say(request1(`"id":"a","method":"say \"hi\""`))
		time.Sleep(time.Second)
		if got, want := b.last().text, `"error":{"code":-32603,"message":"Method not implemented: say \"hi\""}`; !contains(got, want) || !contains(got, `"id":"a"`) {
			t.Errorf("got %s", got)
		}
	})
	run(t, Options{Profile: FW160}, func(b *bench) {
		if got := b.answer(request1(`"id":1,"method":"initialize"`)); got != "" {
			t.Errorf("answered %s", got)
		}
	})
}

// A list longer than 8000 bytes comes in pages, the cursor being the name of the
// next tool; user-only tools are listed only on request.
func TestPages(t *testing.T) {
	var tools []Tool
	for i := range 30 {
		tools = append(tools, Tool{Name: fmt.Sprintf("self.tool%02d", i), Description: strings.Repeat("x", 500), UserOnly: i >= 20,
			Call: func(context.Context, Args) (any, error) { return true, nil }})
	}
	for _, user := range []bool{false, true} {
		run(t, Options{Tools: tools}, func(b *bench) {
			var names []string
			cursor, pages := "", 0
			for {
				got := b.answer(request1(fmt.Sprintf(`"id":1,"method":"tools/list","params":{"cursor":%q,"withUserTools":%v}`, cursor, user)))
				var r struct {
					Result struct {
						Tools []struct {
							Name        string
							Annotations struct{ Audience []string }
						}
						NextCursor *string
					}
				}
				if err := json.Unmarshal([]byte(got), &r); err != nil {
					t.Fatal(err)
				}
				if len(got) > 8000+40 {
					t.Errorf("page of %d bytes", len(got))
				}
				for _, tool := range r.Result.Tools {
					names = append(names, tool.Name)
					if marked := len(tool.Annotations.Audience) == 1; marked != (tool.Name >= "self.tool20") {
						t.Errorf("%s for users only: %v", tool.Name, marked)
					}
				}
				pages++
				if r.Result.NextCursor == nil {
					break
				}
				cursor = *r.Result.NextCursor
			}
			want, wantPages := 20, 2
			if user {
				want, wantPages = 30, 3
			}
			if len(names) != want || pages != wantPages || names[0] != "self.tool00" {
				t.Errorf("%d tools in %d pages: %v", len(names), pages, names)
			}
		})
	}
	if !testing.Short() {
		big := []Tool{{Name: "self.big", Description: strings.Repeat("x", 9000), Call: func(context.Context, Args) (any, error) { return true, nil }}}
		run(t, Options{Tools: big}, func(b *bench) {
			if got := b.answer(request1(`"id":1,"method":"tools/list"`)); got != fail1("Failed to add tool self.big because of payload size limit") {
				t.Errorf("got %s", got)
			}
		})
	}
}

// A tool runs on the main task and freezes it: tts start waits, and its audio is
// lost. The thread of firmware 1.7 does not.
func TestToolFreezes(t *testing.T) {
	for p, want := range map[Profile]Report{
		FW24: {ClippedState: 1, ToolCalls: 1},
		FW17: {Played: 1, ToolCalls: 1},
	} {
		t.Run(p.String(), func(t *testing.T) {
			run(t, Options{Profile: p, Tools: slow(5 * time.Second)}, func(b *bench) {
				b.open()
				b.say(call(1, "self.slow", `{}`))
				synctest.Wait()
				b.start()
				time.Sleep(time.Second)
				b.frame()
				time.Sleep(10 * time.Second)
				b.expect(Speaking)
				b.tally(want)
			})
		})
	}
}

// Calls run one after the other.
func TestToolsAreSerial(t *testing.T) {
	run(t, Options{Tools: slow(2 * time.Second)}, func(b *bench) {
		begin := time.Now()
		b.say(call(1, "self.slow", `{}`))
		b.say(call(2, "self.slow", `{}`))
		time.Sleep(10 * time.Second)
		calls := b.diary.all(ToolCalled)
		if len(calls) != 2 || calls[1].Time.Sub(begin) != 4*time.Second {
			t.Errorf("calls %v", calls)
		}
	})
}

// What a tool returns, and the error nobody escapes.
func TestToolResults(t *testing.T) {
	for _, c := range []struct {
		value any
		err   error
		want  string
	}{
		{"a \"b\"", nil, ok1(`a \"b\"`)},
		{7, nil, ok1("7")},
		{false, nil, ok1("false")},
		{map[string]int{"a": 1}, nil, ok1(`{\"a\":1}`)},
		{nil, errors.New(`no "b"`), fail1(`no "b"`)},
		{func() {}, nil, fail1("result: json: unsupported type: func()")},
	} {
		tool := Tool{Name: "self.t", Call: func(context.Context, Args) (any, error) { return c.value, c.err }}
		run(t, Options{Tools: []Tool{tool}}, func(b *bench) {
			if got := b.answer(call(1, "self.t", `{}`)); got != c.want {
				t.Errorf("got %s\nwant %s", got, c.want)
			}
		})
	}
}

// A flood of work for a frozen main task is bounded and counted.
func TestOverrun(t *testing.T) {
	run(t, Options{Tools: slow(time.Minute)}, func(b *bench) {
		b.say(call(1, "self.slow", `{}`))
		synctest.Wait()
		for range maxTasks + 5 {
			b.stop()
		}
		time.Sleep(time.Second)
		if got := b.Report().Overrun; got != 5 {
			t.Errorf("%d dropped, want 5", got)
		}
	})
}
