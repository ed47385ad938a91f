package vision

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"parley/internal/protocol"
)

// Path is where pictures are posted, as other servers have it.
const Path = "/mcp/vision/explain"

// Defaults of [Config].
const (
	// DefaultMaxBytes is far above what cameras of devices take: 640 x 480 at
	// quality 80 is some 50 KB.
	DefaultMaxBytes = 8 << 20
	// DefaultTimeout leaves 5 s for the upload of the 30 s that a device's camera
	// tool may take.
	DefaultTimeout  = 25 * time.Second
	DefaultQuestion = "What do you see?"
	DefaultFailed   = "I could not look at the picture."
)

// Limits that nobody has to change.
const (
	// MaxRequests bounds the requests at work, of all devices and of one.
	MaxRequests       = 8
	MaxDeviceRequests = 2
	// MaxQuestion bounds a question in bytes.
	MaxQuestion = 2 << 10
	// MaxResult bounds an answer in bytes: a device holds it in RAM, twice, and
	// sends it in one MQTT packet.
	MaxResult = 4 << 10
	// MaxSide bounds a picture's width and height in pixels.
	MaxSide = 8000

	// readWithin is how long a device may send nothing, uploadWithin how long an
	// upload may take.
	readWithin   = 15 * time.Second
	uploadWithin = 60 * time.Second
	// writeWithin is how long the answer may take to be sent.
	writeWithin = 10 * time.Second
	maxParts    = 16
)

// Config says who may ask and how much. Zero values mean the defaults.
type Config struct {
	// Key signs the tokens of devices; see [Token]. Without one every request is
	// refused. It may be random and new with each start: devices are told their
	// token at every connection.
	Key []byte
	// MaxBytes bounds a request's body.
	MaxBytes int64
	// Timeout is how long an explainer may take.
	Timeout time.Duration
	// Question is asked of a picture that comes without one.
	Question string
	// Failed is what the model gets to read, and the user to hear, when the
	// explainer fails.
	Failed string
}

func (c Config) withDefaults() Config {
	if c.MaxBytes <= 0 {
		c.MaxBytes = DefaultMaxBytes
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Question == "" {
		c.Question = DefaultQuestion
	}
	if c.Failed == "" {
		c.Failed = DefaultFailed
	}
	return c
}

// An Explainer looks at pictures. It is safe for concurrent use.
type Explainer interface {
	// Explain answers a question about a picture. It returns when ctx ends.
	Explain(ctx context.Context, device protocol.DeviceID, question string, picture Picture) (string, error)
}

// Stats counts requests since the start. Each is counted once.
type Stats struct {
	Explained    uint64 // answered
	Failed       uint64 // the explainer failed or was too slow
	Unauthorized uint64 // without a token of the device's
	Busy         uint64 // too many at once
	TooLarge     uint64 // of body or picture
	Invalid      uint64 // not a picture, not a form, or broken off
}

// A Handler serves [Path]. It is safe for concurrent use, holds no goroutine and
// needs no closing.
type Handler struct {
	cfg       Config
	explainer Explainer
	log       *slog.Logger
	slots     slots

	explained, failed, unauthorized, busy, tooLarge, invalid atomic.Uint64
	// complaints keeps strangers and broken devices from filling the log.
	complaints rate.Sometimes
}

// New returns a handler that has pictures looked at by e. Limits on the header
// are those of the http.Server it runs in; those on reading the body and writing
// the answer it sets itself.
func New(cfg Config, e Explainer, log *slog.Logger) *Handler {
	return &Handler{
		cfg: cfg.withDefaults(), explainer: e, log: log,
		complaints: rate.Sometimes{First: 3, Interval: time.Second},
	}
}

// Stats returns the counters.
func (h *Handler) Stats() Stats {
	return Stats{
		Explained: h.explained.Load(), Failed: h.failed.Load(), Unauthorized: h.unauthorized.Load(),
		Busy: h.busy.Load(), TooLarge: h.tooLarge.Load(), Invalid: h.invalid.Load(),
	}
}

// ServeHTTP serves one request. People who open the address in a browser are told
// that it works.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodPost:
		if f := h.explain(w, r); f != nil {
			h.refuse(w, r, f)
		}
	case http.MethodGet, http.MethodHead:
		writeText(w, "The vision endpoint works. Devices with a camera post their pictures here.\n")
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		writeAnswer(w, http.StatusMethodNotAllowed, answer{Message: "method not served here; devices send POST"})
	}
}

// explain serves a device, or returns why it is refused.
func (h *Handler) explain(w http.ResponseWriter, r *http.Request) *fault {
	device, refused := h.authenticate(r)
	if refused != nil {
		return refused
	}
	free, refused := h.slots.take(device)
	if refused != nil {
		return refused
	}
	defer free()
	from := time.Now()
	form, refused := h.receive(w, r)
	if refused != nil {
		return refused
	}
	picture, refused := examine(form.picture)
	if refused != nil {
		return refused
	}
	question, wrong := checkQuestion(form.question, h.cfg.Question)
	if wrong != "" {
		h.invalid.Add(1)
		writeAnswer(w, http.StatusOK, answer{Message: wrong})
		return nil
	}
	uploaded := time.Since(from)
	ctx, cancel := context.WithTimeout(r.Context(), h.cfg.Timeout)
	defer cancel()
	text, err := h.explainer.Explain(ctx, device, question, picture)
	took := slog.Int64("took_ms", (time.Since(from) - uploaded).Milliseconds())
	if err == nil && text == "" {
		err = errors.New("the answer is empty")
	}
	if err != nil {
		h.failed.Add(1)
		h.log.Warn("picture not explained", "device", device, "error", err, took)
		writeAnswer(w, http.StatusOK, answer{Message: h.cfg.Failed})
		return nil
	}
	h.explained.Add(1)
	h.log.Info("picture explained", "device", device, "type", picture.MIMEType, "bytes", len(picture.Data),
		"width", picture.Width, "height", picture.Height, "upload_ms", uploaded.Milliseconds(), took)
	writeAnswer(w, http.StatusOK, answer{Success: true, Result: clip(text, MaxResult)})
	return nil
}

// refuse answers a request that was refused, and says so in the log.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, f *fault) {
	n := h.counter(f.status).Add(1)
	h.complaints.Do(func() {
		h.log.Warn("refused a picture", "status", f.status, "error", f.text, "device", clip(r.Header.Get("Device-Id"), 40),
			"source", r.RemoteAddr, "refused_total", n)
	})
	if f.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "5")
	}
	if f.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeAnswer(w, f.status, answer{Message: f.text})
}

func (h *Handler) counter(status int) *atomic.Uint64 {
	switch status {
	case http.StatusUnauthorized:
		return &h.unauthorized
	case http.StatusTooManyRequests:
		return &h.busy
	case http.StatusRequestEntityTooLarge:
		return &h.tooLarge
	}
	return &h.invalid
}
