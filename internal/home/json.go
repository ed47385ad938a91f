package home

import (
	"bytes"
	"encoding/json"
	"strings"
)

// quoteJSON is a text as a JSON string. Unlike [json.Marshal] it leaves <, > and
// & as they are, which devices expect.
func quoteJSON(text string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(strings.ToValidUTF8(text, "\uFFFD")); err != nil {
		panic(err) // a string always marshals
	}
	return strings.TrimSuffix(b.String(), "\n")
}
