package openaiapi_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"parley/internal/openaiapi"
)

func read(r io.Reader) (events []string, err error) {
	for data, e := range openaiapi.Events(r) {
		if e != nil {
			return events, e
		}
		events = append(events, string(data))
	}
	return events, nil
}

func TestEvents(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   []string
	}{
		"plain":              {"data: a\n\ndata: b\n\n", []string{"a", "b"}},
		"crlf":               {"data: a\r\ndata: b\r\n\r\n", []string{"a\nb"}},
		"keep-alive comment": {": keep-alive\n\n: keep-alive\n\ndata: a\n\n:\n\n", []string{"a"}},
		"no space":           {"data:a\n\n", []string{"a"}},
		"one space only":     {"data:  a\n\n", []string{" a"}},
		"other fields":       {"event: x\nid: 1\nretry: 2\ndata: a\n\n", []string{"a"}},
		"no data":            {"event: x\n\ndata:\n\ndata\n\n", nil},
		"no last blank":      {"data: a\n\ndata: [DONE]", []string{"a", "[DONE]"}},
		"byte order mark":    {"\ufeffdata: a\n\n", []string{"a"}},
		"field named alike":  {"database: a\n\n", nil},
		"empty":              {"", nil},
	} {
		got, err := read(strings.NewReader(c.stream))
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v, want %q", name, got, err, c.want)
		}
	}
}

func TestEventsPassOnFailures(t *testing.T) {
	broken := errors.New("broken")
	got, err := read(io.MultiReader(strings.NewReader("data: a\n\ndata: half"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q, %v; what was cut must not pass for an event", got, err)
	}
	if _, err := read(strings.NewReader("data: " + strings.Repeat("x", 2<<20))); err == nil {
		t.Error("a line of 2 MiB was accepted")
	}
	if _, err := read(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 2000))); err == nil {
		t.Error("an event of 2 MB was accepted")
	}
}

// FuzzEvents checks that the events do not depend on how the stream is cut into
// reads.
func FuzzEvents(f *testing.F) {
	f.Add("data: a\r\n\r\n: c\n\ndata: b\ndata: c\n\ndata: [DONE]")
	f.Add("\ufeffdata\n\n\r\ndata:\rx\n")
	f.Fuzz(func(t *testing.T, stream string) {
		whole, err1 := read(strings.NewReader(stream))
		bytewise, err2 := read(iotest.OneByteReader(strings.NewReader(stream)))
		if !slices.Equal(whole, bytewise) || (err1 == nil) != (err2 == nil) {
			t.Errorf("%q: %q, %v in one read, %q, %v byte by byte", stream, whole, err1, bytewise, err2)
		}
		for _, e := range whole {
			if e == "" {
				t.Errorf("%q: an empty event", stream)
			}
		}
	})
}
