package home

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxTemplateItems bounds a list that split makes.
const maxTemplateItems = 1024

func isFilter(name string) bool {
	switch name {
	case "default", "d", "int", "float", "round", "lower", "upper", "trim", "string", "join", "replace",
		"is_defined", "length", "count", "abs", "first", "last", "min", "max", "format", "truncate", "title",
		"capitalize", "tojson", "to_json", "from_json", "multiply", "add", "iif", "bool":
		return true
	}
	return false
}

func isMethod(name string) bool {
	switch name {
	case "split", "replace", "lower", "upper", "strip", "title", "capitalize", "startswith", "endswith", "get":
		return true
	}
	return false
}

func isFunction(name string) bool {
	switch name {
	case "int", "float", "iif", "min", "max", "bool":
		return true
	}
	return false
}

// A call is one use of a filter, a method or a function, its arguments evaluated.
type call struct {
	s     *scope
	of    any
	args  []any
	named map[string]any
}

// arg is the argument at i or of that name.
func (c *call) arg(i int, name string, otherwise any) any {
	if i < len(c.args) {
		return c.args[i]
	}
	if v, ok := c.named[name]; ok {
		return v
	}
	return otherwise
}

func (e filter) eval(s *scope) (any, error) {
	c := &call{s: s}
	for _, a := range e.args.values {
		v, err := a.eval(s)
		if err != nil {
			return nil, err
		}
		c.args = append(c.args, v)
	}
	for name, a := range e.args.named {
		v, err := a.eval(s)
		if err != nil {
			return nil, err
		}
		if c.named == nil {
			c.named = map[string]any{}
		}
		c.named[name] = v
	}
	switch {
	case !e.function:
		v, err := e.of.eval(s)
		if err != nil {
			return nil, err
		}
		c.of = v
	case e.name == "min" || e.name == "max":
		c.of = c.args
	case len(c.args) == 0:
		return nil, fmt.Errorf("%s needs an argument", e.name)
	default:
		c.of, c.args = c.args[0], c.args[1:]
	}
	if name, ok := strings.CutPrefix(e.name, "."); ok {
		return c.method(name)
	}
	return c.filter(e.name)
}

// filter applies what works on a value of any kind; text does the rest.
func (c *call) filter(name string) (any, error) {
	_, isUndefined := c.of.(undefined)
	switch name {
	case "default", "d":
		if isUndefined || truth(c.arg(1, "boolean", false)) && !truth(c.of) {
			return c.arg(0, "default_value", ""), nil
		}
		return c.of, nil
	case "is_defined":
		if isUndefined {
			return nil, errors.New("the value is not there")
		}
		return c.of, nil
	case "iif":
		if truth(c.of) {
			return c.arg(0, "if_true", true), nil
		}
		return c.arg(1, "if_false", false), nil
	case "int", "float", "round", "bool", "abs", "multiply", "add":
		return c.number(name)
	case "length", "count", "first", "last", "min", "max", "join":
		return c.list(name)
	case "string":
		text := toText(c.of)
		return text, c.s.spend(len(text))
	case "tojson", "to_json":
		text := toText(c.of)
		if s, ok := c.of.(string); ok {
			text = quoteJSON(s)
		} else if c.of == nil {
			text = "null"
		} else if b, ok := c.of.(bool); ok {
			text = strconv.FormatBool(b)
		}
		return text, c.s.spend(len(text))
	case "from_json":
		text, ok := c.of.(string)
		if !ok || c.s.spend(len(text)*8) != nil {
			return nil, errors.New("only a short text can be read as JSON")
		}
		v, ok := decodeJSON([]byte(text))
		if !ok {
			return nil, errors.New("the text is no JSON")
		}
		return fromJSON(v), nil
	}
	if isUndefined {
		return nil, fmt.Errorf("%s of a value that is not there", name)
	}
	return c.text(name)
}

// number applies the filters that make numbers.
func (c *call) number(name string) (any, error) {
	if name == "bool" {
		return toBool(c.of)
	}
	if name == "int" {
		return c.toInt()
	}
	f, err := toFloat(c.of)
	if err != nil {
		if d, ok := c.named["default"]; ok {
			return d, nil
		}
		if name == "float" && len(c.args) > 0 {
			return c.args[0], nil
		}
		return nil, err
	}
	switch name {
	case "float":
		return f, nil
	case "abs":
		if n, ok := c.of.(int64); ok && n != math.MinInt64 {
			return max(n, -n), nil
		}
		return math.Abs(f), nil
	case "multiply", "add":
		by := c.arg(0, "amount", int64(0))
		op := map[string]string{"multiply": "*", "add": "+"}[name]
		return arithmetic(op, f, by)
	}
	return c.round(f)
}

func (c *call) round(f float64) (any, error) {
	precision, ok := c.arg(0, "precision", int64(0)).(int64)
	if !ok || precision < 0 || precision > 15 {
		return nil, errors.New("round takes a precision of 0 to 15")
	}
	scale := math.Pow10(int(precision))
	switch method := toText(c.arg(1, "method", "common")); method {
	case "ceil":
		f = math.Ceil(f*scale) / scale
	case "floor":
		f = math.Floor(f*scale) / scale
	case "half":
		f = math.RoundToEven(f*2) / 2
	default:
		f = math.RoundToEven(f*scale) / scale
	}
	if precision == 0 && math.Abs(f) < 1<<53 && f == math.Trunc(f) {
		return int64(f), nil
	}
	return f, nil
}

func (c *call) toInt() (any, error) {
	base, _ := c.arg(1, "base", int64(10)).(int64)
	if text, ok := c.of.(string); ok && base != 10 && base >= 2 && base <= 36 {
		text = strings.ToLower(strings.TrimSpace(text))
		if base == 16 {
			text = strings.TrimPrefix(text, "0x")
		}
		if n, err := strconv.ParseInt(text, int(base), 64); err == nil {
			return n, nil
		}
	} else if n, ok := c.of.(int64); ok {
		return n, nil
	} else if f, err := toFloat(c.of); err == nil && math.Abs(f) < 1<<62 {
		return int64(f), nil
	}
	if d := c.arg(0, "default", nil); d != nil {
		return d, nil
	}
	return nil, fmt.Errorf("%s is no whole number", kindOf(c.of))
}

func toFloat(v any) (float64, error) {
	if f, ok := number(v); ok {
		return f, nil
	}
	if text, ok := v.(string); ok {
		if f, err := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && !math.IsNaN(f) && !math.IsInf(f, 0) {
			return f, nil
		}
	}
	return 0, fmt.Errorf("%s is no number", kindOf(v))
}

// toBool reads a boolean as Home Assistant does.
func toBool(v any) (any, error) {
	if text, ok := v.(string); ok {
		switch strings.ToLower(strings.TrimSpace(text)) {
		case "1", "true", "yes", "on", "enable":
			return true, nil
		case "0", "false", "no", "off", "disable":
			return false, nil
		}
	} else if f, ok := number(v); ok {
		return f != 0, nil
	}
	return nil, fmt.Errorf("%s is neither true nor false", kindOf(v))
}

// list applies the filters of lists; a text is a list of its characters.
func (c *call) list(name string) (any, error) {
	var items []any
	switch of := c.of.(type) {
	case []any:
		items = of
	case string:
		if name == "length" || name == "count" {
			return int64(utf8.RuneCountInString(of)), nil
		}
		if of == "" {
			return undefined{}, nil
		}
		switch first, _ := utf8.DecodeRuneInString(of); name {
		case "first":
			return string(first), nil
		case "last":
			last, _ := utf8.DecodeLastRuneInString(of)
			return string(last), nil
		}
		return nil, fmt.Errorf("%s of a text has no value", name)
	case map[string]any:
		if name == "length" || name == "count" {
			return int64(len(of)), nil
		}
	}
	if items == nil && name != "length" && name != "count" {
		return nil, fmt.Errorf("%s needs a list", name)
	}
	switch name {
	case "length", "count":
		return int64(len(items)), nil
	case "join":
		return c.join(items)
	}
	if len(items) == 0 {
		return undefined{}, nil
	}
	best := fromJSON(items[0])
	switch name {
	case "last":
		best = fromJSON(items[len(items)-1])
	case "min", "max":
		op := map[string]string{"min": "<", "max": ">"}[name]
		for _, item := range items[1:] {
			v := fromJSON(item)
			better, err := compare(c.s, op, v, best)
			if err != nil {
				return nil, err
			}
			if better {
				best = v
			}
		}
	}
	return best, nil
}

func (c *call) join(items []any) (any, error) {
	separator := toText(c.arg(0, "d", ""))
	var b strings.Builder
	for i, item := range items {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(toText(item))
		if b.Len() > maxTemplateText {
			return nil, errTemplateWork
		}
	}
	return b.String(), c.s.spend(b.Len())
}

// text applies the filters of texts.
func (c *call) text(name string) (any, error) {
	text := toText(c.of)
	if err := c.s.spend(len(text)); err != nil {
		return nil, err
	}
	switch name {
	case "lower":
		return strings.ToLower(text), nil
	case "upper":
		return strings.ToUpper(text), nil
	case "trim", "strip":
		if cut, ok := c.arg(0, "chars", nil).(string); ok {
			return strings.Trim(text, cut), nil
		}
		return strings.TrimSpace(text), nil
	case "title":
		return capitalise(text, true), nil
	case "capitalize":
		return capitalise(text, false), nil
	case "replace":
		from, to := toText(c.arg(0, "old", "")), toText(c.arg(1, "new", ""))
		if n := strings.Count(text, from); c.s.spend(n*len(to)) != nil {
			return nil, errTemplateWork
		}
		return strings.ReplaceAll(text, from, to), nil
	case "truncate":
		limit, ok := c.arg(0, "length", int64(255)).(int64)
		runes := []rune(text)
		if !ok || limit < 0 || int64(len(runes)) <= limit {
			return text, nil
		}
		return string(runes[:limit]), nil
	case "format":
		return format(c.s, text, c.args)
	}
	return nil, fmt.Errorf("%s is beyond what is understood", name)
}

func (c *call) method(name string) (any, error) {
	if name == "get" {
		otherwise := c.arg(1, "default", nil)
		v, err := index{of: literal{c.of}, at: literal{c.arg(0, "key", nil)}}.eval(c.s)
		if _, missing := v.(undefined); missing {
			return otherwise, err
		}
		return v, err
	}
	text, ok := c.of.(string)
	if !ok {
		return nil, fmt.Errorf("%s is no method of %s", name, kindOf(c.of))
	}
	other := toText(c.arg(0, "sep", ""))
	switch name {
	case "startswith":
		return strings.HasPrefix(text, other), nil
	case "endswith":
		return strings.HasSuffix(text, other), nil
	case "split":
		parts := strings.Fields(text)
		if len(c.args) > 0 && other != "" {
			parts = strings.SplitN(text, other, maxTemplateItems+1)
		}
		if len(parts) > maxTemplateItems {
			return nil, errTemplateWork
		}
		items := make([]any, len(parts))
		for i := range parts {
			items[i] = parts[i]
		}
		return items, c.s.spend(16 * len(items))
	}
	return c.text(name)
}

// capitalise makes the first letter, or that of each word, a capital and the
// others small.
func capitalise(text string, words bool) string {
	var b strings.Builder
	start := true
	for _, r := range strings.ToLower(text) {
		if start && r != ' ' {
			b.WriteString(strings.ToUpper(string(r)))
			start = false
		} else {
			b.WriteRune(r)
		}
		start = start || words && r == ' '
	}
	return b.String()
}

// format fills in %d, %i, %s, %x, %X, %f and %%, with a width below 100 and a
// precision below 20.
func format(s *scope, text string, args []any) (any, error) {
	var b strings.Builder
	next := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			b.WriteByte(text[i])
			continue
		}
		end := i + 1
		for end < len(text) && strings.IndexByte("0123456789.-+ ", text[end]) >= 0 {
			end++
		}
		if end == len(text) || end-i > 6 {
			return nil, errors.New("a format is not understood")
		}
		verb, flags := text[end], text[i:end]
		i = end
		if verb == '%' {
			b.WriteByte('%')
			continue
		}
		if next == len(args) {
			return nil, errors.New("a format has more places than values")
		}
		out, err := formatOne(flags, verb, args[next])
		if err != nil {
			return nil, err
		}
		next++
		b.WriteString(out)
	}
	return b.String(), s.spend(b.Len())
}

func formatOne(flags string, verb byte, v any) (string, error) {
	width, precision, _ := strings.Cut(strings.TrimLeft(flags, "%-+ 0"), ".")
	if len(width) > 2 || len(precision) > 1 {
		return "", errors.New("a format is too wide")
	}
	switch verb {
	case 's':
		return fmt.Sprintf(flags+"s", toText(v)), nil
	case 'f':
		f, err := toFloat(v)
		return fmt.Sprintf(flags+"f", f), err
	case 'd', 'i', 'x', 'X':
		f, ok := number(v)
		if !ok || math.Abs(f) > 1<<53 {
			return "", errors.New("a format needs a number")
		}
		if verb == 'i' {
			verb = 'd'
		}
		return fmt.Sprintf(flags+string(verb), int64(f)), nil
	}
	return "", fmt.Errorf("the format %%%c is not understood", verb)
}
