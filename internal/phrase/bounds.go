package phrase

import (
	"cmp"
	"math"
	"strconv"
	"strings"
)

// MaxBound is the largest bound of a number, as in {year:2000-9999}: longer
// numbers are no part of a command.
const MaxBound = 9999

// bounds are the smallest and the largest number a capture takes.
type bounds struct{ low, high int }

// anyNumber are the bounds of {name:number}.
func anyNumber() bounds { return bounds{0, math.MaxInt} }

func (b bounds) hold(n int) bool { return b.low <= n && n <= b.high }

// parseBounds reads "0-59". ok is false for what does not have this form, and
// so is an option; fault says what is wrong with bounds that do.
func parseBounds(name, text string) (b bounds, fault string, ok bool) {
	first, second, _ := strings.Cut(text, "-")
	first, second = strings.TrimSpace(first), strings.TrimSpace(second)
	if !isNumeral(first) || !isNumeral(second) {
		return bounds{}, "", false
	}
	low, lowErr := strconv.Atoi(first)
	high, highErr := strconv.Atoi(second)
	switch {
	case lowErr != nil || highErr != nil || low > MaxBound || high > MaxBound:
		fault = "a bound of {" + name + "} is larger than " + strconv.Itoa(MaxBound) + "; write {" + name + ":number} for any number"
	case low > high:
		fault = "the bounds of {" + name + "} are the wrong way round; write {" + name + ":" + second + "-" + first + "}"
	}
	return bounds{low, high}, fault, true
}

func isNumeral(s string) bool {
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return s != ""
}

// compare orders bounds by the lower, then by the upper one.
func (b bounds) compare(other bounds) int {
	return cmp.Or(cmp.Compare(b.low, other.low), cmp.Compare(b.high, other.high))
}
