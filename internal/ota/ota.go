package ota

import (
	"context"
	"encoding/json"
	"html/template"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"parley/internal/protocol"
)

// Paths devices have stored and people have typed into them.
const (
	Path         = "/xiaozhi/ota/"
	ActivatePath = Path + "activate"
)

// Group is the first part of every client id given out. Gateways of other
// servers read the part after it only.
const Group = "GID_parley"

// MaxBody is how much of a request's body is read, in bytes. Devices send about
// 2 KB; what is beyond is ignored, because nothing needed is in it.
const MaxBody = 64 << 10

// Config is what the answers are made of.
type Config struct {
	// Endpoint is the broker as devices shall reach it, host:port without a
	// scheme, the host a name or an IPv4 address. Empty: the host that the
	// request was for, and MQTTPort.
	Endpoint string
	// MQTTPort is the port of the broker without TLS.
	MQTTPort int
	// UDPPort is shown to people.
	UDPPort int
	// Key signs credentials. Empty: they are not signed, and requests from public
	// addresses are refused whatever Public says.
	Key []byte
	// Keepalive is told to devices in whole seconds.
	Keepalive time.Duration
	// Location is the time zone devices are set to; nil: the server's.
	Location *time.Location
	// Public answers requests from any address.
	Public bool
	// Status and Checks are asked at each request for the page and for /readyz;
	// either may be nil. Checks must return when ctx ends.
	Status func() Status
	Checks func(ctx context.Context) []Check
}

// Status is the state of the server as the page shows it.
type Status struct {
	Devices  int // connected
	Sessions int // open audio channels
	Draining bool
}

// A Check is one condition of being ready, met when Err is nil.
type Check struct {
	Name string
	Err  error
	// Optional marks what Parley does without when it fails: it is listed, and
	// does not decide whether devices should come.
	Optional bool
}

// Stats counts requests of devices since the start.
type Stats struct {
	Enrolled uint64 // answered with credentials
	Homeless uint64 // answered without, because no usable host was known
	Refused  uint64 // from public addresses
	Invalid  uint64 // without a usable Device-Id
}

// A Handler serves the paths of this package. It is safe for concurrent use,
// holds no goroutine and needs no closing.
type Handler struct {
	cfg  Config
	log  *slog.Logger
	mux  *http.ServeMux
	page *template.Template

	enrolled, homeless, refused, invalid atomic.Uint64
	// complaints keeps strangers from filling the log.
	complaints rate.Sometimes
}

// New returns a handler. Header, read and write time limits are those of the
// http.Server it runs in.
func New(cfg Config, log *slog.Logger) *Handler {
	h := &Handler{
		cfg: cfg, log: log, mux: http.NewServeMux(),
		page:       template.Must(template.New("page").Parse(pageSource)), // the source is built in and tested
		complaints: rate.Sometimes{First: 3, Interval: time.Second},
	}
	if h.cfg.Location == nil {
		h.cfg.Location = time.Local
	}
	h.mux.HandleFunc(Path+"{$}", h.bootstrap)
	h.mux.HandleFunc(Path[:len(Path)-1], h.bootstrap) // a redirect would turn a device's POST into a GET
	h.mux.HandleFunc("POST "+ActivatePath, h.activate)
	h.mux.HandleFunc("GET /healthz", h.healthz)
	h.mux.HandleFunc("GET /readyz", h.readyz)
	h.mux.Handle("GET /{$}", http.RedirectHandler(Path, http.StatusFound))
	return h
}

// ServeHTTP serves one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Stats returns the counters.
func (h *Handler) Stats() Stats {
	return Stats{h.enrolled.Load(), h.homeless.Load(), h.refused.Load(), h.invalid.Load()}
}

// bootstrap answers devices and shows people the page. Devices send POST, or GET
// when they have nothing to say, and always their Device-Id.
func (h *Handler) bootstrap(w http.ResponseWriter, r *http.Request) {
	_, device := r.Header["Device-Id"]
	switch {
	case r.Method == http.MethodPost, device && r.Method == http.MethodGet:
		h.configure(w, r)
	case r.Method == http.MethodGet, r.Method == http.MethodHead:
		h.showPage(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		writeError(w, http.StatusMethodNotAllowed, "method "+r.Method+" is not served here; devices send POST")
	}
}

// configure answers one device.
func (h *Handler) configure(w http.ResponseWriter, r *http.Request) {
	source := sourceOf(r)
	if !source.private && (!h.cfg.Public || len(h.cfg.Key) == 0) {
		n := h.refused.Add(1)
		h.complaints.Do(func() {
			h.log.Warn("refused to enrol a device from a public address", "source", source.address, "refused_total", n,
				"remedy", "set ota.public and mqtt.key if devices come over the internet")
		})
		writeError(w, http.StatusForbidden, "devices are enrolled from private networks only; the operator can allow others with ota.public")
		return
	}
	id, err := protocol.ParseDeviceID(r.Header.Get("Device-Id"))
	if err != nil {
		n := h.invalid.Add(1)
		h.complaints.Do(func() {
			h.log.Warn("request without a usable Device-Id", "source", source.address, "error", err, "invalid_total", n)
		})
		writeError(w, http.StatusBadRequest, "header Device-Id: "+err.Error()+"; send the device's MAC as aa:bb:cc:dd:ee:ff")
		return
	}
	d := describeDevice(id, r)
	answer := h.reply(d, usableHost(r), source.address, time.Now())
	if answer.MQTT == nil {
		h.homeless.Add(1)
		h.log.Error("cannot tell a device where the broker is: it knows no IPv6", "device", id, "agent", d.agent,
			"host", clean(r.Host, maxHost), "remedy", "set ota.mqtt_endpoint, or ask by name or IPv4 address")
	} else {
		h.enrolled.Add(1)
		h.log.Info("device asked for its configuration", "device", id, "agent", d.agent,
			"source", source.address, "endpoint", answer.MQTT.Endpoint)
	}
	writeJSON(w, http.StatusOK, answer)
}

// activate tells a device that it is activated. None is ever asked to be, but
// one that was another server's may still be trying.
func (h *Handler) activate(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"message": "no activation is needed"})
}

// Private passes requests from private networks on to next and answers others
// with 403, by the rules of the package comment. It suits what tells about the
// server and asks for no password, such as metrics.
func Private(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !sourceOf(r).private {
			writeError(w, http.StatusForbidden, "this is served to private networks only")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// writeJSON sends v with its length: firmware reads bodies by it.
func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // nothing that is sent can fail to marshal
		status, body = http.StatusInternalServerError, []byte(`{"error":"the answer could not be written"}`)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who has gone does not read the error either
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, map[string]string{"error": text})
}
