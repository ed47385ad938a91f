package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"parley/internal/device"
	"parley/internal/openaitest"
)

// A tap keeps what a device receives over MQTT, where Parley tells it at
// initialize what to do with pictures.
type tap struct {
	mu    sync.Mutex
	heard bytes.Buffer
}

// tapped is a device's connection.
type tapped struct {
	net.Conn
	*tap
}

func (c tapped) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard.Write(b[:n])
	return n, err
}

func (a *tap) dial(ctx context.Context, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return tapped{c, a}, nil
}

// vision is where to send pictures, with which token, if that was told.
func (a *tap) vision() (url, token string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := regexp.MustCompile(`"vision":(\{[^}]*\})`).FindSubmatch(a.heard.Bytes())
	if m == nil {
		return "", "", false
	}
	var v struct{ URL, Token string }
	if json.Unmarshal(m[1], &v) != nil {
		return "", "", false
	}
	return v.URL, v.Token, true
}

// upload does what firmware does with a picture: a chunked form, and what comes
// back is the tool's result. Every status but 200 is a failure without a reason.
func upload(ctx context.Context, id, url, token, question string, picture []byte) (status int, answer string, err error) {
	body, to := io.Pipe()
	form := multipart.NewWriter(to)
	if err := form.SetBoundary("----ESP32_CAMERA_BOUNDARY"); err != nil {
		return 0, "", err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body) // of no known length: chunked
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("Device-Id", id)
	r.Header.Set("Client-Id", "00000000-0000-4000-8000-0200000000a1")
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", form.FormDataContentType())
	r.Close = true
	var writing sync.WaitGroup
	defer writing.Wait()
	defer body.Close()
	writing.Go(func() { // ends with the form, or with the request
		err := form.WriteField("question", question)
		part, err2 := form.CreateFormFile("file", "camera.jpg")
		if err = errors.Join(err, err2); err == nil {
			_, err = part.Write(picture)
		}
		to.CloseWithError(errors.Join(err, form.Close()))
	})
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// withCamera gives a device a camera that uploads, and a tap.
func withCamera(a *tap, mac string, picture []byte) func(*device.Options) {
	return func(o *device.Options) {
		o.DialMQTT = a.dial
		o.Tools = device.DefaultTools()
		for i, tool := range o.Tools {
			if tool.Name != "self.camera.take_photo" {
				continue
			}
			o.Tools[i].Duration = 0
			o.Tools[i].Call = func(ctx context.Context, args device.Args) (any, error) {
				url, token, ok := a.vision()
				if !ok {
					return nil, errors.New("Image explain URL or token is not set") //nolint:staticcheck // the firmware's words
				}
				status, answer, err := upload(ctx, mac, url, token, args.Text("question"), picture)
				if err == nil && status != http.StatusOK {
					err = fmt.Errorf("Failed to upload photo, status code: %d", status) //nolint:staticcheck // the firmware's words
				}
				return strings.TrimSpace(answer), err
			}
		}
	}
}

// photograph is a small JPEG.
func photograph(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 24)), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// seeing is a service whose model looks at pictures and, asked without one, takes
// one first.
func seeing(t *testing.T) (*openaitest.Service, string) {
	t.Helper()
	service := &openaitest.Service{Chat: func(r *openaitest.ChatRequest) openaitest.Answer {
		last := r.Messages[len(r.Messages)-1]
		if len(last.Images) > 0 {
			return openaitest.Answer{Text: "A grey wall."}
		}
		if last.Role == "tool" {
			return openaitest.Answer{Text: "I was told: " + *last.Content}
		}
		return openaitest.Answer{Calls: []openaitest.Call{{Name: "self_camera_take_photo", Args: `{"question":"What colour is it?"}`}}}
	}}
	server, err := openaitest.Start(service)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return service, server.URL
}

// pictures lists the pictures that a service was sent, each with the text beside
// it.
func pictures(t *testing.T, s *openaitest.Service) (images []openaitest.Image, texts []string) {
	t.Helper()
	for _, r := range s.Requests() {
		var chat openaitest.ChatRequest
		if err := json.Unmarshal(r.Body, &chat); err != nil {
			t.Fatal(err)
		}
		for _, m := range chat.Messages {
			for _, i := range m.Images {
				images, texts = append(images, i), append(texts, *m.Content)
			}
		}
	}
	return images, texts
}

// TestVision asks a device with a camera what it sees, in a role of rules and in
// one of the model itself. The tokens of devices are their own.
func TestVision(t *testing.T) {
	t.Parallel()
	service, url := seeing(t)
	path := configure(t, fmt.Sprintf(`
[llm.eye]
type = "openai"
base_url = %q
api_key = ""
model = "eye"
vision = true

[role.default]
vision = ["eye"]

[role.painter]
llm = ["eye"]

[device."%s"]
role = "painter"
`, url, study))
	n, _ := startFile(t, path, rules(t, ""))
	photo := photograph(t)
	var ours, theirs tap
	p := connect(t, n, kitchen, withCamera(&ours, kitchen, photo))
	painter := connect(t, n, study, withCamera(&theirs, study, photo))

	says(p, "what do you see", "A grey wall.")
	images, texts := pictures(t, service)
	if len(images) != 1 || !bytes.Equal(images[0].Data, photo) || images[0].MIMEType != "image/jpeg" || !strings.Contains(texts[0], "Describe in one or two short sentences") {
		t.Fatalf("the model saw %d pictures, beside %q", len(images), texts)
	}
	if got := strings.Join(typed(painter, "which colour do you see"), " "); !strings.Contains(got, `"success":true,"result":"A grey wall."`) {
		t.Errorf("the device's model was told %q", got)
	}
	if _, texts := pictures(t, service); len(texts) != 2 || !strings.Contains(texts[1], "What colour is it?") {
		t.Errorf("the model was asked %q", texts)
	}

	address, token, _ := ours.vision()
	if want := fmt.Sprintf("http://127.0.0.1:%d/mcp/vision/explain", n.webPort()); address != want {
		t.Errorf("the device is told %s, want %s", address, want)
	}
	_, another, _ := theirs.vision()
	for name, refused := range map[string]string{"another device's": another, "none": "", "a wrong one": "x" + token} {
		status, answer, err := upload(t.Context(), kitchen, address, refused, "?", photo)
		if err != nil || status != http.StatusUnauthorized || !strings.Contains(answer, `"success":false`) {
			t.Errorf("with %s: %d %s %v", name, status, answer, err)
		}
	}
	if images, _ := pictures(t, service); len(images) != 2 {
		t.Errorf("the model saw %d pictures, want 2", len(images))
	}
}

// TestWithoutVision asserts that a device is not told where to send pictures that
// nobody could look at.
func TestWithoutVision(t *testing.T) {
	t.Parallel()
	n, _ := start(t, rules(t, ""))
	var a tap
	p := connect(t, n, kitchen, withCamera(&a, kitchen, photograph(t)))
	if url, _, ok := a.vision(); ok {
		t.Errorf("the device was told %s", url)
	}
	says(p, "what do you see", "I could not see anything.")
	if status, _ := fetch(t, n, http.MethodPost, "/mcp/vision/explain", "token", "x"); status != http.StatusUnauthorized {
		t.Errorf("a picture from nowhere: %d", status)
	}
}
