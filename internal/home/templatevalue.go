package home

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
)

// The values of templates are nil, bool, int64, float64, string, []any,
// map[string]any (an object of a message), map[any]any (a dictionary of the
// template) and undefined.

// undefined is what a variable or a member is that is not there.
type undefined struct{}

// decodeJSON reads the JSON of a message, keeping apart whole numbers and others.
func decodeJSON(data []byte) (any, bool) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return nil, false
	}
	return v, true
}

// fromJSON makes a template's value of a decoded one. Members of objects and
// lists are converted when they are taken out.
func fromJSON(v any) any {
	n, ok := v.(json.Number)
	if !ok {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, err := n.Float64()
	if err != nil || !strings.ContainsAny(string(n), ".eE") {
		return string(n) // a whole number too large for an int64: its digits
	}
	return f
}

// truth is whether a condition holds.
func truth(v any) bool {
	switch v := v.(type) {
	case nil, undefined:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	case map[any]any:
		return len(v) > 0
	}
	n, _ := number(v)
	return n != 0
}

// number is the value of what counts as a number; as in Python that includes
// booleans, and not texts.
func number(v any) (float64, bool) {
	switch v := v.(type) {
	case int64:
		return float64(v), true
	case float64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "none"
	case undefined:
		return "a value that is not there"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case string:
		return "a text"
	case []any:
		return "a list"
	}
	return "an object"
}

// toText is how a value is printed: as Python does, except that lists and
// objects are printed as JSON.
func toText(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case undefined:
		return ""
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return floatText(v)
	case json.Number:
		return toText(fromJSON(v))
	}
	b, err := json.Marshal(jsonable(v))
	if err != nil {
		return ""
	}
	return string(b)
}

// floatText prints a float as Python does, with a fraction even where it is zero.
func floatText(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	case math.Abs(f) >= 1e16 || f != 0 && math.Abs(f) < 1e-4:
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// jsonable makes a value that encoding/json can write.
func jsonable(v any) any {
	switch v := v.(type) {
	case undefined:
		return nil
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil
		}
	case []any:
		items := make([]any, len(v))
		for i := range v {
			items[i] = jsonable(v[i])
		}
		return items
	case map[any]any:
		m := make(map[string]any, len(v))
		for k, item := range v {
			m[toText(k)] = jsonable(item)
		}
		return m
	}
	return v
}
