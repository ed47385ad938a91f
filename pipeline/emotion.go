package pipeline

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// An emotion is a face that devices can show, with the emoji that means it.
type emotion struct{ name, emoji string }

// emotions are the names that firmware knows. A model expresses one by its
// emoji or by its name in brackets, such as [happy].
var emotions = map[rune]string{
	'😶': "neutral", '😐': "neutral",
	'🙂': "happy", '😊': "happy", '😀': "happy", '😃': "happy", '😄': "happy", '😁': "happy",
	'😆': "laughing", '😂': "funny", '🤣': "funny",
	'😔': "sad", '😢': "sad", '🙁': "sad", '☹': "sad",
	'😠': "angry", '😡': "angry",
	'😭': "crying",
	'😍': "loving", '🥰': "loving", '❤': "loving",
	'😳': "embarrassed", '😅': "embarrassed",
	'😲': "surprised", '😮': "surprised",
	'😱': "shocked",
	'🤔': "thinking",
	'😉': "winking",
	'😎': "cool",
	'😌': "relaxed",
	'🤤': "delicious", '😋': "delicious",
	'😘': "kissy",
	'😏': "confident",
	'😴': "sleepy",
	'😜': "silly", '🤪': "silly",
	'🙄': "confused", '😕': "confused",
}

// canonical is the emoji shown for an emotion given by name.
var canonical = map[string]string{
	"neutral": "😶", "happy": "🙂", "laughing": "😆", "funny": "😂", "sad": "😔", "angry": "😠", "crying": "😭",
	"loving": "😍", "embarrassed": "😳", "surprised": "😲", "shocked": "😱", "thinking": "🤔", "winking": "😉",
	"cool": "😎", "relaxed": "😌", "delicious": "🤤", "kissy": "😘", "confident": "😏", "sleepy": "😴",
	"silly": "😜", "confused": "🙄",
}

// maxTag is the longest tag in bytes, brackets included.
const maxTag = len("[embarrassed]")

// An emotionFilter takes emoji and emotion tags out of a stream of text, so that
// no voice reads them aloud. Text may be split anywhere between writes, but not
// inside a character.
type emotionFilter struct {
	tag     string // an unfinished tag, from its bracket on
	trimmed bool   // an emotion was just removed: the space after it goes, too
}

// write returns the text that can be spoken and the emotions found in it.
func (f *emotionFilter) write(s string) (string, []emotion) {
	var out strings.Builder
	var found []emotion
	for _, r := range s {
		if f.tag != "" {
			f.tag += string(r)
			switch {
			case r == ']' || r == '>':
				name := strings.ToLower(f.tag[1 : len(f.tag)-1])
				if emoji, ok := canonical[name]; ok {
					found = append(found, emotion{name, emoji})
					f.trimmed = true
				} else {
					out.WriteString(f.tag)
				}
				f.tag = ""
			case len(f.tag) >= maxTag || !unicode.IsLetter(r):
				out.WriteString(f.tag)
				f.tag = ""
			}
			continue
		}
		switch name, ok := emotions[r]; {
		case r == '[' || r == '<':
			f.tag = string(r)
			continue
		case ok:
			found = append(found, emotion{name, string(r)})
			f.trimmed = true
			continue
		case isEmoji(r):
			f.trimmed = true
			continue
		case f.trimmed && r == ' ':
			f.trimmed = false
			if out.Len() > 0 && !strings.HasSuffix(out.String(), " ") {
				out.WriteRune(r)
			}
			continue
		}
		f.trimmed = false
		out.WriteRune(r)
	}
	return out.String(), found
}

// flush returns what was held back as the beginning of a tag.
func (f *emotionFilter) flush() string {
	s := f.tag
	f.tag = ""
	return s
}

// isEmoji reports whether r is a picture, or a mark that modifies one.
func isEmoji(r rune) bool {
	switch {
	case r >= 0x1f000 && r <= 0x1faff, // pictographs, flags, skin tones
		r >= 0x2600 && r <= 0x27bf,   // symbols and dingbats
		r >= 0xfe00 && r <= 0xfe0f,   // variation selectors
		r == 0x200d || r == 0x20e3,   // joiner, keycap
		r >= 0xe0020 && r <= 0xe007f, // flag tags
		r == 0x2b50 || r == 0x2b55:
		return true
	}
	return r == utf8.RuneError
}
