package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"parley/internal/protocol"
)

const (
	// firmware is the version the doctor reports in its User-Agent.
	firmware = "2.4.2"
	// maxReply bounds what is read of an HTTP reply, in bytes; a device's
	// configuration has under 2 KB.
	maxReply = 64 << 10
	// maxNVSKey is the longest member name of the mqtt section, in characters: it
	// becomes a key of ESP-IDF's NVS.
	maxNVSKey = 15
	// maxClockOff is how far a server's clock may be from ours before certificates
	// and alarms on devices begin to go wrong.
	maxClockOff = 2 * time.Minute
)

// A boot is a device's configuration as the OTA address hands it out.
type boot struct {
	MQTT struct {
		Endpoint     string `json:"endpoint"`
		ClientID     string `json:"client_id"`
		Username     string `json:"username"`
		Password     string `json:"password"`
		PublishTopic string `json:"publish_topic"`
	} `json:"mqtt"`
	Activation *struct {
		Code, Challenge string
	} `json:"activation"`
	ServerTime struct {
		Timestamp float64 `json:"timestamp"` // ms
	} `json:"server_time"`
	Firmware struct {
		Version string  `json:"version"`
		URL     string  `json:"url"`
		Force   float64 `json:"force"`
	} `json:"firmware"`

	members map[string]any // of mqtt
	local   net.IP         // our end of the HTTP connection; nil where unknown
}

// askOTA posts to the OTA address as a device does. host, unless it is "", is
// asked for in place of the address's own.
func askOTA(ctx context.Context, client *http.Client, target, host string, id protocol.DeviceID) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	body := fmt.Sprintf(`{"version":2,"mac_address":%q,"application":{"name":"xiaozhi","version":%q},"board":{"type":"parley-doctor"}}`, id, firmware)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Host = host
	r.Header.Set("Activation-Version", "1")
	r.Header.Set("Device-Id", string(id))
	r.Header.Set("Client-Id", "parley-doctor")
	r.Header.Set("User-Agent", "parley-doctor/"+firmware)
	r.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	return resp.StatusCode, reply, err
}

// readBoot reads an OTA reply and reports what would hurt a device. It returns
// nil where a device could not go on.
func readBoot(r *Report, reply []byte, now time.Time) *boot {
	const check = "ota reply"
	var b boot
	var raw struct {
		MQTT map[string]any `json:"mqtt"`
	}
	if err := json.Unmarshal(reply, &raw); err != nil {
		r.fail(check, "is this the OTA address of a Parley? It ends in /xiaozhi/ota/", "the reply is no JSON object a device can read")
		return nil
	}
	b.members = raw.MQTT
	if raw.MQTT == nil {
		r.fail(check, "ask by host name or IPv4 address, or set [ota] mqtt_endpoint", "the reply has no mqtt section, so that a device keeps what it had")
		return nil
	}
	for name := range raw.MQTT {
		if len(name) > maxNVSKey {
			r.fail(check, "shorten it on the server", "mqtt.%s has more than %d characters, which sends firmware into a boot loop", name, maxNVSKey)
			return nil
		}
	}
	if err := json.Unmarshal(reply, &b); err != nil {
		r.fail(check, "correct the member on the server", "a member has a type that devices ignore: %v", err)
		return nil
	}
	if problem := endpointProblem(b.MQTT.Endpoint); problem != "" {
		r.fail(check, `set [ota] mqtt_endpoint to "host:port", a name or an IPv4 address without mqtt://`, "mqtt.endpoint %q %s", b.MQTT.Endpoint, problem)
		return nil
	}
	b.report(r, now)
	return &b
}

// endpointProblem says what firmware would trip over. It splits at the first
// colon and throws on anything but a number after it.
func endpointProblem(endpoint string) string {
	host, port, hasPort := strings.Cut(endpoint, ":")
	n, err := strconv.Atoi(port)
	switch {
	case host == "":
		return "has no host"
	case hasPort && (err != nil || n < 1 || n > 65535):
		return "has no port number after its first colon, which sends firmware into a boot loop"
	}
	return ""
}

func (b *boot) report(r *Report, now time.Time) {
	const check = "ota reply"
	seen := len(r.Findings)
	if b.Activation != nil && (b.Activation.Code != "" || b.Activation.Challenge != "") {
		r.warn(check, "activate the device on that server", "the server wants devices activated first")
	}
	if _, numeric := b.members["keepalive"].(float64); b.members["keepalive"] != nil && !numeric {
		r.warn(check, "send mqtt.keepalive as a number", "mqtt.keepalive is no number, and firmware ignores it")
	}
	if b.Firmware.URL != "" {
		for number := range strings.SplitSeq(b.Firmware.Version, ".") {
			if number == "" || number[0] < '0' || number[0] > '9' {
				r.fail(check, "write it as numbers and dots", "firmware.version %q sends firmware into a boot loop", b.Firmware.Version)
				break
			}
		}
		if b.Firmware.Force == 1 {
			r.warn(check, "clear it when the devices are updated", "firmware.force makes devices install it at every start")
		}
	}
	if at := time.UnixMilli(int64(b.ServerTime.Timestamp)); b.ServerTime.Timestamp > 0 {
		if off := now.Sub(at).Abs(); off > maxClockOff {
			r.warn(check, "set the clock of the server (NTP), or of this machine", "the server's clock and ours differ by %v", off.Round(time.Second))
		}
	}
	if len(r.Findings) == seen {
		r.ok(check, "broker %s, %d settings a device can store", b.MQTT.Endpoint, len(b.members))
	}
}

// address is where to connect: port 8883, and with it TLS, is the default.
func (b *boot) address() (addr string, secure bool) {
	host, port, hasPort := strings.Cut(b.MQTT.Endpoint, ":")
	if !hasPort {
		port = tlsPort
	}
	return net.JoinHostPort(host, port), port == tlsPort
}

// fetch asks the OTA address and reports how that went.
func (v *visit) fetch(ctx context.Context) *boot {
	const check = "ota"
	u, err := url.Parse(v.cfg.OTA)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		v.report.fail(check, "give it as http://HOST:8003/xiaozhi/ota/", "%q is no OTA address", v.cfg.OTA)
		return nil
	}
	var local net.IP
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				if a, ok := c.LocalAddr().(*net.TCPAddr); ok {
					local = a.IP
				}
			}
			return c, err
		},
		DisableKeepAlives: true,
	}}
	began := time.Now()
	status, reply, err := askOTA(ctx, client, v.cfg.OTA, "", v.id)
	switch {
	case err != nil:
		v.report.fail(check, "is Parley running, is this its address, and is TCP port "+portOf(u)+" open in firewalls on the way and published by the container?",
			"%s cannot be reached: %s", v.cfg.OTA, reason(err))
		return nil
	case status == http.StatusForbidden:
		v.report.fail(check, "ask from a private network, or set [ota] public and [mqtt] key on the server", "%s serves private networks only", v.cfg.OTA)
		return nil
	case status != http.StatusOK:
		v.report.fail(check, "the address ends in /xiaozhi/ota/; devices accept only status 200", "%s answers with status %d", v.cfg.OTA, status)
		return nil
	}
	v.report.ok(check, "%s answers in %v", v.cfg.OTA, ms(time.Since(began)))
	b := readBoot(&v.report, bytes.TrimSpace(reply), time.Now())
	if b != nil {
		b.local = local
	}
	return b
}

func portOf(u *url.URL) string {
	switch {
	case u.Port() != "":
		return u.Port()
	case u.Scheme == "https":
		return "443"
	}
	return "80"
}
