package openaiapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
)

const (
	// maxErrorBody is how much of an error response is read, in bytes.
	maxErrorBody = 16 << 10
	// maxErrorText is how much of a service's message an error repeats, in bytes.
	maxErrorText = 300
	// maxRetryAfter is the longest Retry-After believed; a longer one is clipped.
	maxRetryAfter = time.Hour
)

// An Error is an answer that says no: an HTTP status other than success, or an
// error object inside a stream.
type Error struct {
	// Status is the HTTP status, or the error object's numeric code, or 0.
	Status int
	// Message is the service's own text, at most 300 bytes, with anything that
	// looks like a key taken out.
	Message string
	// RetryAfter is how long the service asks to be left alone, or 0.
	RetryAfter time.Duration

	table, advice string
}

// Error says what the service answered and what to do about it.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]: the service answered ", e.table)
	switch {
	case e.Status == 0:
		b.WriteString("with an error")
	case http.StatusText(e.Status) == "":
		fmt.Fprintf(&b, "%d", e.Status)
	default:
		fmt.Fprintf(&b, "%d %s", e.Status, http.StatusText(e.Status))
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.advice != "" {
		fmt.Fprintf(&b, "; %s", e.advice)
	}
	return b.String()
}

// RequestFault reports whether the service found fault with this one request,
// so that the error says nothing about its health.
func (e *Error) RequestFault() bool {
	switch e.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

// refused turns a response that is not a success into an error. A body cut short
// still leaves the status to report.
func (c *Client) refused(resp *http.Response, path string) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	message, _ := errorObject(body)
	if message == "" && !strings.Contains(resp.Header.Get("Content-Type"), "html") {
		message = string(body)
	}
	e := &Error{
		Status:     resp.StatusCode,
		Message:    c.clean(message),
		RetryAfter: retryAfter(resp.Header.Get("Retry-After")),
		table:      c.cfg.Table,
	}
	e.advice = c.advice(e, path, resp.Header.Get("Location"))
	return e
}

// InStream returns the error that an event's error object stands for: raw is the
// value of its "error" member, an object or a plain string.
func (c *Client) InStream(raw json.RawMessage) error {
	message, status := errorValue(raw)
	e := &Error{Status: status, Message: c.clean(message), table: c.cfg.Table}
	e.advice = c.advice(e, "", "")
	return e
}

// advice says what to do about an error.
func (c *Client) advice(e *Error, path, location string) string {
	switch s := e.Status; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		return fmt.Sprintf("check api_key of [%s]", c.cfg.Table)
	case s == http.StatusNotFound:
		return fmt.Sprintf("model %q not found, or base_url %s wrong: %s was asked for and most services want base_url to end in /v1",
			c.cfg.Model, c.base.Scheme+"://"+c.base.Host+c.base.Path, c.base.JoinPath(path).Path)
	case s == http.StatusTooManyRequests && e.RetryAfter > 0:
		return fmt.Sprintf("the rate limit or quota is used up, it asks to wait %v", e.RetryAfter)
	case s == http.StatusTooManyRequests:
		return "the rate limit or quota is used up"
	case s >= 300 && s < 400:
		return fmt.Sprintf("base_url redirects to %q, set it to where the service is", c.clean(location))
	}
	return ""
}

// errorObject finds the message in a JSON error body: {"error":…} as OpenAI and
// Ollama write it, {"message":…} as older vLLM does, {"detail":…} as FastAPI
// does. Anything else gives "".
func errorObject(body []byte) (message string, status int) {
	var object struct {
		Error   json.RawMessage `json:"error"`
		Message json.RawMessage `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &object) != nil {
		return "", 0
	}
	for _, raw := range []json.RawMessage{object.Error, object.Message, object.Detail} {
		if message, status = errorValue(raw); message != "" {
			return message, status
		}
	}
	return "", 0
}

// errorValue reads an error given as a string, as an object with a message and
// perhaps a numeric code, or, failing both, as the JSON it is.
func errorValue(raw json.RawMessage) (message string, status int) {
	if len(raw) == 0 || string(raw) == "null" {
		return "", 0
	}
	if json.Unmarshal(raw, &message) == nil {
		return message, 0
	}
	var object struct {
		Message string          `json:"message"`
		Code    json.RawMessage `json:"code"`
	}
	// Either member may have another type than expected; what fits is used.
	_ = json.Unmarshal(raw, &object)
	if object.Message == "" {
		object.Message = string(raw)
	}
	if code, err := strconv.Atoi(strings.Trim(string(object.Code), `"`)); err == nil && code >= 100 && code <= 599 {
		status = code
	}
	return object.Message, status
}

// retryAfter reads the header's seconds or date (RFC 9110 §10.2.3); anything
// else is 0.
func retryAfter(header string) time.Duration {
	var wait time.Duration
	if seconds, err := strconv.ParseFloat(strings.TrimSpace(header), 64); err == nil {
		wait = time.Duration(min(seconds, maxRetryAfter.Seconds()) * float64(time.Second))
	} else if at, err := http.ParseTime(header); err == nil {
		wait = time.Until(at)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// clean makes a service's text fit for a log line: one line, bounded, and
// without the key. Services repeat the key they refused, whole or as
// "sk-proj-****abcd".
func (c *Client) clean(text string) string {
	if len(text) > maxErrorBody {
		text = text[:maxErrorBody]
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
	for i, word := range words {
		if c.betraysKey(word) {
			words[i] = "[redacted]"
		}
	}
	text = strings.ToValidUTF8(strings.Join(words, " "), "?")
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}

// keyPart is how many characters in a row of the key a word must share with it
// to be taken out. Shorter keys are placeholders like "ollama" or "none": they
// are taken out only as a whole.
const keyPart = 8

// betraysKey reports whether word holds the key or a part of it.
func (c *Client) betraysKey(word string) bool {
	if strings.Contains(word, "**") {
		return true
	}
	key := c.cfg.APIKey
	if key == "" {
		return false
	}
	for i := 0; i+keyPart <= len(key); i++ {
		if strings.Contains(word, key[i:i+keyPart]) {
			return true
		}
	}
	return strings.Trim(word, `"'.,:;()`) == key
}
