package openaitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The paths of the endpoints, relative to the base URL.
const (
	PathTranscriptions = "audio/transcriptions"
	PathChat           = "chat/completions"
	PathSpeech         = "audio/speech"
	PathModels         = "models"
)

// maxBody bounds a request's body in bytes, as OpenAI bounds audio files.
const maxBody = 25 << 20

// A Service is an [http.Handler] for an OpenAI-compatible service below /v1. Its
// exported fields are set before it is used; its methods are safe for concurrent
// use.
type Service struct {
	// Key is the API key requests must carry; empty takes any or none.
	Key string
	// Models lists the models there are; empty takes any name.
	Models []string
	// Transcribe returns the words of an utterance; nil hears nothing.
	Transcribe func(Transcription) string
	// Chat answers a conversation; nil says "OK.".
	Chat func(*ChatRequest) Answer
	// Speak returns a text spoken, as 24 kHz mono PCM; nil is 0.1 s of silence a
	// letter.
	Speak func(text string) []int16

	mu       sync.Mutex
	failures map[string][]Failure
	requests []Request
}

// A Request is what the service keeps of each request for [Service.Requests].
type Request struct {
	Path          string // relative to /v1/
	Authorization string
	Body          []byte // as received, at most 25 MB
}

// A Failure is one way for a request to go wrong. The fields are alternatives,
// except that RetryAfter and Message go with Status.
type Failure struct {
	// Status is an HTTP status to refuse the request with.
	Status     int
	RetryAfter time.Duration
	Message    string
	// Hang gives no answer until the client goes away.
	Hang bool
	// Cut closes the connection after so many events of a chat or pieces of
	// speech, at least 1.
	Cut int
	// HangAfter goes silent after so many, until the client goes away.
	HangAfter int
	// StreamError sends this error object, as JSON, in place of what follows the
	// first event of a chat.
	StreamError string
}

// Fail makes the next requests to a path go wrong, one for each failure, in
// order.
func (s *Service) Fail(path string, failures ...Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failures == nil {
		s.failures = make(map[string][]Failure)
	}
	s.failures[path] = append(s.failures[path], failures...)
}

// Requests returns the requests received so far, in the order of their arrival.
func (s *Service) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// note keeps a request and takes the failure that is due for it.
func (s *Service) note(r Request) Failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests = append(s.requests, r)
	due := s.failures[r.Path]
	if len(due) == 0 {
		return Failure{}
	}
	s.failures[r.Path] = due[1:]
	return due[0]
}

// ServeHTTP implements [http.Handler].
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, found := strings.CutPrefix(r.URL.Path, "/v1/")
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "the body is too long or was cut")
		return
	}
	failure := s.note(Request{Path: path, Authorization: r.Header.Get("Authorization"), Body: body})
	switch {
	case failure.Hang:
		<-r.Context().Done()
		return
	case failure.Status != 0:
		if failure.RetryAfter > 0 {
			w.Header().Set("Retry-After", fmt.Sprint(int(failure.RetryAfter.Seconds())))
		}
		refuse(w, failure.Status, failure.Message)
		return
	case s.Key != "" && r.Header.Get("Authorization") != "Bearer "+s.Key:
		given := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		refuse(w, http.StatusUnauthorized, "Incorrect API key provided: "+given+
			". You can find your API key at https://platform.openai.com/account/api-keys.")
		return
	}
	serve := map[string]func(*answering){
		"POST " + PathTranscriptions: s.transcribe,
		"POST " + PathChat:           s.chat,
		"POST " + PathSpeech:         s.speak,
		"GET " + PathModels:          s.models,
	}[r.Method+" "+path]
	if serve == nil || !found {
		http.NotFound(w, r)
		return
	}
	serve(&answering{w: w, r: r, body: body, failure: failure})
}

// An answering is one request being answered.
type answering struct {
	w       http.ResponseWriter
	r       *http.Request
	body    []byte
	failure Failure
	sent    int // events or pieces
}

// refuse answers with an error object as OpenAI writes it.
func refuse(w http.ResponseWriter, status int, message string) {
	if message == "" {
		message = http.StatusText(status)
	}
	answerJSON(w, status, map[string]any{
		"error": map[string]any{"message": message, "type": "invalid_request_error", "param": nil, "code": nil},
	})
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is its own affair.
	_ = json.NewEncoder(w).Encode(v)
}

// known answers 404 and returns false if there is no such model.
func (s *Service) known(w http.ResponseWriter, model string) bool {
	switch {
	case model == "":
		refuse(w, http.StatusBadRequest, "you must provide a model parameter")
		return false
	case len(s.Models) > 0 && !slices.Contains(s.Models, model):
		refuse(w, http.StatusNotFound, fmt.Sprintf("The model `%s` does not exist or you do not have access to it.", model))
		return false
	}
	return true
}

func (s *Service) models(a *answering) {
	type model struct {
		ID     string `json:"id"`
		Object string `json:"object"`
	}
	list := []model{}
	for _, name := range s.Models {
		list = append(list, model{name, "model"})
	}
	answerJSON(a.w, http.StatusOK, map[string]any{"object": "list", "data": list})
}

// send sends a part of a stream as a piece of its own and lets the failure that
// is due happen after it. It returns false when the answer has ended.
func (a *answering) send(part []byte) bool {
	if _, err := a.w.Write(part); err != nil {
		return false
	}
	if err := http.NewResponseController(a.w).Flush(); err != nil {
		return false
	}
	return a.r.Context().Err() == nil
}

// sentOne counts an event or a piece and ends the answer where a failure says so.
func (a *answering) sentOne() bool {
	a.sent++
	switch a.sent {
	case a.failure.Cut:
		// The way to close a connection in mid-answer; net/http does not log it.
		panic(http.ErrAbortHandler)
	case a.failure.HangAfter:
		<-a.r.Context().Done()
		return false
	}
	return true
}

// A Server is a [Service] that listens on a loopback port.
type Server struct {
	// URL is the base URL, with /v1.
	URL string

	http *http.Server
	done chan error
}

// Start serves s on a free loopback port until Close.
func Start(s *Service) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the test service: %w", err)
	}
	server := &Server{
		URL:  "http://" + listener.Addr().String() + "/v1",
		http: &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second},
		done: make(chan error, 1),
	}
	// Ends when Close closes the listener.
	go func() { server.done <- server.http.Serve(listener) }()
	return server, nil
}

// Close closes all connections and waits for the listening goroutine. Answers
// under way end by themselves once their connections are gone.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
