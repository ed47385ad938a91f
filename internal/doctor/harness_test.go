package doctor

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"parley/broker"
	"parley/internal/ota"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/pipeline"
	"parley/udpaudio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A house is a real server on loopback: configuration by HTTP, broker, audio and
// sessions. What is broken in it is a part that was set up wrong.
type house struct {
	ota     string // address
	udpPort int    // that is served
	mqtt    string
}

// flaws are what is set up wrong.
type flaws struct {
	otaKey, mqttKey string
	udpHost         string // advertised
	udpPort         int    // advertised; 0: the right one
	endpoint        string // advertised
}

func newHouse(t *testing.T, f flaws) house {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	socket, err := udpaudio.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := house{udpPort: socket.LocalAddr().(*net.UDPAddr).Port}
	sound := udpaudio.New(socket, udpaudio.Config{}, log)
	role := &session.Role{Name: "test", Policy: pipeline.DefaultConfig(),
		NewDetector: func() (pipeline.Detector, error) { return deaf{}, nil }}
	cfg := session.DefaultConfig()
	cfg.Roles = func(protocol.DeviceID) *session.Role { return role }
	cfg.UDPHost, cfg.UDPPort = f.udpHost, h.udpPort
	if f.udpPort != 0 {
		cfg.UDPPort = f.udpPort
	}
	sessions := session.New(cfg, sound, log)
	embedded, err := broker.New(broker.Config{Listen: "127.0.0.1:0", Key: []byte(f.mqttKey)}, sessions, log)
	if err != nil {
		t.Fatal(err)
	}
	h.mqtt = embedded.Addr().String()
	h.ota = serveHTTP(t, ota.New(ota.Config{
		Endpoint: f.endpoint, MQTTPort: embedded.Addr().(*net.TCPAddr).Port, Key: []byte(f.otaKey), Keepalive: time.Minute,
	}, log)) + ota.Path
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { _ = sound.Serve(ctx) })
	work.Go(func() { _ = embedded.Serve(ctx) })
	t.Cleanup(func() {
		grace, done := context.WithTimeout(context.Background(), 5*time.Second)
		defer done()
		sessions.Drain(grace)
		cancel()
		work.Wait()
	})
	return h
}

// serveHTTP serves a handler on loopback until the test ends and returns its URL.
func serveHTTP(t *testing.T, handler http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	var work sync.WaitGroup
	work.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() {
		server.Close()
		work.Wait()
	})
	return "http://" + l.Addr().String()
}

// deaf is a detector that hears no speech.
type deaf struct{}

func (deaf) Close()              {}
func (deaf) Speech([]int16) bool { return false }

// closedPort is a UDP port of loopback that nobody listens on.
func closedPort(t *testing.T) int {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).Port
}

// A hole is a network that swallows what is sent and never answers.
type hole struct {
	net.Conn
	closed chan struct{}
	once   *sync.Once
}

func newHole() net.Conn { return hole{closed: make(chan struct{}), once: new(sync.Once)} }

func (h hole) Write(p []byte) (int, error) { return len(p), nil }
func (h hole) Read([]byte) (int, error) {
	<-h.closed
	return 0, net.ErrClosed
}

func (h hole) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// onlyLoopback is a network in which other addresses lead nowhere.
func onlyLoopback(ctx context.Context, addr string) (net.Conn, error) {
	if !strings.HasPrefix(addr, "127.") {
		return newHole(), nil
	}
	return new(net.Dialer).DialContext(ctx, "udp", addr)
}

// forgetful is a TCP proxy to a broker that has never heard of the echo test. It
// returns its address.
func forgetful(t *testing.T, target string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				t.Error(err)
				in.Close()
				return
			}
			relay := func(to, from net.Conn) {
				defer to.Close()
				defer from.Close()
				buf := make([]byte, 64<<10)
				for {
					n, err := from.Read(buf)
					if err != nil {
						if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
							t.Log(err)
						}
						return
					}
					if _, err := to.Write(bytes.ReplaceAll(buf[:n], []byte("parley_echo"), []byte("parley_zzzz"))); err != nil {
						return
					}
				}
			}
			work.Go(func() { relay(out, in) })
			work.Go(func() { relay(in, out) })
		}
	})
	return l.Addr().String()
}

// greeter is a TCP server that says something and reads what comes. It returns
// its address.
func greeter(t *testing.T, greeting string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		work.Wait()
	})
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, greeting)
			_, _ = io.Copy(io.Discard, c)
			c.Close()
		}
	})
	return l.Addr().String()
}

// found is the first finding of a check with a verdict; the test fails without it.
func found(t *testing.T, r Report, check string, v Verdict) Finding {
	t.Helper()
	for _, f := range r.Findings {
		if f.Check == check && f.Verdict == v {
			return f
		}
	}
	t.Fatalf("no finding %q with verdict %s in\n%s", check, v, text(t, r))
	return Finding{}
}

// failsOnly asserts that one check fails, with what was found and what to do.
func failsOnly(t *testing.T, r Report, check, what, remedy string) {
	t.Helper()
	f := found(t, r, check, Fail)
	if !strings.Contains(f.Found, what) || !strings.Contains(f.Remedy, remedy) {
		t.Errorf("found %q, remedy %q; want %q and %q in them", f.Found, f.Remedy, what, remedy)
	}
	for _, g := range r.Findings {
		if g.Verdict == Fail && g != f {
			t.Errorf("%s fails, too: %s", g.Check, g.Found)
		}
	}
	if r.Healthy() || !strings.Contains(r.Conclusion(), what) {
		t.Errorf("conclusion %q of a fault", r.Conclusion())
	}
}

func text(t *testing.T, r Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := t.TempDir() + "/" + name
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func itoa(n int) string { return strconv.Itoa(n) }
