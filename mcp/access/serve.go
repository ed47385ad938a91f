package access

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/coder/websocket"
)

// Patterns returns the patterns of [http.ServeMux] that a Point is to be
// registered for: the paths of a self-hosted access point and of xiaozhi's cloud,
// with and without the slash, as pipes follow no redirects.
func Patterns() []string {
	return []string{"/mcp_endpoint/mcp/{$}", "/mcp_endpoint/mcp", "/mcp/{$}", "/mcp"}
}

// ServeHTTP implements [http.Handler]. It refuses a request without a valid token
// before it becomes a WebSocket, with status 401 and the reason; else it returns
// when the connection has ended. The time limits of the [http.Server] do not
// apply to a WebSocket.
func (p *Point) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	addr := remote(r)
	scope, err := Verify(p.cfg.Key, r.URL.Query().Get("token"), time.Now())
	var c *conn
	if err == nil {
		c, err = p.admit(r.Context(), scope, addr)
	}
	if err != nil {
		p.refuse(w, addr, scope, err)
		return
	}
	defer p.leave(c)
	hijacker := &hijacker{ResponseWriter: w}
	ws, err := websocket.Accept(hijacker, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		// Accept has answered: somebody tries the address in a browser.
		c.log.Info("mcp endpoint refused", "reason", err)
		return
	}
	c.serve(ws, hijacker.conn)
}

// A hijacker is a ResponseWriter that keeps the connection it hands over.
type hijacker struct {
	http.ResponseWriter
	conn net.Conn
}

// Hijack implements [http.Hijacker]. The connection has no deadlines.
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.conn = conn
	return conn, rw, conn.SetDeadline(time.Time{})
}

// remote is the address a request came from, the zero address if it is unknown.
func remote(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap()
}

// refuse answers a request that gets no connection, counts it, and says so in the
// log unless this address has failed too often lately.
func (p *Point) refuse(w http.ResponseWriter, addr netip.Addr, claimed Scope, err error) {
	counters := p.cfg.Counters
	status := http.StatusUnauthorized
	switch {
	case errors.Is(err, ErrMalformed):
		counters.Malformed.Add(1)
	case errors.Is(err, ErrSignature):
		counters.Signature.Add(1)
	case errors.Is(err, ErrExpired):
		counters.Expired.Add(1)
	case errors.Is(err, ErrRevoked):
		counters.Revoked.Add(1)
	case errors.Is(err, errTokenFull):
		counters.Full.Add(1)
		status = http.StatusTooManyRequests
	case errors.Is(err, errFull):
		counters.Full.Add(1)
		status = http.StatusServiceUnavailable
	default:
		status = http.StatusServiceUnavailable
	}
	if !p.failures.allow(addr, time.Now()) {
		counters.Limited.Add(1)
		w.Header().Set("Retry-After", fmt.Sprint(int(1/failureRate)))
		http.Error(w, "too many refused requests from this address", http.StatusTooManyRequests)
		return
	}
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer error="invalid_token"`)
	}
	p.log.Warn("mcp endpoint refused", "address", addr.String(), "token", claimed.ID, "reason", err)
	http.Error(w, err.Error(), status)
}
