package config

import (
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxDepth bounds the nesting of arrays and inline tables. The parser recurses
// once a level, and no key of ours goes deeper than five.
const maxDepth = 32

// A path names a value of a TOML document by its steps from the root, each as it
// is printed: a bare key, a quoted key, or "[n]" for the n-th element of an
// array, from 0.
type path []string

// key is the path of a member of the table at p.
func (p path) key(name string) path {
	if !isBare(name) {
		name = strconv.Quote(name)
	}
	return append(p[:len(p):len(p)], name)
}

// index is the path of element i of the array at p.
func (p path) index(i int) path {
	return append(p[:len(p):len(p)], "["+strconv.Itoa(i)+"]")
}

// String is the path in dotted form. Distinct paths have distinct forms.
func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		if i > 0 && step[0] != '[' {
			b.WriteByte('.')
		}
		b.WriteString(step)
	}
	return b.String()
}

func isBare(name string) bool {
	for i := range len(name) {
		if !isBareByte(name[i]) {
			return false
		}
	}
	return name != ""
}

func isBareByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// A lineIndex holds the line, from 1, on which each value of a document begins,
// by the printed form of its path. A table that is only implied has the line of
// the first key that implies it.
type lineIndex map[string]int

// at returns the line of p, else of the nearest table around it, else 0.
func (x lineIndex) at(p path) int {
	for n := len(p); n > 0; n-- {
		if line, ok := x[p[:n].String()]; ok {
			return line
		}
	}
	return 0
}

// deepest returns the longest path that begins on a line, "" when none does.
func (x lineIndex) deepest(line int) string {
	var found string
	for p, l := range x {
		if l == line && (len(p) > len(found) || len(p) == len(found) && p < found) {
			found = p
		}
	}
	return found
}

// scanLines indexes a TOML document. The TOML library knows lines only of syntax
// errors, so this walks the source a second time, reading just enough of it to
// know where keys stand. Of a valid document the index is exact; of anything else
// it is a harmless guess. deep reports nesting beyond maxDepth, where the scan
// ends.
func scanLines(src string) (index lineIndex, deep bool) {
	s := &lineScanner{src: src, line: 1, index: lineIndex{}, tables: map[string]int{}}
	s.document()
	return s.index, s.deep
}

type lineScanner struct {
	src    string
	pos    int
	line   int
	index  lineIndex
	tables map[string]int // elements so far of each array of tables
	deep   bool
}

func (s *lineScanner) document() {
	var table path
	for {
		s.blank(true)
		switch s.peek() {
		case 0:
			return
		case '[':
			table = s.header()
		default:
			s.pair(table, 0)
		}
		s.skipLine()
	}
}

// header reads [table] or [[array of tables]] and returns the path it opens.
func (s *lineScanner) header() path {
	line := s.line
	s.pos++
	array := s.peek() == '['
	if array {
		s.pos++
	}
	names := s.names()
	var p path
	for i, name := range names {
		p = p.key(name)
		s.mark(p, line)
		n, many := s.tables[p.String()]
		if array && i == len(names)-1 {
			s.tables[p.String()] = n + 1
			p = p.index(n)
			s.mark(p, line)
		} else if many {
			p = p.index(n - 1)
		}
	}
	return p
}

// pair reads key = value in the table at p and reports whether there was one.
func (s *lineScanner) pair(p path, depth int) bool {
	line := s.line
	names := s.names()
	for _, name := range names {
		p = p.key(name)
		s.mark(p, line)
	}
	if len(names) == 0 || s.peek() != '=' {
		return false
	}
	s.pos++
	s.blank(false)
	s.value(p, depth+1)
	return true
}

// names reads a dotted key, which ends before the first byte that cannot
// continue it.
func (s *lineScanner) names() []string {
	var names []string
	for {
		s.blank(false)
		name, ok := s.name()
		if !ok {
			return names
		}
		names = append(names, name)
		s.blank(false)
		if s.peek() != '.' {
			return names
		}
		s.pos++
	}
}

func (s *lineScanner) name() (string, bool) {
	start := s.pos
	switch c := s.peek(); c {
	case '"', '\'':
		s.quoted(c)
		return unquote(s.src[start:s.pos]), true
	}
	for s.pos < len(s.src) && isBareByte(s.src[s.pos]) {
		s.pos++
	}
	return s.src[start:s.pos], s.pos > start
}

// unquote gives the name a quoted key stands for, by asking the parser that
// reads the document too.
func unquote(q string) string {
	var doc struct{ V string }
	if _, err := toml.Decode("V = "+q, &doc); err != nil {
		return q
	}
	return doc.V
}

// value reads any value, marking the keys and elements within it.
func (s *lineScanner) value(p path, depth int) {
	if depth > maxDepth {
		s.deep = true
		s.pos = len(s.src)
		return
	}
	switch c := s.peek(); c {
	case '"', '\'':
		s.quoted(c)
	case '[':
		s.array(p, depth)
	case '{':
		s.inline(p, depth)
	default:
		for s.pos < len(s.src) && !strings.ContainsRune(",]}#\n", rune(s.src[s.pos])) {
			s.pos++
		}
	}
}

func (s *lineScanner) array(p path, depth int) {
	s.pos++
	for n := 0; ; {
		s.blank(true)
		switch s.peek() {
		case 0:
			return
		case ']':
			s.pos++
			return
		case ',':
			s.pos++
		default:
			element, before := p.index(n), s.pos
			s.mark(element, s.line)
			s.value(element, depth+1)
			n++
			if s.pos == before { // a stray closing brace
				s.pos++
			}
		}
	}
}

// inline reads an inline table. TOML 1.1 allows line breaks and comments in it.
func (s *lineScanner) inline(p path, depth int) {
	s.pos++
	for {
		s.blank(true)
		switch s.peek() {
		case 0:
			return
		case '}':
			s.pos++
			return
		case ',':
			s.pos++
		default:
			if !s.pair(p, depth) && s.pos < len(s.src) && s.src[s.pos] != '\n' {
				s.pos++
			}
		}
	}
}

// quoted moves past a string of any of the four kinds that begins here.
func (s *lineScanner) quoted(quote byte) {
	q := string(quote)
	if long := strings.Repeat(q, 3); strings.HasPrefix(s.src[s.pos:], long) {
		s.pos += len(long)
		for s.pos < len(s.src) && !strings.HasPrefix(s.src[s.pos:], long) {
			s.advance(quote)
		}
		for n := 0; n < 5 && s.peek() == quote; n++ { // up to two quotes may precede the closing three
			s.pos++
		}
		return
	}
	s.pos++
	for s.pos < len(s.src) && s.src[s.pos] != quote && s.src[s.pos] != '\n' {
		s.advance(quote)
	}
	if s.peek() == quote {
		s.pos++
	}
}

// advance moves over one byte of a string, or over an escaped pair.
func (s *lineScanner) advance(quote byte) {
	for n := 0; n < 2 && s.pos < len(s.src); n++ {
		c := s.src[s.pos]
		if c == '\n' {
			s.line++
		}
		s.pos++
		if quote != '"' || c != '\\' {
			return
		}
	}
}

// blank moves past spaces and tabs, and past comments and line breaks where
// those may stand.
func (s *lineScanner) blank(lines bool) {
	for s.pos < len(s.src) {
		switch c := s.src[s.pos]; {
		case c == ' ' || c == '\t':
			s.pos++
		case lines && c == '\n':
			s.line++
			s.pos++
		case lines && c == '\r':
			s.pos++
		case lines && c == '#':
			s.toLineEnd()
		default:
			return
		}
	}
}

// skipLine moves past the rest of the line.
func (s *lineScanner) skipLine() {
	s.toLineEnd()
	if s.pos < len(s.src) {
		s.pos++
		s.line++
	}
}

func (s *lineScanner) toLineEnd() {
	if n := strings.IndexByte(s.src[s.pos:], '\n'); n >= 0 {
		s.pos += n
		return
	}
	s.pos = len(s.src)
}

// peek returns the next byte, 0 at the end.
func (s *lineScanner) peek() byte {
	if s.pos < len(s.src) {
		return s.src[s.pos]
	}
	return 0
}

// mark notes the line of p unless an earlier line has it.
func (s *lineScanner) mark(p path, line int) {
	if k := p.String(); s.index[k] == 0 {
		s.index[k] = line
	}
}
