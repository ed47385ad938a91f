package openaitest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"parley/internal/openaitest"
)

// FuzzService sends any body to each endpoint: it answers or refuses.
func FuzzService(f *testing.F) {
	f.Add(uint8(0), `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`)
	f.Add(uint8(0), `{"model":"m","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"hi"},`+
		`{"type":"image_url","image_url":{"url":"data:image/gif;base64,R0lGODlhAQABAAAAADs="}}]}]}`)
	f.Add(uint8(1), `{"model":"m","voice":"v","input":"hi","response_format":"opus"}`)
	f.Add(uint8(2), "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\x24\x00\x00\x00WAVEfmt "+
		"\x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x00\x00\x00\r\n--x--\r\n")
	paths := []string{openaitest.PathChat, openaitest.PathSpeech, openaitest.PathTranscriptions}
	f.Fuzz(func(t *testing.T, which uint8, body string) {
		path := paths[int(which)%len(paths)]
		req := httptest.NewRequest(http.MethodPost, "/v1/"+path, strings.NewReader(body))
		req.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		w := httptest.NewRecorder()
		(&openaitest.Service{Speak: func(string) []int16 { return make([]int16, 480) }}).ServeHTTP(w, req)
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("%s answered %d to %q", path, w.Code, body)
		}
	})
}
