package api_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"

	"parley/internal/api"
)

// BenchmarkPage is one page of 100 out of ten thousand devices, from request to
// answer.
func BenchmarkPage(b *testing.B) {
	fleet := newFleet()
	many(fleet, 10_000)
	devices := fleet.Devices()
	a, err := api.New(api.Config{Tokens: tokens()}, sorted{fleet, devices}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(get, "/api/v1/devices?state=connected&cursor=02:00:00:00:10:00", nil)
		r.Header.Set("Authorization", "Bearer "+reader)
		rec := httptest.NewRecorder()
		a.ServeHTTP(rec, r)
		if rec.Code != 200 {
			b.Fatal(rec.Body)
		}
	}
}

// sorted is a fleet that has its list ready.
type sorted struct {
	*fakeFleet
	devices []api.Device
}

func (s sorted) Devices() []api.Device { return s.devices }

// BenchmarkPublish is one event told by whoever it happened to, with nobody and
// with ten listening who read what they can over loopback.
func BenchmarkPublish(b *testing.B) {
	for _, listeners := range []int{0, 10} {
		b.Run(strconv.Itoa(listeners), func(b *testing.B) {
			a, err := api.New(api.Config{Tokens: tokens()}, newFleet(), slog.New(slog.DiscardHandler))
			if err != nil {
				b.Fatal(err)
			}
			server := httptest.NewServer(a)
			defer server.Close()
			var reading sync.WaitGroup
			for range listeners {
				req, err := http.NewRequestWithContext(b.Context(), get, server.URL+"/api/v1/events", nil)
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+reader)
				res, err := server.Client().Do(req)
				if err != nil {
					b.Fatal(err)
				}
				reading.Go(func() { // ends with the stream
					_, _ = io.Copy(io.Discard, res.Body)
					res.Body.Close()
				})
			}
			e := api.Event{Kind: api.EventTurn, Device: kitchen, SessionID: "S", Data: map[string]int{"packets": 40}}
			b.ReportAllocs()
			for b.Loop() {
				a.Publish(e)
			}
			b.ReportMetric(float64(a.Stats().Missed)/float64(b.N*max(listeners, 1)), "missed/op")
			a.EndEvents()
			reading.Wait()
		})
	}
}
