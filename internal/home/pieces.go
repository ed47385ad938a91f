package home

import (
	"fmt"
	"strings"
)

// pieces are a text with arguments in it.
type pieces struct {
	list []piece
	json bool
}

// A piece is text, or an argument.
type piece struct {
	text   string
	arg    string
	quoted bool // the argument stands in a JSON string
}

// cutPieces finds the arguments of a text. Braces around anything but a name are
// text, since payloads are often JSON.
func cutPieces(text string, args map[string]Arg, payload bool) (pieces, error) {
	trimmed := strings.TrimSpace(text)
	p := pieces{json: payload && (strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "["))}
	if p.json && isPlaceholder(trimmed, args) {
		p.json = false // "{text}" is one argument and no object
	}
	quoted, start := false, 0
	for i := 0; i < len(text); i++ {
		switch {
		case p.json && quoted && text[i] == '\\':
			i++
		case p.json && text[i] == '"':
			quoted = !quoted
		case text[i] == '{':
			end := strings.IndexByte(text[i:], '}')
			name := ""
			if end > 0 {
				name = text[i+1 : i+end]
			}
			if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r > 0x7f || !isNameByte(byte(r)) }) {
				continue
			}
			if _, ok := args[name]; !ok {
				return p, fmt.Errorf("{%s} is no argument of the tool; declare it in arguments", name)
			}
			p.list = append(p.list, piece{text: text[start:i]}, piece{arg: name, quoted: quoted})
			i += end
			start = i + 1
		}
	}
	p.list = append(p.list, piece{text: text[start:]})
	return p, nil
}

func isPlaceholder(text string, args map[string]Arg) bool {
	name, ok := strings.CutSuffix(strings.TrimPrefix(text, "{"), "}")
	_, known := args[name]
	return ok && known
}

// text fills in the arguments of a payload.
func (p pieces) text(args map[string]any) string {
	var b strings.Builder
	for _, part := range p.list {
		if part.arg == "" {
			b.WriteString(part.text)
			continue
		}
		v, given := args[part.arg]
		switch {
		case p.json && part.quoted:
			quoted := quoteJSON(argText(v))
			b.WriteString(quoted[1 : len(quoted)-1])
		case p.json && !given:
			b.WriteString("null")
		case p.json:
			if text, ok := v.(string); ok {
				b.WriteString(quoteJSON(text))
			} else {
				b.WriteString(argText(v))
			}
		default:
			b.WriteString(argText(v))
		}
	}
	return b.String()
}

// topic fills in the arguments of a topic.
func (p pieces) topic(args map[string]any) string {
	p.json = false
	return p.text(args)
}

// checkLevels says which argument may not stand in a topic.
func (p pieces) checkLevels(args map[string]any) error {
	for _, part := range p.list {
		if part.arg == "" {
			continue
		}
		text := argText(args[part.arg])
		if text == "" || len(text) > maxTopicArg || strings.ContainsAny(text, "/+#") || !cleanText(text) {
			return fmt.Errorf("%s must be 1 to %d characters without / + and #", part.arg, maxTopicArg)
		}
	}
	return nil
}

func argText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case bool:
		if v {
			return "true"
		}
		return "false"
	case float64:
		return plainNumber(v)
	case string:
		return v
	}
	return ""
}
