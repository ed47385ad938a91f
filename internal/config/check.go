package config

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A checker reports values out of bounds. Why a bound is where it is stands
// beside it.
type checker struct{ *report }

func keys(names ...string) path {
	var p path
	for _, k := range names {
		p = p.key(k)
	}
	return p
}

func (k checker) all(c *Config) {
	k.choice(keys("log", "level"), c.Log.Level, "debug", "info", "warn", "error")
	k.choice(keys("log", "format"), c.Log.Format, "text", "json")
	k.mqtt(&c.MQTT)
	k.network(c)
	k.session(&c.Session)
	k.speech(&c.Speech)
	k.limits(&c.Limits)
	k.record(&c.Record)
	k.tools(c)
	for _, name := range slices.Sorted(maps.Keys(c.ASR)) {
		k.asr(keys("asr", name), c.ASR[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.LLM)) {
		k.llm(keys("llm", name), c.LLM[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.TTS)) {
		k.tts(keys("tts", name), c.TTS[name])
	}
	for _, name := range slices.Sorted(maps.Keys(c.Role)) {
		k.role(keys("role", name), c.Role[name])
	}
}

// minKey is the shortest key that may sign credentials, in bytes: what the
// console of the Node gateway's project asks for, so that its keys can be kept.
const minKey = 8

func (k checker) mqtt(m *MQTT) {
	k.listen(keys("mqtt", "listen"), m.Listen)
	k.listen(keys("mqtt", "tls_listen"), m.TLSListen)
	if (m.TLSCertificate == "") != (m.TLSKey == "") {
		k.add(keys("mqtt", "tls_certificate"), "certificate and key come together",
			"set both tls_certificate and tls_key, or neither")
	}
	k.readable(keys("mqtt", "tls_certificate"), m.TLSCertificate)
	k.readable(keys("mqtt", "tls_key"), m.TLSKey)
	if n := len(m.Key.Reveal()); n > 0 && n < minKey {
		k.add(keys("mqtt", "key"), fmt.Sprintf("has %d bytes", n),
			fmt.Sprintf("use at least %d; 'openssl rand -base64 32' prints a good one", minKey))
	}
	k.span(keys("mqtt", "connect_timeout"), m.ConnectTimeout, 100*time.Millisecond, time.Minute)
	k.number(keys("mqtt", "max_packet"), m.MaxPacket, 8<<10, 16<<20) // a page of tools alone is 8 KB
	k.number(keys("mqtt", "max_clients"), m.MaxClients, 1, 1_000_000)
	k.rate(keys("mqtt", "connect_rate"), m.ConnectRate)
	k.number(keys("mqtt", "connect_burst"), m.ConnectBurst, 1, 1_000_000)
	k.rate(keys("mqtt", "message_rate"), m.MessageRate)
	k.number(keys("mqtt", "message_burst"), m.MessageBurst, 1, 1_000_000)
	k.span(keys("mqtt", "keepalive"), m.Keepalive, 10*time.Second, 10*time.Minute)
	if m.Keepalive%time.Second != 0 {
		k.add(keys("mqtt", "keepalive"), "is "+formatDuration(m.Keepalive), "give whole seconds: MQTT counts in them")
	}
}

func (k checker) network(c *Config) {
	k.listen(keys("udp", "listen"), c.UDP.Listen)
	k.listen(keys("http", "listen"), c.HTTP.Listen)
	if a := c.UDP.Address; a != "" && !isHost(a) {
		k.add(keys("udp", "address"), fmt.Sprintf("%q is no host name or IPv4 address", a),
			`give one without a port, such as "voice.example.org" or "192.168.1.10": devices know no IPv6`)
	}
	k.number(keys("udp", "port"), c.UDP.Port, 0, 65535)
	if e := c.OTA.MQTTEndpoint; e != "" {
		host, port, err := net.SplitHostPort(e)
		if n, numeric := strconv.Atoi(port); err != nil || !isHost(host) || numeric != nil || n < 1 || n > 65535 {
			k.add(keys("ota", "mqtt_endpoint"), fmt.Sprintf("%q is no host:port", e),
				`give a host name or IPv4 address and a port, such as "voice.example.org:8883", without mqtt://: a device restarts for ever on anything else`)
		}
	}
	if _, err := c.OTA.Location(); err != nil {
		k.add(keys("ota", "timezone"), fmt.Sprintf("%q is no time zone", c.OTA.Timezone),
			`give minutes east of UTC, such as "480", or a name, such as "Asia/Shanghai"`)
	}
	if c.OTA.Public && c.MQTT.Key.source() == "" {
		k.add(keys("ota", "public"), "would enrol anybody's devices without a password", "set mqtt.key too")
	}
	k.distinct(c)
}

// distinct reports two TCP listeners on one address.
func (k checker) distinct(c *Config) {
	type listener struct {
		at      path
		address string
	}
	listeners := []listener{{keys("mqtt", "listen"), c.MQTT.Listen}, {keys("http", "listen"), c.HTTP.Listen}}
	if c.MQTT.TLSCertificate != "" {
		listeners = append(listeners, listener{keys("mqtt", "tls_listen"), c.MQTT.TLSListen})
	}
	taken := map[string]path{}
	for _, l := range listeners {
		if strings.HasSuffix(l.address, ":0") { // any free port
			continue
		}
		if other, ok := taken[l.address]; ok {
			k.add(l.at, fmt.Sprintf("%q is the address of %s, too", l.address, other), "give one of them another port")
			continue
		}
		taken[l.address] = l.at
	}
}

func (k checker) session(s *Session) {
	k.span(keys("session", "silence_timeout"), s.SilenceTimeout, 5*time.Second, time.Hour)
	k.span(keys("session", "audio_timeout"), s.AudioTimeout, time.Second, time.Minute)
	k.span(keys("session", "drain"), s.Drain, 0, time.Minute)
	k.rate(keys("session", "hello_rate"), s.HelloRate)
	k.number(keys("session", "hello_burst"), s.HelloBurst, 1, 1000)
}

func (k checker) speech(s *Speech) {
	ms := time.Millisecond
	k.span(keys("speech", "lead"), s.Lead, 60*ms, 1800*ms) // one frame, to 30 of the 40 a device queues
	k.span(keys("speech", "start_hold"), s.StartHold, 0, time.Second)
	k.span(keys("speech", "stop_margin"), s.StopMargin, 0, time.Second)
	k.span(keys("speech", "vad_start"), s.VADStart, 20*ms, time.Second)
	k.span(keys("speech", "pre_roll"), s.PreRoll, 0, 2*time.Second)
	k.span(keys("speech", "endpoint_min"), s.EndpointMin, 100*ms, 10*time.Second)
	k.span(keys("speech", "endpoint_max"), s.EndpointMax, s.EndpointMin, 30*time.Second)
	k.span(keys("speech", "barge_in"), s.BargeIn, 60*ms, 5*time.Second)
	k.span(keys("speech", "resume"), s.Resume, 200*ms, 10*time.Second)
	k.span(keys("speech", "max_utterance"), s.MaxUtterance, time.Second, time.Minute)
	k.span(keys("speech", "fill_after"), s.FillAfter, 500*ms, 30*time.Second)
	k.text(keys("speech", "not_understood"), s.NotUnderstood)
	k.text(keys("speech", "apology"), s.Apology)
}

func (k checker) limits(l *Limits) {
	ms := time.Millisecond
	k.span(keys("limits", "connect"), l.Connect, 100*ms, time.Minute)
	k.span(keys("limits", "first"), l.First, 100*ms, 2*time.Minute)
	k.span(keys("limits", "idle"), l.Idle, 100*ms, 5*time.Minute)
	k.span(keys("limits", "tool"), l.Tool, 100*ms, 5*time.Minute)
	k.span(keys("limits", "tool_slow"), l.ToolSlow, l.Tool, 10*time.Minute)
	k.number(keys("limits", "tool_rounds"), l.ToolRounds, 0, 20)
	k.number(keys("limits", "tool_result"), l.ToolResult, 1<<10, 1<<20)
	k.number(keys("limits", "tool_images"), l.ToolImages, 1<<10, 16<<20)
	k.number(keys("limits", "history"), l.History, 2, 1000)
	k.number(keys("limits", "encoders"), l.Encoders, 0, 1024)
}

func (k checker) record(r *Record) {
	k.text(keys("record", "dir"), r.Dir)
	k.span(keys("record", "max_duration"), r.MaxDuration, time.Second, 24*time.Hour)
	k.number(keys("record", "max_total"), r.MaxTotal, 1<<20, 1<<40)
}

func (k checker) role(p path, r Role) {
	k.choice(p.key("engine"), r.Engine, "conversation", "echo")
	for i, glob := range r.ToolsAllow {
		k.glob(p.key("tools_allow").index(i), glob)
	}
	for i, glob := range r.ToolsDeny {
		k.glob(p.key("tools_deny").index(i), glob)
	}
}

func (k checker) glob(p path, glob string) {
	if _, err := filepath.Match(glob, ""); err != nil {
		k.add(p, fmt.Sprintf("%q is no pattern: a bracket is open", glob), `write one such as "self.screen.*"`)
	}
}

func (k checker) number(p path, v, low, high int) {
	if v < low || v > high {
		k.add(p, fmt.Sprintf("is %d", v), fmt.Sprintf("allowed is %d to %d", low, high))
	}
}

// rate checks events a second: more than none, and no more than a limiter can
// tell from no limit.
func (k checker) rate(p path, v float64) {
	if v <= 0 || v > 1e6 {
		k.add(p, fmt.Sprintf("is %g", v), "allowed is more than 0 to 1000000 a second")
	}
}

func (k checker) span(p path, v, low, high time.Duration) {
	if v < low || v > high {
		k.add(p, "is "+formatDuration(v),
			fmt.Sprintf("allowed is %s to %s", formatDuration(low), formatDuration(high)))
	}
}

func (k checker) choice(p path, v string, choices ...string) {
	if slices.Contains(choices, v) {
		return
	}
	remedy := "allowed are " + quotedList(choices)
	if near := nearest(v, choices); near != "" {
		remedy = fmt.Sprintf("did you mean %q?", near)
	}
	k.add(p, fmt.Sprintf("is %q", v), remedy)
}

func (k checker) text(p path, v string) {
	if strings.TrimSpace(v) == "" {
		k.add(p, "is empty", "give some text, or remove the line for the default")
	}
}

func (k checker) readable(p path, name string) {
	if name == "" {
		return
	}
	f, err := os.Open(name)
	if err != nil {
		k.add(p, fmt.Sprintf("%s cannot be read: %v", name, reason(err)), "name a PEM file Parley may read")
		return
	}
	_ = f.Close() // it was only tried
}

func (k checker) listen(p path, v string) {
	host, port, err := net.SplitHostPort(v)
	n, numeric := strconv.Atoi(port)
	_, ip := netip.ParseAddr(host)
	if err != nil || numeric != nil || n < 0 || n > 65535 || host != "" && ip != nil && !isHost(host) {
		k.add(p, fmt.Sprintf("%q is no address to listen on", v),
			`give host:port, such as ":1883" for every address or "127.0.0.1:1883"`)
	}
}

// isHost reports whether s is an IPv4 address or looks like a host name.
func isHost(s string) bool {
	if len(s) > 253 || s == "" || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c != '.' && !isBareByte(c) {
			return false
		}
	}
	if last := s[strings.LastIndexByte(s, '.')+1:]; isNumber(last) { // names do not end in a number
		ip, err := netip.ParseAddr(s)
		return err == nil && ip.Is4()
	}
	return true
}

func isNumber(s string) bool {
	return s != "" && strings.Trim(s, "0123456789") == ""
}
