package ota

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
)

const (
	mac  = "a0:85:e3:f4:49:34"
	uuid = "0f7c4a52-5b1c-4d63-9a64-6f5d2f6f3a11"
)

var key = []byte("a signing key of tests")

func testConfig() Config {
	return Config{MQTTPort: 1883, UDPPort: 8884, Key: key, Keepalive: 2 * time.Minute, Location: time.UTC}
}

// deviceRequest is what firmware sends, from a private address.
func deviceRequest(body string) *http.Request {
	r := httptest.NewRequest("POST", "http://192.168.1.10:8003"+Path, strings.NewReader(body))
	r.RemoteAddr = "192.168.1.57:50123"
	r.Header.Set("Device-Id", mac)
	r.Header.Set("Client-Id", uuid)
	r.Header.Set("User-Agent", "bread-compact-wifi/2.4.2")
	r.Header.Set("Activation-Version", "1")
	r.Header.Set("Content-Type", "application/json")
	return r
}

func serve(cfg Config, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	New(cfg, slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
	return w
}

// decode reads the answer to a device as firmware does, and fails on anything
// that some version of it would not survive.
func decode(t *testing.T, w *httptest.ResponseRecorder) answer {
	t.Helper()
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	if got, want := w.Header().Get("Content-Length"), strconv.Itoa(w.Body.Len()); got != want {
		t.Errorf("Content-Length %q, want %q", got, want)
	}
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	surviveOrFail(t, w.Body.Bytes())
	var a answer
	d := json.NewDecoder(bytes.NewReader(w.Body.Bytes()))
	d.DisallowUnknownFields()
	if err := d.Decode(&a); err != nil {
		t.Fatalf("%v in %s", err, w.Body)
	}
	return a
}

// surviveOrFail applies the rules that make devices restart for ever when they
// are broken.
func surviveOrFail(t *testing.T, body []byte) {
	t.Helper()
	var sections map[string]map[string]any
	if err := json.Unmarshal(body, &sections); err != nil {
		t.Fatalf("not an object of objects: %v in %s", err, body)
	}
	if _, ok := sections["activation"]; ok {
		t.Error("an activation section keeps clients from going on")
	}
	for name, section := range sections {
		if section == nil {
			t.Errorf("section %s is null", name)
		}
	}
	if sections["firmware"] == nil || sections["server_time"] == nil {
		t.Errorf("no firmware or server_time in %s", body)
	}
	for k, v := range sections["mqtt"] {
		if len(k) > 15 {
			t.Errorf("member mqtt.%s is no NVS key: longer than 15", k)
		}
		if s, ok := v.(string); ok && (len(s) >= 4000 || s == "") {
			t.Errorf("member mqtt.%s has %d bytes", k, len(s))
		}
	}
	if m := sections["mqtt"]; m != nil {
		if _, port, has := strings.Cut(m["endpoint"].(string), ":"); has {
			if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
				t.Errorf("endpoint %q: std::stoi throws", m["endpoint"])
			}
		}
		if _, ok := m["keepalive"].(float64); !ok {
			t.Errorf("keepalive is a %T", m["keepalive"])
		}
	}
	for number := range strings.SplitSeq(sections["firmware"]["version"].(string), ".") {
		if n, err := strconv.ParseInt(number, 10, 32); err != nil || n < 0 {
			t.Errorf("firmware version %q: std::stoi throws", sections["firmware"]["version"])
		}
	}
	if sections["firmware"]["url"] != "" {
		t.Errorf("firmware url %q", sections["firmware"]["url"])
	}
}

func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Location = time.FixedZone("", 8*3600)
		a := decode(t, serve(cfg, deviceRequest(`{"version":2}`)))
		username := protocol.Enrolment{Host: "192.168.1.10", Agent: "bread-compact-wifi/2.4.2", IP: "192.168.1.57"}.Username()
		client := "GID_parley@@@a0_85_e3_f4_49_34@@@" + uuid
		want := mqttSection{
			Endpoint: "192.168.1.10:1883", ClientID: client, Username: username,
			Password:     protocol.Password(key, client, username),
			PublishTopic: "device-server/a0_85_e3_f4_49_34", SubscribeTopic: "null", Keepalive: 120,
		}
		if *a.MQTT != want {
			t.Errorf("mqtt\n%+v\nwant\n%+v", *a.MQTT, want)
		}
		if want := (serverTime{time.Now().UnixMilli(), 480}); a.ServerTime != want {
			t.Errorf("server_time %+v, want %+v", a.ServerTime, want)
		}
		if want := (firmwareSection{"2.4.2", ""}); a.Firmware != want {
			t.Errorf("firmware %+v, want %+v", a.Firmware, want)
		}
	})
}

func TestCredentialsAreAccepted(t *testing.T) {
	m := decode(t, serve(testConfig(), deviceRequest(""))).MQTT
	id, err := protocol.ParseClientID(m.ClientID)
	if err != nil || id.Device != mac || id.UUID != uuid {
		t.Errorf("client id %q: %+v, %v", m.ClientID, id, err)
	}
	e, err := protocol.ParseUsername(m.Username)
	if err != nil || e.Host != "192.168.1.10" || e.Agent != "bread-compact-wifi/2.4.2" {
		t.Errorf("user name: %+v, %v", e, err)
	}
	if !protocol.VerifyPassword(key, m.ClientID, m.Username, m.Password) {
		t.Error("the password does not verify")
	}
	other := strings.Replace(m.ClientID, "a0_85", "a0_86", 1)
	if protocol.VerifyPassword(key, other, m.Username, m.Password) {
		t.Error("the password is good for another device")
	}
}

func TestUnsigned(t *testing.T) {
	cfg := testConfig()
	cfg.Key = nil
	if m := decode(t, serve(cfg, deviceRequest(""))).MQTT; m.Password != unsigned {
		t.Errorf("password without a key: %q", m.Password)
	}
}

func TestEndpoint(t *testing.T) {
	ipv4 := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 8003}
	ipv6 := &net.TCPAddr{IP: net.ParseIP("fd00::1"), Port: 8003}
	tests := map[string]struct {
		host, configured, agent string
		local                   net.Addr
		want                    string // "" for an answer without one
	}{
		"address and port":       {host: "192.168.1.10:8003", want: "192.168.1.10:1883"},
		"address alone":          {host: "192.168.1.10", want: "192.168.1.10:1883"},
		"name":                   {host: "Voice.Example.org:8003", want: "voice.example.org:1883"},
		"configured":             {host: "192.168.1.10", configured: "voice.example.org:8883", want: "voice.example.org:8883"},
		"IPv6 host, IPv4 socket": {host: "[fd00::1]:8003", local: ipv4, want: "10.1.2.3:1883"},
		"IPv6 host alone":        {host: "[fd00::1]", local: ipv4, want: "10.1.2.3:1883"},
		"IPv6 all the way":       {host: "[fd00::1]:8003", local: ipv6},
		"IPv6 and configured":    {host: "[fd00::1]:8003", local: ipv6, configured: "10.0.0.1:1883", want: "10.0.0.1:1883"},
		"a host that is none":    {host: "a b/../c", local: ipv4, want: "10.1.2.3:1883"},
		"firmware 1.6.0":         {host: "192.168.1.10", agent: "x/1.6.0", want: "192.168.1.10"},
		"firmware 1.5":           {host: "192.168.1.10", configured: "voice.example.org:8883", agent: "x/1.5", want: "voice.example.org"},
		"firmware 1.6.2":         {host: "192.168.1.10", agent: "x/1.6.2", want: "192.168.1.10:1883"},
		"firmware 0.9.9":         {host: "192.168.1.10", agent: "x/0.9.9", want: "192.168.1.10"},
		"firmware nobody knows":  {host: "192.168.1.10", agent: "strange", want: "192.168.1.10:1883"},
		"firmware 1.10.0":        {host: "192.168.1.10", agent: "x/1.10.0", want: "192.168.1.10:1883"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := deviceRequest("")
			r.Host = tt.host
			if tt.agent != "" {
				r.Header.Set("User-Agent", tt.agent)
			}
			if tt.local != nil {
				r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, tt.local))
			}
			cfg := testConfig()
			cfg.Endpoint = tt.configured
			a := decode(t, serve(cfg, r))
			got := ""
			if a.MQTT != nil {
				got = a.MQTT.Endpoint
			}
			if got != tt.want {
				t.Errorf("endpoint %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFirmwareVersion(t *testing.T) {
	tests := []struct{ agent, body, want string }{
		{"board/2.4.2", "", "2.4.2"},
		{"board/v1.2.3", "", "1.2.3"},
		{"board/1.2.3-beta", "", "1.2.3"},
		{"board/1..2", "", "1"},
		{"board/1.", "", "1"},
		{"board/99999999999.1", "", "0.0.0"},
		{"board/1.99999999999", "", "1"},
		{"board/1.2.3.4.5.6", "", "1.2.3.4"},
		{"board/1.2.3 extra", "", "1.2.3"},
		{"board/", `{"application":{"version":"2.0.1"}}`, "2.0.1"},
		{"", `{"application":{"version":"v2.0"}}`, "2.0"},
		{"", `{"application":{"version":7}}`, "0.0.0"},
		{"", "", "0.0.0"},
	}
	for _, tt := range tests {
		r := deviceRequest(tt.body)
		r.Header.Set("User-Agent", tt.agent)
		if got := decode(t, serve(testConfig(), r)).Firmware.Version; got != tt.want {
			t.Errorf("agent %q, body %q: version %q, want %q", tt.agent, tt.body, got, tt.want)
		}
	}
}

// TestBodyIsNoReason: firmware puts network names into the body unescaped.
func TestBodyIsNoReason(t *testing.T) {
	for name, body := range map[string]string{
		"none":          "",
		"broken":        `{"board":{"ssid":"my "home" \ network"}}`,
		"another shape": `[1,2,3]`,
		"null":          `null`,
		"endless":       `{"a":"` + strings.Repeat("x", 3*MaxBody) + `"}`,
		"binary":        "\x00\xff\xfe",
	} {
		if a := decode(t, serve(testConfig(), deviceRequest(body))); a.MQTT == nil {
			t.Errorf("%s body: no credentials", name)
		}
	}
}

func TestDeviceID(t *testing.T) {
	for given, accepted := range map[string]bool{
		mac: true, "A0:85:E3:F4:49:34": true, "a0-85-e3-f4-49-34": true,
		"": false, "a0:85:e3:f4:49": false, "a0:85:e3:f4:49:3g": false, "../../etc": false,
	} {
		r := deviceRequest("")
		r.Header.Set("Device-Id", given)
		w := serve(testConfig(), r)
		if accepted {
			if got := decode(t, w).MQTT.PublishTopic; got != "device-server/a0_85_e3_f4_49_34" {
				t.Errorf("Device-Id %q: topic %q", given, got)
			}
			continue
		}
		var body struct{ Error string }
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil || w.Code != 400 || !strings.Contains(body.Error, "header Device-Id") {
			t.Errorf("Device-Id %q: status %d, %s", given, w.Code, w.Body)
		}
	}
	r := deviceRequest("")
	r.Header.Del("Device-Id")
	if w := serve(testConfig(), r); w.Code != 400 {
		t.Errorf("no Device-Id: status %d", w.Code)
	}
}

func TestClientID(t *testing.T) {
	for given, want := range map[string]string{
		uuid:                    uuid,
		"":                      "a0_85_e3_f4_49_34",
		"@@@":                   "a0_85_e3_f4_49_34",
		"x@@@y/#+ z":            "xyz",
		strings.Repeat("a", 99): strings.Repeat("a", 64),
	} {
		r := deviceRequest("")
		r.Header.Set("Client-Id", given)
		id, err := protocol.ParseClientID(decode(t, serve(testConfig(), r)).MQTT.ClientID)
		if err != nil || id.UUID != want || id.Device != mac {
			t.Errorf("Client-Id %q: %+v, %v; want %q", given, id, err, want)
		}
	}
}

func TestWhoIsAnswered(t *testing.T) {
	type h = map[string]string
	tests := map[string]struct {
		from   string
		header h
		public bool
		keyed  bool
		want   bool
	}{
		"loopback":                          {from: "127.0.0.1:1", want: true},
		"RFC 1918":                          {from: "172.20.1.1:1", want: true},
		"unique local":                      {from: "[fd12::1]:1", want: true},
		"link-local with a zone":            {from: "[fe80::1%eth0]:1", want: true},
		"mapped":                            {from: "[::ffff:10.0.0.1]:1", want: true},
		"shared":                            {from: "100.100.1.1:1", want: true},
		"next to shared":                    {from: "100.128.0.1:1", keyed: true},
		"public":                            {from: "203.0.113.9:1", keyed: true},
		"public IPv6":                       {from: "[2001:db8::1]:1", keyed: true},
		"public, allowed":                   {from: "203.0.113.9:1", public: true, keyed: true, want: true},
		"public, allowed, without a key":    {from: "203.0.113.9:1", public: true},
		"no address":                        {from: "@", keyed: true},
		"proxy for a private one":           {from: "10.0.0.1:1", header: h{"X-Forwarded-For": "192.168.1.2"}, want: true},
		"proxy for a public one":            {from: "10.0.0.1:1", header: h{"X-Forwarded-For": "203.0.113.9"}, keyed: true},
		"proxy for a public one, then more": {from: "10.0.0.1:1", header: h{"X-Forwarded-For": "203.0.113.9, 10.0.0.2"}, keyed: true},
		"forged before the real one":        {from: "10.0.0.1:1", header: h{"X-Forwarded-For": "10.0.0.9, 203.0.113.9"}, keyed: true},
		"public with a private claim":       {from: "203.0.113.9:1", header: h{"X-Forwarded-For": "10.0.0.9"}, keyed: true},
		"rubbish claim":                     {from: "10.0.0.1:1", header: h{"X-Forwarded-For": "unknown"}, keyed: true},
		"real ip":                           {from: "10.0.0.1:1", header: h{"X-Real-Ip": "203.0.113.9"}, keyed: true},
		"forwarded":                         {from: "10.0.0.1:1", header: h{"Forwarded": "for=_hidden"}, keyed: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := deviceRequest("")
			r.RemoteAddr = tt.from
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
			cfg := testConfig()
			cfg.Public = tt.public
			if !tt.keyed {
				cfg.Key = nil
			}
			w := serve(cfg, r)
			if got := w.Code == 200; got != tt.want {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
			if !tt.want && (w.Code != 403 || bytes.Contains(w.Body.Bytes(), []byte("GID_"))) {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		})
	}
}

func TestPrivate(t *testing.T) {
	h := Private(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for from, want := range map[string]int{"10.0.0.1:1": http.StatusTeapot, "203.0.113.9:1": http.StatusForbidden} {
		r := httptest.NewRequest("GET", "/metrics", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: status %d, want %d", from, w.Code, want)
		}
	}
}

func TestAddressOfTheRequestIsRecorded(t *testing.T) {
	r := deviceRequest("")
	r.RemoteAddr = "10.0.0.1:1"
	r.Header.Set("X-Forwarded-For", "203.0.113.9, 10.0.0.2")
	cfg := testConfig()
	cfg.Public = true
	e, err := protocol.ParseUsername(decode(t, serve(cfg, r)).MQTT.Username)
	if err != nil || e.IP != "203.0.113.9" {
		t.Errorf("enrolment %+v, %v", e, err)
	}
}

// TestOverHTTP goes through a real server: the path without a slash must not
// redirect, a GET with a Device-Id is a device.
func TestOverHTTP(t *testing.T) {
	server := httptest.NewServer(New(testConfig(), slog.New(slog.DiscardHandler)))
	defer server.Close()
	client := server.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	defer client.CloseIdleConnections()
	tests := []struct {
		method, path, device string
		status               int
		kind                 string
	}{
		{"POST", "/xiaozhi/ota/", mac, 200, "application/json"},
		{"POST", "/xiaozhi/ota", mac, 200, "application/json"},
		{"GET", "/xiaozhi/ota/", mac, 200, "application/json"},
		{"GET", "/xiaozhi/ota/", "", 200, "text/html; charset=utf-8"},
		{"GET", "/xiaozhi/ota", "", 200, "text/html; charset=utf-8"},
		{"HEAD", "/xiaozhi/ota/", "", 200, "text/html; charset=utf-8"},
		{"PUT", "/xiaozhi/ota/", mac, 405, "application/json"},
		{"POST", "/xiaozhi/ota/", "", 400, "application/json"},
		{"POST", "/xiaozhi/ota/activate", mac, 200, "application/json"},
		{"GET", "/healthz", "", 200, "application/json"},
		{"GET", "/readyz", "", 200, "application/json"},
		{"GET", "/", "", 302, "text/html; charset=utf-8"},
		{"GET", "/elsewhere", "", 404, "text/plain; charset=utf-8"},
	}
	for _, tt := range tests {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL+tt.path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if tt.device != "" {
			r.Header.Set("Device-Id", tt.device)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != tt.kind {
			t.Errorf("%s %s: %d %s, %v; want %d %s", tt.method, tt.path, resp.StatusCode, resp.Header.Get("Content-Type"), err, tt.status, tt.kind)
		}
		if tt.method == "POST" && tt.status == 200 && (resp.ContentLength <= 0 || resp.ContentLength != int64(len(body))) {
			t.Errorf("%s %s: Content-Length %d for %d bytes", tt.method, tt.path, resp.ContentLength, len(body))
		}
	}
}

func TestReadiness(t *testing.T) {
	status := Status{}
	checks := []Check{{Name: "mqtt"}, {Name: "udp"}}
	cfg := testConfig()
	cfg.Status = func() Status { return status }
	cfg.Checks = func(ctx context.Context) []Check {
		if _, bounded := ctx.Deadline(); !bounded {
			t.Error("checks have no time limit")
		}
		return checks
	}
	get := func() (int, string) {
		w := serve(cfg, httptest.NewRequest("GET", "/readyz", nil))
		return w.Code, w.Body.String()
	}
	if code, body := get(); code != 200 || body != `{"ready":true,"draining":false,"checks":[{"name":"mqtt","ok":true},{"name":"udp","ok":true}]}` {
		t.Errorf("all well: %d %s", code, body)
	}
	checks[1].Err = errors.New("socket is closed")
	if code, body := get(); code != 503 || !strings.Contains(body, `{"name":"udp","ok":false,"error":"socket is closed"}`) {
		t.Errorf("a check fails: %d %s", code, body)
	}
	checks[1].Err, status.Draining = nil, true
	if code, body := get(); code != 503 || !strings.Contains(body, `"draining":true`) {
		t.Errorf("draining: %d %s", code, body)
	}
	if w := serve(cfg, httptest.NewRequest("GET", "/healthz", nil)); w.Code != 200 {
		t.Errorf("healthz while draining: %d", w.Code)
	}
}

func TestPage(t *testing.T) {
	cfg := testConfig()
	cfg.Status = func() Status { return Status{Devices: 4711, Sessions: 42} }
	get := func(host, from string) string {
		r := httptest.NewRequest("GET", "http://"+host+Path, nil)
		r.RemoteAddr = from
		w := serve(cfg, r)
		if w.Code != 200 {
			t.Fatalf("status %d", w.Code)
		}
		return w.Body.String()
	}
	if page := get("[fd00::1]:8003", "192.168.1.2:1"); strings.Contains(page, "http://[") {
		t.Error("the page tells people to type an IPv6 address into a device")
	}
	if page := get("voice.example.org", "192.168.1.2:1"); !strings.Contains(page, ">http://voice.example.org/xiaozhi/ota/<") {
		t.Error("the page lacks the address of a server on port 80")
	}
	page := get("192.168.1.10:8003", "192.168.1.2:1")
	for _, want := range []string{"http://192.168.1.10:8003/xiaozhi/ota/", "192.168.1.10:1883", "8884", "4711", "42"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, foreign := range []string{"<script", "<link", "<img", "src=", "@import", "url("} {
		if strings.Contains(page, foreign) {
			t.Errorf("the page has %q: it is to load nothing", foreign)
		}
	}
	if strings.Contains(get("voice.example.org", "203.0.113.9:1"), "4711") {
		t.Error("the page shows the state to strangers")
	}
	if page = get("localhost:8003", "127.0.0.1:1"); strings.Contains(page, "http://localhost") {
		t.Error("the page tells people to type localhost into a device")
	}
	r := httptest.NewRequest("GET", Path, nil)
	r.Host = `x"><script>alert(1)</script>`
	if w := serve(cfg, r); strings.Contains(w.Body.String(), "<script") {
		t.Error("the page repeats the Host header as HTML")
	}
}

func TestStatsAndLog(t *testing.T) {
	var log bytes.Buffer
	cfg := testConfig()
	h := New(cfg, slog.New(slog.NewTextHandler(&log, nil)))
	send := func(change func(*http.Request)) string {
		r := deviceRequest("")
		change(r)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Body.String()
	}
	var a answer
	if err := json.Unmarshal([]byte(send(func(*http.Request) {})), &a); err != nil {
		t.Fatal(err)
	}
	send(func(r *http.Request) { r.Host = "[fd00::1]" })
	send(func(r *http.Request) { r.Header.Set("Device-Id", "x") })
	for range 1000 {
		send(func(r *http.Request) { r.RemoteAddr = "203.0.113.9:1" })
	}
	if got, want := h.Stats(), (Stats{Enrolled: 1, Homeless: 1, Refused: 1000, Invalid: 1}); got != want {
		t.Errorf("Stats() = %+v, want %+v", got, want)
	}
	if n := strings.Count(log.String(), "\n"); n > 10 {
		t.Errorf("a thousand refusals wrote %d lines", n)
	}
	if strings.Contains(log.String(), string(key)) || strings.Contains(log.String(), a.MQTT.Password) {
		t.Error("the log has a secret")
	}
	if !strings.Contains(log.String(), "device="+mac) {
		t.Error("the log does not say which device asked")
	}
}

func FuzzBootstrap(f *testing.F) {
	f.Add(mac, uuid, "board/1.6.0", "192.168.1.10:8003", "", `{"application":{"version":"2.4.2"}}`)
	f.Add(mac, "", "board/v1.2.3-beta", "[fd00::1]:8003", "10.0.0.1, 203.0.113.9", `{"ssid":"a"b"}`)
	f.Add("A0-85-E3-F4-49-34", "@@@", "x/1..2", "mqtt://h:x", "unknown", "null")
	h := New(testConfig(), slog.New(slog.DiscardHandler))
	f.Fuzz(func(t *testing.T, deviceID, client, agent, host, via, body string) {
		r := deviceRequest(body)
		r.Host = host
		r.Header["Device-Id"] = []string{deviceID}
		r.Header["Client-Id"] = []string{client}
		r.Header["User-Agent"] = []string{agent}
		if via != "" {
			r.Header["X-Forwarded-For"] = []string{via}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !json.Valid(w.Body.Bytes()) {
			t.Fatalf("no JSON: %q", w.Body)
		}
		if w.Code != http.StatusOK {
			return
		}
		if m := decode(t, w).MQTT; m != nil {
			if !protocol.VerifyPassword(key, m.ClientID, m.Username, m.Password) {
				t.Error("the password does not verify")
			}
			if n := len(m.ClientID) + len(m.Username) + len(m.Password); n > 900 {
				t.Errorf("credentials of %d bytes do not fit a CONNECT of 1 KiB", n)
			}
			if _, err := protocol.ParseUsername(m.Username); err != nil {
				t.Error(err)
			}
		}
		page := httptest.NewRecorder()
		r.Method = http.MethodGet
		delete(r.Header, "Device-Id")
		h.ServeHTTP(page, r)
		if page.Code != http.StatusOK {
			t.Errorf("page: status %d", page.Code)
		}
	})
}

func BenchmarkBootstrap(b *testing.B) {
	h := New(testConfig(), slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(httptest.NewRecorder(), deviceRequest(""))
	}
}
