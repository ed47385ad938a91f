package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"parley/internal/protocol"
)

// A query is one request of REST, read.
type query struct {
	r      *http.Request
	caller caller
	body   []byte
}

// readBody reads a body of at most [MaxBody] bytes, which must say that it is
// JSON unless it is empty.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxBody))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return nil, newProblem(http.StatusRequestEntityTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", MaxBody), "send less")
	}
	if err != nil {
		return nil, newProblem(http.StatusBadRequest, codeRequest, "the body could not be read", "send it whole, with its length")
	}
	if len(body) == 0 {
		return nil, nil
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, newProblem(http.StatusUnsupportedMediaType, codeMedia, "the body is not declared as JSON", "send Content-Type: application/json")
	}
	return body, nil
}

// device is the device the path names.
func (q *query) device() (protocol.DeviceID, error) { return parseDevice(q.r.PathValue("id")) }

// parseDevice takes a device's id in any of its spellings.
func parseDevice(s string) (protocol.DeviceID, error) {
	id, err := protocol.ParseDeviceID(s)
	if err != nil {
		p := newProblem(http.StatusBadRequest, codeDevice, "device id: "+err.Error(), "give its MAC address, such as a0:85:e3:f4:49:34 or A0_85_E3_F4_49_34")
		p.Field = "id"
		return "", p
	}
	return id, nil
}

// noParameters refuses a query string where none is understood.
func (q *query) noParameters() error { return q.parameters(nil) }

// parameters reads the query string into the given targets, by name. One that
// has no target, or comes twice, is an error.
func (q *query) parameters(targets map[string]*string) error {
	names := slices.Sorted(maps.Keys(targets))
	given := make(map[string]*[]string, len(names))
	for _, name := range names {
		given[name] = new([]string)
	}
	if err := q.lists(given); err != nil {
		return err
	}
	for _, name := range names {
		switch values := *given[name]; len(values) {
		case 0:
		case 1:
			*targets[name] = values[0]
		default:
			return badRequest(name, fmt.Sprintf("parameter %q comes %d times", name, len(values)), "give it once")
		}
	}
	return nil
}

// lists reads the query string into the given targets, by name. Each may come
// several times; one that has no target is an error.
func (q *query) lists(targets map[string]*[]string) error {
	values, err := url.ParseQuery(q.r.URL.RawQuery)
	if err != nil {
		return badRequest("", "the query string cannot be read", "escape it as a URL needs")
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		target, ok := targets[name]
		if !ok {
			return unknown("parameter", name, slices.Sorted(maps.Keys(targets)))
		}
		*target = values[name]
	}
	return nil
}

// unknown is the problem of a name that is not understood.
func unknown(kind, name string, known []string) error {
	remedy := "leave it out; there are none here"
	if len(known) > 0 {
		remedy = "leave it out; there are " + strings.Join(known, ", ")
	}
	return badRequest(name, fmt.Sprintf("unknown %s %q", kind, clip(name)), remedy)
}

// read reads a body of the given members, and refuses a query string.
func (q *query) read(targets map[string]*string) error {
	if err := q.noParameters(); err != nil {
		return err
	}
	return readMembers(q.body, targets)
}

// readMembers reads body, a JSON object of strings, into the given targets, by
// name. Where there are none the body may be empty. A member without a target is an error, and so is anything but a string.
// Members that are missing leave their target alone. Names are exact, unlike
// those that package json would match.
func readMembers(body []byte, targets map[string]*string) error {
	body = bytes.TrimSpace(body)
	if len(body) == 0 && len(targets) == 0 {
		return nil
	}
	object := map[string]json.RawMessage{}
	if len(body) == 0 || body[0] != '{' || json.Unmarshal(body, &object) != nil {
		return badRequest("", "the body is not one JSON object", "send one, such as "+example(targets))
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		target, ok := targets[name]
		if !ok {
			return unknown("field", name, slices.Sorted(maps.Keys(targets)))
		}
		if raw := object[name]; raw[0] != '"' || json.Unmarshal(raw, target) != nil {
			return badRequest(name, fmt.Sprintf("field %q is not a string", name), "send text in quotes")
		}
	}
	return nil
}

// example is a body with the given members.
func example(targets map[string]*string) string {
	var members []string
	for _, name := range slices.Sorted(maps.Keys(targets)) {
		members = append(members, strconv.Quote(name)+`: "…"`)
	}
	return "{" + strings.Join(members, ", ") + "}"
}

// checkText refuses a text that is missing, blank or longer than limit
// characters.
func checkText(field, text string, limit int) error {
	if strings.TrimSpace(text) == "" {
		return badRequest(field, fmt.Sprintf("field %q is missing or empty", field), "send a text")
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return badRequest(field, fmt.Sprintf("field %q has %d characters", field, n), fmt.Sprintf("send at most %d", limit))
	}
	return nil
}
