package phrase

import (
	"fmt"
	"strings"
	"unicode"
)

// spoken returns the part of b that a grammar holds. ok is false if it holds
// none of b, since numbers are read from words up to [MaxSpokenBound] only.
func (b bounds) spoken() (part bounds, ok bool) {
	if b == anyNumber() {
		return bounds{0, MaxSpokenNumber}, true
	}
	return bounds{b.low, min(b.high, MaxSpokenBound)}, b.low <= MaxSpokenBound
}

// ruleName is the name of the rule for the numbers within b.
func (b bounds) ruleName() string { return fmt.Sprintf("<number_%d_%d>", b.low, b.high) }

// rule is the right side of that rule: alternatives by hundreds and tens, so
// that its length hardly depends on how many numbers it holds. A number may be
// followed by "percent" where the largest is one hundred; anywhere else the word
// would only be one more to mistake something for.
func (b bounds) rule() string {
	var list []string
	if b.low == 0 {
		list = append(list, "zero")
	}
	list = append(list, b.belowHundred()...)
	list = append(list, b.hundreds()...)
	if b.hold(1000) {
		list = append(list, "(a | one) thousand")
	}
	if b.high == 100 {
		return "(" + either(list) + ") [percent]"
	}
	return either(list)
}

// belowHundred lists alternatives for the numbers from 1 to 99 within b.
func (b bounds) belowHundred() []string {
	list := b.among(unitWords(), firstUnit)
	list = append(list, b.among(teenWords(), firstTeen)...)
	var whole []string
	for i, tens := range tensWords() {
		from := (i + firstTens) * 10
		units := b.among(unitWords(), from+firstUnit)
		if b.hold(from) && b.hold(from+9) {
			whole = append(whole, tens)
		} else {
			list = append(list, headed(tens, b.hold(from), "", units)...)
		}
	}
	return append(list, headed(group(whole), true, "", unitWords())...)
}

// hundreds lists alternatives for the numbers from 100 to 999 within b.
func (b bounds) hundreds() []string {
	var list, whole []string
	for i, unit := range unitWords() {
		from := (i + firstUnit) * 100
		heads := []string{unit}
		if i == 0 {
			heads = []string{"a", unit}
		}
		if b.hold(from) && b.hold(from+99) {
			whole = append(whole, heads...)
			continue
		}
		rest := bounds{b.low - from, b.high - from}.belowHundred()
		list = append(list, headed(group(heads)+" hundred", b.hold(from), "[and] ", rest)...)
	}
	if len(whole) > 0 {
		list = append(list, headed(group(whole)+" hundred", true, "[and] ", bounds{1, 99}.belowHundred())...)
	}
	return list
}

// among returns those of words that are within b, the first of which is the
// number from.
func (b bounds) among(words []string, from int) []string {
	var list []string
	for i, w := range words {
		if b.hold(from + i) {
			list = append(list, w)
		}
	}
	return list
}

// headed returns the alternative of head followed by one of rest, or also by
// nothing if alone; or no alternative, if head is empty or there is neither.
func headed(head string, alone bool, between string, rest []string) []string {
	switch {
	case head == "", !alone && len(rest) == 0:
		return nil
	case len(rest) == 0:
		return []string{head}
	case alone:
		return []string{head + " [" + between + group(rest) + "]"}
	}
	return []string{head + " " + between + group(rest)}
}

func group(words []string) string {
	if len(words) < 2 {
		return either(words)
	}
	return "(" + either(words) + ")"
}

func either(list []string) string { return strings.Join(list, " | ") }

// wordsOf lists the words of the right side of a rule for numbers.
func wordsOf(rule string) []string {
	return strings.FieldsFunc(rule, func(r rune) bool { return !unicode.IsLetter(r) })
}
