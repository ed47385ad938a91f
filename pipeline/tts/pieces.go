package tts

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"

	"parley/internal/audio"
	"parley/pipeline"
)

// rawPieces yields the 16-bit little-endian mono samples of r as they arrive.
// Half a sample at the end, which only a stream that was cut has, is dropped.
func rawPieces(r io.Reader, rate int) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		buf := make([]byte, 2*pieceSamples)
		have := 0
		for {
			n, err := r.Read(buf[have:])
			have += n
			if have >= 2 {
				pcm := make([]int16, have/2)
				whole := 2 * audio.DecodePCM(pcm, buf[:have])
				if !yield(pipeline.Audio{PCM: pcm, Rate: rate}, nil) {
					return
				}
				have = copy(buf, buf[whole:have])
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(pipeline.Audio{}, err)
				return
			}
		}
	}
}

// wavPieces yields the samples of the WAV file r as they arrive. A file of no
// bytes at all has none.
func wavPieces(r io.Reader) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		buffered := bufio.NewReader(r)
		if _, err := buffered.Peek(1); errors.Is(err, io.EOF) {
			return
		}
		wav, err := audio.NewWAVReader(buffered)
		if err != nil {
			yield(pipeline.Audio{}, err)
			return
		}
		for {
			pcm := make([]int16, pieceSamples)
			n, err := wav.Read(pcm)
			if n > 0 && !yield(pipeline.Audio{PCM: pcm[:n:n], Rate: wav.Rate()}, nil) {
				return
			}
			switch {
			case errors.Is(err, io.EOF):
				return
			case err != nil:
				yield(pipeline.Audio{}, err)
				return
			}
		}
	}
}

// oggPieces yields the packets of the Ogg Opus stream r as they arrive.
func oggPieces(r io.Reader) iter.Seq2[pipeline.Audio, error] {
	return func(yield func(pipeline.Audio, error) bool) {
		ogg, err := audio.NewOggReader(r)
		if err != nil {
			yield(pipeline.Audio{}, err)
			return
		}
		for {
			packet, err := ogg.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(pipeline.Audio{}, err)
				return
			}
			if !yield(pipeline.Audio{Opus: bytes.Clone(packet)}, nil) {
				return
			}
		}
	}
}
