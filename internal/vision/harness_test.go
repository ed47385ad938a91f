package vision_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"parley/internal/protocol"
	"parley/internal/vision"
)

const (
	mac      = "a0:85:e3:f4:49:34"
	otherMAC = "a0:85:e3:f4:49:35"
	boundary = "----ESP32_CAMERA_BOUNDARY" // as firmware has it
)

var key = []byte("a key of tests")

// An explainer answers in one function and remembers what it was asked.
type explainer struct {
	answer func(ctx context.Context) (string, error)

	mu    sync.Mutex
	asked []request
}

type request struct {
	device   protocol.DeviceID
	question string
	picture  vision.Picture
}

func (e *explainer) Explain(ctx context.Context, d protocol.DeviceID, question string, p vision.Picture) (string, error) {
	e.mu.Lock()
	e.asked = append(e.asked, request{d, question, p})
	e.mu.Unlock()
	if e.answer == nil {
		return "A cat on a chair.", nil
	}
	return e.answer(ctx)
}

func (e *explainer) requests() []request {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]request(nil), e.asked...)
}

// A testbed is a handler behind a real server.
type testbed struct {
	t       *testing.T
	handler *vision.Handler
	asked   *explainer
	log     *strings.Builder
	dial    func() net.Conn
}

// newTestbed serves on a loopback port.
func newTestbed(t *testing.T, cfg vision.Config, answer func(context.Context) (string, error)) *testbed {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newTestbedOn(t, l, func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }, cfg, answer)
}

func newTestbedOn(t *testing.T, l net.Listener, dial func() (net.Conn, error), cfg vision.Config, answer func(context.Context) (string, error)) *testbed {
	t.Helper()
	b := &testbed{t: t, asked: &explainer{answer: answer}, log: &strings.Builder{}}
	b.dial = func() net.Conn {
		t.Helper()
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	if cfg.Key == nil {
		cfg.Key = key
	}
	b.handler = vision.New(cfg, b.asked, slog.New(slog.NewTextHandler(&lockedWriter{w: b.log}, nil)))
	mux := http.NewServeMux()
	mux.Handle(vision.Path, b.handler)
	// The limits of Parley's server, which the handler has to stretch.
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 30 * time.Second}
	var connections sync.WaitGroup
	server.ConnState = func(_ net.Conn, s http.ConnState) {
		switch s {
		case http.StateNew:
			connections.Add(1)
		case http.StateClosed:
			connections.Done()
		}
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }() // ends with server.Close
	t.Cleanup(func() { server.Close(); <-served; connections.Wait() })
	return b
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// An upload is what a device sends.
type upload struct {
	mac, token string
	body       string
	headers    string // more of them, each with its line end
	kind       string // Content-Type
	length     bool   // with Content-Length in place of chunks
}

// photo is the upload of a device, with nothing wrong.
func photo(question string, picture []byte) upload {
	return upload{
		mac: mac, token: vision.Token(key, mac), kind: "multipart/form-data; boundary=" + boundary,
		body: questionPart(question) + filePart("camera.jpg", "image/jpeg", picture) + end,
	}
}

const end = "--" + boundary + "--\r\n"

func questionPart(text string) string {
	return "--" + boundary + "\r\nContent-Disposition: form-data; name=\"question\"\r\n\r\n" + text + "\r\n"
}

func filePart(name, kind string, data []byte) string {
	return fmt.Sprintf("--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=%q\r\nContent-Type: %s\r\n\r\n%s\r\n", boundary, name, kind, data)
}

func (u upload) head() string {
	var h strings.Builder
	fmt.Fprintf(&h, "POST %s HTTP/1.1\r\nHost: 192.168.1.10:8003\r\n", vision.Path)
	if u.mac != "" {
		fmt.Fprintf(&h, "Device-Id: %s\r\n", u.mac)
	}
	h.WriteString("Client-Id: 0f7c4a52-5b1c-4d63-9a64-6f5d2f6f3a11\r\n")
	if u.token != "" {
		fmt.Fprintf(&h, "Authorization: Bearer %s\r\n", u.token)
	}
	fmt.Fprintf(&h, "Content-Type: %s\r\n%s", u.kind, u.headers)
	if u.length {
		fmt.Fprintf(&h, "Content-Length: %d\r\n\r\n", len(u.body))
	} else {
		h.WriteString("Transfer-Encoding: chunked\r\n\r\n")
	}
	return h.String()
}

// chunks are the body as firmware sends it: many chunks of 512 bytes.
func (u upload) chunks() []string {
	var out []string
	for rest := u.body; rest != ""; {
		n := min(len(rest), 512)
		out = append(out, fmt.Sprintf("%x\r\n%s\r\n", n, rest[:n]))
		rest = rest[n:]
	}
	return append(out, "0\r\n\r\n")
}

func (u upload) String() string {
	if u.length {
		return u.head() + u.body
	}
	return u.head() + strings.Join(u.chunks(), "")
}

// A reply is what the device reads.
type reply struct {
	status  int
	header  http.Header
	body    string
	Success bool
	Result  *string
	Message *string
}

// send sends an upload on a connection of its own, write by write, and returns the
// reply.
func (b *testbed) send(u upload) reply {
	b.t.Helper()
	c := b.dial()
	go func() { // ends with the connection, which the test closes
		if u.length {
			_, _ = io.WriteString(c, u.String())
			return
		}
		_, err := io.WriteString(c, u.head())
		for _, chunk := range u.chunks() {
			if err != nil {
				return // refused before its end
			}
			_, err = io.WriteString(c, chunk)
		}
	}()
	return b.read(c)
}

// read reads one reply.
func (b *testbed) read(c net.Conn) reply {
	b.t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.t.Fatalf("no reply: %v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	r := reply{status: resp.StatusCode, header: resp.Header, body: string(body)}
	if err := json.Unmarshal(body, &r); err != nil {
		b.t.Fatalf("the reply is no JSON: %q", body)
	}
	if resp.ContentLength != int64(len(body)) {
		b.t.Errorf("Content-Length %d of %d bytes", resp.ContentLength, len(body))
	}
	return r
}

// noise is a picture that does not compress, so that it takes many chunks.
func noise(w, h int) image.Image {
	img := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White, color.Gray{90}, color.Gray{190}})
	n := uint32(1)
	for i := range img.Pix {
		n = n*1664525 + 1013904223
		img.Pix[i] = uint8(n >> 30)
	}
	return img
}

func asJPEG(w, h int) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, noise(w, h), &jpeg.Options{Quality: 80}); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func asPNG(w, h int) []byte {
	var b bytes.Buffer
	if err := png.Encode(&b, noise(w, h)); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func asGIF(w, h int) []byte {
	var b bytes.Buffer
	if err := gif.Encode(&b, noise(w, h), nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// webp is a WebP file of one chunk, as far as its header goes.
func webp(name string, chunk ...byte) []byte {
	size := len(chunk)
	out := []byte("RIFF" + string([]byte{byte(size + 12), 0, 0, 0}) + "WEBP" + name + string([]byte{byte(size), 0, 0, 0}))
	return append(out, chunk...)
}
