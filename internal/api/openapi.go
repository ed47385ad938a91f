package api

import (
	_ "embed"
	"net/http"
	"strconv"
)

// document is the OpenAPI description of all that this package serves. A test
// compares it with the routes, and every answer of the tests with it.
//
//go:embed openapi.json
var document []byte

// openAPI serves the document. It is the same everywhere, so it needs no token.
func (a *API) openAPI(w http.ResponseWriter, _ *http.Request) {
	if err := a.off(); err != nil && !a.gatewayOn {
		writeProblem(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(document)))
	_, _ = w.Write(document)
}
