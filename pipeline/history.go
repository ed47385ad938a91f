package pipeline

import (
	"slices"
	"strings"
	"time"
)

// remember adds to the history and keeps it bounded. It is cut before a message
// of the user or, where there is none, before one that is no result, so that no
// result is parted from its call.
func (c *Conversation) remember(m ...Message) {
	c.history = append(c.history, m...)
	forgetPictures(c.history)
	over := len(c.history) - c.cfg.History
	if over <= 0 {
		return
	}
	rest := c.history[over:]
	cut := slices.IndexFunc(rest, func(m Message) bool { return m.Role == RoleUser })
	if cut < 0 {
		cut = slices.IndexFunc(rest, func(m Message) bool { return m.Role != RoleTool })
	}
	if cut < 0 {
		cut = len(rest) // results only, of a call that is gone
	}
	c.history = slices.Clone(rest[cut:])
}

// request is the history as a model gets it.
func (c *Conversation) request() []Message {
	return append([]Message{{Role: RoleSystem, Text: c.cfg.Prompt}}, c.history...)
}

// A span is one sentence and when it plays.
type span struct {
	text     string
	from, to time.Time // of what was sent of it
}

// Speaking rates, used only for a sentence that was cut before its length was
// known and that has none before it to compare with.
const (
	cjkRune   = 220 * time.Millisecond // Mandarin, read out
	latinRune = 65 * time.Millisecond  // English, read out
)

// heard is the text of what has been played by now. All of a sentence was sent
// if another follows it or the reply is complete; its length is then known, and
// of one that was cut as much counts as its time suffices for. The length of
// the last sentence of a cut reply is guessed from the pace of those before.
func heard(spans []span, complete bool, now time.Time) string {
	var out string
	var pace time.Duration // per rune
	for i, s := range spans {
		runes := []rune(s.text)
		if !now.After(s.from) {
			break
		}
		if len(runes) == 0 {
			continue
		}
		known := complete || i < len(spans)-1
		switch {
		case known:
			pace = max(1, s.to.Sub(s.from)/time.Duration(len(runes)))
		case pace == 0:
			pace = defaultPace(runes)
		}
		n := len(runes)
		if !known || now.Before(s.to) {
			n = min(n, int(min(now.Sub(s.from), s.to.Sub(s.from))/pace))
		}
		out = joinWords(out, atWord(runes, n))
	}
	return out
}

// withoutFiller is what was said of a reply that began with the filler, which is
// no answer: a model that reads it would take to it.
func withoutFiller(said, filler string) string {
	filler = strings.Join(strings.Fields(filler), " ")
	if strings.HasPrefix(filler, said) {
		return "" // it was cut within
	}
	return strings.TrimSpace(strings.TrimPrefix(said, filler))
}

func defaultPace(runes []rune) time.Duration {
	cjk := 0
	for _, r := range runes {
		if isCJK(r) {
			cjk++
		}
	}
	if cjk*2 > len(runes) {
		return cjkRune
	}
	return latinRune
}

// atWord is the first n runes, back to the end of a word.
func atWord(runes []rune, n int) string {
	if n >= len(runes) {
		return string(runes)
	}
	for n > 0 && !isCJK(runes[n-1]) && runes[n-1] != ' ' && runes[n] != ' ' {
		n--
	}
	return strings.TrimSpace(string(runes[:n]))
}
