package api_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"parley/internal/api"
	"parley/internal/protocol"
	"parley/mcp"
)

const (
	get  = http.MethodGet
	post = http.MethodPost
	del  = http.MethodDelete
)

const devicePath = "/api/v1/devices/" + string(kitchen)

func TestDevice(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	const want = `{"id":"a0:85:e3:f4:49:34","client_id":"GID_parley@@@a0_85_e3_f4_49_34@@@uuid","board":"bread-compact-wifi","firmware":"2.2.1",` +
		`"address":"192.168.1.20:50001","connected_at":"2026-05-01T08:00:00Z","role":"default","state":"connected","tools":4}`
	for _, id := range []string{"a0:85:e3:f4:49:34", "A0:85:E3:F4:49:34", "a0_85_e3_f4_49_34", "A0-85-e3-f4-49-34"} {
		if r := w.do(get, "/api/v1/devices/"+id, reader, ""); r.status != 200 || strings.TrimSpace(r.body) != want {
			t.Errorf("%s: %d %s", id, r.status, r.body)
		}
	}
	w.fleet.set(func(f *fakeFleet) {
		d := f.devices[kitchen]
		d.State, d.SessionID, d.SessionStart = api.StateSpeaking, "SESSION", d.ConnectedAt
		f.devices[kitchen] = d
	})
	if r := w.do(get, devicePath, reader, ""); r.json["session_id"] != "SESSION" || r.json["session_started_at"] != "2026-05-01T08:00:00Z" || r.json["state"] != "speaking" {
		t.Errorf("%s", r.body)
	}
	if r := w.do(get, "/api/v1/devices/a0:85:e3:f4:49:35", reader, ""); r.status != 404 || r.code() != "device_absent" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do(get, "/api/v1/devices/kitchen", reader, ""); r.status != 400 || r.code() != "bad_device_id" || r.json["field"] != "id" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

// many fills the fleet with devices of two boards; every tenth one speaks.
func many(f *fakeFleet, n int) {
	f.devices = map[protocol.DeviceID]api.Device{}
	for i := range n {
		id := protocol.DeviceID(fmt.Sprintf("02:00:00:00:%02x:%02x", i>>8, i&0xff))
		d := api.Device{ID: id, Board: []string{"one", "two"}[i%2], Role: "default", State: api.StateConnected, Firmware: "2.0.0"}
		if i%10 == 0 {
			d.State = api.StateSpeaking
		}
		f.devices[id] = d
	}
}

func TestDevicesInPages(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	many(w.fleet, 2500)
	seen, pages := []string{}, 0
	for cursor := ""; ; pages++ {
		r := w.do(get, "/api/v1/devices?limit=1000&cursor="+cursor, reader, "")
		if r.status != 200 || r.json["total"] != 2500.0 {
			t.Fatalf("%d %.200s", r.status, r.body)
		}
		for _, d := range r.json["devices"].([]any) {
			seen = append(seen, d.(map[string]any)["id"].(string))
		}
		var more bool
		if cursor, more = r.json["next_cursor"].(string); !more {
			break
		}
		// A device that goes, and one that comes before the cursor, move nothing.
		w.fleet.set(func(f *fakeFleet) {
			if gone := protocol.DeviceID(cursor); pages == 0 {
				d := f.devices[gone]
				delete(f.devices, gone)
				d.ID = "00:00:00:00:00:01"
				f.devices[d.ID] = d
			}
		})
	}
	if len(seen) != 2500 || !slices.IsSorted(seen) || pages != 2 || len(slices.Compact(seen)) != 2500 {
		t.Errorf("%d devices on %d pages, sorted %v", len(seen), pages+1, slices.IsSorted(seen))
	}
	if r := w.do(get, "/api/v1/devices", reader, ""); len(r.json["devices"].([]any)) != 100 {
		t.Errorf("%d on a page of the default size", len(r.json["devices"].([]any)))
	}
}

func TestDevicesFiltered(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	many(w.fleet, 100)
	for query, want := range map[string]float64{
		"": 100, "board=one": 50, "board=three": 0, "state=speaking": 10, "state=speaking&board=two": 0, "role=default&firmware=2.0.0": 100, "role=": 100,
	} {
		r := w.do(get, "/api/v1/devices?"+query, reader, "")
		if r.status != 200 || r.json["total"] != want || float64(len(r.json["devices"].([]any))) != want {
			t.Errorf("%q: %d %.200s", query, r.status, r.body)
		}
	}
	for query, field := range map[string]string{
		"state=asleep": "state", "limit=0": "limit", "limit=1001": "limit", "limit=ten": "limit", "cursor=x": "cursor",
		"colour=red": "colour", "board=one&board=two": "board", "%zz": "",
	} {
		r := w.do(get, "/api/v1/devices?"+query, reader, "")
		if got, _ := r.json["field"].(string); r.status != 400 || got != field {
			t.Errorf("%q: %d %s", query, r.status, r.body)
		}
	}
}

func TestTools(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	r := w.do(get, devicePath+"/tools", reader, "")
	var got struct {
		Tools []struct {
			Name, Scope string
			Schema      json.RawMessage `json:"input_schema"`
			UserOnly    bool            `json:"user_only"`
		}
	}
	if err := json.Unmarshal([]byte(r.body), &got); err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, tool := range got.Tools {
		told = append(told, fmt.Sprint(tool.Name, " ", tool.Scope, " ", tool.UserOnly))
	}
	want := []string{
		"self.audio_speaker.set_volume control false", "self.camera.take_photo control false",
		"self.reboot admin true", "self.upgrade_firmware admin false",
	}
	if r.status != 200 || !slices.Equal(told, want) || string(got.Tools[0].Schema) != string(w.fleet.tools[0].Schema) {
		t.Errorf("%d %v", r.status, told)
	}
	w.fleet.set(func(f *fakeFleet) { f.tools = nil })
	if r := w.do(get, devicePath+"/tools", reader, ""); r.status != 503 || r.code() != "tools_unknown" || r.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestControl(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	volume := devicePath + "/tools/self.audio_speaker.set_volume"
	for _, c := range []struct {
		method, path, token, body string
		status                    int
		answer, asked, result     string
	}{
		{post, volume, operator, `{"volume": 4711.25}`, 200, `{"text":"true","is_error":false}`, `call self.audio_speaker.set_volume {"volume": 4711.25}`, "ok"},
		{post, volume, operator, ``, 200, `{"text":"true","is_error":false}`, `call self.audio_speaker.set_volume `, "ok"},
		{post, volume, all, `{"volume":200}`, 200, `{"text":"Value exceeds maximum allowed: 100","is_error":true}`, `call self.audio_speaker.set_volume {"volume":200}`, "tool_error"},
		{post, devicePath + "/tools/self.camera.take_photo", operator, `{}`, 200, `{"text":"a cat","is_error":false,"images":[{"mime_type":"image/jpeg","data":"/9g="}]}`, `call self.camera.take_photo {}`, "ok"},
		{post, devicePath + "/tools/self.reboot", admin, ``, 200, `{"text":"true","is_error":false}`, `call self.reboot `, "ok"},
		{post, devicePath + "/say", operator, `{"text":"Dinner <is> ready."}`, 200, `{"way":"spoken"}`, `say Dinner <is> ready.`, "ok"},
		{post, devicePath + "/alert", operator, `{"status":"Note","message":"Dinner"}`, 204, ``, `alert Note|Dinner|neutral`, "ok"},
		{post, devicePath + "/alert", operator, `{"status":"Note","message":"Dinner","emotion":"happy"}`, 204, ``, `alert Note|Dinner|happy`, "ok"},
		{post, devicePath + "/reboot", admin, ``, 204, ``, `reboot`, "ok"},
		{post, devicePath + "/reboot", admin, `{}`, 204, ``, `reboot`, "ok"},
		{del, devicePath + "/session", operator, ``, 204, ``, `end api`, "ok"},
	} {
		r := w.do(c.method, c.path, c.token, c.body)
		if asked := w.fleet.requests(); r.status != c.status || strings.TrimSpace(r.body) != c.answer || !slices.Equal(asked, []string{c.asked}) {
			t.Errorf("%s %s: %d %s, asked %q", c.path, c.body, r.status, r.body, asked)
		}
		lines := w.log.take(t)
		if len(lines) != 1 || lines[0]["msg"] != "api action" || lines[0]["result"] != c.result || lines[0]["device"] != string(kitchen) || lines[0]["token"] == "" {
			t.Errorf("%s: logged %v", c.path, lines)
		}
		for _, secret := range []string{"Dinner", "volume\":", "4711.25", c.token} {
			if text := fmt.Sprint(lines); strings.Contains(text, secret) {
				t.Errorf("%s: the log holds %q: %s", c.path, secret, text)
			}
		}
	}
}

func TestRefusedRequests(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	tool := devicePath + "/tools/self.audio_speaker.set_volume"
	for _, c := range []struct {
		method, path, body string
		status             int
		code, field        string
	}{
		{post, devicePath + "/say", ``, 400, "bad_request", ""},
		{post, devicePath + "/say", `null`, 400, "bad_request", ""},
		{post, devicePath + "/say", `["text"]`, 400, "bad_request", ""},
		{post, devicePath + "/say", `{"text":"a"}{}`, 400, "bad_request", ""},
		{post, devicePath + "/say", `{"text":"a"`, 400, "bad_request", ""},
		{post, devicePath + "/say", `{}`, 400, "bad_request", "text"},
		{post, devicePath + "/say", `{"text":"  "}`, 400, "bad_request", "text"},
		{post, devicePath + "/say", `{"text":7}`, 400, "bad_request", "text"},
		{post, devicePath + "/say", `{"text":null}`, 400, "bad_request", "text"},
		{post, devicePath + "/say", `{"Text":"a"}`, 400, "bad_request", "Text"},
		{post, devicePath + "/say", `{"text":"a","loud":true}`, 400, "bad_request", "loud"},
		{post, devicePath + "/say", `{"text":"` + strings.Repeat("ö", 1001) + `"}`, 400, "bad_request", "text"},
		{post, devicePath + "/say?text=a", `{"text":"a"}`, 400, "bad_request", "text"},
		{post, devicePath + "/say", `{"text":"` + strings.Repeat("a", 64<<10) + `"}`, 413, "too_large", ""},
		{post, devicePath + "/alert", `{"status":"a"}`, 400, "bad_request", "message"},
		{post, devicePath + "/alert", `{"status":"a","message":"b","emotion":"Happy!"}`, 400, "bad_request", "emotion"},
		{post, devicePath + "/alert", `{"status":"` + strings.Repeat("a", 65) + `","message":"b"}`, 400, "bad_request", "status"},
		{post, devicePath + "/reboot", `{"when":"now"}`, 400, "bad_request", "when"},
		{del, devicePath + "/session?force=1", ``, 400, "bad_request", "force"},
		{post, tool, `[]`, 400, "bad_arguments", ""},
		{post, tool, `{"a":1`, 400, "bad_arguments", ""},
		{post, "/api/v1/devices/a0:85:e3:f4:49:35/say", `{"text":"a"}`, 404, "device_absent", ""},
		{post, "/api/v1/devices/x/say", `{"text":"a"}`, 400, "bad_device_id", "id"},
		{get, devicePath + "/say", ``, 405, "method_not_allowed", ""},
		{http.MethodPut, "/api/v1/devices", `{}`, 405, "method_not_allowed", ""},
		{get, "/api/v2/devices", ``, 404, "no_such_path", ""},
		{get, "/api/", ``, 404, "no_such_path", ""},
	} {
		r := w.do(c.method, c.path, all, c.body)
		field, _ := r.json["field"].(string)
		if r.status != c.status || r.code() != c.code || field != c.field {
			t.Errorf("%s %s %.40s: %d %s", c.method, c.path, c.body, r.status, r.body)
		}
	}
	if asked := w.fleet.requests(); len(asked) > 0 {
		t.Errorf("the devices were asked %q", asked)
	}
	if r := w.do(post, devicePath+"/say", all, `{"text":"a"}`, "Content-Type", "text/plain"); r.status != 415 || r.code() != "media_type" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do(http.MethodPut, devicePath+"/session", all, ""); r.header.Get("Allow") != "DELETE" {
		t.Errorf("allows %q", r.header.Get("Allow"))
	}
}

func TestFailuresOfDevices(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	for _, c := range []struct {
		err    error
		status int
		code   string
		retry  bool
	}{
		{fmt.Errorf("tool %q: %w", "x", mcp.ErrUnknownTool), 404, "unknown_tool", false},
		{mcp.ErrArguments, 400, "bad_arguments", false},
		{mcp.ErrTimeout, 504, "timeout", false},
		{mcp.ErrBusy, 503, "device_busy", true},
		{mcp.ErrClosed, 503, "device_disconnected", true},
		{api.ErrNoSession, 404, "no_session", false},
		{api.ErrUnable, 409, "device_unable", false},
		{errors.New("the device said: " + strings.Repeat("no ", 1000)), 502, "failed", false},
	} {
		w.fleet.set(func(f *fakeFleet) { f.fail = c.err })
		r := w.do(post, devicePath+"/tools/self.camera.take_photo", operator, "")
		if r.status != c.status || r.code() != c.code || (r.header.Get("Retry-After") != "") != c.retry || len(r.body) > 1000 {
			t.Errorf("%v: %d %s", c.err, r.status, r.body)
		}
		if lines := w.log.take(t); len(lines) != 1 || lines[0]["result"] != c.code {
			t.Errorf("%v: logged %v", c.err, lines)
		}
	}
	if s := w.api.Stats(); s.Actions != 8 || s.Failed != 8 {
		t.Errorf("%+v", s)
	}
}
