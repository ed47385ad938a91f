// Package phrase is the pattern language of rules: what a user may say, written
// the way it is said.
//
//	set [the] volume to {volume:0-100}
//	turn (it | the volume) (up | higher)
//	switch to the {theme:light|dark} theme
//	remind me to {what}
//
// Words match themselves whatever their case, punctuation and apostrophes.
// (a | b) is one of several, [a] may be left out, and braces capture:
// {name:number} a number in digits or words, English or Chinese, with or without
// "percent"; {name:0-59} the same, if it lies within these bounds; {name:a|b} one
// of several phrases; {name} any words at all. Bounds are two whole numbers up to
// [MaxBound] that stand alone: {size:1-5|6-9} is one of two phrases.
//
// A pattern matches a whole utterance, except that words of courtesy before and
// after it ("hey", "could you", "please") and hesitations anywhere ("um") are
// passed over. Chinese and Japanese characters are matched one by one, so
// patterns in these languages are written without spaces.
//
// The same patterns generate the grammar of an offline recogniser; see [NewGrammar].
package phrase

import (
	"fmt"
	"slices"
)

// MaxPattern is the longest pattern [Parse] accepts, in bytes: ten times the
// longest command anybody says.
const MaxPattern = 1024

// MaxUtterance is the longest text [Pattern.Match] looks at, in words; in
// Chinese and Japanese, in characters. Longer speech is no command.
const MaxUtterance = 200

// A Pattern is one parsed phrase. It is immutable and safe for concurrent use.
type Pattern struct {
	source   string
	root     node
	captures []Capture
	program  []instruction
}

// A Kind says what a capture accepts.
type Kind int

// The kinds of captures.
const (
	Text   Kind = iota // {name}: one or more words, as few as possible
	Number             // {name:number} or {name:0-59}
	Choice             // {name:a|b}
)

// A Capture describes one capture of a pattern.
type Capture struct {
	Name string
	Kind Kind
}

// A Value is what a capture took from an utterance.
type Value struct {
	// Text is the user's words for Text and Number, and the option as the
	// pattern spells it for Choice.
	Text string
	// Number is the value of a capture of kind Number, otherwise 0.
	Number int
	Kind   Kind
}

// A SyntaxError says where a pattern is wrong.
type SyntaxError struct {
	Pattern string
	Offset  int // in bytes, of the first character that is wrong
	Reason  string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("pattern %q: at character %d: %s", e.Pattern, len([]rune(e.Pattern[:e.Offset]))+1, e.Reason)
}

// Parse reads a pattern. Its errors are of type *[SyntaxError].
func Parse(source string) (*Pattern, error) {
	p := &parser{source: source}
	root, err := p.parse()
	if err != nil {
		return nil, err
	}
	pattern := &Pattern{source: source, root: root, captures: p.captures}
	pattern.program = compile(root)
	return pattern, nil
}

// String returns the pattern as it was written.
func (p *Pattern) String() string { return p.source }

// Captures lists the pattern's captures in the order of their first appearance.
func (p *Pattern) Captures() []Capture { return slices.Clone(p.captures) }

// node is one piece of a parsed pattern: word, sequence, choice, optional or
// capture.
type node any

type word struct {
	text string // lower case, apostrophes kept, as a dictionary has it
	key  string // what utterances are compared with
}

type sequence []node

type choice []node

type optional struct{ body node }

type capture struct {
	slot    int
	name    string
	kind    Kind
	bounds  bounds   // of a Number
	options []option // of a Choice
}

type option struct {
	text string // as the pattern spells it
	body node
}
