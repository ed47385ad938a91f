package doctor

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"parley/internal/config"
	"parley/internal/openaitest"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// machine is one at home.
func machine() Machine {
	return Machine{
		Now: noon, Local: time.UTC,
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.168.1.10")},
		Lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			if a, err := netip.ParseAddr(host); err == nil {
				return []netip.Addr{a}, nil
			}
			switch host {
			case "home.example":
				return []netip.Addr{netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("192.168.1.10")}, nil
			case "six.example":
				return []netip.Addr{netip.MustParseAddr("2001:db8::1")}, nil
			}
			return nil, &net.DNSError{Name: host, IsNotFound: true}
		},
	}
}

// configuration is of a file over the default, on ports that are free.
func configuration(t *testing.T, text string, env map[string]string) *config.Config {
	t.Helper()
	c, err := config.Load(write(t, "c.toml", []byte(text)), func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	if c.MQTT.Listen == ":1883" {
		c.MQTT.Listen, c.UDP.Listen, c.HTTP.Listen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
	}
	return c
}

func TestAMachineThatIsRight(t *testing.T) {
	c := configuration(t, "[mqtt]\nlisten = \"127.0.0.1:"+itoa(closedPort(t))+"\"\n", nil)
	c.UDP.Listen, c.HTTP.Listen = "127.0.0.1:0", ":"+itoa(closedPort(t))
	r := Examine(t.Context(), ExamineConfig{Config: c, Machine: machine(), Trials: []Trial{
		{"tts.espeak", func(context.Context) (string, error) { return "speaks", nil }},
	}})
	if r.Conclusion() != "this works" {
		t.Errorf("got\n%s", text(t, r))
	}
	if f := found(t, r, "ota reply", OK); !strings.Contains(f.Found, "broker 192.168.1.10:") {
		t.Errorf("a device would be told %q", f.Found)
	}
	found(t, r, "provider", OK)
}

func TestTheKeyOfAProviderIsWrong(t *testing.T) {
	server, err := openaitest.Start(&openaitest.Service{Key: "right", Models: []string{"gpt-4o-mini", "gpt-4o-mini-transcribe"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	const file = "[role.default]\nllm = [\"openai\"]\n"
	examine := func(key, url string) Report {
		c := configuration(t, file, map[string]string{"OPENAI_API_KEY": key, "OPENAI_BASE_URL": url})
		c.MQTT.Listen = "127.0.0.1:" + itoa(closedPort(t))
		return Examine(t.Context(), ExamineConfig{Config: c, Machine: machine()})
	}
	r := examine("sk-wrong-key", server.URL)
	failsOnly(t, r, "provider", "[llm.openai]", "check api_key of [llm.openai]")
	if strings.Contains(text(t, r), "sk-wrong-key") {
		t.Error("the key was printed")
	}
	if f := found(t, examine("right", server.URL), "provider", OK); !strings.Contains(f.Found, "takes the key") {
		t.Errorf("found %q", f.Found)
	}
	failsOnly(t, examine("right", fmt.Sprintf("http://127.0.0.1:%d/v1", closedPort(t))), "provider", "nobody listens", "base_url of [llm.openai]")
	if f := found(t, examine("right", strings.TrimSuffix(server.URL, "/v1")), "provider", Warn); !strings.Contains(f.Remedy, "/v1") {
		t.Errorf("remedy %q", f.Remedy)
	}
}

func TestAModelThatIsNotListed(t *testing.T) {
	server, err := openaitest.Start(&openaitest.Service{Models: []string{"llama"}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	c := configuration(t, "[llm.local]\ntype = \"openai\"\nbase_url = \""+server.URL+"\"\napi_key = \"\"\nmodel = \"lama\"\n[role.default]\nllm = [\"local\"]\n", nil)
	r := Examine(t.Context(), ExamineConfig{Config: c, Machine: machine()})
	if f := found(t, r, "provider", Warn); !strings.Contains(f.Found, `"lama"`) {
		t.Errorf("found %q", f.Found)
	}
}

func TestAProgramThatDoesNotWork(t *testing.T) {
	c := configuration(t, "", nil)
	c.MQTT.Listen = "127.0.0.1:" + itoa(closedPort(t))
	r := Examine(t.Context(), ExamineConfig{Config: c, Machine: machine(), Trials: []Trial{
		{"tts.espeak", func(context.Context) (string, error) { return "", errors.New("no such voice") }},
	}})
	failsOnly(t, r, "provider", "no such voice", "[tts.espeak]")
}

func TestPortsTakenByAnother(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := configuration(t, "", nil)
	c.MQTT.Listen = l.Addr().String()
	r := Examine(t.Context(), ExamineConfig{Config: c, Machine: machine()})
	failsOnly(t, r, "ports", "mqtt.listen "+l.Addr().String(), "another port")
}

// TestAParleyThatRuns asserts that its own ports are no fault, and that it is
// visited.
func TestAParleyThatRuns(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{udpPort: closedPort(t)})
	c := configuration(t, "", nil)
	c.MQTT.Listen = h.mqtt
	c.UDP.Listen = fmt.Sprintf("127.0.0.1:%d", h.udpPort)
	c.HTTP.Listen = strings.TrimSuffix(strings.TrimPrefix(h.ota, "http://"), "/xiaozhi/ota/")
	m := machine()
	m.Now = time.Now()
	r := Examine(t.Context(), ExamineConfig{Config: c, Machine: m})
	for _, f := range r.Findings {
		if f.Check == "ports" && f.Verdict != OK {
			t.Errorf("its own port is a fault: %s", f.Found)
		}
	}
	failsOnly(t, r, "audio", "the UDP port is closed", "open UDP port")

	c.MQTT.Listen = "127.0.0.1:" + itoa(closedPort(t))
	failed := false
	for _, f := range Examine(t.Context(), ExamineConfig{Config: c, Machine: m}).Findings {
		failed = failed || f.Check == "ports" && strings.Contains(f.Found, "mqtt.listen "+c.MQTT.Listen+" (tcp) is free")
	}
	if !failed {
		t.Error("a Parley that runs with another configuration is not noticed")
	}
}

func TestAddressesThatAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		host      string
		container bool
		verdict   Verdict
		want      string
	}{
		"our own":                {"192.168.1.10", false, OK, "this machine"},
		"a name of ours":         {"home.example", false, OK, "home.example (192.168.1.10) is this machine"},
		"another's":              {"192.168.1.99", false, Warn, "not an address of this machine"},
		"loopback":               {"127.0.0.1", false, Warn, "this machine only"},
		"an example":             {"192.0.2.1", false, Fail, "RFC 5737"},
		"Docker's":               {"172.17.0.2", false, Warn, "container"},
		"our own in a container": {"192.168.1.10", true, Warn, "container"},
		"the host's":             {"192.168.1.99", true, Warn, "not an address of this machine"},
		"an unknown name":        {"nowhere.example", false, Fail, "not known (DNS)"},
		"IPv6 only":              {"six.example", false, Fail, "no IPv4"},
	} {
		t.Run(name, func(t *testing.T) {
			m, r := machine(), Report{}
			m.Container = c.container
			m.advertised(t.Context(), &r, "[udp] address", c.host)
			if f := found(t, r, "address", c.verdict); !strings.Contains(f.Found, c.want) || c.verdict != OK && f.Remedy == "" {
				t.Errorf("found %q, remedy %q", f.Found, f.Remedy)
			}
		})
	}
}

func TestClocks(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now, built time.Time
		zone       *time.Location
		container  bool
		want       Verdict
	}{
		"right":               {noon, noon.AddDate(0, -1, 0), berlin, false, OK},
		"never set":           {time.Unix(0, 0), time.Time{}, berlin, false, Fail},
		"before we were made": {noon, noon.AddDate(1, 0, 0), berlin, false, Fail},
		"UTC at home":         {noon, noon, time.UTC, false, OK},
		"UTC in a container":  {noon, noon, time.UTC, true, Warn},
	} {
		t.Run(name, func(t *testing.T) {
			m, r := Machine{Now: c.now, Built: c.built, Container: c.container}, Report{}
			m.clock(&r, c.zone, false)
			found(t, r, "clock", c.want)
		})
	}
}

func TestCertificates(t *testing.T) {
	for name, c := range map[string]struct {
		names      []string
		ends       time.Time
		trusted    bool
		endpoint   string
		want       Verdict
		text       string
		mismatched bool
	}{
		"good":            {[]string{"voice.example"}, noon.AddDate(0, 2, 0), true, "voice.example:8883", OK, "good for", false},
		"no TLS endpoint": {[]string{"voice.example"}, noon.AddDate(0, 2, 0), true, "home.example:1883", OK, "good for", false},
		"ends soon":       {[]string{"voice.example"}, noon.AddDate(0, 0, 5), true, "voice.example:8883", Warn, "expires on 2026-11-26", false},
		"expired":         {[]string{"voice.example"}, noon.AddDate(0, 0, -5), true, "voice.example:8883", Fail, "has expired", false},
		"another name":    {[]string{"mail.example"}, noon.AddDate(0, 2, 0), true, "voice.example:8883", Fail, "not for voice.example", false},
		"self-signed":     {[]string{"voice.example"}, noon.AddDate(0, 2, 0), false, "voice.example:8883", Fail, "public authority", false},
		"another key":     {[]string{"voice.example"}, noon.AddDate(0, 2, 0), true, "voice.example:8883", Fail, "are not a certificate and its key", true},
	} {
		t.Run(name, func(t *testing.T) {
			cert, key, pool := certificate(t, c.names, c.ends)
			if c.mismatched {
				_, key, _ = certificate(t, c.names, c.ends)
			}
			m := machine()
			if m.Roots = x509.NewCertPool(); c.trusted {
				m.Roots = pool
			}
			cfg := &config.Config{MQTT: config.MQTT{TLSCertificate: cert, TLSKey: key}, OTA: config.OTA{MQTTEndpoint: c.endpoint}}
			x := &examination{cfg: ExamineConfig{Config: cfg, Machine: m}}
			x.certificate()
			if f := found(t, x.report, "certificate", c.want); !strings.Contains(f.Found, c.text) {
				t.Errorf("found %q", f.Found)
			}
		})
	}
	x := &examination{cfg: ExamineConfig{Config: &config.Config{OTA: config.OTA{MQTTEndpoint: "voice.example:8883"}}, Machine: machine()}}
	x.certificate()
	if f := found(t, x.report, "certificate", Warn); !strings.Contains(f.Found, "there is no certificate") {
		t.Errorf("found %q", f.Found)
	}
}

// certificate makes a certificate that signs itself.
func certificate(t *testing.T, names []string, ends time.Time) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: noon.AddDate(-1, 0, 0), NotAfter: ends,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(leaf)
	return write(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})), pool
}

func TestFaultsOfAConfiguration(t *testing.T) {
	path := write(t, "c.toml", []byte("[log]\nlevel = 5\n[udp]\nport = 70000\n"))
	_, err := config.Load(path, func(string) string { return "" })
	r := Faults(fmt.Errorf("loading: %w", err))
	if len(r.Findings) != 2 || !strings.Contains(r.Findings[0].Found, ":2: log.level: ") || r.Findings[1].Remedy == "" {
		t.Errorf("got\n%s", text(t, r))
	}
	if r := Faults(errors.New("a recogniser cannot be made")); r.Healthy() || !strings.Contains(r.Conclusion(), "a recogniser") {
		t.Errorf("got\n%s", text(t, r))
	}
}
