//go:build linux

package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A machine is where figures come from.
type machine struct {
	CPU, Kernel, Go string
	Cores           int
	Load            float64 // average of the minute before
}

// quiet is the load average below which a machine has nothing else to do.
const quiet = 0.5

// stolenLimit is how much of the time another machine on the same hardware may
// have taken.
const stolenLimit = 0.005

func thisMachine() (machine, error) {
	m := machine{CPU: "unknown", Go: runtime.Version(), Cores: runtime.NumCPU()}
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(string(cpu)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return m, err
	}
	m.Kernel = strings.TrimSpace(string(kernel))
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	_, err = fmt.Sscan(string(load), &m.Load)
	return m, err
}

func (m machine) String() string {
	return fmt.Sprintf("%s, %d processors, Linux %s, %s; load average before: %.2f", m.CPU, m.Cores, m.Kernel, m.Go, m.Load)
}

// stolen returns the processor time that the hypervisor has kept from this
// machine since it started.
func stolen() (time.Duration, error) {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(strings.SplitN(string(stat), "\n", 2)[0])
	if len(fields) < 9 {
		return 0, nil // a kernel that does not know
	}
	var ticks int64
	if _, err := fmt.Sscan(fields[8], &ticks); err != nil {
		return 0, fmt.Errorf("/proc/stat: %w", err)
	}
	return time.Duration(ticks) * time.Second / 100, nil // USER_HZ is 100 on every architecture of Go's
}

// benchTime sets how long each of package testing's benchmarks takes.
func benchTime(d time.Duration) error {
	if flag.Lookup("test.benchtime") == nil {
		testing.Init()
	}
	return flag.Set("test.benchtime", d.String())
}
