//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// argsVariable makes the test binary the program, so that it can run in another
// network namespace.
const argsVariable = "PARLEY_TEST_ARGS"

// TestAsProgram is no test: it is the program, with the arguments of the variable.
func TestAsProgram(t *testing.T) {
	args := os.Getenv(argsVariable)
	if args == "" {
		t.Skip("this is the program for TestDoctorThroughNetworks")
	}
	os.Exit(run(context.Background(), strings.Fields(args), os.Stdout, os.Stderr))
}

// A lab is three machines: a server, a router that translates addresses, and
// where devices are, each a network namespace.
//
//	home 10.99.2.2 ── 10.99.2.1 router 10.99.1.1 ── 10.99.1.2 server
type lab struct {
	t                    *testing.T
	server, router, home string
}

// newLab makes a lab, or skips the test where it may not: it takes root,
// iproute2 and nftables.
func newLab(t *testing.T) *lab {
	t.Helper()
	for _, tool := range []string{"ip", "nft", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v; install iproute2 and nftables", err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	base := fmt.Sprintf("pd%d", os.Getpid()%100000)
	l := &lab{t, base + "s", base + "r", base + "h"}
	for _, ns := range []string{l.server, l.router, l.home} {
		if out, err := exec.Command("ip", "netns", "add", ns).CombinedOutput(); err != nil {
			t.Skipf("no network namespaces here: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", ns).Run() })
	}
	l.run("", "ip link add s0 netns "+l.server+" type veth peer name r0 netns "+l.router)
	l.run("", "ip link add h0 netns "+l.home+" type veth peer name r1 netns "+l.router)
	for ns, addresses := range map[string][][2]string{
		l.server: {{"s0", "10.99.1.2/24"}}, l.router: {{"r0", "10.99.1.1/24"}, {"r1", "10.99.2.1/24"}}, l.home: {{"h0", "10.99.2.2/24"}},
	} {
		l.run(ns, "ip link set lo up")
		for _, a := range addresses {
			l.run(ns, "ip addr add "+a[1]+" dev "+a[0])
			l.run(ns, "ip link set "+a[0]+" up")
		}
	}
	l.run(l.server, "ip route add default via 10.99.1.1")
	l.run(l.home, "ip route add default via 10.99.2.1")
	l.run(l.router, "sysctl -qw net.ipv4.ip_forward=1")
	return l
}

// run runs a command in a namespace; "" is our own.
func (l *lab) run(ns, command string) {
	l.t.Helper()
	args := strings.Fields(command)
	if ns != "" {
		args = append([]string{"ip", "netns", "exec", ns}, args...)
	}
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		l.t.Fatalf("%s: %v: %s", command, err, out)
	}
}

// rules replaces the packet filter of a namespace.
func (l *lab) rules(ns, rules string) {
	l.t.Helper()
	cmd := exec.Command("ip", "netns", "exec", ns, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader("flush ruleset\n" + rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		l.t.Fatalf("nft: %v: %s", err, out)
	}
}

// program is Parley in a namespace.
func (l *lab) program(ctx context.Context, ns, args string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", ns, os.Args[0], "-test.run=^TestAsProgram$")
	cmd.Env = append(os.Environ(), argsVariable+"="+args)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// serve runs a server with a configuration until the test ends.
func (l *lab) serve(t *testing.T, config string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.toml")
	write(t, path, config+"[session]\ndrain = \"0s\"\n")
	ctx, cancel := context.WithCancel(context.Background())
	var log bytes.Buffer
	cmd := l.program(ctx, l.server, "serve --config "+path)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	for range 100 {
		if exec.Command("ip", "netns", "exec", l.server, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8003").Run() == nil {
			return
		}
		time.Sleep(50 * time.Millisecond) // another process: there is nothing to wait for
	}
	t.Fatal("the server does not come up")
}

// visit runs the doctor where devices are.
func (l *lab) visit(t *testing.T, wantCode int, want ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := l.program(ctx, l.home, "doctor --server 10.99.1.2")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != wantCode {
		t.Errorf("exit status %d, want %d: %v", code, wantCode, err)
	}
	inOrder(t, string(out), want...)
}

// TestDoctorThroughNetworks visits a server through a router that translates
// addresses, drops, loses and delays as real ones do.
func TestDoctorThroughNetworks(t *testing.T) {
	l := newLab(t)
	const nat = "table ip nat {\n chain post {\n type nat hook postrouting priority 100;\n oifname r0 masquerade\n }\n}\n"
	filter := func(rule string) string {
		return "table ip filter {\n chain forward {\n type filter hook forward priority 0;\n " + rule + "\n }\n}\n"
	}
	t.Run("right", func(t *testing.T) {
		l.rules(l.router, nat)
		l.serve(t, "")
		l.visit(t, exitOK, "the server sees 10.99.1.1 where we are 10.99.2.2", "ok    address", "ok    audio", "lost 0 there and 0 back", "verdict: this ")
	})
	t.Run("firewall drops UDP", func(t *testing.T) {
		l.rules(l.router, nat+filter("udp dport 8884 drop"))
		l.serve(t, "")
		l.visit(t, exitFailed, "ok    hello", "fail  audio", "none of what we sent to 10.99.1.2:8884 reached it", "-> open UDP port 8884")
	})
	t.Run("firewall refuses UDP", func(t *testing.T) {
		l.rules(l.router, nat+filter("udp dport 8884 reject"))
		l.serve(t, "")
		l.visit(t, exitFailed, "fail  audio", "the UDP port is closed: nobody listens at 10.99.1.2:8884")
	})
	t.Run("firewall drops what comes back", func(t *testing.T) {
		l.rules(l.router, nat+filter("udp sport 8884 drop"))
		l.serve(t, "")
		l.visit(t, exitFailed, "fail  audio", "nothing comes back from 10.99.1.2:8884", "come back through firewalls")
	})
	t.Run("address of another network", func(t *testing.T) {
		l.rules(l.router, nat+filter("ip daddr 172.17.0.2 drop"))
		l.serve(t, "[udp]\naddress = \"172.17.0.2\"\n")
		l.visit(t, exitFailed, "fail  address", "172.17.0.2:8884", "from 10.99.1.2:8884 it does", "-> remove [udp] address")
	})
	t.Run("losses", func(t *testing.T) {
		l.rules(l.router, nat+filter("udp sport 8884 numgen inc mod 5 0 drop"))
		l.serve(t, "")
		l.visit(t, exitFailed, "fail  quality", "lost 0 there and 10 back", "access point")
	})
}
