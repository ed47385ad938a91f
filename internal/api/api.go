package api

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/time/rate"
)

// Paths to serve by an [API]; none of its own lie elsewhere.
const (
	Path    = "/api/"
	MCPPath = "/mcp"
)

// Limits of requests.
const (
	// MaxBody bounds a request's body in bytes.
	MaxBody = 64 << 10
	// OperationTimeout bounds everything that is asked of a device. A tool may
	// take 30 s and wait behind others.
	OperationTimeout = 60 * time.Second
	// MaxOperations bounds how many operations on devices run at once; more
	// are refused and counted.
	MaxOperations = 256
	// answerTime is what is left to write an answer when an operation took
	// all its time. A server's own limit for writing is shorter.
	answerTime = 15 * time.Second
)

// An API answers requests under [Path] and at [MCPPath]. It is safe for
// concurrent use, holds no goroutine and needs no closing; [API.EndEvents] is for
// servers that shut down gracefully.
type API struct {
	fleet      Fleet
	log        *slog.Logger
	keys       []key
	gatewayOn  bool
	gatewayKey string
	location   *time.Location
	hosts      []string
	origins    *http.CrossOriginProtection
	mux        *http.ServeMux
	routes     []string // patterns of the mux that do something, for tests
	agents     map[scopes]*sdk.Server
	agentDoor  http.Handler
	slots      chan struct{} // one for every running operation
	attempts   attempts
	complaints rate.Sometimes // keeps strangers from filling the log
	stats      counters
	hub        *hub // of events
}

type counters struct {
	refused, limited, forbidden, actions, failed, overload atomic.Uint64
}

// Stats counts since the start.
type Stats struct {
	Refused   uint64 // requests without a token, or with a wrong one
	Limited   uint64 // requests from addresses that sent too many wrong tokens
	Forbidden uint64 // requests that the token's scopes do not cover
	Actions   uint64 // controlling requests, refused ones included
	Failed    uint64 // of those, the ones that did not do what was asked
	Overload  uint64 // requests refused because MaxOperations were running or MaxListeners listening
	Events    uint64 // published
	Missed    uint64 // events not sent to a listener that read too slowly, once for each
	Listeners int    // streams of events open now
}

// New returns the API to fleet. An error names the token or key that is wrong
// and never repeats a secret.
func New(cfg Config, fleet Fleet, log *slog.Logger) (*API, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	a := &API{
		fleet: fleet, log: log, keys: cfg.keys(),
		gatewayOn: cfg.Gateway, gatewayKey: cfg.GatewayKey,
		location: cfg.Location, hosts: slices.Clone(cfg.Hosts),
		origins: http.NewCrossOriginProtection(), mux: http.NewServeMux(),
		slots:      make(chan struct{}, MaxOperations),
		complaints: rate.Sometimes{First: 3, Interval: time.Second},
		hub:        newHub(log),
	}
	if a.location == nil {
		a.location = time.Local
	}
	for i, h := range a.hosts {
		a.hosts[i] = strings.ToLower(h)
	}
	a.makeAgents(cfg.Version)
	a.route()
	return a, nil
}

// ServeHTTP serves one request. Requests of pages from other origins are
// refused whatever they bring.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := a.origins.Check(r); err != nil {
		writeProblem(w, newProblem(http.StatusForbidden, codeOrigin, "the request comes from a web page of another origin", "send it from a program"))
		return
	}
	a.mux.ServeHTTP(w, r)
}

// Stats returns the counters.
func (a *API) Stats() Stats {
	s := &a.stats
	events, listeners, missed := a.hub.figures()
	return Stats{
		Refused: s.refused.Load(), Limited: s.limited.Load(), Forbidden: s.forbidden.Load(),
		Actions: s.actions.Load(), Failed: s.failed.Load(), Overload: s.overload.Load(),
		Events: events, Missed: missed, Listeners: listeners,
	}
}

// route fills the mux. Paths answer methods they do not have, and Path answers
// what it does not have, with a problem rather than the mux's own text.
func (a *API) route() {
	methods := map[string][]string{}
	handle := func(method, path string, h http.HandlerFunc) {
		a.mux.HandleFunc(method+" "+path, h)
		a.routes = append(a.routes, method+" "+path)
		methods[path] = append(methods[path], method)
	}
	for _, o := range operations() {
		handle(o.method, "/api/v1"+o.path, a.operation(o))
	}
	handle(http.MethodGet, "/api/openapi.json", a.openAPI)
	handle(http.MethodPost, "/api/commands/{clientId}", a.asGateway(a.command))
	handle(http.MethodPost, "/api/devices/status", a.asGateway(a.status))
	handle(http.MethodPost, MCPPath, a.agent)
	for path, allowed := range methods {
		slices.Sort(allowed)
		allow := strings.Join(allowed, ", ")
		a.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Allow", allow)
			writeProblem(w, newProblem(http.StatusMethodNotAllowed, codeMethod, "this path does not take "+clip(r.Method), "use "+allow))
		})
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, newProblem(http.StatusNotFound, codeNoRoute, "there is no such path", "GET /api/openapi.json for those there are"))
	})
}

// off is the problem of an API without tokens, nil if it has some.
func (a *API) off() error {
	if len(a.keys) > 0 {
		return nil
	}
	return newProblem(http.StatusForbidden, codeOff, "the API is off: no token is configured", "add one to the configuration, with a name, a secret and scopes")
}

// An operation is one request of REST. serve returns what to answer with, nil
// for nothing. If that is a listener, the answer is its stream.
type operation struct {
	method, path string
	looks        bool // needs the scope read; the others see to their own
	serve        func(*API, *query) (any, error)
}

func operations() []operation {
	return []operation{
		{http.MethodGet, "/devices", true, (*API).getDevices},
		{http.MethodGet, "/devices/{id}", true, (*API).getDevice},
		{http.MethodGet, "/devices/{id}/tools", true, (*API).getTools},
		{http.MethodPost, "/devices/{id}/tools/{name}", false, (*API).postCall},
		{http.MethodPost, "/devices/{id}/say", false, (*API).postSay},
		{http.MethodPost, "/devices/{id}/alert", false, (*API).postAlert},
		{http.MethodPost, "/devices/{id}/reboot", false, (*API).postReboot},
		{http.MethodDelete, "/devices/{id}/session", false, (*API).deleteSession},
		{http.MethodGet, "/events", true, (*API).getEvents},
	}
}

// operation serves one operation of REST.
func (a *API) operation(o operation) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := a.off(); err != nil {
			writeProblem(w, err)
			return
		}
		c, err := a.authenticate(r, false)
		if err != nil {
			writeProblem(w, err)
			return
		}
		if o.looks { // what controls is judged where it is logged
			if err := a.permitted(c, canRead); err != nil {
				writeProblem(w, err)
				return
			}
		}
		q := &query{r: r, caller: c}
		if q.body, err = readBody(w, r); err != nil {
			writeProblem(w, err)
			return
		}
		allowTime(w)
		answer, err := o.serve(a, q)
		if err != nil {
			writeProblem(w, err)
			return
		}
		switch answer := answer.(type) {
		case nil:
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(http.StatusNoContent)
		case *listener:
			answer.stream(w, r)
		default:
			writeJSON(w, http.StatusOK, answer)
		}
	}
}

// allowTime gives an operation its time where the server would write no more. The
// server sets its own limit again with the next request, if it has one.
func allowTime(w http.ResponseWriter) {
	// A writer without deadlines, as in a test, needs none.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(OperationTimeout + answerTime))
}
