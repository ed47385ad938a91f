package resilient

import (
	"context"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"parley/pipeline"
)

const (
	// MaxUtterance is how much of an utterance is kept for the next recogniser:
	// 1.9 MB at worst, 0.1 MB for the usual three seconds.
	MaxUtterance = time.Minute
	// MaxText is how much text is kept for the next voice, in bytes.
	MaxText = 64 << 10
)

// Transcribers returns a [pipeline.Transcriber] that asks the providers in order,
// as [Models] does. The utterance is kept, up to [MaxUtterance], and given to the
// next one from its beginning; pieces are passed on as they are, so a provider
// must not change them. A provider that does not keep up fills the same bound,
// and then the sender of audio waits.
func Transcribers(providers []Named[pipeline.Transcriber], limits Limits, log *slog.Logger) pipeline.Transcriber {
	return &transcribers{newChain[pipeline.Transcriber, pipeline.Transcript]("asr", providers, limits, log)}
}

type transcribers struct {
	chain[pipeline.Transcriber, pipeline.Transcript]
}

// Transcribe implements [pipeline.Transcriber]. It has one goroutine, which feeds
// the provider and ends before the iterator does.
func (t *transcribers) Transcribe(ctx context.Context, audio <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) {
		rec := &recording[[]int16]{
			in:    audio,
			bound: int(MaxUtterance.Seconds()) * pipeline.SampleRate,
			size:  func(pcm []int16) int { return len(pcm) },
		}
		t.run(ctx, rec, func(ctx context.Context, p pipeline.Transcriber, w *watch, last bool) iter.Seq2[pipeline.Transcript, error] {
			return play(ctx, rec, w, last, p.Transcribe)
		})(yield)
	}
}

// Voices returns a [pipeline.Voice] that asks the providers in order, as [Models]
// does. The text is kept, up to [MaxText], and given to the next one from its
// beginning.
func Voices(providers []Named[pipeline.Voice], limits Limits, log *slog.Logger) pipeline.Voice {
	return &voices{newChain[pipeline.Voice, pipeline.Speech]("tts", providers, limits, log)}
}

type voices struct {
	chain[pipeline.Voice, pipeline.Speech]
}

// Speak implements [pipeline.Voice]. It has one goroutine, which feeds the
// provider and ends before the iterator does.
func (v *voices) Speak(ctx context.Context, text <-chan string) iter.Seq2[pipeline.Speech, error] {
	return func(yield func(pipeline.Speech, error) bool) {
		rec := &recording[string]{in: text, bound: MaxText, size: func(s string) int { return len(s) }}
		v.run(ctx, rec, func(ctx context.Context, p pipeline.Voice, w *watch, last bool) iter.Seq2[pipeline.Speech, error] {
			return play(ctx, rec, w, last, p.Speak)
		})(yield)
	}
}

// play starts a provider and feeds it what rec holds and what comes.
func play[I, T any](
	ctx context.Context, rec *recording[I], w *watch, last bool,
	start func(context.Context, <-chan I) iter.Seq2[T, error],
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		feeding, stop := context.WithCancel(ctx)
		var feeder sync.WaitGroup
		defer feeder.Wait()
		defer stop()
		to := make(chan I)
		feeder.Go(func() { rec.feed(feeding, to, w.inputEnded, !last) })
		start(ctx, to)(yield)
	}
}

// A recording passes input on and keeps it for another provider. It is used by
// one feeder at a time.
type recording[I any] struct {
	in    <-chan I // nil once closed
	size  func(I) int
	bound int // of kept; when it is reached, what was passed on is given up

	items []I
	kept  int  // the size of items
	lost  bool // items no longer begins at the beginning
}

func (r *recording[I]) replayable() bool { return !r.lost }

// feed sends all input to to, from the beginning, and closes it at the end; it
// returns early when ctx ends. It calls ended when the end of the input is known,
// and keeps what it has sent only if told so.
func (r *recording[I]) feed(ctx context.Context, to chan<- I, ended func(), keep bool) {
	if r.in == nil {
		ended()
	}
	for sent := 0; ; {
		if !keep || r.kept >= r.bound {
			r.giveUp(sent)
			sent = 0
		}
		var out chan<- I
		var item I
		if sent < len(r.items) {
			out, item = to, r.items[sent]
		} else if r.in == nil {
			close(to)
			return
		}
		in := r.in
		if r.kept >= r.bound {
			in = nil
		}
		select {
		case <-ctx.Done():
			return
		case out <- item:
			sent++
		case item, ok := <-in:
			if !ok {
				r.in = nil
				ended()
				continue
			}
			if n := r.size(item); n > 0 {
				r.items = append(r.items, item)
				r.kept += n
			}
		}
	}
}

// giveUp forgets the first n items.
func (r *recording[I]) giveUp(n int) {
	for _, item := range r.items[:n] {
		r.kept -= r.size(item)
	}
	r.items = slices.Delete(r.items, 0, n)
	r.lost = r.lost || n > 0
}
