package llm

import "strings"

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// A thinkFilter removes what a model thinks aloud between <think> and </think>
// from text that arrives in pieces, and the line breaks that follow it. The tags
// may be split anywhere. Text held back is at most the beginning of a tag.
//
// A </think> without a <think>, which servers send whose template has put the
// opening tag into the prompt, is removed too; what came before it has been
// passed on by then, so such a server needs its reasoning parser turned on.
type thinkFilter struct {
	held     string // the beginning of what may become a tag
	thinking bool
	trim     bool // white space is to be removed until the next text
}

// add takes in text and returns what of it can be said.
func (f *thinkFilter) add(text string) string {
	if text == "" {
		return ""
	}
	rest := f.held + text
	f.held = ""
	var said strings.Builder
	for rest != "" {
		before, tag, after := cutTag(rest)
		if tag == "" {
			keep := len(before) - tagPrefix(before)
			before, f.held = before[:keep], before[keep:]
		}
		f.say(&said, before)
		if tag != "" {
			f.thinking = tag == thinkOpen
			f.trim = true
		}
		rest = after
	}
	return said.String()
}

// end returns what was held back, which is no tag if nothing follows it.
func (f *thinkFilter) end() string {
	var said strings.Builder
	f.say(&said, f.held)
	f.held = ""
	return said.String()
}

// say adds text unless the model is thinking.
func (f *thinkFilter) say(to *strings.Builder, text string) {
	if f.thinking {
		return
	}
	if f.trim {
		text = strings.TrimLeft(text, " \t\r\n")
		f.trim = text == ""
	}
	to.WriteString(text)
}

// cutTag cuts s at its first tag. Without one, before is s.
func cutTag(s string) (before, tag, after string) {
	for i := range len(s) {
		for _, tag := range []string{thinkOpen, thinkClose} {
			if strings.HasPrefix(s[i:], tag) {
				return s[:i], tag, s[i+len(tag):]
			}
		}
	}
	return s, "", ""
}

// tagPrefix returns how many bytes at the end of s may be the beginning of a tag.
func tagPrefix(s string) int {
	for n := min(len(s), len(thinkClose)-1); n > 0; n-- {
		end := s[len(s)-n:]
		if strings.HasPrefix(thinkOpen, end) || strings.HasPrefix(thinkClose, end) {
			return n
		}
	}
	return 0
}
