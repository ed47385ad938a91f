package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The echo test. In realtime mode Parley sends every packet back as it comes.
const (
	packetTime = 60 * time.Millisecond // between packets, as devices send them
	packets3s  = 50                    // packets of a whole test
	// patience is how long nothing may come back before it is taken that nothing
	// will, and how long stragglers are waited for.
	patience = 1500 * time.Millisecond
	// startWithin is how long the server may take to begin the test.
	startWithin = 2 * time.Second
	// complainWithin is how long after that a server may take to notice that it
	// hears nothing: [session] audio_timeout, 3 s, and some more.
	complainWithin = 4 * time.Second
	maxDatagram    = 4096 // bytes
)

// sound sends sound, and judges what comes back.
func (v *visit) sound(ctx context.Context) {
	began := time.Now()
	if err := v.link.publish(fmt.Sprintf(`{"session_id":%q,"type":"listen","state":"start","mode":"realtime"}`, v.session.id)); err != nil {
		v.report.fail("audio", "the server's log says why it closed the connection", "the test cannot be started: %s", reason(err))
		return
	}
	v.watch(ctx, began.Add(startWithin), func() bool { return v.echoes })
	told := v.session.address(v.session.host)
	l, err := v.try(ctx, told)
	switch {
	case ctx.Err() != nil:
		v.report.fail("audio", "run it again", "the test was interrupted")
	case err == nil && len(l.arrived) > 0:
		v.heard(ctx, l, told)
	default:
		v.unheard(ctx, l, err, began)
	}
}

// heard reports a line that works.
func (v *visit) heard(ctx context.Context, l *line, told string) {
	if sameHost(ctx, v.asked, v.session.host) {
		v.report.ok("address", "sound goes to %s, the host that was asked for the configuration", told)
	} else {
		v.report.ok("address", "sound goes to %s, another host than %s, which gave us the configuration; that works", told, v.asked)
	}
	v.report.ok("audio", "sound goes to the server and comes back")
	l.figures().report(&v.report)
}

// unheard finds out why nothing has come back from where the server told us to
// send. tried is why nothing could be sent, or nil.
func (v *visit) unheard(ctx context.Context, l *line, tried error, began time.Time) {
	told, same := v.session.address(v.session.host), sameHost(ctx, v.asked, v.session.host)
	if !same && v.asked != "" {
		other := v.session.address(v.asked)
		if l2, err := v.try(ctx, other); err == nil && len(l2.arrived) > 0 {
			v.report.fail("address", `remove [udp] address from the server's configuration, or set it to "`+v.asked+`"`,
				"the server tells devices to send sound to %s, and nothing comes back from there; from %s it does", told, other)
			return
		}
	}
	if tried == nil && !l.refused {
		v.watch(ctx, began.Add(complainWithin), func() bool { return v.deaf })
	}
	const check = "audio"
	open := fmt.Sprintf("open UDP port %d in firewalls and routers on the way, publish it from a container as %d:%d/udp, and see that [udp] listen and [udp] port agree",
		v.session.port, v.session.port, v.session.port)
	if !same {
		open += fmt.Sprintf("; and is %s, which [udp] address names, this server?", v.session.host)
	}
	switch {
	case tried != nil:
		v.report.fail("address", `set [udp] address to a name or address that devices can reach`, "sound cannot be sent to %s, where the server wants it: %s", told, reason(tried))
	case l.refused:
		v.report.fail(check, open, "the UDP port is closed: nobody listens at %s", told)
	case v.deaf:
		v.report.fail(check, open, "the UDP port is closed: the server says that none of what we sent to %s reached it", told)
	case !v.echoes:
		v.report.warn(check, "use a Parley of this version, or ask it something with 'parley talk'", "the server does not know the echo test, so that sound was not tested")
	default:
		v.report.fail(check, "let UDP from port "+fmt.Sprint(v.session.port)+" of the server come back through firewalls; or else "+open,
			"nothing comes back from %s, though the server does not complain that it hears nothing", told)
	}
}

// watch looks at messages until one has done it, the time is up, or ctx ends.
func (v *visit) watch(ctx context.Context, until time.Time, done func() bool) {
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	for !done() {
		select {
		case m, open := <-v.messages:
			if !open {
				return
			}
			v.echoes = v.echoes || m.Type == "tts" && m.State == "start"
			v.deaf = v.deaf || m.Type == "alert" && m.Status == "No audio"
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// try sends sound to an address, in the rhythm of a device, and collects what
// comes back. It gives up early where nothing does. The error is of the address.
func (v *visit) try(ctx context.Context, addr string) (*line, error) {
	dialing, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	conn, err := v.cfg.DialUDP(dialing, addr)
	if err != nil {
		return &line{}, err
	}
	e := &ear{codec: v.session.codec, conn: conn}
	var reader sync.WaitGroup
	reader.Go(e.listen) // ends when conn is closed
	sent := v.send(ctx, conn, e)
	e.await(ctx, len(sent))
	conn.Close()
	reader.Wait()
	return &line{sent: sent, arrived: e.arrived, refused: e.refused && len(e.arrived) == 0}, nil
}

// send sends the packets of a test and returns when each was sent.
func (v *visit) send(ctx context.Context, conn net.Conn, e *ear) []time.Time {
	tick := time.NewTicker(packetTime)
	defer tick.Stop()
	var sent []time.Time
	for n := range uint32(packets3s) {
		v.seq++
		sent = append(sent, time.Now())
		if _, err := conn.Write(v.session.codec.seal(sound(n), v.seq)); err != nil {
			e.failed(err) // lost like any other
		}
		if time.Duration(n)*packetTime >= patience && !e.heard() || e.gaveUp() {
			break
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return sent
		}
	}
	return sent
}

// An ear collects what comes back. listen has a goroutine of its own; the fields
// after mu are guarded by it until listen has returned.
type ear struct {
	codec *codec
	conn  net.Conn

	mu      sync.Mutex
	arrived []arrival
	refused bool
}

// maxArrivals bounds what is kept of a server that repeats for ever.
const maxArrivals = 8 * packets3s

// maxErrors bounds the errors of a socket: ICMP's port unreachable comes once for
// each packet, and the next may be luckier; more means a broken socket.
const maxErrors = 2 * packets3s

func (e *ear) listen() {
	buf := make([]byte, maxDatagram)
	for errs := 0; errs < maxErrors; {
		n, err := e.conn.Read(buf)
		at := time.Now()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			e.failed(err)
			errs++
			continue
		}
		seq, payload, ok := e.codec.open(buf[:n])
		if !ok {
			continue
		}
		number, ok := soundNumber(payload)
		if !ok {
			continue
		}
		e.mu.Lock()
		if len(e.arrived) < maxArrivals {
			e.arrived = append(e.arrived, arrival{number, seq, at})
		}
		e.mu.Unlock()
	}
}

func (e *ear) failed(err error) {
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.refused = true
}

func (e *ear) heard() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.arrived) > 0
}

// gaveUp reports that the system said nobody listens, and nothing came back.
func (e *ear) gaveUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.refused && len(e.arrived) == 0
}

// await waits for stragglers: until as many are back as were sent.
func (e *ear) await(ctx context.Context, sent int) {
	if !e.heard() {
		return
	}
	until := time.NewTimer(patience)
	defer until.Stop()
	tick := time.NewTicker(packetTime)
	defer tick.Stop()
	for {
		e.mu.Lock()
		all := len(e.arrived) >= sent
		e.mu.Unlock()
		if all {
			return
		}
		select {
		case <-tick.C:
		case <-until.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// sameHost reports whether two hosts are one: by name, or by an address.
func sameHost(ctx context.Context, a, b string) bool {
	if strings.EqualFold(a, b) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	return slices.ContainsFunc(addresses(ctx, a), func(x netip.Addr) bool { return slices.Contains(addresses(ctx, b), x) })
}

// addresses are those of a host; none where it is not known.
func addresses(ctx context.Context, host string) []netip.Addr {
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	for i := range found {
		found[i] = found[i].Unmap()
	}
	return found
}
