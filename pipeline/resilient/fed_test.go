package resilient_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/pipeline"
	"parley/pipeline/resilient"
)

// A listener is a transcriber made of a function.
type listener func(ctx context.Context, audio <-chan []int16, yield func(pipeline.Transcript, error) bool)

func (l listener) Transcribe(ctx context.Context, audio <-chan []int16) iter.Seq2[pipeline.Transcript, error] {
	return func(yield func(pipeline.Transcript, error) bool) { l(ctx, audio, yield) }
}

// samples reads audio to its end and returns how much there was, and whether it
// counted up from 0.
func samples(ctx context.Context, audio <-chan []int16) (n int, inOrder bool) {
	inOrder = true
	for {
		select {
		case <-ctx.Done():
			return n, inOrder
		case pcm, ok := <-audio:
			if !ok {
				return n, inOrder
			}
			for _, s := range pcm {
				inOrder = inOrder && s == int16(n)
				n++
			}
		}
	}
}

// batch is a recogniser that takes its time once the utterance is over.
func batch(think time.Duration) listener {
	return func(ctx context.Context, audio <-chan []int16, yield func(pipeline.Transcript, error) bool) {
		n, inOrder := samples(ctx, audio)
		select {
		case <-ctx.Done():
			yield(pipeline.Transcript{}, ctx.Err())
		case <-time.After(think):
			yield(pipeline.Transcript{Text: fmt.Sprintf("%d %v", n, inOrder), Final: true}, nil)
		}
	}
}

// failing reads so many pieces and fails.
func failing(pieces int) listener {
	return func(ctx context.Context, audio <-chan []int16, yield func(pipeline.Transcript, error) bool) {
		for range pieces {
			<-audio
		}
		yield(pipeline.Transcript{}, errBoom)
	}
}

func transcribers(ls ...listener) pipeline.Transcriber {
	var providers []resilient.Named[pipeline.Transcriber]
	for i, l := range ls {
		providers = append(providers, resilient.Named[pipeline.Transcriber]{Name: string(rune('a' + i)), Provider: l})
	}
	return resilient.Transcribers(providers, resilient.Limits{}, slog.New(slog.DiscardHandler))
}

// say sends pieces of 960 samples (60 ms) that count up, every 60 ms, and closes
// the channel. It gives up when ctx ends.
func say(ctx context.Context, pieces int) <-chan []int16 {
	audio := make(chan []int16)
	go func() {
		for i := range pieces {
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
				return
			}
			pcm := make([]int16, 960)
			for j := range pcm {
				pcm[j] = int16(960*i + j)
			}
			select {
			case audio <- pcm:
			case <-ctx.Done():
				return
			}
		}
		close(audio)
	}()
	return audio
}

// hear returns what a transcriber yields.
func hear(ctx context.Context, tr pipeline.Transcriber, audio <-chan []int16) (texts string, err error) {
	for h, e := range tr.Transcribe(ctx, audio) {
		if e != nil {
			return texts, e
		}
		texts += h.Text + ";"
	}
	return texts, nil
}

// TestTranscribersReplay has the first recogniser fail at each point of an
// utterance and expects the second to hear all of it.
func TestTranscribersReplay(t *testing.T) {
	const pieces = 50 // 3 s
	for _, after := range []int{0, 1, 25, pieces, pieces + 1} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				texts, err := hear(t.Context(), transcribers(failing(after), failing(1), batch(time.Second)), say(t.Context(), pieces))
				if texts != "48000 true;" || err != nil {
					t.Errorf("%q, %v", texts, err)
				}
				if took := time.Since(start); took != 4*time.Second {
					t.Errorf("took %v: 3 s of speech and 1 s of thought", took)
				}
			})
		})
	}
}

func TestTranscribersLimitCountsFromTheEndOfAudio(t *testing.T) {
	for name, c := range map[string]struct {
		first listener
		texts string
		took  time.Duration
	}{
		"a long utterance":        {batch(5*time.Second - 1), "480000 true;", 35*time.Second - 1},
		"too slow, then the next": {batch(5*time.Second + 1), "480000 true;", 36 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				texts, err := hear(t.Context(), transcribers(c.first, batch(time.Second)), say(t.Context(), 500))
				if texts != c.texts || err != nil || time.Since(start) != c.took {
					t.Errorf("%q, %v after %v", texts, err, time.Since(start))
				}
			})
		})
	}
}

// TestTranscribersStreaming follows a recogniser that revises its hypotheses as
// it hears, pauses long while the speaker does, and stalls at the end.
func TestTranscribersStreaming(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		streaming := listener(func(ctx context.Context, audio <-chan []int16, yield func(pipeline.Transcript, error) bool) {
			for n := 0; ; n++ {
				if _, ok := <-audio; !ok {
					break
				}
				if n%500 == 0 && !yield(pipeline.Transcript{Text: "x"}, nil) {
					return
				}
			}
			<-ctx.Done()
			yield(pipeline.Transcript{}, ctx.Err())
		})
		start := time.Now()
		texts, err := hear(t.Context(), transcribers(streaming, batch(0)), say(t.Context(), 1000))
		if texts != "x;x;" || !errors.Is(err, resilient.ErrTooSlow) || time.Since(start) != 65*time.Second {
			t.Errorf("%q, %v after %v", texts, err, time.Since(start))
		}
	})
}

// TestTranscribersBoundWhatTheyKeep speaks for longer than is kept.
func TestTranscribersBoundWhatTheyKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		texts, err := hear(ctx, transcribers(failing(1001), batch(0)), say(ctx, 2000))
		if texts != "" || !errors.Is(err, errBoom) || !errors.Is(err, resilient.ErrTooLong) {
			t.Errorf("failed after a minute: %q, %v", texts, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		texts, err := hear(t.Context(), transcribers(batch(0)), say(t.Context(), 2000))
		if !strings.HasPrefix(texts, "1920000 ") || err != nil {
			t.Errorf("two minutes for a single recogniser: %q, %v", texts, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		deaf := listener(func(ctx context.Context, _ <-chan []int16, yield func(pipeline.Transcript, error) bool) {
			<-ctx.Done()
			yield(pipeline.Transcript{}, ctx.Err())
		})
		ctx, cancel := context.WithCancel(t.Context())
		audio := make(chan []int16)
		done := make(chan struct{})
		go func() {
			defer close(done)
			if texts, err := hear(ctx, transcribers(deaf), audio); texts != "" || err == nil {
				t.Errorf("%q, %v", texts, err)
			}
		}()
		kept := 0
		for full := false; !full; {
			select {
			case audio <- make([]int16, 960):
				kept++
			case <-time.After(time.Second):
				full = true
			}
		}
		if kept != 1000 {
			t.Errorf("kept %d pieces of 60 ms for a recogniser that does not listen", kept)
		}
		cancel()
		<-done
	})
}

func TestTranscribersEnd(t *testing.T) {
	reason := errors.New("hung up")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(reason) })
		_, err := hear(ctx, transcribers(batch(0), batch(0)), say(ctx, 500))
		if err == nil || errors.Is(err, resilient.ErrTooSlow) {
			t.Errorf("cancelled: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		eager := listener(func(ctx context.Context, audio <-chan []int16, yield func(pipeline.Transcript, error) bool) {
			<-audio
			yield(pipeline.Transcript{Text: "x"}, nil)
		})
		for range transcribers(eager).Transcribe(ctx, say(ctx, 500)) {
			break // while audio is still coming; synctest fails if the feeder stays
		}
	})
}

// A reader is a voice made of a function.
type reader func(ctx context.Context, text <-chan string, yield func(pipeline.Speech, error) bool)

func (r reader) Speak(ctx context.Context, text <-chan string) iter.Seq2[pipeline.Speech, error] {
	return func(yield func(pipeline.Speech, error) bool) { r(ctx, text, yield) }
}

func TestVoices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := reader(func(ctx context.Context, text <-chan string, yield func(pipeline.Speech, error) bool) {
			<-text
			yield(pipeline.Speech{}, errBoom)
		})
		echo := reader(func(ctx context.Context, text <-chan string, yield func(pipeline.Speech, error) bool) {
			for s := range text {
				if !yield(pipeline.Speech{Packet: []byte(s)}, nil) {
					return
				}
			}
		})
		voice := resilient.Voices([]resilient.Named[pipeline.Voice]{{Name: "a", Provider: broken}, {Name: "b", Provider: echo}},
			resilient.Limits{}, slog.New(slog.DiscardHandler))
		text := make(chan string)
		go func() {
			for _, s := range []string{"one ", "", "two ", "three"} {
				text <- s
				time.Sleep(20 * time.Second) // the model is slow, and the voice not to blame
			}
			close(text)
		}()
		said := ""
		for s, err := range voice.Speak(t.Context(), text) {
			if err != nil {
				t.Error(err)
			}
			said += string(s.Packet)
		}
		if said != "one two three" {
			t.Errorf("said %q", said)
		}
	})
}
