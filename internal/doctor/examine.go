package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"parley/internal/config"
	"parley/internal/ota"
)

// An ExamineConfig is what is examined.
type ExamineConfig struct {
	Config  *config.Config
	Machine Machine
	// HTTP asks the services of providers; nil means http.DefaultClient.
	HTTP *http.Client
	// Trials try what only the program can: providers that are programs, by
	// their tables.
	Trials []Trial
	// Visit goes to the server where one runs.
	Visit VisitConfig
}

// A Trial tries one provider and says what it did.
type Trial struct {
	Table string
	Run   func(ctx context.Context) (found string, err error)
}

// trialTimeout bounds one trial. Building a recogniser takes a second or two.
const trialTimeout = 30 * time.Second

// Examine looks at the machine of a server, whether it runs or not: where it
// does, it is visited, and its ports are not a fault.
func Examine(ctx context.Context, cfg ExamineConfig) Report {
	if cfg.HTTP == nil {
		cfg.HTTP = http.DefaultClient
	}
	x := &examination{cfg: cfg}
	c := cfg.Config
	location, err := c.OTA.Location()
	if err != nil {
		location = cfg.Machine.Local
	}
	cfg.Machine.clock(&x.report, location, c.OTA.Timezone != "")
	x.ports(ctx)
	x.addresses(ctx)
	x.certificate()
	x.providers(ctx)
	if x.running == "" {
		x.reply(ctx)
		return x.report
	}
	cfg.Visit.OTA = "http://" + x.running + ota.Path
	x.report.Add(Visit(ctx, cfg.Visit))
	return x.report
}

// An examination is one run of Examine.
type examination struct {
	cfg     ExamineConfig
	report  Report
	running string // host:port of the HTTP of a Parley that runs here; "": none
}

// ports checks whether the ports are free, or taken by a Parley.
func (x *examination) ports(ctx context.Context) {
	const check = "ports"
	c := x.cfg.Config
	busy := map[string]error{}
	listens := []struct{ key, network, addr string }{
		{"mqtt.listen", "tcp", c.MQTT.Listen}, {"udp.listen", "udp", c.UDP.Listen}, {"http.listen", "tcp", c.HTTP.Listen},
	}
	if c.MQTT.TLSCertificate != "" {
		listens = append(listens, struct{ key, network, addr string }{"mqtt.tls_listen", "tcp", c.MQTT.TLSListen})
	}
	for _, l := range listens {
		if err := free(l.network, l.addr); err != nil {
			busy[l.key] = err
		}
	}
	if busy["http.listen"] != nil && x.isParley(ctx, c.HTTP.Listen) {
		x.running = x.local(c.HTTP.Listen)
	}
	for _, l := range listens {
		err := busy[l.key]
		where := fmt.Sprintf("%s %s (%s)", l.key, l.addr, l.network)
		switch {
		case err == nil && x.running != "":
			x.report.fail(check, "restart Parley, which runs with another configuration", "a Parley answers on %s, but %s is free", c.HTTP.Listen, where)
		case err == nil:
			x.report.ok(check, "%s is free", where)
		case x.running != "" && errors.Is(err, syscall.EADDRINUSE):
			x.report.ok(check, "%s is taken, and a Parley runs here", where)
		case errors.Is(err, syscall.EADDRINUSE):
			x.report.fail(check, "stop the other program ('ss -lptu' names it), or choose another port", "%s is taken by another program", where)
		case errors.Is(err, syscall.EACCES):
			x.report.fail(check, "choose a port above 1023, or allow the program to use it", "%s is not permitted", where)
		default:
			x.report.fail(check, "listen on an address of this machine, or on all: \":PORT\"", "%s cannot be used: %s", where, reason(err))
		}
	}
}

// free reports why an address cannot be listened on; nil means that it can.
func free(network, addr string) error {
	if network == "udp" {
		c, err := net.ListenPacket(network, addr)
		if err != nil {
			return err
		}
		return c.Close()
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	return l.Close()
}

// local is where to reach a listener from this machine: at an address that
// devices could use, too, if it listens on all and there is one.
func (x *examination) local(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = x.cfg.Machine.private().String()
	}
	return net.JoinHostPort(host, port)
}

// isParley asks whether a Parley is behind the HTTP port.
func (x *examination) isParley(ctx context.Context, listen string) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	status, reply, err := get(ctx, x.cfg.HTTP, "http://"+x.local(listen)+"/healthz", "")
	return err == nil && status == http.StatusOK && string(reply) == `{"healthy":true}`
}

// get fetches a page of bounded length, with a bearer token if there is one.
func get(ctx context.Context, client *http.Client, target, token string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	r.Close = true
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16*maxReply))
	return resp.StatusCode, body, err
}

// addresses checks what devices will be told.
func (x *examination) addresses(ctx context.Context) {
	c, m := x.cfg.Config, x.cfg.Machine
	if c.UDP.Address == "" {
		x.report.ok("address", "[udp] address is empty: each device sends its sound to the host it asked for its configuration")
	} else {
		m.advertised(ctx, &x.report, "[udp] address", c.UDP.Address)
	}
	host, _, err := net.SplitHostPort(c.OTA.MQTTEndpoint)
	if err != nil {
		x.report.ok("address", "[ota] mqtt_endpoint is empty: each device is told the host it asked")
		return
	}
	m.advertised(ctx, &x.report, "[ota] mqtt_endpoint", host)
}

// reply asks for the configuration as a device would, where no server runs: of
// the handler that one would have.
func (x *examination) reply(ctx context.Context) {
	c := x.cfg.Config
	_, mqttPort, err := net.SplitHostPort(c.MQTT.Listen)
	port, err2 := strconv.Atoi(mqttPort)
	l, err3 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err, err2, err3); err != nil {
		x.report.add(Skip, "ota reply", "", "cannot be tried: %v", err)
		return
	}
	location, err := c.OTA.Location()
	if err != nil {
		location = x.cfg.Machine.Local
	}
	server := &http.Server{
		ReadHeaderTimeout: stepTimeout,
		Handler: ota.New(ota.Config{
			Endpoint: c.OTA.MQTTEndpoint, MQTTPort: port, Key: []byte(c.MQTT.Key.Reveal()), Keepalive: c.MQTT.Keepalive,
			Location: location, Public: c.OTA.Public,
		}, slog.New(slog.DiscardHandler)),
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // ends when it is closed, below
	defer serving.Wait()
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	status, reply, err := askOTA(ctx, client, "http://"+l.Addr().String()+ota.Path, x.local(c.HTTP.Listen), randomID())
	if err != nil || status != http.StatusOK {
		x.report.fail("ota reply", "see the other findings", "a device would get no configuration: status %d, %v", status, err)
		return
	}
	b := readBoot(&x.report, reply, time.Now()) // by the clock the handler has, too
	if b != nil && c.OTA.MQTTEndpoint != "" {
		x.dial(ctx, b)
	}
}

// dial checks whether a broker named by the configuration answers. While this
// server does not run, that nobody does is to be expected.
func (x *examination) dial(ctx context.Context, b *boot) {
	addr, _ := b.address()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		x.report.warn("mqtt", "start Parley, and run the doctor again; or correct [ota] mqtt_endpoint", "%s, which devices are told, does not answer now: %s", addr, reason(err))
		return
	}
	conn.Close()
	x.report.ok("mqtt", "%s, which devices are told, answers", addr)
}
