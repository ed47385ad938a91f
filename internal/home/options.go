package home

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// options are the members of an announcement, their keys spelt out.
type options map[string]any

// text is the member as text. Numbers and booleans are written as Home Assistant
// writes them, since payloads are often announced as such.
func (o options) text(key, otherwise string) string {
	switch v := fromJSON(o[key]).(type) {
	case string:
		return v
	case bool, int64, float64:
		return toText(v)
	}
	return otherwise
}

// number is the member as a number, also where it is written as text.
func (o options) number(key string, otherwise float64) float64 {
	if f, err := toFloat(fromJSON(o[key])); err == nil && math.Abs(f) < 1e12 {
		return f
	}
	return otherwise
}

func (o options) flag(key string) bool {
	v, err := toBool(fromJSON(o[key]))
	return err == nil && v == true
}

// list is the member as texts; one text is a list of one.
func (o options) list(key string) []string {
	switch v := o[key].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, item := range v {
			switch item := fromJSON(item).(type) {
			case string, bool, int64, float64:
				out = append(out, toText(item))
			}
		}
		return out
	}
	return nil
}

// object is the member as an object, or nothing.
func (o options) object(key string) map[string]any {
	m, _ := o[key].(map[string]any)
	return m
}

// topic is the member as a topic, or "" where there is none that can be used.
func (o options) topic(key string) string {
	s, _ := o[key].(string)
	if checkTopic(s) != nil {
		return ""
	}
	return s
}

// cleanText reports whether a text is UTF-8 without control characters.
func cleanText(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

// speakable makes a name that can be said: without underscores, control
// characters and doubled spaces, and of at most [maxName] characters.
func speakable(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r == '_' || unicode.IsControl(r) || unicode.IsSpace(r):
			return ' '
		case r == utf8.RuneError:
			return -1
		}
		return r
	}, name)
	name = strings.Join(strings.Fields(name), " ")
	if utf8.RuneCountInString(name) > maxName {
		name = strings.TrimSpace(string([]rune(name)[:maxName]))
	}
	return name
}

// percentOf is where v lies between two ends, in whole percent.
func percentOf(v, from, to float64) (int, bool) {
	if from == to {
		return 0, false
	}
	p := math.Round((v - from) / (to - from) * 100)
	return int(min(max(p, 0), 100)), true
}

// plainNumber writes a number without a fraction that is zero.
func plainNumber(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }
