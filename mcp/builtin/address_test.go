package builtin_test

import (
	"errors"
	"net/netip"
	"testing"

	"parley/mcp/builtin"
)

func TestPublicOnly(t *testing.T) {
	for _, a := range []string{
		// this machine, and nothing in particular
		"127.0.0.1", "127.255.255.254", "::1", "0.0.0.0", "0.1.2.3", "::",
		// private, and of carriers
		"10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "100.127.255.255", "fc00::1", "fd12:3456::1", "fec0::1",
		// link-local, cloud metadata among them
		"169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254",
		// multicast, broadcast, reserved
		"224.0.0.1", "239.255.255.250", "255.255.255.255", "240.0.0.1", "ff02::1", "ff0e::1",
		// documentation, benchmarks, protocols
		"192.0.2.1", "198.51.100.7", "203.0.113.9", "198.18.0.1", "198.19.255.255", "192.0.0.1", "192.0.0.170", "192.88.99.1", "2001:db8::1", "3fff::1", "2001:2::1", "5f00::1", "100::1",
		// one address in another
		"::ffff:127.0.0.1", "::ffff:8.8.8.8", "::127.0.0.1", "::8.8.8.8",
		"64:ff9b::7f00:1", "64:ff9b::a00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::808:808",
		"2002:7f00:1::1", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "2001:20::1",
		"::ffff:0:127.0.0.1",
	} {
		if err := builtin.PublicOnly(netip.MustParseAddr(a)); !errors.Is(err, builtin.ErrNotPublic) {
			t.Errorf("%s is accepted: %v", a, err)
		}
	}
	for _, a := range []string{
		"8.8.8.8", "1.1.1.1", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1", "192.0.1.1", "198.17.255.255", "223.255.255.254",
		"2606:4700:4700::1111", "2001:4860:4860::8888", "2a00:1450:4001::1", "2003::1", "64:ff9b::808:808",
	} {
		if err := builtin.PublicOnly(netip.MustParseAddr(a)); err != nil {
			t.Error(err)
		}
	}
	if err := builtin.PublicOnly(netip.Addr{}); !errors.Is(err, builtin.ErrNotPublic) {
		t.Errorf("no address at all is accepted: %v", err)
	}
}
