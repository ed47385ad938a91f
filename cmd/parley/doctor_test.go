package main

import (
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"parley/internal/config"
	"parley/internal/openaitest"
)

// TestDoctorVisits visits real servers: one that is right, and the four that
// people set up.
func TestDoctorVisits(t *testing.T) {
	taken, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := taken.LocalAddr().(*net.UDPAddr).Port
	taken.Close()
	right, _ := start(t, nil)
	unheard, _ := start(t, func(c *config.Config) { c.UDP.Port = closed })
	lost, _ := start(t, func(c *config.Config) { c.UDP.Address = "127.0.0.2" }) // this machine, and not where it listens
	for name, c := range map[string]struct {
		port int
		code int
		want []string
	}{
		"right":         {right.webPort(), exitOK, []string{"ok    audio", "50 packets, lost 0 there and 0 back", "verdict: this "}},
		"port closed":   {unheard.webPort(), exitFailed, []string{"fail  audio", "the UDP port is closed", "-> open UDP port"}},
		"address wrong": {lost.webPort(), exitFailed, []string{"fail  address", "127.0.0.2", "-> remove [udp] address"}},
		"not there":     {1, exitFailed, []string{"fail  ota", "nobody listens there"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errOut := parley(t, "doctor", "--server", fmt.Sprintf("127.0.0.1:%d", c.port))
			if code != c.code {
				t.Errorf("exit status %d, want %d\n%s%s", code, c.code, out, errOut)
			}
			inOrder(t, out, c.want...)
		})
	}
}

// TestDoctorOnTheServer examines the machine of a server that runs, with a
// service behind it that refuses its key.
func TestDoctorOnTheServer(t *testing.T) {
	service, err := openaitest.Start(&openaitest.Service{Key: "right"})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	t.Setenv("OPENAI_BASE_URL", service.URL)
	t.Setenv("OPENAI_API_KEY", "sk-wrong-key")
	n, _ := start(t, nil)
	path := filepath.Join(t.TempDir(), "c.toml")
	write(t, path, fmt.Sprintf("[mqtt]\nlisten = %q\n[udp]\nlisten = %q\n[http]\nlisten = %q\n[role.default]\nprovider = \"openai\"\n",
		n.broker.Addr(), n.udpAddr, n.webAddr.Addr()))
	code, out, _ := parley(t, "doctor", "--json", "--config", path)
	if code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	var report struct {
		Healthy    bool
		Conclusion string
		Findings   []struct{ Check, Verdict, Found, Remedy string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if report.Healthy || !strings.Contains(report.Conclusion, "check api_key of [asr.openai]") || strings.Contains(out, "sk-wrong-key") {
		t.Errorf("got %s", out)
	}
	verdicts := map[string]string{}
	for _, f := range report.Findings {
		verdicts[f.Check] += f.Verdict + " "
		if f.Verdict == "fail" && f.Check != "provider" {
			t.Errorf("%s fails, too: %s", f.Check, f.Found)
		}
	}
	if verdicts["provider"] != "fail fail fail " || verdicts["ports"] != "ok ok ok " || verdicts["audio"] != "ok " {
		t.Errorf("verdicts %v in %s", verdicts, out)
	}
}

func TestDoctorOfAFaultyConfiguration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.toml")
	write(t, path, "[log]\nlevel = 5\n")
	code, out, _ := parley(t, "doctor", "--config", path)
	if code != exitFailed {
		t.Errorf("exit status %d", code)
	}
	inOrder(t, out, "fail  config", "c.toml:2: log.level", "-> ")
}

func TestOTAOf(t *testing.T) {
	for server, want := range map[string]string{
		"h": "http://h:8003/xiaozhi/ota/", "h:80": "http://h:80/xiaozhi/ota/", "192.168.1.10": "http://192.168.1.10:8003/xiaozhi/ota/",
		"::1": "http://[::1]:8003/xiaozhi/ota/", "[::1]:80": "http://[::1]:80/xiaozhi/ota/", "[::1]": "http://[::1]:8003/xiaozhi/ota/",
	} {
		if got := otaOf(server); got != want {
			t.Errorf("%q: got %q, want %q", server, got, want)
		}
	}
	if code, _, errOut := parley(t, "doctor", "--server", "h", "--ota", "http://h/"); code != exitUsage || !strings.Contains(errOut, "one of") {
		t.Errorf("exit status %d: %s", code, errOut)
	}
}
