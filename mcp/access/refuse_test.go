package access_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"parley/mcp/access"
)

func TestRefusals(t *testing.T) {
	foreign, err := access.Mint([]byte("another key, as long as it must be"), access.Scope{ID: "foreign", All: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		token, body, log string
		count            func(*access.Counters) uint64
	}{
		"none": {"", "token malformed: there is none; end the address with ?token=…", `token="" reason="token malformed`,
			func(c *access.Counters) uint64 { return c.Malformed.Load() }},
		"rubbish": {"x", "token malformed: it is not of the form pa1.….…", `token=""`,
			func(c *access.Counters) uint64 { return c.Malformed.Load() }},
		"foreign": {foreign, "token not signed by this server", "token=foreign",
			func(c *access.Counters) uint64 { return c.Signature.Load() }},
		"expired": {mint(t, access.Scope{ID: "old", All: true, Expires: at("1999-12-31 23:00:00")}), "token expired on 1999-12-31", "token=old",
			func(c *access.Counters) uint64 { return c.Expired.Load() }},
		"revoked": {mint(t, access.Scope{ID: "gone", All: true}), "token revoked", "token=gone",
			func(c *access.Counters) uint64 { return c.Revoked.Load() }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, access.Config{Revoked: []string{"gone"}})
				_, _, no, err := w.dial("/mcp_endpoint/mcp/", test.token)
				if err == nil || no.status != http.StatusUnauthorized || no.challenge == "" {
					t.Fatalf("%+v, %v", no, err)
				}
				if got := no.body; got != test.body {
					t.Errorf("told %q, want %q", got, test.body)
				}
				if got := test.count(w.counters); got != 1 || w.counters.Accepted.Load() != 0 {
					t.Errorf("counted %d, accepted %d", got, w.counters.Accepted.Load())
				}
				if log := w.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, test.log) || !strings.Contains(log, "address=10.0.0.2") {
					t.Errorf("log:\n%s", log)
				}
			})
		})
	}
}

// TestFailuresAreLimited refuses an address that fails again and again in fewer
// words and without log lines, and still lets in whoever has a token there.
func TestFailuresAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		statuses := map[int]int{}
		for range 100 {
			_, _, no, _ := w.dial("/mcp/", "guess")
			statuses[no.status]++
		}
		if got := fmt.Sprint(statuses); got != "map[401:10 429:90]" {
			t.Errorf("answers %s", got)
		}
		if n := strings.Count(w.log.String(), "\n"); n != 10 || w.counters.Limited.Load() != 90 || w.counters.Malformed.Load() != 100 {
			t.Errorf("%d lines, %d limited, %d malformed", n, w.counters.Limited.Load(), w.counters.Malformed.Load())
		}
		w.lend(mint(t, access.Scope{ID: "pc", Device: deviceA}), calculator(0))
		multiply(t, w.conversation(deviceA, ""), "calculator")
		time.Sleep(5 * time.Second)
		if _, _, no, _ := w.dial("/mcp/", "guess"); no.status != http.StatusUnauthorized {
			t.Errorf("5 seconds later: %d", no.status)
		}
	})
}

func TestRevoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		stolen, good := mint(t, access.Scope{ID: "stolen", Device: deviceA}), mint(t, access.Scope{ID: "good", Device: deviceA})
		set := w.conversation(deviceA, "")
		p := w.lend(stolen, tells("S", "s", "door"))
		w.lend(good, tells("S", "s", "lamp"))
		if got := names(set); got != "lamp door" {
			t.Errorf("tools %q", got)
		}
		w.point.SetRevoked([]string{"other", "stolen"})
		if got := names(set); got != "lamp" {
			t.Errorf("tools %q", got)
		}
		if e := p.ended(t); e.Code != websocket.StatusPolicyViolation || e.Reason != "token revoked" {
			t.Errorf("told %+v", e)
		}
		if _, _, no, err := w.dial("/mcp/", stolen); err == nil || no.body != "token revoked" {
			t.Errorf("it came back: %v", err)
		}
		w.point.SetRevoked(nil)
		w.lend(stolen, tells("S", "s", "door"))
		if got := names(set); got != "lamp door" {
			t.Errorf("pardoned: tools %q", got)
		}
	})
}

func TestATokenExpiresWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		set := w.conversation(deviceA, "")
		p := w.lend(mint(t, access.Scope{ID: "x", Device: deviceA, Expires: time.Now().Add(time.Hour)}), calculator(0))
		time.Sleep(time.Hour - time.Second)
		multiply(t, set, "calculator")
		if e := p.ended(t); e.Code != websocket.StatusPolicyViolation || e.Reason != "token expired" {
			t.Errorf("told %+v", e)
		}
		synctest.Wait()
		if got := names(set); got != "" {
			t.Errorf("tools %q", got)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{MaxConnections: 20})
		one, two := mint(t, access.Scope{ID: "one", Device: deviceA}), mint(t, access.Scope{ID: "two", Device: deviceB})
		for i := range access.DefaultMaxPerToken {
			w.lend(one, tells("S", "s", fmt.Sprint("tool", i)))
		}
		if _, _, no, err := w.dial("/mcp/", one); err == nil || no.status != http.StatusTooManyRequests || !strings.Contains(no.body, "with this token") {
			t.Errorf("the 17th: %v", err)
		}
		for range 4 {
			w.lend(two, tells("S", "s", "tool"))
		}
		if _, _, no, err := w.dial("/mcp/", two); err == nil || no.status != http.StatusServiceUnavailable {
			t.Errorf("the 21st: %v", err)
		}
		if got := len(w.conversation(deviceA, "").Tools()); got != 16 || w.counters.Full.Load() != 2 {
			t.Errorf("%d tools, %d refused", got, w.counters.Full.Load())
		}
	})
}

// TestABrowserIsTold asks with a token, but not for a WebSocket.
func TestABrowserIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, access.Config{})
		c, err := w.net.DialTCP(t.Context(), w.addr.Addr(), w.addr, simnetPath(), simnetPath())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /mcp/?token=%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", mint(t, access.Scope{ID: "pc", All: true}))
		answer, _ := io.ReadAll(c)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 426 ") {
			t.Errorf("answer %q", answer)
		}
		if got := w.point.Connections(); len(got) != 0 {
			t.Errorf("left: %+v", got)
		}
	})
}
