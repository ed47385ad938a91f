package builtin

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrNotPublic means that an address is not one of the public internet.
var ErrNotPublic = errors.New("not a public address")

// special are parts of the unicast space that are not public: the IANA
// registries of special-purpose addresses (RFC 6890 and its updates, as of
// 2026), as far as net/netip has no word for them. IPv6 outside of 2000::/3 is
// refused as a whole.
func special() []string {
	return []string{
		"0.0.0.0/8",       // this network, RFC 791
		"100.64.0.0/10",   // carrier-grade NAT, RFC 6598
		"192.0.0.0/24",    // protocol assignments, RFC 6890
		"192.0.2.0/24",    // documentation, RFC 5737
		"192.88.99.0/24",  // 6to4 relays, RFC 7526
		"198.18.0.0/15",   // benchmarking, RFC 2544
		"198.51.100.0/24", // documentation, RFC 5737
		"203.0.113.0/24",  // documentation, RFC 5737
		"240.0.0.0/4",     // reserved, and broadcast, RFC 1112
		"2001::/23",       // protocol assignments, Teredo and ORCHID among them, RFC 2928
		"2001:db8::/32",   // documentation, RFC 3849
		"2002::/16",       // 6to4, which embeds any IPv4 address, RFC 3056
		"3fff::/20",       // documentation, RFC 9637
	}
}

// PublicOnly returns an error wrapping [ErrNotPublic] for every address that is
// not of the public internet: of this machine, of private networks and those of
// carriers, link-local, multicast, reserved, and those that embed another
// address which a gateway would go on to. An IPv4 address behind NAT64
// (64:ff9b::/96) is judged itself.
func PublicOnly(a netip.Addr) error {
	refused := fmt.Errorf("%s: %w", a, ErrNotPublic)
	switch {
	case !a.IsValid(), a.Zone() != "":
		return refused
	case a.Is6() && netip.MustParsePrefix("64:ff9b::/96").Contains(a):
		b := a.As16()
		return PublicOnly(netip.AddrFrom4([4]byte(b[12:])))
	case a.Is6() && !netip.MustParsePrefix("2000::/3").Contains(a):
		return refused
	case !a.IsGlobalUnicast(), a.IsPrivate():
		return refused
	}
	for _, p := range special() {
		if netip.MustParsePrefix(p).Contains(a) {
			return refused
		}
	}
	return nil
}
