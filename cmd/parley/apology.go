package main

import (
	"bytes"
	"context"
	_ "embed" // the recording
	"errors"
	"fmt"
	"io"
	"os"

	"parley/internal/audio"
	"parley/pipeline"
)

// apology is the recording that is played when no provider could answer. See
// docs/fixtures.md for how it was made.
//
//go:embed apology.ogg
var apology []byte

// readApology returns what is said when no provider could answer: text, with the
// sound of an Ogg Opus file or, where none is named, of the built-in recording.
func readApology(text, file string) (pipeline.Clip, error) {
	sound := apology
	if file != "" {
		var err error
		if sound, err = os.ReadFile(file); err != nil {
			return pipeline.Clip{}, err
		}
	}
	ogg, err := audio.NewOggReader(bytes.NewReader(sound))
	if err != nil {
		return pipeline.Clip{}, err
	}
	clip := pipeline.Clip{Text: text}
	emit := func(packet []byte) bool {
		clip.Packets = append(clip.Packets, packet)
		return true
	}
	packets := audio.NewPacketizer(audio.NewEncoderPool(1))
	for {
		packet, err := ogg.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return pipeline.Clip{}, fmt.Errorf("read Ogg Opus: %w", err)
		}
		if err := packets.Opus(context.Background(), packet, emit); err != nil {
			return pipeline.Clip{}, err
		}
	}
	return clip, packets.Flush(context.Background(), emit)
}
