package broker

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/time/rate"
)

// A Config says where an [Embedded] broker listens and whom it lets in. At least
// one of Listener, Listen and TLSListen is needed.
type Config struct {
	// Listener, if set, accepts plain connections, and Listen is ignored. The
	// broker closes it.
	Listener net.Listener
	// Listen is the address of the plain listener, such as ":1883".
	Listen string

	// TLSListen is the address of the TLS listener, such as ":8883". Devices use
	// TLS exactly on port 8883, and trust public certificates only.
	TLSListen string
	// CertificateFile and KeyFile are PEM files. They are read again when they
	// change, at most once a second and without dropping a connection.
	CertificateFile, KeyFile string

	// Key signs device credentials (see protocol.Password). Empty means open
	// enrolment: any device may connect, but only from a private, loopback,
	// link-local or carrier-grade NAT address.
	Key []byte

	// Users are whom home clients may log in as. Without any there is no home and
	// only devices may connect.
	Users []User

	// Limits bound what a peer can take. Zero fields mean the defaults.
	Limits Limits
}

// Limits bound what one peer, or all of them, can take from an [Embedded]
// broker. A zero field means its default.
type Limits struct {
	// ConnectTimeout is the time from TCP accept to a complete CONNECT, the TLS
	// handshake included. Default 5 s.
	ConnectTimeout time.Duration
	// MaxConnect is the size in bytes of the largest CONNECT packet; nothing more
	// is held for a peer until it is authenticated. Default 2 KiB: a client id of
	// 256 bytes, a signed user name of 1,024 and its password need 1,342.
	MaxConnect int
	// MaxPacket is the size in bytes of the largest packet either way. Default
	// 64 KiB; a device's list of tools has about 8,000 bytes.
	MaxPacket int
	// ConnectRate and ConnectBurst bound TCP connections from one address, in
	// connections per second; an IPv6 address counts as its /64. Defaults 20 and
	// 40. A negative rate means no limit, for measurements.
	ConnectRate  rate.Limit
	ConnectBurst int
	// MaxPending is the number of connections that may be without a complete
	// CONNECT. When one more arrives the oldest of them is dropped, so that
	// peers who connect and say nothing cannot lock devices out. Default 1,024.
	MaxPending int
	// MaxDevices is the number of devices connected at once. Default 20,000.
	MaxDevices int
	// MessageRate and MessageBurst bound the MQTT packets of one device, in
	// packets per second. Defaults 50 and 100. A negative rate means no limit.
	MessageRate  rate.Limit
	MessageBurst int
	// MaxQueued is the number of packets waiting to be written to one device.
	// Default 64.
	MaxQueued int
	// WriteTimeout is the time a write to a device may take once its TCP window
	// and our socket buffer are full. Default 10 s.
	WriteTimeout time.Duration
	// Home bounds home clients. ConnectTimeout, MaxConnect, ConnectRate,
	// MaxPending and WriteTimeout are for them as well.
	Home HomeLimits
}

func (l Limits) withDefaults() Limits {
	l.ConnectTimeout = cmp.Or(l.ConnectTimeout, 5*time.Second)
	l.MaxConnect = cmp.Or(l.MaxConnect, 2<<10)
	l.MaxPacket = cmp.Or(l.MaxPacket, 64<<10)
	l.ConnectRate = noLimitIfNegative(cmp.Or(l.ConnectRate, 20))
	l.ConnectBurst = cmp.Or(l.ConnectBurst, 40)
	l.MaxPending = cmp.Or(l.MaxPending, 1024)
	l.MaxDevices = cmp.Or(l.MaxDevices, 20_000)
	l.MessageRate = noLimitIfNegative(cmp.Or(l.MessageRate, 50))
	l.MessageBurst = cmp.Or(l.MessageBurst, 100)
	l.MaxQueued = cmp.Or(l.MaxQueued, 64)
	l.WriteTimeout = cmp.Or(l.WriteTimeout, 10*time.Second)
	l.Home = l.Home.withDefaults()
	return l
}

func noLimitIfNegative(r rate.Limit) rate.Limit {
	if r < 0 {
		return rate.Inf
	}
	return r
}

// maxConnectLimit is what two bytes of an MQTT remaining length can say; the
// reader of CONNECT packets relies on it.
const maxConnectLimit = 1<<14 - 1 // bytes

// maxRemaining is the largest remaining length MQTT can say.
const maxRemaining = 1<<28 - 1 // bytes

func (l Limits) validate() error {
	for _, f := range []struct {
		name string
		v    int
	}{
		{"ConnectTimeout", int(l.ConnectTimeout)}, {"MaxConnect", l.MaxConnect}, {"MaxPacket", l.MaxPacket},
		{"ConnectBurst", l.ConnectBurst}, {"MaxPending", l.MaxPending}, {"MaxDevices", l.MaxDevices},
		{"MessageBurst", l.MessageBurst}, {"MaxQueued", l.MaxQueued}, {"WriteTimeout", int(l.WriteTimeout)},
	} {
		if f.v < 0 {
			return fmt.Errorf("broker: Limits.%s is negative; leave it 0 for the default", f.name)
		}
	}
	if l.MaxConnect > maxConnectLimit {
		return fmt.Errorf("broker: Limits.MaxConnect is %d bytes; at most %d are possible", l.MaxConnect, maxConnectLimit)
	}
	if l.MaxPacket > maxRemaining {
		return fmt.Errorf("broker: Limits.MaxPacket is %d bytes; at most %d are possible", l.MaxPacket, maxRemaining)
	}
	return l.Home.validate()
}

func (c Config) validate() error {
	switch {
	case c.Listener == nil && c.Listen == "" && c.TLSListen == "":
		return errors.New("broker: no address to listen on; set Listen, for example \":1883\"")
	case c.TLSListen != "" && (c.CertificateFile == "" || c.KeyFile == ""):
		return errors.New("broker: TLSListen is set without a certificate; set CertificateFile and KeyFile")
	}
	if err := validateUsers(c.Users); err != nil {
		return err
	}
	return c.Limits.validate()
}
