package openaiapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"time"
)

const (
	// drainTime and drainBytes bound what is waited for and read after an
	// answer's end. The end of a body usually comes in the same packet as the
	// end of the answer.
	drainTime  = 100 * time.Millisecond
	drainBytes = 4 << 10
)

// A Response is the body of a successful answer, read as it arrives. It is for
// one goroutine.
type Response struct {
	// ContentType is the response's Content-Type header.
	ContentType string

	body    io.Closer
	limited io.LimitedReader
	client  *Client
	ctx     context.Context // of the caller, for the reason it ended
	cancel  context.CancelFunc
	failure error // of Read
}

// Read implements [io.Reader]. Its errors name the service, except that it
// returns the cause of the request's context once that has ended.
func (r *Response) Read(p []byte) (int, error) {
	n, err := r.limited.Read(p)
	switch {
	case err == nil || errors.Is(err, io.EOF) && r.limited.N > 0:
		return n, err
	case errors.Is(err, io.EOF):
		r.failure = fmt.Errorf("[%s]: the answer is longer than %d bytes", r.client.cfg.Table, MaxResponse)
	case r.ctx.Err() != nil:
		r.failure = context.Cause(r.ctx)
	default:
		r.failure = fmt.Errorf("[%s]: the connection to %s broke in mid-answer: %w",
			r.client.cfg.Table, r.client.base.Host, err)
	}
	return n, r.failure
}

// Explain returns the error to report when reading the body's content failed
// with err: that of [Response.Read] if there was one, since a parser can only
// have stumbled over it, or else err with the service's name.
func (r *Response) Explain(err error) error {
	if r.failure != nil {
		return r.failure
	}
	return fmt.Errorf("[%s]: %w", r.client.cfg.Table, err)
}

// Events yields the data of each event of a stream; see [Events]. A service that
// does not stream and answers with one JSON document yields that.
func (r *Response) Events() iter.Seq2[[]byte, error] {
	if media, _, _ := mime.ParseMediaType(r.ContentType); media != "application/json" {
		return Events(r)
	}
	return func(yield func([]byte, error) bool) { yield(io.ReadAll(r)) }
}

// JSON reads the whole body into v. Its errors need no [Response.Explain].
func (r *Response) JSON(v any) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return r.Explain(err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("[%s]: the answer is not the JSON expected: %w (it begins %q); is base_url an OpenAI-compatible service?",
			r.client.cfg.Table, err, r.client.clean(string(body[:min(len(body), 80)])))
	}
	return nil
}

// Drain reads to the end of a body whose content has ended, so that Close gives
// the connection back for the next request instead of closing it. It waits at
// most 100 ms.
func (r *Response) Drain() {
	timer := time.AfterFunc(drainTime, r.cancel)
	defer timer.Stop()
	// What comes or fails here changes nothing: the answer is complete.
	_, _ = io.CopyN(io.Discard, &r.limited, drainBytes)
}

// Close gives the connection back if the body was read to its end, and closes it
// otherwise. It does not wait for the service.
func (r *Response) Close() error {
	defer r.cancel()
	return r.body.Close()
}
