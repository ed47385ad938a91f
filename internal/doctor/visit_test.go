package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

func TestAServerThatIsRight(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]flaws{
		"open": {}, "signed": {otaKey: "a long secret", mqttKey: "a long secret"}, "by name": {udpHost: "localhost"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t, f)
			r := Visit(t.Context(), VisitConfig{OTA: h.ota})
			if !r.Healthy() {
				t.Errorf("a right server fails:\n%s", text(t, r))
			}
			for _, check := range []string{"ota", "ota reply", "translation", "mqtt", "hello", "address", "audio"} {
				found(t, r, check, OK)
			}
			// How even the delay is, is the machine's affair: one that is busy gets a
			// warning. TestWhatFiguresMean has the judgement.
			q := ""
			for _, f := range r.Findings {
				if f.Check == "quality" {
					q = f.Found
				}
			}
			if !strings.HasPrefix(q, "50 packets, lost 0 there and 0 back, out of order 0, repeated 0;") {
				t.Errorf("on loopback: %s", q)
			}
		})
	}
}

func TestTheUDPPortIsClosed(t *testing.T) {
	t.Parallel()
	port := closedPort(t)
	h := newHouse(t, flaws{udpPort: port})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota})
	failsOnly(t, r, "audio", fmt.Sprintf("the UDP port is closed: nobody listens at 127.0.0.1:%d", port), fmt.Sprintf("open UDP port %d", port))
}

// TestUDPIsSwallowed is a firewall that drops without a word: only the server
// knows that it hears nothing.
func TestUDPIsSwallowed(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: func(context.Context, string) (net.Conn, error) { return newHole(), nil }})
	failsOnly(t, r, "audio", "the server says that none of what we sent", "open UDP port")
}

// TestUDPDoesNotComeBack is a firewall that lets through one direction.
func TestUDPDoesNotComeBack(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: through(func(n int, _ []byte) int { return 1 }, func(int, []byte) int { return 0 })})
	failsOnly(t, r, "audio", "nothing comes back", "come back through firewalls")
}

func TestTheAdvertisedAddressIsWrong(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{udpHost: "192.0.2.1"})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: onlyLoopback})
	failsOnly(t, r, "address", fmt.Sprintf("send sound to 192.0.2.1:%d, and nothing comes back from there; from 127.0.0.1:%d it does", h.udpPort, h.udpPort),
		"remove [udp] address")
}

// TestTheAdvertisedAddressCannotBeDialled is an address the machine has no way
// to, or a name nobody knows.
func TestTheAdvertisedAddressCannotBeDialled(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{udpHost: "192.0.2.1"})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: func(context.Context, string) (net.Conn, error) {
		return nil, errors.New("network is unreachable")
	}})
	failsOnly(t, r, "address", "network is unreachable", "set [udp] address")
}

// TestAddressAndPortAreWrong must not blame the address alone: with the right
// one nothing comes back either.
func TestAddressAndPortAreWrong(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{udpHost: "192.0.2.1", udpPort: closedPort(t)})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: onlyLoopback})
	failsOnly(t, r, "audio", "the UDP port is closed", "is 192.0.2.1, which [udp] address names, this server?")
}

func TestThePasswordIsWrong(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{otaKey: "a long secret", mqttKey: "another long secret"})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota})
	failsOnly(t, r, "mqtt", "refuses the password", "do not have the same [mqtt] key")
}

func TestTheBrokerIsElsewhere(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{endpoint: fmt.Sprintf("127.0.0.1:%d", closedPort(t))})
	failsOnly(t, Visit(t.Context(), VisitConfig{OTA: h.ota}), "mqtt", "nobody listens there", "mqtt_endpoint")

	h = newHouse(t, flaws{endpoint: greeter(t, "SSH-2.0-OpenSSH_9.2\r\n")})
	failsOnly(t, Visit(t.Context(), VisitConfig{OTA: h.ota}), "mqtt", "does not talk MQTT", "mqtt_endpoint")
}

func TestTheServerKnowsNoEcho(t *testing.T) {
	t.Parallel()
	inner := newHouse(t, flaws{})
	h := newHouse(t, flaws{endpoint: forgetful(t, inner.mqtt)})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota})
	if f := found(t, r, "audio", Warn); !strings.Contains(f.Found, "does not know the echo test") || !r.Healthy() {
		t.Errorf("got\n%s", text(t, r))
	}
}

func TestTheOTAAddressIsWrong(t *testing.T) {
	t.Parallel()
	closed := "http://127.0.0.1:" + itoa(closedPort(t)) + "/xiaozhi/ota/"
	forbidden := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	page := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }))
	for name, c := range map[string]struct{ ota, check, found, remedy string }{
		"nobody there":    {closed, "ota", "nobody listens there", "TCP port"},
		"no URL":          {"server:8003", "ota", "is no OTA address", "http://HOST:8003"},
		"public":          {forbidden, "ota", "private networks only", "[ota] public"},
		"another page":    {serveHTTP(t, http.NotFoundHandler()), "ota", "status 404", "/xiaozhi/ota/"},
		"another program": {page, "ota reply", "no JSON object", "/xiaozhi/ota/"},
	} {
		t.Run(name, func(t *testing.T) {
			failsOnly(t, Visit(t.Context(), VisitConfig{OTA: c.ota}), c.check, c.found, c.remedy)
		})
	}
}

// TestAVisitEndsWithItsContext asserts that an interrupted visit returns, and
// leaves nothing behind.
func TestAVisitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{})
	ctx, cancel := context.WithCancel(t.Context())
	r := Visit(ctx, VisitConfig{OTA: h.ota, DialUDP: func(context.Context, string) (net.Conn, error) {
		cancel()
		return newHole(), nil
	}})
	failsOnly(t, r, "audio", "interrupted", "again")
}

// TestWhatIsMeasured puts known faults on the line and asserts the figures.
func TestWhatIsMeasured(t *testing.T) {
	t.Parallel()
	h := newHouse(t, flaws{})
	r := Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: through(
		func(n int, _ []byte) int {
			if n == 10 || n == 20 {
				return 0
			}
			return 1
		},
		func(n int, _ []byte) int {
			switch n {
			case 5:
				return 0
			case 30:
				return 2
			}
			return 1
		},
	)})
	if f := found(t, r, "quality", Warn).Found; !strings.HasPrefix(f, "50 packets, lost 2 there and 1 back, out of order 0, repeated 1;") {
		t.Errorf("measured %s", f)
	}
	h = newHouse(t, flaws{})
	r = Visit(t.Context(), VisitConfig{OTA: h.ota, DialUDP: through(func(n int, _ []byte) int { return n % 2 }, func(int, []byte) int { return 1 })})
	failsOnly(t, r, "quality", "lost 25 there and 0 back", "access point")
}

// through is the real network behind two judges, one a direction: how often the
// n-th packet, from 0, is passed on.
func through(up, down func(n int, packet []byte) int) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "udp", addr)
		return &judged{Conn: c, up: up, down: down}, err
	}
}

type judged struct {
	net.Conn
	up, down func(int, []byte) int
	mu       sync.Mutex
	sent     int
	received int
	again    []byte
}

func (j *judged) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	n := j.up(j.sent, p)
	j.sent++
	for range n {
		if _, err := j.Conn.Write(p); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (j *judged) Read(p []byte) (int, error) { // by one goroutine
	if j.again != nil {
		n := copy(p, j.again)
		j.again = nil
		return n, nil
	}
	for {
		n, err := j.Conn.Read(p)
		if err != nil {
			return n, err
		}
		times := j.down(j.received, p[:n])
		j.received++
		switch times {
		case 0:
			continue
		case 2:
			j.again = append([]byte(nil), p[:n]...)
		}
		return n, nil
	}
}
