package api_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/api"
	"parley/mcp"
)

const (
	gatewayKey    = "Signature-Key-9"
	kitchenClient = "GID_parley@@@a0_85_e3_f4_49_34@@@uuid"
)

// today is the daily token by the gateway's recipe, in words of this test.
func today(date string) string {
	sum := sha256.Sum256([]byte(date + gatewayKey))
	return hex.EncodeToString(sum[:])
}

func TestGatewayCommands(t *testing.T) {
	w := newWorld(t, api.Config{Gateway: true, GatewayKey: gatewayKey, Location: time.UTC})
	token := today(time.Now().UTC().Format("2006-01-02"))
	const data = `{"success":true,"data":{"content":[{"type":"text","text":"true"}],"isError":false}}`
	for _, c := range []struct {
		client, body  string
		status        int
		answer, asked string
	}{
		{kitchenClient, `{"type":"mcp","payload":{"method":"tools/list","params":{"cursor":""}}}`, 200, data, `request tools/list {"cursor":""}`},
		{kitchenClient, `{"type":"mcp","payload":{"method":"initialize"}}`, 200, data, `request initialize `},
		{kitchenClient, `{"type":"mcp","payload":{"method":"tools/call","params":{"name":"self.reboot","arguments":{"a":1}}}}`, 200, data,
			`request tools/call {"name":"self.reboot","arguments":{"a":1}}`},
		// The manager fills the last part with the MAC, and groups differ.
		{"GID_default@@@A0_85_E3_F4_49_34@@@A0_85_E3_F4_49_34", `{"type":"mcp","payload":{"method":"initialize"}}`, 200, data, `request initialize `},
		{"GID@@@a0_85_e3_f4_49_34", `{"type":"mcp","payload":{"method":"initialize"}}`, 200, data, `request initialize `},
		{"GID@@@a0_85_e3_f4_49_35@@@x", `{"type":"mcp","payload":{"method":"initialize"}}`, 500, `{"success":false,"error":"device not connected"}`, ``},
		{"nonsense", `{}`, 500, `{"success":false,"error":"device not connected"}`, ``},
		{kitchenClient, `{"type":"reboot"}`, 500, `{"success":false,"error":"invalid command type"}`, ``},
		{kitchenClient, `{"type":"mcp"}`, 500, `{"success":false,"error":"invalid command type"}`, ``},
		{kitchenClient, `{"type":"mcp","payload":{"method":"resources/list"}}`, 500, `{"success":false,"error":"method \"resources/list\" is not supported: send initialize, tools/list or tools/call"}`, ``},
		{kitchenClient, `{"type":"mcp","payload":{"method":"tools/call","params":{}}}`, 500, `{"success":false,"error":"bad arguments: params need a name and may have arguments"}`, ``},
		{kitchenClient, `{"type":"mcp","payload":{"method":"tools/call","params":{"name":"x","arguments":[1]}}}`, 500, `{"success":false,"error":"bad arguments: arguments must be an object"}`, ``},
		{kitchenClient, `{"type":"mcp","payload":{"method":"tools/list","params":[]}}`, 500, `{"success":false,"error":"bad arguments: params must be an object"}`, ``},
		{kitchenClient, `{"type":"mcp","payload":{"method":"tools/list","params":null}}`, 200, data, `request tools/list `},
		{kitchenClient, `rubbish`, 400, `{"error":"the body is not a command"}`, ``},
	} {
		r := w.do(post, "/api/commands/"+c.client, token, c.body)
		asked := strings.Join(w.fleet.requests(), "; ")
		if r.status != c.status || strings.TrimSpace(r.body) != c.answer || asked != c.asked {
			t.Errorf("%s %s: %d %s, asked %s", c.client, c.body, r.status, r.body, asked)
		}
	}
	for err, want := range map[error]string{
		mcp.ErrTimeout:                    `{"success":false,"error":"timeout"}`,
		errors.New("Unknown tool: self."): `{"success":false,"error":"Unknown tool: self."}`,
	} {
		w.fleet.set(func(f *fakeFleet) { f.fail = err })
		if r := w.do(post, "/api/commands/"+kitchenClient, token, `{"type":"mcp","payload":{"method":"tools/list"}}`); r.status != 500 || strings.TrimSpace(r.body) != want {
			t.Errorf("%v: %d %s", err, r.status, r.body)
		}
	}
	var logged []string
	for _, line := range w.log.take(t) {
		logged = append(logged, line["token"].(string)+" "+line["action"].(string)+" "+line["result"].(string))
	}
	const daily = "gateway daily token "
	if !slices.Equal(logged, []string{daily + "initialize ok", daily + "command ok", daily + "initialize ok", daily + "initialize ok"}) {
		t.Errorf("logged %q", logged)
	}
}

// TestGatewayCommandIsWhatWasJudged: the parser of devices takes the first of two
// members and knows no capitals, that of Go the last.
func TestGatewayCommandIsWhatWasJudged(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens(), Gateway: true, GatewayKey: gatewayKey})
	for _, params := range []string{
		`{"NAME":"self.reboot","name":"self.camera.take_photo"}`,
		`{"name":"self.reboot","name":"self.camera.take_photo"}`,
		`{"name":"self.camera.take_photo","Name":"self.reboot","arguments":null}`,
	} {
		r := w.do(post, "/api/commands/"+kitchenClient, operator, `{"type":"mcp","payload":{"method":"tools/call","params":`+params+`}}`)
		if asked := w.fleet.requests(); r.status != 200 || !slices.Equal(asked, []string{`request tools/call {"name":"self.camera.take_photo"}`}) {
			t.Errorf("%s: %d, asked %q", params, r.status, asked)
		}
	}
}

func TestGatewayStatus(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens(), Gateway: true, GatewayKey: gatewayKey})
	ask := func() string {
		r := w.do(post, "/api/devices/status", reader, `{"clientIds":["`+kitchenClient+`","GID@@@a0_85_e3_f4_49_35@@@x","x"]}`)
		if r.status != 200 {
			t.Errorf("%d", r.status)
		}
		return strings.TrimSpace(r.body)
	}
	const absent = `"GID@@@a0_85_e3_f4_49_35@@@x":{"isAlive":false,"exists":false}`
	if got, want := ask(), `{`+absent+`,"`+kitchenClient+`":{"isAlive":false,"exists":true},"x":{"isAlive":false,"exists":false}}`; got != want {
		t.Errorf("got %s", got)
	}
	w.fleet.set(func(f *fakeFleet) { d := f.devices[kitchen]; d.SessionID = "S"; f.devices[kitchen] = d })
	if got, want := ask(), `{`+absent+`,"`+kitchenClient+`":{"isAlive":true,"exists":true},"x":{"isAlive":false,"exists":false}}`; got != want {
		t.Errorf("got %s", got)
	}
	for _, body := range []string{``, `{}`, `{"clientIds":"x"}`, `{"clientIds":null}`, `{"clientIds":[1]}`, `[]`} {
		if r := w.do(post, "/api/devices/status", reader, body); r.status != 400 || r.json["error"] == nil {
			t.Errorf("%q: %d %s", body, r.status, r.body)
		}
	}
}

func TestDailyToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it is midnight in UTC, 2000-01-01
		zone := time.FixedZone("", 8*3600)
		w := newVirtual(t, api.Config{Gateway: true, GatewayKey: gatewayKey, Location: zone})
		accepted := func() (days []string) {
			for _, day := range []string{"1999-12-30", "1999-12-31", "2000-01-01", "2000-01-02"} {
				switch r := w.do(post, "/api/devices/status", today(day), `{"clientIds":[]}`); r.status {
				case 200:
					days = append(days, day)
				case 401:
				default:
					t.Fatalf("%s: %d", day, r.status)
				}
			}
			return days
		}
		for _, step := range []struct {
			after time.Duration // since midnight in UTC
			want  []string
		}{
			{0, []string{"1999-12-31", "2000-01-01"}},
			{5*time.Minute - time.Nanosecond, []string{"1999-12-31", "2000-01-01"}},
			{5 * time.Minute, []string{"2000-01-01"}},
			{16*time.Hour - time.Nanosecond, []string{"2000-01-01"}},
			{16 * time.Hour, []string{"2000-01-01", "2000-01-02"}}, // midnight in the zone
			{23 * time.Hour, []string{"2000-01-01", "2000-01-02"}},
			{24*time.Hour + 5*time.Minute, []string{"2000-01-02"}},
		} {
			midnight := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
			time.Sleep(time.Until(midnight.Add(step.after)))
			if got := accepted(); !slices.Equal(got, step.want) {
				t.Errorf("after %v: %v", step.after, got)
			}
		}
	})
}

func TestDailyTokenIsForTheGatewayOnly(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens(), Gateway: true, GatewayKey: gatewayKey, Location: time.UTC})
	token := today(time.Now().UTC().Format("2006-01-02"))
	if r := w.do(get, "/api/v1/devices", token, ""); r.status != 401 {
		t.Errorf("%d %s", r.status, r.body)
	}
	off := newWorld(t, api.Config{Tokens: tokens(), GatewayKey: gatewayKey})
	for _, token := range []string{token, all} {
		if r := off.do(post, "/api/devices/status", token, `{"clientIds":[]}`); r.status != 404 || r.code() != "gateway_off" {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}
