package broker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// certificateCheck is how often, at most, the certificate's files are looked at.
const certificateCheck = time.Second

// certificates holds a certificate and reads it again when its files change. It
// looks during handshakes, so it needs no goroutine. A pair that cannot be read
// leaves the old one in use.
type certificates struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	current *tls.Certificate
	seen    [2]fileVersion // of the last attempt
	failed  bool           // the last attempt, and it was logged
	checked time.Time
}

// A fileVersion changes when a file is written.
type fileVersion struct {
	modified time.Time
	size     int64
}

// newCertificates reads the pair of PEM files.
func newCertificates(certFile, keyFile string, log *slog.Logger) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, log: log, checked: time.Now()}
	seen, err := c.versions()
	if err != nil {
		return nil, fmt.Errorf("broker: TLS certificate: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("broker: TLS certificate %s with key %s: %w", certFile, keyFile, err)
	}
	c.current, c.seen = &pair, seen
	return c, nil
}

// get is the GetCertificate of a tls.Config.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= certificateCheck {
		c.checked = now
		c.reload()
	}
	return c.current, nil
}

// reload reads the files if they changed. A failed attempt is repeated every
// time, because the two files are not replaced at one instant, and logged once.
func (c *certificates) reload() {
	seen, err := c.versions()
	if err == nil && seen == c.seen && !c.failed {
		return
	}
	if err == nil {
		var pair tls.Certificate
		if pair, err = tls.LoadX509KeyPair(c.certFile, c.keyFile); err == nil {
			c.current, c.seen, c.failed = &pair, seen, false
			c.log.Info("TLS certificate reloaded", "file", c.certFile)
			return
		}
	}
	if !c.failed {
		c.log.Warn("TLS certificate not reloaded; the old one stays in use", "file", c.certFile, "error", err)
	}
	c.failed = true
}

func (c *certificates) versions() (v [2]fileVersion, err error) {
	for i, name := range []string{c.certFile, c.keyFile} {
		info, err := os.Stat(name)
		if err != nil {
			return v, err
		}
		v[i] = fileVersion{info.ModTime(), info.Size()}
	}
	return v, nil
}
