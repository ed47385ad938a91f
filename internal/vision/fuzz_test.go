package vision_test

import (
	"bufio"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	"parley/internal/protocol"
	"parley/internal/vision"
)

// checked is an explainer that must only be asked about pictures.
type checked struct{ t *testing.T }

func (c checked) Explain(_ context.Context, d protocol.DeviceID, question string, p vision.Picture) (string, error) {
	if question == "" || len(question) > vision.MaxQuestion || !utf8.ValidString(question) {
		c.t.Errorf("asked %q", question)
	}
	if d != mac || p.Width < 1 || p.Width > vision.MaxSide || p.Height < 1 || p.Height > vision.MaxSide ||
		http.DetectContentType(p.Data) != p.MIMEType {
		c.t.Errorf("a picture %s of %d x %d", p.MIMEType, p.Width, p.Height)
	}
	return "A cat.", nil
}

// FuzzUpload sends any request of a device that may ask: it is answered, or
// refused for a reason.
func FuzzUpload(f *testing.F) {
	small := asJPEG(16, 16)
	chunked := photo("What is it?", small)
	first := chunked
	first.body = filePart("camera.jpg", "image/jpeg", asPNG(4, 4)) + questionPart("And now?") + end
	whole := photo("", asGIF(4, 4))
	whole.length = true
	lossy := photo("q", webp("VP8 ", 0, 0, 0, 0x9d, 1, 0x2a, 0x80, 2, 0xe0, 1))
	lossless := photo("q", webp("VP8L", 0x2f, 0x7f, 0xc2, 0x77, 0, 0, 0, 0, 0, 0))
	extended := photo("q", webp("VP8X", 0, 0, 0, 0, 0x7f, 2, 0, 0xdf, 1, 0))
	cut := photo("What is it?", small)
	cut.body = cut.body[:len(cut.body)-60]
	for _, u := range []upload{chunked, first, whole, lossy, lossless, extended, cut} {
		f.Add(u.String())
	}
	token := vision.Token(key, mac)
	f.Fuzz(func(t *testing.T, raw string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			return // the server's own business
		}
		r.Method = http.MethodPost
		r.Header.Set("Device-Id", mac)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		h := vision.New(vision.Config{Key: key, MaxBytes: 64 << 10}, checked{t}, slog.New(slog.DiscardHandler))
		h.ServeHTTP(w, r)
		switch w.Code {
		case 200, 400, 413, 415:
		default:
			t.Errorf("status %d", w.Code)
		}
		if s := h.Stats(); s.Explained+s.Invalid+s.TooLarge != 1 {
			t.Errorf("counted %+v", s)
		}
	})
}
