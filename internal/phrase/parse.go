package phrase

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep groups may stand in groups.
const maxDepth = 20

// special are the characters that are part of the language; all other
// punctuation is passed over, as it is in utterances.
const special = "()[]{}|"

// A parser reads one pattern by recursive descent.
type parser struct {
	source   string
	pos      int
	depth    int
	captures []Capture
}

func (p *parser) parse() (node, error) {
	if len(p.source) > MaxPattern {
		return nil, p.fail(MaxPattern, "the pattern is longer than %d bytes", MaxPattern)
	}
	if !utf8.ValidString(p.source) {
		return nil, p.fail(invalidAt(p.source), "this is not UTF-8")
	}
	root, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	if p.pos < len(p.source) {
		return nil, p.fail(p.pos, "%q closes nothing", p.source[p.pos])
	}
	if canBeEmpty(root) {
		return nil, p.fail(0, "the pattern can match silence; at least one word or capture must not be optional")
	}
	return root, nil
}

func (p *parser) fail(offset int, format string, args ...any) error {
	for offset > 0 && offset < len(p.source) && !utf8.RuneStart(p.source[offset]) {
		offset--
	}
	return &SyntaxError{Pattern: p.source, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// alternatives reads a | b | c up to a closing character or the end.
func (p *parser) alternatives() (node, error) {
	var list choice
	for {
		start := p.pos
		one, err := p.sequence()
		if err != nil {
			return nil, err
		}
		more := p.pos < len(p.source) && p.source[p.pos] == '|'
		if len(one) == 0 && (more || len(list) > 0) {
			return nil, p.fail(start, "an alternative is empty; write [a | b] for words that may be left out")
		}
		list = append(list, one)
		if !more {
			break
		}
		p.pos++
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return list, nil
}

// sequence reads words, groups and captures up to | or a closing character.
func (p *parser) sequence() (sequence, error) {
	list := sequence{}
	for p.pos < len(p.source) {
		var (
			one node
			err error
		)
		switch p.source[p.pos] {
		case '|', ')', ']', '}':
			return list, nil
		case '(', '[':
			one, err = p.group()
		case '{':
			one, err = p.capture()
		default:
			list = append(list, p.words()...)
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

func (p *parser) words() sequence {
	end := strings.IndexAny(p.source[p.pos:], special)
	if end < 0 {
		end = len(p.source) - p.pos
	}
	text := p.source[p.pos : p.pos+end]
	p.pos += end
	return literal(text)
}

func literal(text string) sequence {
	list := sequence{}
	for _, t := range tokenise(text, MaxPattern) {
		list = append(list, word{t.text, t.key})
	}
	return list
}

// group reads ( … ) or [ … ].
func (p *parser) group() (node, error) {
	open, start := p.source[p.pos], p.pos
	closing := map[byte]byte{'(': ')', '[': ']'}[open]
	p.pos++
	if p.depth++; p.depth > maxDepth {
		return nil, p.fail(start, "groups stand in each other more than %d deep", maxDepth)
	}
	body, err := p.alternatives()
	if err != nil {
		return nil, err
	}
	p.depth--
	if p.pos == len(p.source) {
		return nil, p.fail(start, "%q is never closed", open)
	}
	if p.source[p.pos] != closing {
		return nil, p.fail(p.pos, "%q closes a %q", p.source[p.pos], open)
	}
	p.pos++
	if s, ok := body.(sequence); ok && len(s) == 0 {
		return nil, p.fail(start, "the group is empty")
	}
	if open == '[' {
		return optional{body}, nil
	}
	return body, nil
}

// capture reads {name}, {name:number}, {name:0-59} or {name:a|b}.
func (p *parser) capture() (node, error) {
	start := p.pos
	end := strings.IndexByte(p.source[start:], '}')
	if end < 0 {
		return nil, p.fail(start, "%q is never closed", '{')
	}
	inner := p.source[start+1 : start+end]
	p.pos = start + end + 1
	if i := strings.IndexAny(inner, "{([])"); i >= 0 {
		return nil, p.fail(start+1+i, "%q may not stand in a capture", inner[i])
	}
	name, kindText, hasKind := strings.Cut(inner, ":")
	name = strings.TrimSpace(name)
	if !validName(name) {
		return nil, p.fail(start+1, "a capture needs a name of letters, digits and _, such as {volume:number}")
	}
	c := capture{name: name, kind: Text}
	if hasKind {
		if err := p.kind(&c, kindText, start+1+len(inner)-len(kindText)); err != nil {
			return nil, err
		}
	}
	slot, err := p.slot(name, c.kind, start)
	c.slot = slot
	return c, err
}

// kind reads what stands at an offset behind the colon of a capture.
func (p *parser) kind(c *capture, text string, at int) error {
	if strings.TrimSpace(text) == "number" {
		c.kind, c.bounds = Number, anyNumber()
		return nil
	}
	if b, fault, ok := parseBounds(c.name, text); ok {
		if fault != "" {
			return p.fail(at, "%s", fault)
		}
		c.kind, c.bounds = Number, b
		return nil
	}
	c.kind = Choice
	for one := range strings.SplitSeq(text, "|") {
		body := literal(one)
		if len(body) == 0 {
			return p.fail(at, "an option of {%s} is empty", c.name)
		}
		c.options = append(c.options, option{strings.TrimSpace(one), body})
		at += len(one) + 1
	}
	return nil
}

// slot finds or adds the capture called name.
func (p *parser) slot(name string, kind Kind, offset int) (int, error) {
	for i, c := range p.captures {
		if c.Name != name {
			continue
		}
		if c.Kind != kind {
			return 0, p.fail(offset, "{%s} was of another kind before", name)
		}
		return i, nil
	}
	p.captures = append(p.captures, Capture{name, kind})
	return len(p.captures) - 1, nil
}

func validName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// canBeEmpty reports whether n can match no words at all.
func canBeEmpty(n node) bool {
	switch n := n.(type) {
	case sequence:
		for _, one := range n {
			if !canBeEmpty(one) {
				return false
			}
		}
		return true
	case choice:
		for _, one := range n {
			if canBeEmpty(one) {
				return true
			}
		}
		return false
	case optional:
		return true
	}
	return false
}

func invalidAt(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, n := utf8.DecodeRuneInString(s[i:]); n == 1 {
				return i
			}
		}
	}
	return 0
}
