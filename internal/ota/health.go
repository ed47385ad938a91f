package ota

import (
	"context"
	"net/http"
	"time"
)

// checkTimeout bounds the checks of one request.
const checkTimeout = 2 * time.Second

// healthz says that the process runs, whatever else is wrong: restarting it would
// not help.
func (h *Handler) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]bool{"healthy": true})
}

// readyz says whether devices should come here.
func (h *Handler) readyz(w http.ResponseWriter, r *http.Request) {
	type check struct {
		Name     string `json:"name"`
		OK       bool   `json:"ok"`
		Optional bool   `json:"optional,omitempty"`
		Error    string `json:"error,omitempty"`
	}
	body := struct {
		Ready    bool    `json:"ready"`
		Draining bool    `json:"draining"`
		Checks   []check `json:"checks"`
	}{Draining: h.status().Draining, Checks: []check{}}
	body.Ready = !body.Draining
	if h.cfg.Checks != nil {
		ctx, cancel := context.WithTimeout(r.Context(), checkTimeout)
		defer cancel()
		for _, c := range h.cfg.Checks(ctx) {
			result := check{Name: c.Name, OK: c.Err == nil, Optional: c.Optional}
			if c.Err != nil {
				result.Error = c.Err.Error()
				body.Ready = body.Ready && c.Optional
			}
			body.Checks = append(body.Checks, result)
		}
	}
	status := http.StatusOK
	if !body.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, body)
}

func (h *Handler) status() Status {
	if h.cfg.Status == nil {
		return Status{}
	}
	return h.cfg.Status()
}
