package vision

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strings"
	"sync"

	"parley/internal/protocol"
)

// Token is what a device proves itself with: an HMAC-SHA256 under key of its id,
// in 43 characters of base64url. It is "" if key is empty.
func Token(key []byte, device protocol.DeviceID) string {
	if len(key) == 0 {
		return ""
	}
	m := hmac.New(sha256.New, key)
	// The key may sign other things, too, none of which begins like this.
	m.Write([]byte("vision\x00" + string(device)))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// authenticate returns the device that asks. The token is compared in constant
// time.
func (h *Handler) authenticate(r *http.Request) (protocol.DeviceID, *fault) {
	if len(h.cfg.Key) == 0 {
		return "", &fault{http.StatusUnauthorized, "no key is configured to check tokens with, so no device is served"}
	}
	device, err := protocol.ParseDeviceID(r.Header.Get("Device-Id"))
	if err != nil {
		return "", &fault{http.StatusUnauthorized, "header Device-Id: " + err.Error() + "; send the device's MAC as aa:bb:cc:dd:ee:ff"}
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", &fault{http.StatusUnauthorized, "header Authorization: not a bearer token; the device has its token from MCP initialize"}
	}
	if !hmac.Equal([]byte(strings.TrimSpace(token)), []byte(Token(h.cfg.Key, device))) {
		return "", &fault{http.StatusUnauthorized, "header Authorization: the token is not this device's; it gets a new one when it connects again"}
	}
	return device, nil
}

// slots are the requests at work. The zero value has none.
type slots struct {
	mu       sync.Mutex
	total    int
	ofDevice map[protocol.DeviceID]int
}

// take occupies a slot until free is called.
func (s *slots) take(d protocol.DeviceID) (free func(), refused *fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ofDevice[d] >= MaxDeviceRequests:
		return nil, &fault{http.StatusTooManyRequests, "pictures of this device are being looked at already"}
	case s.total >= MaxRequests:
		return nil, &fault{http.StatusTooManyRequests, "too many pictures are being looked at"}
	}
	if s.ofDevice == nil {
		s.ofDevice = make(map[protocol.DeviceID]int)
	}
	s.total++
	s.ofDevice[d]++
	return func() { s.give(d) }, nil
}

func (s *slots) give(d protocol.DeviceID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.ofDevice[d]--; s.ofDevice[d] == 0 {
		delete(s.ofDevice, d)
	}
}
