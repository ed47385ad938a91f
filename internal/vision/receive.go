package vision

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A fault is why a request is refused.
type fault struct {
	status int
	text   string
}

func (f *fault) Error() string { return f.text }

// A form is what a device posts.
type form struct {
	question []byte // at most one byte more than MaxQuestion
	picture  []byte
}

// receive reads the body, as it comes: devices send it in chunks of some 512
// bytes and without its length. Each of them must come within readWithin, and
// all within uploadWithin.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request) (form, *fault) {
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/form-data" || params["boundary"] == "" {
		return form{}, &fault{http.StatusUnsupportedMediaType, "header Content-Type: not multipart/form-data with a boundary"}
	}
	tooLarge := &fault{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", h.cfg.MaxBytes)}
	if r.ContentLength > h.cfg.MaxBytes {
		return form{}, tooLarge
	}
	control := http.NewResponseController(w)
	body := &timedReader{
		r: http.MaxBytesReader(w, r.Body, h.cfg.MaxBytes), control: control, until: time.Now().Add(uploadWithin),
	}
	// Errors of the deadlines: a writer that knows none, in tests, needs none.
	_ = control.SetWriteDeadline(time.Now().Add(uploadWithin + h.cfg.Timeout + writeWithin))
	f, err := readForm(multipart.NewReader(body, params["boundary"]))
	if err == nil { // to the end: only then is it noticed when the device goes away
		_, err = io.Copy(io.Discard, body)
	}
	_, long := errors.AsType[*http.MaxBytesError](err)
	switch {
	case long:
		return form{}, tooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return form{}, &fault{http.StatusRequestTimeout, "the upload is too slow"}
	case err != nil:
		return form{}, broken(err)
	}
	// One that was left standing would end the request while the picture is looked
	// at.
	_ = control.SetReadDeadline(time.Time{})
	return f, nil
}

// A timedReader reads a request's body and gives each read its time.
type timedReader struct {
	r       io.Reader
	control *http.ResponseController
	until   time.Time
}

func (t *timedReader) Read(b []byte) (int, error) {
	at := time.Now().Add(readWithin)
	if t.until.Before(at) {
		at = t.until
	}
	_ = t.control.SetReadDeadline(at)
	return t.r.Read(b)
}

// readForm reads the parts in whatever order they come and skips those it does not
// know. Nothing goes to disk. Where only the last boundary is missing, the form
// is taken as complete.
func readForm(parts *multipart.Reader) (form, error) {
	var f form
	for range maxParts {
		part, err := parts.NextRawPart()
		if errors.Is(err, io.EOF) {
			if f.picture == nil {
				return form{}, &fault{http.StatusBadRequest, "the form has no part named file"}
			}
			return f, nil
		}
		if err != nil {
			return form{}, err
		}
		switch name := part.FormName(); {
		case name == "question" && f.question == nil:
			f.question, err = io.ReadAll(io.LimitReader(part, MaxQuestion+1))
		case name == "file" && f.picture == nil:
			f.picture, err = io.ReadAll(part)
		}
		if err != nil {
			return form{}, err
		}
	}
	return form{}, &fault{http.StatusBadRequest, "the form has too many parts"}
}

// broken is the fault of a body that is no form, or not all of one. What the
// readers say of it is left out: it may quote the question.
func broken(err error) *fault {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return &fault{http.StatusBadRequest, "the upload broke off"}
	}
	return &fault{http.StatusBadRequest, "the body is no well-formed multipart/form-data"}
}

// checkQuestion returns the question to ask, or what is wrong with the one that
// came. A model has written it and can write another.
func checkQuestion(given []byte, otherwise string) (question, wrong string) {
	question = strings.TrimSpace(string(given))
	switch {
	case len(given) > MaxQuestion:
		return "", "The question is longer than " + strconv.Itoa(MaxQuestion) + " bytes. Ask a shorter one."
	case !utf8.ValidString(question):
		return "", "The question is not valid UTF-8. Ask again."
	case question == "":
		return otherwise, ""
	}
	return question, ""
}
