package vision_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
	"parley/internal/simnet"
	"parley/internal/vision"
)

func mustParse(t *testing.T, mac string) protocol.DeviceID {
	t.Helper()
	id, err := protocol.ParseDeviceID(mac)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// newSlowTestbed serves on a network in virtual time. It must be called in a
// synctest bubble.
func newSlowTestbed(t *testing.T, cfg vision.Config, answer func(context.Context) (string, error)) *testbed {
	t.Helper()
	network := simnet.New(1)
	l, err := network.ListenTCP(netip.MustParseAddrPort("10.0.0.1:8003"))
	if err != nil {
		t.Fatal(err)
	}
	dial := func() (net.Conn, error) {
		return network.DialTCP(t.Context(), netip.MustParseAddr("10.0.0.2"), netip.MustParseAddrPort("10.0.0.1:8003"), simnet.Path{}, simnet.Path{})
	}
	return newTestbedOn(t, l, dial, cfg, answer)
}

// TestASlowModelHasItsTime: beyond the limits on reading and writing that the
// server has for everybody, and not beyond its own.
func TestASlowModelHasItsTime(t *testing.T) {
	for name, c := range map[string]struct {
		takes, want time.Duration
		success     bool
	}{
		"in time":  {24 * time.Second, 24 * time.Second, true},
		"too slow": {time.Hour, vision.DefaultTimeout, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSlowTestbed(t, vision.Config{}, func(ctx context.Context) (string, error) {
					select {
					case <-time.After(c.takes):
						return "A cat.", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				})
				from := time.Now()
				r := b.send(photo("q", asJPEG(64, 48)))
				if r.status != 200 || r.Success != c.success {
					t.Errorf("%d %s", r.status, r.body)
				}
				if got := time.Since(from); got != c.want {
					t.Errorf("answered after %v, want %v", got, c.want)
				}
			})
		})
	}
}

// TestADeviceThatGoesAwayIsNotLookedAtFor: the model is told at once.
func TestADeviceThatGoesAwayIsNotLookedAtFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan time.Time, 1)
		b := newSlowTestbed(t, vision.Config{}, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			ended <- time.Now()
			return "", ctx.Err()
		})
		c := b.dial()
		io.WriteString(c, photo("q", asJPEG(64, 48)).String())
		time.Sleep(3 * time.Second)
		gone := time.Now()
		c.Close()
		if got := (<-ended).Sub(gone); got != 0 {
			t.Errorf("the model was told %v later", got)
		}
	})
}

// TestUploadsThatTakeTheirTime sends chunks at every pace.
func TestUploadsThatTakeTheirTime(t *testing.T) {
	for name, c := range map[string]struct {
		pause  time.Duration // between chunks
		status int
		after  time.Duration
	}{
		"longer than requests may be elsewhere": {4 * time.Second, http.StatusOK, 48 * time.Second},
		"a pause that is too long":              {16 * time.Second, http.StatusRequestTimeout, 15 * time.Second},
		"too long in all":                       {14 * time.Second, http.StatusRequestTimeout, 60 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newSlowTestbed(t, vision.Config{}, nil)
				picture := asJPEG(32, 32)
				u := photo("q", append(picture, make([]byte, 12*512-len(photo("q", picture).body))...))
				chunks := u.chunks() // 12, and the end
				conn, from := b.dial(), time.Now()
				sent := make(chan struct{})
				go func() { // ends when it is refused, or has sent all
					defer close(sent)
					_, err := io.WriteString(conn, u.head())
					for i, chunk := range chunks {
						if i > 0 {
							time.Sleep(c.pause)
						}
						if err == nil {
							_, err = io.WriteString(conn, chunk)
						}
					}
				}()
				r := b.read(conn)
				if r.status != c.status {
					t.Errorf("%d %s", r.status, r.body)
				}
				if got := time.Since(from); got != c.after {
					t.Errorf("answered after %v, want %v", got, c.after)
				}
				conn.Close()
				<-sent
				if c.status != http.StatusOK && !strings.Contains(r.body, "too slow") {
					t.Errorf("answered %s", r.body)
				}
			})
		})
	}
}
