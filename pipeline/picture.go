package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// An Image is one picture as it came: JPEG, PNG, WebP or GIF. MIMEType is what
// its source calls it.
type Image struct {
	MIMEType string
	Data     []byte
}

// maxPictures bounds the pictures that one conversation holds for its model, in
// bytes: some twenty photographs of a device's camera.
const maxPictures = 2 << 20

// pictureMark stands in a text for a picture that is not there any more, or that
// the model cannot take.
const pictureMark = "[picture]"

// WithoutImages returns the message with a mark in its text where pictures were.
func (m Message) WithoutImages() Message {
	if len(m.Images) > 0 {
		m.Text, m.Images = joinWords(m.Text, pictureMark), nil
	}
	return m
}

// forgetPictures takes the pictures out of messages that a model has no use for
// any more, in place. Those of one turn stay: the last that has any, while it is
// the current turn or the one before, so that the user can ask on. Of these the
// latest count, up to maxPictures.
func forgetPictures(messages []Message) {
	room, turn, kept := maxPictures, 0, -1
	for i, m := range slices.Backward(messages) {
		if len(m.Images) > 0 {
			size := 0
			for _, img := range m.Images {
				size += len(img.Data)
			}
			if turn > 1 || kept >= 0 && kept != turn || size > room {
				messages[i] = m.WithoutImages()
			} else {
				room, kept = room-size, turn
			}
		}
		if m.Role == RoleUser {
			turn++
		}
	}
}

// maxDescription bounds what [Describe] takes of a model, in characters.
const maxDescription = 4000

// ErrNoWords reports a model that ended without having said anything.
var ErrNoWords = errors.New("the model said nothing")

// Describe asks a model one question about one picture, outside any
// conversation, and returns its answer in full, at most 4,000 characters. An
// empty prompt is left out. The error is the model's, [ErrNoSight] among them,
// or [ErrNoWords]. It is safe for concurrent use.
func Describe(ctx context.Context, m Model, prompt, question string, img Image) (string, error) {
	req := &Request{Sight: true}
	if prompt != "" {
		req.Messages = append(req.Messages, Message{Role: RoleSystem, Text: prompt})
	}
	req.Messages = append(req.Messages, Message{Role: RoleUser, Text: question, Images: []Image{img}})
	var said strings.Builder
	left := maxDescription
	for d, err := range m.Chat(ctx, req) {
		if err != nil {
			return "", fmt.Errorf("model: %w", err)
		}
		n := utf8.RuneCountInString(d.Text)
		if n > left {
			said.WriteString(string([]rune(d.Text)[:left]))
			break
		}
		said.WriteString(d.Text)
		left -= n
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	text := strings.TrimSpace(said.String())
	if text == "" {
		return "", ErrNoWords
	}
	return text, nil
}
