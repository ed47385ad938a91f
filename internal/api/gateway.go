package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"parley/internal/protocol"
	"parley/mcp"
)

// The management API of the Node gateway (xinnan-tech/xiaozhi-mqtt-gateway,
// app.js), as programs written for it expect it: its paths, bodies and status
// codes, 500 for most that goes wrong, and errors that are a mere text. The
// texts are English here. Bodies are read leniently, as there.

// gatewayError is an error of the gateway's before a command is looked at.
type gatewayError struct {
	Error string `json:"error"`
}

// writeGatewayError answers with a problem in the gateway's form.
func writeGatewayError(w http.ResponseWriter, err error) {
	p := problemOf(err)
	p.setHeaders(w.Header())
	writeJSON(w, p.Status, gatewayError{p.Detail})
}

// commandFailed and commandDone are its answers to a command.
type commandFailed struct {
	Success bool   `json:"success"` // false
	Error   string `json:"error"`
}

type commandDone struct {
	Success bool            `json:"success"` // true
	Data    json.RawMessage `json:"data"`
}

// asGateway passes requests on whose token is one of ours or the daily one.
func (a *API) asGateway(serve func(http.ResponseWriter, *http.Request, caller, []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !a.gatewayOn {
			writeProblem(w, newProblem(http.StatusNotFound, codeGatewayOff, "the management API of the Node gateway is off", "set gateway = true under [api], or use /api/v1/"))
			return
		}
		c, err := a.authenticate(r, true)
		if err != nil {
			writeGatewayError(w, err)
			return
		}
		body, err := readBody(w, r)
		if err != nil {
			writeGatewayError(w, err)
			return
		}
		allowTime(w)
		serve(w, r, c, body)
	}
}

// member finds a device by its MQTT client id. A device has one connection, so
// the MAC in the id finds the same device that the whole id would, and also one
// that connected under another group or UUID.
func (a *API) member(clientID string) (Device, bool) {
	id, err := protocol.ParseClientID(clientID)
	if err != nil {
		return Device{}, false
	}
	return a.fleet.Device(id.Device)
}

// command passes a JSON-RPC request to a device.
func (a *API) command(w http.ResponseWriter, r *http.Request, c caller, body []byte) {
	fail := func(text string) { writeJSON(w, http.StatusInternalServerError, commandFailed{Error: text}) }
	var in struct {
		Type    string `json:"type"`
		Payload *struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		} `json:"payload"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		writeJSON(w, http.StatusBadRequest, gatewayError{"the body is not a command"})
		return
	}
	d, ok := a.member(r.PathValue("clientId"))
	if !ok {
		fail("device not connected")
		return
	}
	if in.Type != "mcp" || in.Payload == nil {
		fail("invalid command type")
		return
	}
	data, err := a.request(r.Context(), c, d.ID, in.Payload.Method, in.Payload.Params)
	if err == nil {
		writeJSON(w, http.StatusOK, commandDone{true, data})
		return
	}
	switch p := problemOf(err); {
	case p.Code == codeScope:
		writeJSON(w, p.Status, commandFailed{Error: p.Detail})
	case p.Code == codeTimeout:
		fail("timeout") // clients may look for this word
	default:
		fail(p.Detail)
	}
}

// request passes one of the three requests that devices understand to a device,
// if c may ask for what it does. initialize tells a device where to send its
// pictures, so it is no mere question.
func (a *API) request(ctx context.Context, c caller, id protocol.DeviceID, method string, raw json.RawMessage) (data json.RawMessage, err error) {
	params, err := objectOf("params", raw)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context) (err error) {
		data, err = a.fleet.Request(ctx, id, method, params)
		return err
	}
	switch method {
	case "tools/list":
		if err = a.permitted(c, canRead); err == nil {
			err = a.bounded(ctx, ask)
		}
	case "initialize":
		err = a.perform(ctx, c, &action{name: "initialize", device: id}, canAdmin, ask)
	case "tools/call":
		var name string
		if name, params, err = callParams(params); err != nil {
			return nil, err
		}
		err = a.perform(ctx, c, &action{name: "command", device: id, tool: name}, canControl|canAdmin, func(ctx context.Context) error {
			if err := a.mayCall(ctx, c, id, name); err != nil {
				return err
			}
			return ask(ctx)
		})
	default:
		err = fmt.Errorf("method %q is not supported: send initialize, tools/list or tools/call", clip(method))
	}
	return data, err
}

// objectOf returns raw if it is a JSON object, and nothing for none or null,
// which devices do not take for none.
func objectOf(what string, raw json.RawMessage) (json.RawMessage, error) {
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case raw[0] != '{':
		return nil, fmt.Errorf("%w: %s must be an object", mcp.ErrArguments, what)
	}
	return raw, nil
}

// callParams reads the parameters of tools/call and writes them anew. What the
// device gets is so exactly what was judged: its JSON parser takes the first of
// two members of one name and knows no capitals.
func callParams(raw json.RawMessage) (name string, params json.RawMessage, err error) {
	members := map[string]json.RawMessage{}
	if len(raw) == 0 || json.Unmarshal(raw, &members) != nil || json.Unmarshal(members["name"], &name) != nil || name == "" {
		return "", nil, fmt.Errorf("%w: params need a name and may have arguments", mcp.ErrArguments)
	}
	arguments, err := objectOf("arguments", members["arguments"])
	if err != nil {
		return "", nil, err
	}
	params, err = json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}{name, arguments})
	return name, params, err
}

// presence is what the gateway tells of a client id. isAlive means that an audio
// channel is open.
type presence struct {
	IsAlive bool `json:"isAlive"`
	Exists  bool `json:"exists"`
}

// status tells which client ids are connected.
func (a *API) status(w http.ResponseWriter, _ *http.Request, c caller, body []byte) {
	if err := a.permitted(c, canRead); err != nil {
		writeGatewayError(w, err)
		return
	}
	ids, err := clientIDs(body)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, gatewayError{err.Error()})
		return
	}
	answer := make(map[string]presence, len(ids))
	for _, id := range ids {
		d, ok := a.member(id)
		answer[id] = presence{IsAlive: ok && d.SessionID != "", Exists: ok}
	}
	writeJSON(w, http.StatusOK, answer)
}

// clientIDs reads the body of a question for presence.
func clientIDs(body []byte) ([]string, error) {
	var in struct {
		ClientIDs []string `json:"clientIds"`
	}
	if json.Unmarshal(body, &in) != nil || in.ClientIDs == nil {
		return nil, errors.New("clientIds must be an array of texts")
	}
	return in.ClientIDs, nil
}
