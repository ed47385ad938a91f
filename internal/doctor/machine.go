package doctor

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"
)

// A Machine is what an examination looks at beside the configuration.
type Machine struct {
	Now       time.Time
	Built     time.Time // of this program; zero where it is not known
	Local     *time.Location
	Addresses []netip.Addr   // of the interfaces that are up
	Container bool           // we run in one
	Roots     *x509.CertPool // of certificate authorities; nil: the system's
	Lookup    func(ctx context.Context, host string) ([]netip.Addr, error)
}

// ThisMachine looks at the machine we run on. built is when the program was.
func ThisMachine(built time.Time) (Machine, error) {
	m := Machine{
		Now: time.Now(), Built: built, Local: time.Local, Container: inContainer(),
		Lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		},
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return m, err
	}
	for _, a := range found {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				m.Addresses = append(m.Addresses, ip.Unmap())
			}
		}
	}
	return m, nil
}

// inContainer reports whether a container engine has started us: Docker leaves a
// file, Podman another, and the names of control groups tell of others.
func inContainer() bool {
	for _, name := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(name); err == nil {
			return true
		}
	}
	groups, err := os.ReadFile("/proc/1/cgroup")
	if err != nil {
		return false
	}
	for _, engine := range []string{"docker", "kubepods", "containerd", "libpod", "lxc"} {
		if strings.Contains(string(groups), engine) {
			return true
		}
	}
	return false
}

// private is an address of the machine by which devices of a private network
// could know it; loopback where there is none. A visit from a public one would be
// refused, rightly, where enrolment is private.
func (m Machine) private() netip.Addr {
	for _, a := range m.Addresses {
		if a.Is4() && a.IsPrivate() {
			return a
		}
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// clock checks what devices are told of the time.
func (m Machine) clock(r *Report, zone *time.Location, set bool) {
	const check = "clock"
	const oldest = 2026 // this program is not older
	year := max(oldest, m.Built.Year())
	at := m.Now.In(zone)
	name, offset := at.Zone()
	switch {
	case at.Year() < year:
		r.fail(check, "set the clock (NTP)", "it is %s, before this program was made: certificates will not be valid", at.Format(time.DateOnly))
	case !set && m.Container && offset == 0:
		r.warn(check, `set [ota] timezone to a name such as "Europe/Berlin": containers seldom know theirs`, "%s; devices will show UTC", at.Format("2006-01-02 15:04 MST"))
	default:
		r.ok(check, "%s, devices are set to %s (UTC%+.4g h)", at.Format("2006-01-02 15:04"), name, float64(offset)/3600)
	}
}

// advertised checks a host that devices are told. key is where it stands.
func (m Machine) advertised(ctx context.Context, r *Report, key, host string) {
	const check = "address"
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	found, err := m.Lookup(ctx, host)
	if err != nil {
		r.fail(check, "correct the name, or use an IPv4 address", "%s %q: %s", key, host, reason(err))
		return
	}
	var known []netip.Addr
	for _, a := range found {
		if a = a.Unmap(); a.Is4() {
			known = append(known, a)
		}
	}
	if len(known) == 0 {
		r.fail(check, "use a name that has an IPv4 address: devices know no IPv6", "%s %q has no IPv4 address", key, host)
		return
	}
	m.judge(r, key, host, known[0])
}

func (m Machine) judge(r *Report, key, host string, a netip.Addr) {
	const check = "address"
	own := false
	for _, o := range m.Addresses {
		own = own || o == a
	}
	what := key + " " + host
	if a.String() != host {
		what += " (" + a.String() + ")"
	}
	switch {
	case a.IsLoopback() || a.IsUnspecified():
		r.warn(check, "name an address that devices can reach, or remove it", "%s is reached by this machine only", what)
	case within(a, "192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"):
		r.fail(check, "name an address that devices can reach, or remove it", "%s is an example of a manual: nobody has it (RFC 5737)", what)
	case within(a, "172.17.0.0/16", "10.88.0.0/16"), own && m.Container:
		r.warn(check, "name the address of the host that runs the container, or remove it", "%s is an address inside a container's network, which devices cannot reach", what)
	case own:
		r.ok(check, "%s is this machine", what)
	default:
		r.warn(check, "right if a router, proxy or container host passes it on to here; else correct it", "%s is not an address of this machine", what)
	}
}

// within reports whether a is in one of the networks. 172.17.0.0/16 is Docker's
// default bridge, 10.88.0.0/16 Podman's.
func within(a netip.Addr, networks ...string) bool {
	for _, n := range networks {
		if netip.MustParsePrefix(n).Contains(a) {
			return true
		}
	}
	return false
}
