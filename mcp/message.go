package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// DecodeMessage reads one JSON-RPC message as leniently as can be without
// guessing, for transports; the SDK's own function, which is strict, makes a
// session end over the smallest fault. It wants no "jsonrpc", takes an error
// that is a mere string or has no code, and a number in quotes for the id of an
// answer. A message without id is a notification or an error. Batches are
// errors: of all revisions of MCP only one had them, and it asked for none.
func DecodeMessage(data []byte) (jsonrpc.Message, error) {
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("not a JSON-RPC message: %w", err)
	}
	if notNull(e.Method) != nil {
		return decodeRequest(e.ID, e.Method, e.Params)
	}
	n, err := strconv.ParseInt(text(e.ID), 10, 64)
	if err != nil {
		return nil, errors.New(`an answer whose "id" is no number that was ever sent`)
	}
	resp := &jsonrpc.Response{Result: notNull(e.Result)}
	if resp.ID, err = jsonrpc.MakeID(float64(n)); err != nil {
		return nil, err
	}
	if failure := notNull(e.Error); failure != nil {
		resp.Error = &jsonrpc.Error{Code: errorCode(failure), Message: clip(errorMessage(failure), maxErrorText)}
	}
	return resp, nil
}

// decodeRequest makes a request, or a notification where id is null or absent.
func decodeRequest(id, method, params json.RawMessage) (jsonrpc.Message, error) {
	req := &jsonrpc.Request{Params: notNull(params)}
	if err := json.Unmarshal(method, &req.Method); err != nil {
		return nil, errors.New(`"method" is no string`)
	}
	if notNull(id) == nil {
		return req, nil
	}
	var value any
	err := json.Unmarshal(id, &value)
	if err == nil {
		req.ID, err = jsonrpc.MakeID(value)
	}
	if err != nil {
		return nil, errors.New(`"id" is neither a number nor a string`)
	}
	return req, nil
}

// errorCode is the code of an error reply, that of an internal error where it
// has none.
func errorCode(raw json.RawMessage) int64 {
	var e struct {
		Code int64 `json:"code"`
	}
	if json.Unmarshal(raw, &e) != nil || e.Code == 0 {
		return jsonrpc.CodeInternalError
	}
	return e.Code
}
