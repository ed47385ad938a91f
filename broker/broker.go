package broker

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"golang.org/x/time/rate"

	"parley/internal/protocol"
)

// shutdownGrace is how long Serve lets connections write their last packets.
const shutdownGrace = lingerTimeout

// takeoverTimeout is how long a new connection waits for the previous one of the
// same device to be done with. It is normally microseconds; a Receiver that
// blocks is what makes it long.
const takeoverTimeout = 5 * time.Second

// An Embedded broker serves devices and home clients inside this process. Make
// it with [New], run it once with [Embedded.Serve].
type Embedded struct {
	key      []byte
	limits   Limits
	handler  Handler
	log      *slog.Logger
	engine   *mqtt.Server
	home     *hub         // nil without users
	plain    net.Listener // nil if there is none
	secure   net.Listener // nil if there is none; accepts before the handshake
	tls      *tls.Config
	stats    stats
	refusals *rate.Limiter // lines about refused connections
	buffers  sync.Pool     // of *buffer
	rates    addressRates
	wg       sync.WaitGroup // every goroutine of Serve

	mu      sync.Mutex
	served  bool
	closing bool
	conns   map[*conn]struct{} // all
	pending list.List          // of *conn without a CONNECT yet, oldest first
	seats   map[protocol.DeviceID]*seat
}

// A seat is the one place a device has. A connection owns it from before its
// CONNACK until its receiver knows that it ended.
type seat struct {
	owner   chan struct{} // holds one token while owned
	current *Link         // the newest connection, owner or next to be; guarded by Embedded.mu
	users   int           // connections that own the seat or wait for it; guarded by Embedded.mu
}

// New binds the listeners of cfg and reads its certificate. A port that is taken
// is an error here, wrapping that of package net. Without a later Serve, Close
// releases the listeners. New keeps h and log; the methods of h are called while
// Serve runs.
func New(cfg Config, h Handler, log *slog.Logger) (*Embedded, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Embedded{
		key:      cfg.Key,
		limits:   cfg.Limits.withDefaults(),
		handler:  h,
		log:      log,
		refusals: rate.NewLimiter(5, 20),
		conns:    make(map[*conn]struct{}),
		seats:    make(map[protocol.DeviceID]*seat),
		plain:    cfg.Listener,
	}
	if len(cfg.Users) > 0 {
		b.home = newHub(cfg.Users, b.limits.Home, log)
	}
	b.buffers.New = func() any { return new(buffer) }
	b.rates.init(b.limits.ConnectRate, b.limits.ConnectBurst)
	var err error
	if b.engine, err = newEngine(log); err != nil {
		return nil, err
	}
	if err := b.listen(cfg); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Embedded) listen(cfg Config) error {
	var err error
	if cfg.Listener == nil && cfg.Listen != "" {
		if b.plain, err = net.Listen("tcp", cfg.Listen); err != nil {
			return fmt.Errorf("broker: MQTT: %w", err)
		}
	}
	if cfg.TLSListen == "" {
		return nil
	}
	certs, err := newCertificates(cfg.CertificateFile, cfg.KeyFile, b.log)
	if err != nil {
		return err
	}
	b.tls = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certs.get}
	if b.secure, err = net.Listen("tcp", cfg.TLSListen); err != nil {
		return fmt.Errorf("broker: MQTT over TLS: %w", err)
	}
	return nil
}

// Addr is the address of the plain listener, nil if there is none.
func (b *Embedded) Addr() net.Addr { return listenerAddr(b.plain) }

// TLSAddr is the address of the TLS listener, nil if there is none.
func (b *Embedded) TLSAddr() net.Addr { return listenerAddr(b.secure) }

func listenerAddr(l net.Listener) net.Addr {
	if l == nil {
		return nil
	}
	return l.Addr()
}

// Close releases the listeners. It is for a broker that is never served; Serve
// does the same when its context ends.
func (b *Embedded) Close() error {
	var errs []error
	for _, l := range b.listeners() {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("broker: close listener: %w", err))
		}
	}
	return errors.Join(errs...)
}

func (b *Embedded) listeners() []net.Listener {
	var ls []net.Listener
	for _, l := range []net.Listener{b.plain, b.secure} {
		if l != nil {
			ls = append(ls, l)
		}
	}
	return ls
}

// Serve accepts clients until ctx ends, then disconnects them, and returns when
// every connection is closed and every Receiver has been told. With receivers
// that return promptly it takes at most about a second, whatever the peers do.
// It returns nil after ctx ended, and an error if a listener failed or if it is
// called a second time.
func (b *Embedded) Serve(ctx context.Context) error {
	b.mu.Lock()
	again := b.served
	b.served = true
	b.mu.Unlock()
	if again {
		return errors.New("broker: Serve called twice; make a new broker")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if b.plain != nil {
		b.wg.Go(func() { b.accept(ctx, b.plain, nil, cancel) })
	}
	if b.secure != nil {
		b.wg.Go(func() { b.accept(ctx, b.secure, b.tls, cancel) })
	}
	if b.home != nil {
		b.wg.Go(func() { b.home.keep(ctx) })
	}
	<-ctx.Done()
	err := b.Close()
	b.disconnectAll()
	if cause := context.Cause(ctx); errors.Is(cause, net.ErrClosed) {
		err = errors.Join(cause, err)
	}
	return err
}

// disconnectAll ends every connection and waits for every goroutine.
func (b *Embedded) disconnectAll() {
	if b.home != nil {
		b.home.close()
	}
	b.mu.Lock()
	b.closing = true
	for c := range b.conns {
		c.shut(ErrShutdown)
	}
	b.mu.Unlock()
	force := time.AfterFunc(shutdownGrace, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for c := range b.conns {
			c.fail(ErrShutdown)
		}
	})
	b.wg.Wait()
	force.Stop()
}
