package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"parley/internal/protocol"
	"parley/mcp"
)

// A code says in one word what went wrong, for programs and the audit log.
type code string

const (
	codeOff          code = "api_off"
	codeGatewayOff   code = "gateway_off"
	codeNoToken      code = "token_required"
	codeBadToken     code = "token_refused"
	codeLimited      code = "too_many_failures"
	codeScope        code = "scope_missing"
	codeOrigin       code = "origin_refused"
	codeNoRoute      code = "no_such_path"
	codeMethod       code = "method_not_allowed"
	codeRequest      code = "bad_request"
	codeTooLarge     code = "too_large"
	codeMedia        code = "media_type"
	codeDevice       code = "bad_device_id"
	codeAbsent       code = "device_absent"
	codeNoSession    code = "no_session"
	codeNoTools      code = "tools_unknown"
	codeUnknownTool  code = "unknown_tool"
	codeArguments    code = "bad_arguments"
	codeUnable       code = "device_unable"
	codeTimeout      code = "timeout"
	codeBusy         code = "device_busy"
	codeOverload     code = "server_busy"
	codeDisconnected code = "device_disconnected"
	codeFailed       code = "failed"
)

// A problem is an error in the form clients get it, that of RFC 9457. code,
// remedy and field are members of our own.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   code   `json:"code"`
	Remedy string `json:"remedy"`
	Field  string `json:"field,omitempty"` // of the request that is wrong
	// retry is for Retry-After, in seconds; 0 leaves it out.
	retry int
	// challenge is for WWW-Authenticate; "" leaves it out.
	challenge string
}

// Error is the problem in one line, as MCP clients get it.
func (p *problem) Error() string { return p.Detail + "; " + p.Remedy }

// newProblem returns a problem. With the type about:blank the title is that of
// the status, as the RFC has it.
func newProblem(status int, c code, detail, remedy string) *problem {
	return &problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: detail, Code: c, Remedy: remedy,
	}
}

// badRequest is the problem of one field of a request.
func badRequest(field, detail, remedy string) *problem {
	p := newProblem(http.StatusBadRequest, codeRequest, detail, remedy)
	p.Field = clip(field)
	return p
}

// maxDetail bounds what an error of a device or of a request's own words may add
// to an answer, in bytes.
const maxDetail = 512

// clip cuts s to maxDetail bytes. Half a character at the end becomes U+FFFD
// when it is written as JSON.
func clip(s string) string { return s[:min(len(s), maxDetail)] }

// failures are the errors of a Fleet as clients are told them, in the order they
// are looked for.
func failures() []failure {
	return []failure{
		{ErrAbsent, http.StatusNotFound, codeAbsent, "wait until it connects; GET /api/v1/devices lists those that are", 0},
		{ErrNoSession, http.StatusNotFound, codeNoSession, "there is nothing to end", 0},
		{ErrNoTools, http.StatusServiceUnavailable, codeNoTools, "ask again in some seconds; firmware before 2.0 may have none to tell", 5},
		{ErrUnable, http.StatusConflict, codeUnable, "its firmware or its state does not allow it", 0},
		{mcp.ErrUnknownTool, http.StatusNotFound, codeUnknownTool, "GET the device's tools for what it has", 0},
		{mcp.ErrArguments, http.StatusBadRequest, codeArguments, "send one JSON object that fits the tool's input_schema", 0},
		{mcp.ErrTimeout, http.StatusGatewayTimeout, codeTimeout, "the tool may have run all the same; look before asking again", 0},
		{context.DeadlineExceeded, http.StatusGatewayTimeout, codeTimeout, "it may take effect all the same; look before asking again", 0},
		{mcp.ErrBusy, http.StatusServiceUnavailable, codeBusy, "devices do one thing at a time; wait for earlier calls", 1},
		{mcp.ErrClosed, http.StatusServiceUnavailable, codeDisconnected, "ask again when it is back", 5},
		{context.Canceled, http.StatusServiceUnavailable, codeFailed, "the request was given up before it was answered", 0},
	}
}

type failure struct {
	err    error
	status int
	code   code
	remedy string
	retry  int
}

// problemOf makes a problem of any error; one that is a problem stays.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	for _, f := range failures() {
		if errors.Is(err, f.err) {
			p := newProblem(f.status, f.code, clip(err.Error()), f.remedy)
			p.retry = f.retry
			return p
		}
	}
	return newProblem(http.StatusBadGateway, codeFailed, clip(err.Error()), "look at the device and at the server's log")
}

// absent is the error for a device that is not connected.
func absent(id protocol.DeviceID) error { return fmt.Errorf("device %s: %w", id, ErrAbsent) }

// writeProblem answers with what went wrong.
func writeProblem(w http.ResponseWriter, err error) {
	p := problemOf(err)
	p.setHeaders(w.Header())
	write(w, p.Status, "application/problem+json", p)
}

// setHeaders adds what a problem says in headers.
func (p *problem) setHeaders(h http.Header) {
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.challenge != "" {
		h.Set("WWW-Authenticate", p.challenge)
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, mediaType string, v any) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil { // only a raw JSON of the fleet that is none can fail
		writeProblem(w, newProblem(http.StatusBadGateway, codeFailed, "the answer could not be written: "+err.Error(), "look at the device"))
		return
	}
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(b.Len()))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // who has gone does not read the error either
}
