package api_test

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/api"
)

func TestScopes(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens(), Gateway: true, GatewayKey: gatewayKey})
	volume := devicePath + "/tools/self.audio_speaker.set_volume"
	command := func(tool string) string {
		return `{"type":"mcp","payload":{"method":"tools/call","params":{"name":"` + tool + `"}}}`
	}
	commands := "/api/commands/" + kitchenClient
	for _, c := range []struct {
		method, path, body        string
		read, control, admin, all int
	}{
		{get, "/api/v1/devices", "", 200, 403, 403, 200},
		{get, devicePath, "", 200, 403, 403, 200},
		{get, devicePath + "/tools", "", 200, 403, 403, 200},
		{post, volume, "", 403, 200, 403, 200},
		{post, devicePath + "/tools/self.reboot", "", 403, 403, 200, 200},
		{post, devicePath + "/tools/self.upgrade_firmware", "", 403, 403, 200, 200}, // not marked by old firmware
		{post, devicePath + "/tools/self.unheard_of", "", 403, 404, 404, 200},       // all: the device decides
		{post, devicePath + "/say", `{"text":"a"}`, 403, 200, 403, 200},
		{post, devicePath + "/alert", `{"status":"a","message":"b"}`, 403, 204, 403, 204},
		{post, devicePath + "/reboot", "", 403, 403, 204, 204},
		{del, devicePath + "/session", "", 403, 204, 403, 204},
		{post, commands, `{"type":"mcp","payload":{"method":"tools/list"}}`, 200, 403, 403, 200},
		{post, commands, `{"type":"mcp","payload":{"method":"initialize"}}`, 403, 403, 200, 200}, // it moves the camera's pictures
		{post, commands, command("self.audio_speaker.set_volume"), 403, 200, 403, 200},
		{post, commands, command("self.reboot"), 403, 403, 200, 200},
		{post, "/api/devices/status", `{"clientIds":[]}`, 200, 403, 403, 200},
	} {
		for token, want := range map[string]int{reader: c.read, operator: c.control, admin: c.admin, all: c.all} {
			r := w.do(c.method, c.path, token, c.body)
			if r.status != want {
				t.Errorf("%s %s with %s: %d %s", c.method, c.path, token, r.status, r.body)
			}
			if asked := w.fleet.requests(); want >= 400 && len(asked) > 0 {
				t.Errorf("%s %s with %s asked %q", c.method, c.path, token, asked)
			}
			if challenge := r.header.Get("WWW-Authenticate"); want == 403 && strings.HasPrefix(c.path, "/api/v1") && !strings.Contains(challenge, "insufficient_scope") {
				t.Errorf("%s %s with %s: challenge %q", c.method, c.path, token, challenge)
			}
		}
	}
	if s := w.api.Stats(); s.Forbidden == 0 {
		t.Errorf("%+v", s)
	}
}

func TestUndecidedToolsNeedNoGuess(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	w.fleet.set(func(f *fakeFleet) { f.tools = nil })
	// As long as the device has not told which tools are for people only, only
	// who may call any is let through.
	if r := w.do(post, devicePath+"/tools/self.reboot", operator, ""); r.status != 503 || r.code() != "tools_unknown" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if r := w.do(post, devicePath+"/tools/self.reboot", all, ""); r.status != 200 {
		t.Errorf("%d %s", r.status, r.body)
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	for header, want := range map[string]string{
		"":                               "token_required",
		"Bearer":                         "token_required",
		"Basic " + reader:                "token_required",
		reader:                           "token_required",
		"Bearer " + reader + "x":         "token_refused",
		"Bearer " + reader[:16]:          "token_refused",
		"Bearer " + reader + " " + admin: "token_refused",
		"bearer " + reader:               "",
		"Bearer  " + reader:              "",
	} {
		r := w.do(get, "/api/v1/devices", "", "", "Authorization", header)
		if r.code() != want || want != "" && (r.status != 401 || !strings.HasPrefix(r.header.Get("WWW-Authenticate"), `Bearer realm="parley"`)) {
			t.Errorf("%q: %d %s", header, r.status, r.body)
		}
	}
	// A token in the address would stand in logs of proxies.
	if r := w.do(get, "/api/v1/devices?access_token="+reader, "", ""); r.status != 401 {
		t.Errorf("%d %s", r.status, r.body)
	}
	for _, line := range w.log.take(t) {
		if line["msg"] != "api token refused" || line["source"] != "127.0.0.1" {
			t.Errorf("logged %v", line)
		}
	}
}

func TestWithoutTokensNothingWorks(t *testing.T) {
	w := newWorld(t, api.Config{})
	for _, c := range [][2]string{{get, "/api/v1/devices"}, {post, devicePath + "/reboot"}, {post, "/mcp"}, {get, "/api/openapi.json"}, {get, "/api/v1/events"}} {
		for _, token := range []string{"", all} {
			if r := w.do(c[0], c[1], token, ""); r.status != 403 || r.code() != "api_off" || r.json["remedy"] == "" {
				t.Errorf("%s %s: %d %s", c[0], c[1], r.status, r.body)
			}
		}
	}
	if r := w.do(post, "/api/devices/status", all, `{"clientIds":[]}`); r.status != 404 || r.code() != "gateway_off" {
		t.Errorf("%d %s", r.status, r.body)
	}
	if asked := w.fleet.requests(); len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
}

func TestGuessingIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newVirtual(t, api.Config{Tokens: tokens()})
		ask := func(token string) int { return w.do(get, "/api/v1/devices", token, "").status }
		for i := range 10 {
			if got := ask("wrong"); got != 401 {
				t.Fatalf("attempt %d: %d", i, got)
			}
		}
		// The right token is no exception, or the limit would not limit.
		if wrong, right, none := ask("wrong"), ask(reader), ask(""); wrong != 429 || right != 429 || none != 401 {
			t.Errorf("wrong %d, right %d, none %d", wrong, right, none)
		}
		time.Sleep(6*time.Second - time.Nanosecond)
		if got := ask(reader); got != 429 {
			t.Errorf("a moment early: %d", got)
		}
		time.Sleep(time.Nanosecond)
		if right, wrong, again := ask(reader), ask("wrong"), ask("wrong"); right != 200 || wrong != 401 || again != 429 {
			t.Errorf("after 6 s: %d, %d, %d", right, wrong, again)
		}
		if s := w.api.Stats(); s.Limited != 4 || s.Refused != 12 {
			t.Errorf("%+v", s)
		}
	})
}

// request asks without a socket, from any address.
func request(w *world, remote, token string, headers ...string) int {
	r := httptest.NewRequest(get, "/api/v1/devices", nil)
	r.RemoteAddr = remote
	r.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	return rec.Code
}

func TestLimitsAreBySource(t *testing.T) {
	w := newAPI(t, api.Config{Tokens: tokens()})
	exhaust := func(remote string, headers ...string) {
		for range 10 {
			request(w, remote, "wrong", headers...)
		}
	}
	exhaust("203.0.113.5:1")
	exhaust("[2001:db8:1:2::5]:1")
	exhaust("127.0.0.1:1", "X-Forwarded-For", "10.9.9.9, 198.51.100.7")
	for remote, want := range map[string]int{
		"203.0.113.5:2": 429, "[::ffff:203.0.113.5]:2": 429, "203.0.113.6:1": 200,
		"[2001:db8:1:2:ffff::1]:9": 429, "[2001:db8:1:3::5]:1": 200,
		"127.0.0.1:1": 200, "198.51.100.7:1": 429, "10.9.9.9:1": 200,
	} {
		if got := request(w, remote, reader); got != want {
			t.Errorf("%s: %d", remote, got)
		}
	}
	// Who is not on this machine cannot pass for somebody else.
	if got := request(w, "203.0.113.5:2", reader, "X-Forwarded-For", "192.0.2.1"); got != 429 {
		t.Errorf("with a forged header: %d", got)
	}
	for _, hops := range []string{"198.51.100.7", "192.0.2.9, 198.51.100.7"} {
		if got := request(w, "127.0.0.1:5", reader, "X-Forwarded-For", hops); got != 429 {
			t.Errorf("through a proxy, %s: %d", hops, got)
		}
	}
}

func TestRememberedSourcesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newAPI(t, api.Config{Tokens: tokens()})
		for i := range api.MaxSources + 100 {
			remote := "10." + strings.Join([]string{strconv.Itoa(i >> 16), strconv.Itoa(i >> 8 & 0xff), strconv.Itoa(i & 0xff)}, ".") + ":1"
			request(w, remote, "wrong")
		}
		if n := w.api.Sources(); n != api.MaxSources {
			t.Errorf("%d sources are remembered", n)
		}
		time.Sleep(6 * time.Second) // all allowances are full again
		request(w, "10.1.1.1:1", "wrong")
		if n := w.api.Sources(); n != 1 {
			t.Errorf("%d sources are remembered after a pause", n)
		}
	})
}

func TestPagesOfOtherOriginsAreRefused(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	for _, headers := range [][]string{
		{"Origin", "https://evil.example"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	} {
		r := w.do(post, devicePath+"/say", all, `{"text":"a"}`, headers...)
		if r.status != 403 || r.code() != "origin_refused" {
			t.Errorf("%v: %d %s", headers, r.status, r.body)
		}
	}
	if r := w.do(post, devicePath+"/say", all, `{"text":"a"}`, "Origin", w.url); r.status != http.StatusOK {
		t.Errorf("same origin: %d %s", r.status, r.body)
	}
}

func TestConfigIsChecked(t *testing.T) {
	good := tokens()[0]
	with := func(change func(*api.Token)) []api.Token { tk := good; change(&tk); return []api.Token{tk} }
	const short = "fifteen-bytes-0"
	for what, cfg := range map[string]api.Config{
		"no name":                {Tokens: with(func(t *api.Token) { t.Name = "" })},
		"at most 64 bytes":       {Tokens: with(func(t *api.Token) { t.Name = strings.Repeat("x", 65) })},
		"15 bytes":               {Tokens: with(func(t *api.Token) { t.Secret = short })},
		"cannot be sent":         {Tokens: with(func(t *api.Token) { t.Secret = "sixteen bytes !!" })},
		"no scopes":              {Tokens: with(func(t *api.Token) { t.Scopes = nil })},
		`"write" is no scope`:    {Tokens: with(func(t *api.Token) { t.Scopes = []api.Scope{"write"} })},
		"the name is taken":      {Tokens: []api.Token{good, {Name: good.Name, Secret: admin, Scopes: good.Scopes}}},
		"the same secret":        {Tokens: []api.Token{good, {Name: "b", Secret: good.Secret, Scopes: good.Scopes}}},
		"at least 8 bytes long;": {Gateway: true, GatewayKey: "Short17"},
	} {
		_, err := api.New(cfg, newFleet(), nil)
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, secret := range []string{good.Secret, short, "Short17", "sixteen bytes"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the error repeats a secret: %v", err)
			}
		}
	}
}
