//go:build linux

package main

import (
	"crypto/aes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
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

// pace is how fast the machine is now: the time of the same small piece of work,
// an AES block, on one processor. On shared hardware it changes with what the
// neighbours do, which neither the load average nor stolen time shows.
func pace() (time.Duration, error) {
	const blocks, tries = 100_000, 9
	block, err := aes.NewCipher(make([]byte, 16))
	if err != nil {
		return 0, err
	}
	buffer := make([]byte, 16)
	took := make([]time.Duration, tries)
	for i := range took {
		start := time.Now()
		for range blocks {
			block.Encrypt(buffer, buffer)
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	return took[tries/2] / (blocks / 1000), nil // of 1,000 blocks, for the digits
}

// paceSpread is how much faster than at its slowest a machine may have been during
// a run whose figures are published.
const paceSpread = 1.25

// paces are those of a run, of 1,000 blocks each.
type paces []time.Duration

// steady reports whether they are of one machine, as it were.
func (p paces) steady() bool {
	return float64(slices.Max(p)) <= paceSpread*float64(slices.Min(p))
}

func (p paces) String() string {
	each := func(d time.Duration) string { return fmt.Sprintf("%.1f", float64(d.Nanoseconds())/1000) }
	return fmt.Sprintf("an AES block took %s to %s ns", each(slices.Min(p)), each(slices.Max(p)))
}

// benchTime sets how long each of package testing's benchmarks takes.
func benchTime(d time.Duration) error {
	if flag.Lookup("test.benchtime") == nil {
		testing.Init()
	}
	return flag.Set("test.benchtime", d.String())
}
