package pipe_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"parley/internal/simnet"
	"parley/mcp"
	"parley/mcp/access"
	"parley/mcp/pipe"
	"parley/mcp/servers"
)

// A village has an access point at point.test and a service at service.test, on a
// simulated network.
type village struct {
	t     *testing.T
	net   *simnet.Network
	log   logbook
	point *access.Point
	token string
	set   *mcp.Set
	down  atomic.Bool // the access point's host is not there

	mu    sync.Mutex
	calls []time.Duration // when the access point was dialed, since began
	began time.Time
	last  *simnet.TCPConn // to the access point
}

func newVillage(t *testing.T, service http.Handler) *village {
	t.Helper()
	v := &village{t: t, net: simnet.New(1), began: time.Now()}
	var handler http.Handler
	v.point, v.token, handler = newPoint(t, v.log.logger())
	for addr, handler := range map[string]http.Handler{"10.0.0.1:80": handler, "10.0.0.2:80": service} {
		l, err := v.net.ListenTCP(netip.MustParseAddrPort(addr))
		if err != nil {
			t.Fatal(err)
		}
		serve(t, l, handler, map[bool]*access.Point{true: v.point}[addr == "10.0.0.1:80"])
	}
	var err error
	v.set, err = mcp.NewSet(mcp.Rules{}, mcp.Member{Label: "endpoint", Source: v.point.For("", "")})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (v *village) dial(ctx context.Context, _, address string) (net.Conn, error) {
	to := netip.MustParseAddrPort("10.0.0.2:80")
	if address == "point.test:80" {
		to = netip.MustParseAddrPort("10.0.0.1:80")
		v.mu.Lock()
		v.calls = append(v.calls, time.Since(v.began))
		v.mu.Unlock()
		if v.down.Load() {
			return nil, errors.New("no route to host")
		}
	}
	conn, err := v.net.DialTCP(ctx, netip.MustParseAddr("10.0.0.3"), to, simnet.Path{}, simnet.Path{})
	if err == nil && address == "point.test:80" {
		v.mu.Lock()
		v.last = conn
		v.mu.Unlock()
	}
	return conn, err
}

func (v *village) config(s servers.Config) pipe.Config {
	return pipe.Config{Endpoint: "ws://point.test/mcp/?token=" + v.token, Servers: []servers.Config{s}, Dial: v.dial}
}

// seconds returns when the access point was dialed, and forgets it.
func (v *village) seconds() []int {
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []int
	for _, c := range v.calls {
		all = append(all, int(c.Seconds()))
	}
	v.calls, v.began = nil, time.Now()
	return all
}

// streamable serves server's tools, and ends what sessions are left with the test.
func streamable(t *testing.T, server *sdk.Server) http.Handler {
	t.Cleanup(func() {
		for session := range server.Sessions() {
			session.Close()
		}
	})
	return sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return server }, nil)
}

func service() servers.Config {
	return servers.Config{Name: "service", URL: "http://service.test/mcp?key=hush-hush", Transport: "http", Headers: map[string]string{"Authorization": "Bearer hush-hush"}}
}

func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, streamable(t, calculator(0)))
		v.down.Store(true)
		stop := run(t, v.config(service()), &v.log)
		time.Sleep(2300 * time.Second)
		if got, want := fmt.Sprint(v.seconds()), "[0 1 3 7 15 31 63 127 255 511 1023 1623 2223]"; got != want {
			t.Errorf("dialed at %s, want %s", got, want)
		}
		v.down.Store(false)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		multiply(t, v.set)
		v.seconds()
		// It has been good for a while, so it is missed soon.
		v.down.Store(true)
		v.mu.Lock()
		v.last.Close()
		v.mu.Unlock()
		time.Sleep(10 * time.Second)
		if got, want := fmt.Sprint(v.seconds()), "[1 3 7]"; got != want {
			t.Errorf("then dialed at %s, want %s", got, want)
		}
		v.down.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		multiply(t, v.set)
		began := time.Now()
		stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("stopping took %v", took)
		}
		if log := v.log.String(); strings.Contains(log, "pa1.") || strings.Contains(log, "hush") || !strings.Contains(log, "no route to host") {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestADeadAccessPointIsNoticed loses everything on a connection that stands.
func TestADeadAccessPointIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, streamable(t, calculator(0)))
		run(t, v.config(service()), &v.log)
		time.Sleep(2 * time.Minute)
		v.mu.Lock()
		v.last.SetPaths(simnet.Path{Loss: 1}, simnet.Path{Loss: 1})
		v.mu.Unlock()
		v.seconds()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := v.seconds(); len(got) != 1 || got[0] > 50 {
			t.Errorf("dialed at %v", got)
		}
		multiply(t, v.set)
	})
}

func TestARefusedTokenIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVillage(t, streamable(t, calculator(0)))
		v.point.SetRevoked([]string{"pc"})
		run(t, v.config(service()), &v.log)
		time.Sleep(time.Second / 2)
		if log := v.log.String(); !strings.Contains(log, `reason="the access point refuses: 401 Unauthorized: token revoked"`) {
			t.Errorf("log:\n%s", log)
		}
	})
}

// TestAServiceIsLent bridges to both transports: with headers, the agreed revision,
// calls side by side, and one that takes longer than any message may.
func TestAServiceIsLent(t *testing.T) {
	for _, kind := range []string{"http", "sse"} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := calculator(40 * time.Second)
				handler := streamable(t, server)
				if kind == "sse" {
					handler = sdk.NewSSEHandler(func(*http.Request) *sdk.Server { return server }, nil)
				}
				var mu sync.Mutex
				revisions := map[string]bool{}
				v := newVillage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization") != "Bearer hush-hush" {
						http.Error(w, "no", http.StatusUnauthorized)
						return
					}
					mu.Lock()
					revisions[r.Header.Get("Mcp-Protocol-Version")] = true
					mu.Unlock()
					handler.ServeHTTP(w, r)
				}))
				cfg := service()
				cfg.Transport = kind
				run(t, v.config(cfg), &v.log)
				time.Sleep(time.Second)
				synctest.Wait()
				began := time.Now()
				var calls sync.WaitGroup
				for range 10 {
					calls.Go(func() { multiply(t, v.set) })
				}
				calls.Wait()
				if took := time.Since(began); took != 40*time.Second {
					t.Errorf("took %v", took)
				}
				mu.Lock()
				defer mu.Unlock()
				if !revisions["2024-11-05"] {
					t.Errorf("revisions told: %v", revisions)
				}
			})
		})
	}
}

// TestAServiceThatGoesAway is noticed with the next call, and lent again when it is
// back.
func TestAServiceThatGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		good := streamable(t, calculator(0))
		v := newVillage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if broken.Load() {
				http.Error(w, "down for maintenance", http.StatusBadGateway)
				return
			}
			good.ServeHTTP(w, r)
		}))
		run(t, v.config(service()), &v.log)
		time.Sleep(2 * time.Minute)
		v.set.Tools()
		broken.Store(true)
		if _, err := v.set.Call(t.Context(), "calculator", json.RawMessage(`{"python_expression":"1*1"}`)); !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("got %v", err)
		}
		broken.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		multiply(t, v.set)
	})
}

// TestATokenIsForOneHost has an access point send the pipe elsewhere.
func TestATokenIsForOneHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var elsewhere atomic.Int32
		v := newVillage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
		l, err := v.net.ListenTCP(netip.MustParseAddrPort("10.0.0.4:80"))
		if err != nil {
			t.Fatal(err)
		}
		serve(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://service.test"+r.RequestURI, http.StatusFound)
		}), nil)
		cfg := v.config(service())
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == "point.test:80" {
				return v.net.DialTCP(ctx, netip.MustParseAddr("10.0.0.3"), netip.MustParseAddrPort("10.0.0.4:80"), simnet.Path{}, simnet.Path{})
			}
			return v.dial(ctx, network, address)
		}
		run(t, cfg, &v.log)
		time.Sleep(time.Second / 2)
		if log := v.log.String(); elsewhere.Load() != 0 || !strings.Contains(log, "the access point refuses: 302 Found") || strings.Contains(log, "pa1.") {
			t.Errorf("elsewhere %d, log:\n%s", elsewhere.Load(), log)
		}
	})
}
