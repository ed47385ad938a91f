package doctor

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"parley/internal/protocol"
)

// A VisitConfig says whom to visit.
type VisitConfig struct {
	// OTA is the address that is typed into devices.
	OTA string
	// DialUDP opens the way for sound; nil means the real network.
	DialUDP func(ctx context.Context, addr string) (net.Conn, error)
}

// A visit is one run of the doctor's device. One goroutine owns it.
type visit struct {
	cfg    VisitConfig
	id     protocol.DeviceID
	report Report

	asked    string // the host of OTA
	link     *link
	messages chan message // of the server, from the link's reader; closed when it ends
	session  offer
	seq      uint32 // of the last packet sent
	echoes   bool   // the server has begun the echo test
	deaf     bool   // the server has said that no sound reaches it
}

// An offer is what the server's hello has offered: a session.
type offer struct {
	id, host string
	port     int
	codec    *codec
}

// Visit is a device at a server: it goes every step that a real one goes, and
// says what is wrong with the first that does not work. It takes some five
// seconds where all is well, and leaves when ctx ends.
func Visit(ctx context.Context, cfg VisitConfig) Report {
	if cfg.DialUDP == nil {
		cfg.DialUDP = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", addr)
		}
	}
	v := &visit{cfg: cfg, id: randomID()}
	if u, err := url.Parse(cfg.OTA); err == nil {
		v.asked = u.Hostname()
	}
	b := v.fetch(ctx)
	if b == nil {
		return v.report
	}
	v.translation(b)
	if !v.connect(ctx, b) {
		return v.report
	}
	done := make(chan struct{})
	v.messages = make(chan message, maxWaiting)
	go func() { // ends when the connection is closed, below
		defer close(done)
		v.link.pump(v.messages)
	}()
	defer func() {
		v.link.conn.Close()
		<-done
	}()
	defer context.AfterFunc(ctx, func() { v.link.conn.Close() })()
	if v.hello() {
		v.sound(ctx)
		_ = v.link.publish(fmt.Sprintf(`{"session_id":%q,"type":"goodbye"}`, v.session.id)) // the connection ends anyway
	}
	return v.report
}

// randomID is a MAC address of local administration: two doctors at once are two
// devices, and none is a real one.
func randomID() protocol.DeviceID {
	var b [5]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return protocol.DeviceID(fmt.Sprintf("02:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4]))
}

// translation reports whether the server sees another address than ours. Its OTA
// reply carries what it saw, in the user name.
func (v *visit) translation(b *boot) {
	const check = "translation"
	e, err := protocol.ParseUsername(b.MQTT.Username)
	seen, err2 := netip.ParseAddr(e.IP)
	own, known := netip.AddrFromSlice(b.local)
	if err != nil || err2 != nil || !known {
		return
	}
	if own = own.Unmap(); own == seen {
		v.report.ok(check, "none: the server sees our own address, %v", own)
		return
	}
	v.report.ok(check, "the server sees %v where we are %v: a router, proxy or container translates addresses on the way", seen, own)
}

// connect connects MQTT and reports how that went.
func (v *visit) connect(ctx context.Context, b *boot) bool {
	const check = "mqtt"
	addr, secure := b.address()
	began := time.Now()
	l, err := connect(ctx, b)
	if err == nil {
		kind := "plain"
		if secure {
			kind = "TLS"
		}
		v.link = l
		v.report.ok(check, "%s (%s) accepts us in %v", addr, kind, ms(time.Since(began)))
		return true
	}
	var refused refusedError
	var certificate *tls.CertificateVerificationError
	_, port, _ := net.SplitHostPort(addr)
	found := "the broker at " + addr + " "
	switch {
	case errors.As(err, &refused) && (refused == 4 || refused == 5):
		v.report.fail(check, "the OTA address and the broker do not have the same [mqtt] key: set the same for both, and boot the device again",
			"%s refuses the password that the OTA address gave us (code %d)", strings.TrimSpace(found), refused)
	case errors.As(err, &refused):
		v.report.fail(check, "the server's log says why", "%srefuses us: %v", found, err)
	case errors.As(err, &certificate):
		v.report.fail(check, "devices trust public authorities only: get a certificate for this name from one, and set [mqtt] tls_certificate and tls_key",
			"%shas a certificate that is not trusted: %v", found, certificate.Err)
	case errors.Is(err, errMQTT), errors.Is(err, io.EOF):
		v.report.fail(check, "correct [ota] mqtt_endpoint: port 8883 is for TLS and no other is; another program may have the port", "%sdoes not talk MQTT (%s)", found, reason(err))
	default:
		v.report.fail(check, "is Parley's broker there? Correct [ota] mqtt_endpoint, open TCP port "+port+" in firewalls on the way, or publish it from the container",
			"%scannot be reached: %s", found, reason(err))
	}
	return false
}

// maxWaiting bounds the messages that wait to be looked at. A server has no
// reason to send so many to a device that asks for nothing; more are dropped.
const maxWaiting = 64

// A message is what the doctor reads of a downlink message.
type message struct {
	Type      string `json:"type"`
	State     string `json:"state"`
	Status    string `json:"status"`
	Transport string `json:"transport"`
	SessionID string `json:"session_id"`
	UDP       *struct {
		Server string  `json:"server"`
		Port   float64 `json:"port"`
		Key    string  `json:"key"`
		Nonce  string  `json:"nonce"`
	} `json:"udp"`
}

// pump reads messages until the connection ends.
func (l *link) pump(to chan<- message) {
	defer close(to)
	for {
		payload, err := l.next(time.Time{})
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(payload, &m) != nil {
			continue // not for us, or of a type we do not look at
		}
		select {
		case to <- m:
		default:
		}
	}
}

// hello opens a session for the echo test.
func (v *visit) hello() bool {
	const check = "hello"
	began := time.Now()
	err := v.link.publish(`{"type":"hello","version":3,"transport":"udp","features":{"parley_echo":true},` +
		`"audio_params":{"format":"opus","sample_rate":16000,"channels":1,"frame_duration":60}}`)
	if err != nil {
		v.report.fail(check, "the server's log says why it closed the connection", "hello cannot be sent: %s", reason(err))
		return false
	}
	timer := time.NewTimer(stepTimeout)
	defer timer.Stop()
	for {
		select {
		case m, open := <-v.messages:
			if !open {
				v.report.fail(check, "the server's log says why", "the server closed the connection after hello")
				return false
			}
			if m.Type != "hello" {
				continue
			}
			if err := v.session.take(m); err != nil {
				v.report.fail(check, "correct the server: older firmware crashes on this", "the answer to hello is not usable: %v", err)
				return false
			}
			v.report.ok(check, "answered in %v", ms(time.Since(began)))
			return true
		case <-timer.C:
			v.report.fail(check, "the server's log says why: it may be draining, or limit hellos ([session] hello_rate)",
				"no answer to hello within %v", stepTimeout)
			return false
		}
	}
}

// take reads the answer to hello as firmware does.
func (s *offer) take(m message) error {
	switch {
	case m.Transport != "udp" || m.UDP == nil:
		return errors.New("it offers no UDP")
	case m.UDP.Server == "":
		return errors.New("udp.server is empty")
	case m.UDP.Port < 1 || m.UDP.Port > 65535:
		return fmt.Errorf("udp.port is %v", m.UDP.Port)
	}
	c, err := newCodec(m.UDP.Key, m.UDP.Nonce)
	if err != nil {
		return err
	}
	*s = offer{m.SessionID, m.UDP.Server, int(m.UDP.Port), c}
	return nil
}

func (s *offer) address(host string) string { return net.JoinHostPort(host, strconv.Itoa(s.port)) }

// reason is an error in words for people.
func reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "the name " + dns.Name + " is not known (DNS)"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nobody listens there (connection refused)"
	case errors.Is(err, io.EOF):
		return "the connection was closed at once"
	case errors.As(err, &op):
		return op.Err.Error()
	}
	return err.Error()
}
