package vision_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"unicode/utf8"

	"parley/internal/vision"
)

// TestADeviceGetsItsAnswer is firmware's own upload, byte for byte.
func TestADeviceGetsItsAnswer(t *testing.T) {
	b := newTestbed(t, vision.Config{}, nil)
	taken := asJPEG(320, 240)
	r := b.send(photo("What is on the chair? 椅子上有什么？", taken))
	if want := `{"success":true,"result":"A cat on a chair."}` + "\n"; r.status != 200 || r.body != want {
		t.Errorf("%d %s, want %s", r.status, r.body, want)
	}
	asked := b.asked.requests()
	if len(asked) != 1 {
		t.Fatalf("asked %d times", len(asked))
	}
	got := asked[0]
	if got.device != mac || got.question != "What is on the chair? 椅子上有什么？" || !bytes.Equal(got.picture.Data, taken) {
		t.Errorf("asked by %s: %q of %d bytes", got.device, got.question, len(got.picture.Data))
	}
	if p := got.picture; p.MIMEType != "image/jpeg" || p.Width != 320 || p.Height != 240 {
		t.Errorf("a picture %s of %d x %d", p.MIMEType, p.Width, p.Height)
	}
	if s := b.handler.Stats(); s != (vision.Stats{Explained: 1}) {
		t.Errorf("counted %+v", s)
	}
	if log := b.log.String(); strings.Contains(log, "chair") || !strings.Contains(log, "width=320") {
		t.Errorf("logged %s", log)
	}
}

func TestUploadsOfAllKinds(t *testing.T) {
	jpg := asJPEG(64, 48)
	for name, c := range map[string]struct {
		change   func(*upload)
		kind     string
		w, h     int
		question string
	}{
		"file first":      {func(u *upload) { u.body = filePart("camera.jpg", "image/jpeg", jpg) + questionPart("q") + end }, "image/jpeg", 64, 48, "q"},
		"with its length": {func(u *upload) { u.length = true }, "image/jpeg", 64, 48, "q"},
		"other parts":     {func(u *upload) { u.body = strings.Replace(questionPart("x"), "question", "mood", 1) + u.body }, "image/jpeg", 64, 48, "q"},
		"parts twice": {func(u *upload) {
			u.body = questionPart("q") + filePart("a", "b", jpg) + questionPart("r") + filePart("c", "d", []byte("x")) + end
		}, "image/jpeg", 64, 48, "q"},
		"no question":       {func(u *upload) { u.body = filePart("camera.jpg", "image/jpeg", jpg) + end }, "image/jpeg", 64, 48, vision.DefaultQuestion},
		"a blank question":  {func(u *upload) { u.body = questionPart(" \n") + filePart("camera.jpg", "image/jpeg", jpg) + end }, "image/jpeg", 64, 48, vision.DefaultQuestion},
		"the longest":       {func(u *upload) { u.body = questionPart(strings.Repeat("q", 2048)) + filePart("a", "b", jpg) + end }, "image/jpeg", 64, 48, strings.Repeat("q", 2048)},
		"no last boundary":  {func(u *upload) { u.body = strings.TrimSuffix(u.body, "--\r\n") + "\r\n" }, "image/jpeg", 64, 48, "q"},
		"a PNG called JPEG": {func(u *upload) { u.body = filePart("camera.jpg", "image/jpeg", asPNG(30, 20)) + end }, "image/png", 30, 20, vision.DefaultQuestion},
		"GIF":               {func(u *upload) { u.body = filePart("a.gif", "image/gif", asGIF(31, 21)) + end }, "image/gif", 31, 21, vision.DefaultQuestion},
		"WebP, lossy": {func(u *upload) {
			u.body = filePart("a", "b", webp("VP8 ", 0, 0, 0, 0x9d, 1, 0x2a, 0x80, 0x02, 0xe0, 0x01)) + end
		}, "image/webp", 640, 480, vision.DefaultQuestion},
		"WebP, lossless": {func(u *upload) {
			u.body = filePart("a", "b", webp("VP8L", 0x2f, 0x7f, 0xc2, 0x77, 0, 0, 0, 0, 0, 0)) + end
		}, "image/webp", 640, 480, vision.DefaultQuestion},
		"WebP, extended":     {func(u *upload) { u.body = filePart("a", "b", webp("VP8X", 0, 0, 0, 0, 0x7f, 2, 0, 0xdf, 1, 0)) + end }, "image/webp", 640, 480, vision.DefaultQuestion},
		"MAC in upper case":  {func(u *upload) { u.mac = strings.ToUpper(mac) }, "image/jpeg", 64, 48, "q"},
		"MAC with hyphens":   {func(u *upload) { u.mac = strings.ReplaceAll(mac, ":", "-") }, "image/jpeg", 64, 48, "q"},
		"a scheme in lower":  {func(u *upload) { u.headers, u.token = "Authorization: bearer  "+u.token+"\r\n", "" }, "image/jpeg", 64, 48, "q"},
		"boundary in quotes": {func(u *upload) { u.kind = `multipart/form-data; boundary="` + boundary + `"` }, "image/jpeg", 64, 48, "q"},
		"the largest sides": {func(u *upload) {
			u.body = filePart("a", "b", webp("VP8X", 0, 0, 0, 0, 0x3f, 0x1f, 0, 0x3f, 0x1f, 0)) + end
		}, "image/webp", 8000, 8000, vision.DefaultQuestion},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestbed(t, vision.Config{}, nil)
			u := photo("q", jpg)
			c.change(&u)
			if r := b.send(u); r.status != 200 || !r.Success {
				t.Fatalf("%d %s", r.status, r.body)
			}
			got := b.asked.requests()[0]
			if p := got.picture; got.question != c.question || got.device != mac || p.MIMEType != c.kind || p.Width != c.w || p.Height != c.h {
				t.Errorf("asked by %s: %q of %s, %d x %d", got.device, got.question, p.MIMEType, p.Width, p.Height)
			}
		})
	}
}

func TestUploadsThatAreRefused(t *testing.T) {
	jpg := asJPEG(64, 48)
	file := func(data []byte) func(*upload) {
		return func(u *upload) { u.body = filePart("camera.jpg", "image/jpeg", data) + end }
	}
	unauthorized, tooLarge, invalid := vision.Stats{Unauthorized: 1}, vision.Stats{TooLarge: 1}, vision.Stats{Invalid: 1}
	for name, c := range map[string]struct {
		change func(*upload)
		status int
		says   string
		counts vision.Stats
	}{
		"wrong token":             {func(u *upload) { u.token = "x" + u.token[1:] }, 401, "not this device's", unauthorized},
		"another device's token":  {func(u *upload) { u.token = vision.Token(key, otherMAC) }, 401, "not this device's", unauthorized},
		"another device's id":     {func(u *upload) { u.mac = otherMAC }, 401, "not this device's", unauthorized},
		"another key's token":     {func(u *upload) { u.token = vision.Token([]byte("x"), mac) }, 401, "not this device's", unauthorized},
		"an empty token":          {func(u *upload) { u.headers, u.token = "Authorization: Bearer \r\n", "" }, 401, "Authorization", unauthorized},
		"no token":                {func(u *upload) { u.token = "" }, 401, "Authorization", unauthorized},
		"no device":               {func(u *upload) { u.mac = "" }, 401, "Device-Id", unauthorized},
		"no MAC":                  {func(u *upload) { u.mac = "kitchen" }, 401, "Device-Id", unauthorized},
		"no form":                 {func(u *upload) { u.kind = "image/jpeg" }, 415, "multipart/form-data", invalid},
		"no boundary":             {func(u *upload) { u.kind = "multipart/form-data" }, 415, "boundary", invalid},
		"text called JPEG":        {file([]byte("I am a picture, believe me.")), 415, "not a picture", invalid},
		"only the start of JPEG":  {file([]byte("\xff\xd8\xff\xe0")), 415, "broken", invalid},
		"only the start of PNG":   {file([]byte("\x89PNG\r\n\x1a\n")), 415, "broken", invalid},
		"only the start of WebP":  {file([]byte("RIFF\x00\x00\x00\x00WEBPVP8L")), 415, "broken", invalid},
		"WebP of no known kind":   {file(webp("VP9 ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), 415, "broken", invalid},
		"WebP without its code":   {file(webp("VP8 ", 0, 0, 0, 1, 2, 3, 0x80, 2, 0xe0, 1)), 415, "broken", invalid},
		"WebP without its mark":   {file(webp("VP8L", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), 415, "broken", invalid},
		"an empty WebP":           {file(webp("VP8 ", 0, 0, 0, 0x9d, 1, 0x2a, 0, 0, 0, 0)), 415, "empty", invalid},
		"an empty file":           {file(nil), 415, "not a picture", invalid},
		"too wide":                {file(webp("VP8X", 0, 0, 0, 0, 0x40, 0x1f, 0, 0, 0, 0)), 413, "8001 x 1 pixels", tooLarge},
		"too high":                {file(webp("VP8X", 0, 0, 0, 0, 0, 0, 0, 0x40, 0x1f, 0)), 413, "1 x 8001 pixels", tooLarge},
		"a bomb":                  {file(bomb()), 413, "at most 8000", tooLarge},
		"too many bytes":          {file(append(jpg, make([]byte, 100_000)...)), 413, "longer than 100000 bytes", tooLarge},
		"too many bytes, as told": {func(u *upload) { u.length = true; u.body = strings.Repeat("x", 100_001) }, 413, "longer than", tooLarge},
		"too much behind the end": {func(u *upload) { u.body += strings.Repeat("x", 100_000) }, 413, "longer than", tooLarge},
		"a long part nobody asks": {func(u *upload) {
			u.body = strings.Replace(questionPart(strings.Repeat("x", 100_000)), "question", "mood", 1) + u.body
		}, 413, "longer than", tooLarge},
		"no file":        {func(u *upload) { u.body = questionPart("q") + end }, 400, "no part named file", invalid},
		"nothing":        {func(u *upload) { u.body = end }, 400, "no part named file", invalid},
		"no parts":       {func(u *upload) { u.body = "What do you see?" }, 400, "file", invalid},
		"cut":            {func(u *upload) { u.body = u.body[:len(u.body)/2] }, 400, "broke off", invalid},
		"a broken head":  {func(u *upload) { u.body = "--" + boundary + "\r\nWhat is this\r\n\r\n" }, 400, "well-formed", invalid},
		"too many parts": {func(u *upload) { u.body = strings.Repeat(questionPart("q"), 16) + u.body }, 400, "too many parts", invalid},
		"a long question": {func(u *upload) { u.body = questionPart(strings.Repeat("q", 2049)) + filePart("a", "b", jpg) + end },
			200, "longer than 2048 bytes", invalid},
		"no UTF-8": {func(u *upload) { u.body = questionPart("caf\xe9") + filePart("a", "b", jpg) + end }, 200, "UTF-8", invalid},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // the server lingers where it has refused
				b := newSlowTestbed(t, vision.Config{MaxBytes: 100_000}, nil)
				u := photo("What is this?", jpg)
				c.change(&u)
				r := b.send(u)
				if r.status != c.status || r.Success || r.Result != nil || r.Message == nil || !strings.Contains(*r.Message, c.says) {
					t.Errorf("%d %s, want %d with %q", r.status, r.body, c.status, c.says)
				}
				if n := len(b.asked.requests()); n != 0 {
					t.Errorf("%d pictures were looked at", n)
				}
				if got := b.handler.Stats(); got != c.counts {
					t.Errorf("counted %+v", got)
				}
				log := b.log.String()
				if (c.status != 200) != strings.Contains(log, fmt.Sprintf("status=%d", c.status)) {
					t.Errorf("logged %q", log)
				}
				if strings.Contains(log, "What is") || u.token != "" && strings.Contains(log, u.token) {
					t.Errorf("a secret is in the log: %q", log)
				}
			})
		})
	}
}

// bomb is a small PNG of 60,000 x 60,000 pixels.
func bomb() []byte {
	p := asPNG(8, 8)
	// Width and height are at the beginning of the first chunk, after its length and
	// name; its checksum follows.
	copy(p[16:], "\x00\x00\xea\x60\x00\x00\xea\x60")
	crc := ^uint32(0)
	for _, b := range p[12:29] {
		crc ^= uint32(b)
		for range 8 {
			crc = crc>>1 ^ -(crc&1)&0xedb88320
		}
	}
	crc = ^crc
	copy(p[29:], []byte{byte(crc >> 24), byte(crc >> 16), byte(crc >> 8), byte(crc)})
	return p
}

// TestWithoutAKeyNobodyIsServed: an HMAC with an empty key would be no secret.
func TestWithoutAKeyNobodyIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSlowTestbed(t, vision.Config{Key: []byte{}}, nil)
		signed := hmac.New(sha256.New, nil)
		signed.Write([]byte("vision\x00" + mac))
		u := photo("q", asJPEG(8, 8))
		for _, token := range []string{"", base64.RawURLEncoding.EncodeToString(signed.Sum(nil)), vision.Token(nil, mac), vision.Token([]byte{}, mac)} {
			u.token = token
			for _, u.headers = range []string{"", "Authorization: Bearer \r\n"} {
				if r := b.send(u); r.status != http.StatusUnauthorized {
					t.Errorf("%q: %d %s", token, r.status, r.body)
				}
			}
		}
	})
}

func TestWhatAnExplainerMayDo(t *testing.T) {
	long := strings.Repeat("猫", 3000)
	for name, c := range map[string]struct {
		text    string
		err     error
		want    string // the body
		counted vision.Stats
	}{
		"fail":               {"", errors.New("no credit, key sk-1"), `{"success":false,"message":"Leider nein."}`, vision.Stats{Failed: 1}},
		"fail in the middle": {"A c", errors.New("cut"), `{"success":false,"message":"Leider nein."}`, vision.Stats{Failed: 1}},
		"say nothing":        {"", nil, `{"success":false,"message":"Leider nein."}`, vision.Stats{Failed: 1}},
		"say odd things":     {"<b>\"a & b\"</b>\xff", nil, `{"success":true,"result":"<b>\"a & b\"</b>` + "\uFFFD" + `"}`, vision.Stats{Explained: 1}},
		"say very much":      {long, nil, `{"success":true,"result":"` + strings.Repeat("猫", 1364) + `…"}`, vision.Stats{Explained: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newTestbed(t, vision.Config{Failed: "Leider nein."}, func(context.Context) (string, error) { return c.text, c.err })
			r := b.send(photo("q", asJPEG(8, 8)))
			if r.status != 200 || strings.TrimSpace(r.body) != c.want || !utf8.ValidString(r.body) {
				t.Errorf("%d %s, want %s", r.status, r.body, c.want)
			}
			if got := b.handler.Stats(); got != c.counted {
				t.Errorf("counted %+v", got)
			}
		})
	}
}

// TestTooManyAtOnce has devices ask while earlier pictures are still looked at.
func TestTooManyAtOnce(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	b := newTestbed(t, vision.Config{}, func(context.Context) (string, error) {
		started <- struct{}{}
		<-release
		return "ok", nil
	})
	of := func(n int) upload {
		u := photo("q", asJPEG(8, 8))
		u.mac = fmt.Sprintf("a0:85:e3:f4:49:%02x", n)
		u.token = vision.Token(key, mustParse(t, u.mac))
		return u
	}
	var replies sync.WaitGroup
	for n := range vision.MaxRequests {
		replies.Go(func() {
			if r := b.send(of(n / vision.MaxDeviceRequests)); r.status != 200 {
				t.Errorf("%d %s", r.status, r.body)
			}
		})
		<-started
		if n == vision.MaxDeviceRequests-1 {
			if r := b.send(of(0)); r.status != 429 || !strings.Contains(r.body, "of this device") || r.header.Get("Retry-After") == "" {
				t.Errorf("one too many of a device: %d %s", r.status, r.body)
			}
		}
	}
	if r := b.send(of(99)); r.status != 429 || !strings.Contains(r.body, "too many pictures") {
		t.Errorf("one too many of all: %d %s", r.status, r.body)
	}
	close(release)
	replies.Wait()
	go func() { <-started }()
	if r := b.send(of(0)); r.status != 200 {
		t.Errorf("after that: %d %s", r.status, r.body)
	}
	if got, want := b.handler.Stats(), (vision.Stats{Explained: vision.MaxRequests + 1, Busy: 2}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// TestAConnectionServesAgain: firmware closes its connection, others do not.
func TestAConnectionServesAgain(t *testing.T) {
	b := newTestbed(t, vision.Config{}, nil)
	c := b.dial()
	for range 3 {
		if _, err := io.WriteString(c, photo("q", asJPEG(64, 64)).String()); err != nil {
			t.Fatal(err)
		}
		if r := b.read(c); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	}
}

func TestPeopleAreToldThatItWorks(t *testing.T) {
	b := newTestbed(t, vision.Config{}, nil)
	for method, want := range map[string]int{http.MethodGet: 200, http.MethodHead: 200, http.MethodPut: 405} {
		c := b.dial()
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method, vision.Path)
		all, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(all), fmt.Sprintf("HTTP/1.1 %d ", want)) {
			t.Errorf("%s: %q", method, all)
		}
		if method == http.MethodGet && !strings.HasSuffix(string(all), "post their pictures here.\n") {
			t.Errorf("people read %q", all)
		}
	}
}
