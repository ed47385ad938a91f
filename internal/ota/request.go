package ota

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"parley/internal/protocol"
)

// Bounds of what is taken over from a request, in bytes. Together they keep a
// user name under 600 bytes and the whole CONNECT of a device under 1 KiB.
const (
	maxHost   = 253 // RFC 1035
	maxAgent  = 80  // "<board>/<version>"; the longest known board name has 40
	maxClient = 64  // a UUID has 36
)

// A device is what a request says of its sender.
type device struct {
	id      protocol.DeviceID
	client  string // letters, digits and hyphens; never empty
	agent   string // printable; "" when the request had none
	version version
}

// describeDevice reads the headers, and the body for what they lack. Firmware
// does not escape network names in the body, so it may be broken, which is no
// reason to refuse a device.
func describeDevice(id protocol.DeviceID, r *http.Request) device {
	d := device{
		id:     id,
		client: clientOf(r.Header.Get("Client-Id")),
		agent:  clean(r.UserAgent(), maxAgent),
	}
	if d.client == "" { // as other servers do where the UUID is unknown
		d.client = id.Underscored()
	}
	var body struct {
		Application struct {
			Version string `json:"version"`
		} `json:"application"`
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, MaxBody))
	if err == nil {
		_ = json.Unmarshal(text, &body) // see above
	}
	_, told, _ := strings.Cut(d.agent, "/")
	if d.version = parseVersion(told); d.version == nil {
		d.version = parseVersion(body.Application.Version)
	}
	return d
}

// clientOf keeps what may be part of an MQTT client id.
func clientOf(s string) string {
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() < maxClient; i++ {
		if c := s[i]; isAlphanumeric(c) || c == '-' {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// clean keeps at most limit bytes of printable ASCII, without the characters
// that JSON escapes.
func clean(s string, limit int) string {
	var b strings.Builder
	for i := 0; i < len(s) && b.Len() < limit; i++ {
		if c := s[i]; c >= ' ' && c <= '~' && !strings.ContainsRune(`"\<>&`, rune(c)) {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// A source is where a request came from.
type source struct {
	address string // without port; "" when unknown
	private bool
}

// sourceOf judges a request by its connection and by every address that a proxy
// says it came through.
func sourceOf(r *http.Request) source {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return source{}
	}
	s := source{"", true}
	s.through(peer.Addr())
	if len(r.Header.Values("Forwarded")) > 0 { // RFC 7239; it may hide the address on purpose
		s.private = false
	}
	for _, name := range []string{"X-Real-Ip", "X-Forwarded-For"} {
		for _, line := range r.Header.Values(name) {
			for hop := range strings.SplitSeq(line, ",") {
				via, err := netip.ParseAddr(strings.TrimSpace(hop))
				if err != nil {
					s.private = false
					continue
				}
				s.through(via)
			}
		}
	}
	return s
}

// through adds an address on a request's way. It came from the first public one,
// or else from the connection's own.
func (s *source) through(a netip.Addr) {
	a = a.Unmap().WithZone("")
	if public := !isPrivate(a); s.address == "" || s.private && public {
		s.address = a.String()
	}
	s.private = s.private && isPrivate(a)
}

// isPrivate reports whether an address cannot be reached over the internet.
func isPrivate(a netip.Addr) bool {
	return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || isShared(a)
}

// isShared reports 100.64.0.0/10 (RFC 6598), which mobile operators and overlay
// networks such as Tailscale give out.
func isShared(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	b := a.As4()
	return b[0] == 100 && b[1]&0xc0 == 64
}

// usableHost returns the host a request was for, in a form a device can be told:
// a name or an IPv4 address. Devices split the endpoint at its first colon, so an
// IPv6 address makes them restart for ever. Then, or when the header is no host,
// it is the IPv4 address the request arrived at; "" when there is none.
func usableHost(r *http.Request) string {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if isHostName(host) {
		return strings.ToLower(host)
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		if ap, err := netip.ParseAddrPort(local.String()); err == nil && ap.Addr().Unmap().Is4() {
			return ap.Addr().Unmap().String()
		}
	}
	return ""
}

// isHostName reports whether s could be a host name or an IPv4 address. A device
// resolves it; this only keeps out what would do harm in a configuration.
func isHostName(s string) bool {
	if s == "" || len(s) > maxHost || s[0] == '.' || s[0] == '-' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !isAlphanumeric(c) && c != '.' && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
