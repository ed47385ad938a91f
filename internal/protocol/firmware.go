package protocol

import (
	"slices"
	"strconv"
	"strings"
)

// A Firmware is what a device says it runs, as its User-Agent has it.
type Firmware struct {
	Board   string
	Version []int // of dotted numbers, such as 2.4.2
}

// ParseFirmware reads a User-Agent, "<board>/<version>". It reports false where
// the version is not dotted numbers: other clients of the protocol write theirs
// as they like, and nothing may be assumed of them.
func ParseFirmware(agent string) (Firmware, bool) {
	board, version, found := strings.Cut(agent, "/")
	if !found || len(version) > 32 {
		return Firmware{}, false
	}
	f := Firmware{Board: board}
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return Firmware{}, false
		}
		f.Version = append(f.Version, int(n))
	}
	return f, true
}

// AtLeast reports whether the version is the one given or a later one.
func (f Firmware) AtLeast(version ...int) bool {
	return slices.Compare(f.Version, version) >= 0
}

// Dotted is the version as a device writes it, such as "2.4.2".
func (f Firmware) Dotted() string {
	parts := make([]string, len(f.Version))
	for i, n := range f.Version {
		parts[i] = strconv.Itoa(n)
	}
	return strings.Join(parts, ".")
}
