package home

import (
	"fmt"
	"strconv"
	"strings"
)

// A tokenKind says what a token of a template is.
type tokenKind int

const (
	tokenText       tokenKind = iota // outside of braces
	tokenOpenValue                   // {{
	tokenCloseValue                  // }}
	tokenOpenBlock                   // {%
	tokenCloseBlock                  // %}
	tokenName
	tokenNumber
	tokenString
	tokenOperator
	tokenEnd
)

type token struct {
	kind  tokenKind
	text  string
	value any // of a number
}

const space = " \t\r\n"

// lexTemplate cuts a template into tokens. Comments are gone and the text next to
// a brace with a minus sign is trimmed.
func lexTemplate(src string) ([]token, error) {
	l := &lexer{src: src}
	for l.pos < len(l.src) {
		if err := l.next(); err != nil {
			return nil, err
		}
	}
	return append(l.tokens, token{kind: tokenEnd}), nil
}

type lexer struct {
	src    string
	pos    int
	trim   bool // the text that follows begins without space
	tokens []token
}

// next reads the text up to the next opening brace, and what the brace holds.
func (l *lexer) next() error {
	at := len(l.src)
	for _, open := range []string{"{{", "{%", "{#"} {
		if i := strings.Index(l.src[l.pos:], open); i >= 0 {
			at = min(at, l.pos+i)
		}
	}
	text := l.src[l.pos:at]
	if l.trim {
		text = strings.TrimLeft(text, space)
		l.trim = false
	}
	if strings.HasPrefix(l.src[min(at+2, len(l.src)):], "-") {
		text = strings.TrimRight(text, space)
	}
	if text != "" {
		l.tokens = append(l.tokens, token{kind: tokenText, text: text})
	}
	l.pos = at
	if at == len(l.src) {
		return nil
	}
	open := l.src[at : at+2]
	l.pos += 2
	if open != "{#" && strings.HasPrefix(l.src[l.pos:], "-") {
		l.pos++
	}
	switch open {
	case "{{":
		l.tokens = append(l.tokens, token{kind: tokenOpenValue})
		return l.inside("}}", tokenCloseValue)
	case "{%":
		l.tokens = append(l.tokens, token{kind: tokenOpenBlock})
		return l.inside("%}", tokenCloseBlock)
	}
	end := strings.Index(l.src[l.pos:], "#}")
	if end < 0 {
		return fmt.Errorf("a comment has no end")
	}
	l.trim = end > 0 && l.src[l.pos+end-1] == '-'
	l.pos += end + 2
	return nil
}

// inside reads an expression up to the brace that closes it. A closing brace
// that belongs to a dictionary of the expression closes that first.
func (l *lexer) inside(closing string, kind tokenKind) error {
	open := 0
	for l.pos < len(l.src) {
		rest := l.src[l.pos:]
		if open == 0 {
			if after, ok := strings.CutPrefix(rest, "-"); ok && strings.HasPrefix(after, closing) {
				l.trim = true
				rest = after
				l.pos++
			}
			if strings.HasPrefix(rest, closing) {
				l.pos += len(closing)
				l.tokens = append(l.tokens, token{kind: kind})
				return nil
			}
		}
		c := rest[0]
		switch {
		case strings.IndexByte(space, c) >= 0:
			l.pos++
		case c == '\'' || c == '"':
			if err := l.quoted(c); err != nil {
				return err
			}
		case c >= '0' && c <= '9':
			if err := l.number(); err != nil {
				return err
			}
		case isNameByte(c):
			l.name()
		default:
			op := l.operator()
			switch op {
			case "":
				return fmt.Errorf("the character %q means nothing here", c)
			case "{", "(", "[":
				open++
			case "}", ")", "]":
				open--
			}
			l.tokens = append(l.tokens, token{kind: tokenOperator, text: op})
		}
	}
	return fmt.Errorf("%q is missing", closing)
}

func isNameByte(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func (l *lexer) name() {
	start := l.pos
	for l.pos < len(l.src) && isNameByte(l.src[l.pos]) {
		l.pos++
	}
	l.tokens = append(l.tokens, token{kind: tokenName, text: l.src[start:l.pos]})
}

func (l *lexer) operator() string {
	rest := l.src[l.pos:]
	for _, op := range []string{"==", "!=", "<=", ">=", "//", "**"} {
		if strings.HasPrefix(rest, op) {
			l.pos += len(op)
			return op
		}
	}
	if strings.IndexByte("+-*/%~<>=|.,:()[]{}", rest[0]) < 0 {
		return ""
	}
	l.pos++
	return rest[:1]
}

// number reads digits, and a fraction if there is one.
func (l *lexer) number() error {
	start, float := l.pos, false
	for l.pos < len(l.src) {
		c := l.src[l.pos]
		if c == '.' && !float && l.pos+1 < len(l.src) && l.src[l.pos+1] >= '0' && l.src[l.pos+1] <= '9' {
			float = true
		} else if c < '0' || c > '9' {
			break
		}
		l.pos++
	}
	text := l.src[start:l.pos]
	t := token{kind: tokenNumber, text: text}
	var err error
	if float {
		t.value, err = strconv.ParseFloat(text, 64)
	} else {
		t.value, err = strconv.ParseInt(text, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("the number %.20s is too large", text)
	}
	l.tokens = append(l.tokens, t)
	return nil
}

// quoted reads a string; a backslash takes the character after it as it is,
// except for line ends and tabs.
func (l *lexer) quoted(quote byte) error {
	var b strings.Builder
	for i := l.pos + 1; i < len(l.src); i++ {
		c := l.src[i]
		switch {
		case c == quote:
			l.pos = i + 1
			l.tokens = append(l.tokens, token{kind: tokenString, text: b.String()})
			return nil
		case c == '\\' && i+1 < len(l.src):
			i++
			switch l.src[i] {
			case 'n':
				b.WriteByte('\n')
			case 't':
				b.WriteByte('\t')
			case 'r':
				b.WriteByte('\r')
			default:
				b.WriteByte(l.src[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return fmt.Errorf("a quoted text has no end")
}
