package openaiapi

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
)

// maxEvent bounds one server-sent event in bytes. Events hold one token, or at
// worst a whole answer from a server that does not really stream.
const maxEvent = 1 << 20

// Events yields the data of each server-sent event of r, in order, until r ends
// or fails; the failure is the last item. The data is valid until the next one.
//
// It reads the format of the HTML standard, section 9.2.6: a colon starts a
// comment (services send ": keep-alive" while a model loads), several data lines
// make one event, an event without data is none, other fields are ignored.
// Unlike the standard it also yields an event whose closing blank line is
// missing at the end of r, since some servers leave it out after the last one,
// and it does not take a lone CR for a line's end, which none sends.
func Events(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxEvent)
		var data []byte
		for first := true; lines.Scan(); first = false {
			line := lines.Bytes()
			if first {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			if len(line) == 0 {
				if len(data) > 0 && !yield(data, nil) {
					return
				}
				data = data[:0]
				continue
			}
			value, ok := dataOf(line)
			if !ok {
				continue
			}
			if len(data) > 0 {
				data = append(data, '\n')
			}
			data = append(data, value...)
			if len(data) > maxEvent {
				yield(nil, fmt.Errorf("an event of the stream is longer than %d bytes", maxEvent))
				return
			}
		}
		err := lines.Err()
		if errors.Is(err, bufio.ErrTooLong) {
			err = fmt.Errorf("a line of the stream is longer than %d bytes", maxEvent)
		}
		if err != nil {
			yield(nil, err)
		} else if len(data) > 0 {
			yield(data, nil)
		}
	}
}

// dataOf returns the value of a data field.
func dataOf(line []byte) ([]byte, bool) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	if string(field) != "data" {
		return nil, false
	}
	return bytes.TrimPrefix(value, []byte(" ")), true
}
