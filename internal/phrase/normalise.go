package phrase

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A token is one word of an utterance, or one character of a language written
// without spaces.
type token struct {
	text       string // lower case, apostrophes as '
	key        string // text without apostrophes
	start, end int    // bytes of the original
}

// tokenise splits text into words: lower case, without punctuation, a percent
// sign as the word "percent", 1,000 as 1000 and full-width digits as ASCII. It
// stops after limit tokens.
func tokenise(text string, limit int) []token {
	var (
		tokens []token
		b      strings.Builder
		start  = -1
	)
	flush := func(end int) {
		if start < 0 {
			return
		}
		word := strings.Trim(b.String(), "'")
		if word != "" {
			tokens = append(tokens, token{word, strings.ReplaceAll(word, "'", ""), start, end})
		}
		b.Reset()
		start = -1
	}
	for i, r := range text {
		if len(tokens) >= limit {
			return tokens
		}
		end := i + utf8.RuneLen(r)
		switch {
		case r == '%' || r == '\uFF05':
			flush(i)
			tokens = append(tokens, token{"percent", "percent", i, end})
		case standsAlone(r):
			flush(i)
			tokens = append(tokens, token{string(r), string(r), i, end})
		case isWordRune(r):
			if start < 0 {
				start = i
			}
			b.WriteRune(fold(r))
		case start >= 0 && isApostrophe(r):
			b.WriteByte('\'')
		case start >= 0 && r == ',' && groupsDigits(text, i):
		default:
			flush(i)
		}
	}
	if len(tokens) < limit {
		flush(len(text))
	}
	return tokens
}

func isWordRune(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r)
}

func isApostrophe(r rune) bool { return r == '\'' || r == '’' || r == 'ʼ' }

// standsAlone reports whether r is of a script written without spaces between
// words.
func standsAlone(r rune) bool {
	return unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana)
}

// fold lowers case and makes full-width digits ASCII.
func fold(r rune) rune {
	if r >= '\uFF10' && r <= '\uFF19' {
		return r - '\uFF10' + '0'
	}
	return unicode.ToLower(r)
}

// groupsDigits reports whether the comma at text[i] stands between a digit and
// exactly three digits, as in 1,000.
func groupsDigits(text string, i int) bool {
	if i == 0 || !isDigit(text[i-1]) || i+3 >= len(text) {
		return false
	}
	for _, c := range []byte(text[i+1 : i+4]) {
		if !isDigit(c) {
			return false
		}
	}
	return i+4 == len(text) || !isDigit(text[i+4])
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
