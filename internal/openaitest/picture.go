package openaitest

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// UnmarshalJSON reads a message whose content is a string, null or parts.
func (m *ChatMessage) UnmarshalJSON(data []byte) error {
	var wire struct {
		Role       string          `json:"role"`
		Content    json.RawMessage `json:"content"`
		ToolCalls  []ToolCall      `json:"tool_calls"`
		ToolCallID string          `json:"tool_call_id"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*m = ChatMessage{Role: wire.Role, ToolCalls: wire.ToolCalls, ToolCallID: wire.ToolCallID}
	if !strings.HasPrefix(string(wire.Content), "[") {
		if len(wire.Content) == 0 {
			return nil
		}
		return json.Unmarshal(wire.Content, &m.Content)
	}
	return m.parts(wire.Content)
}

// parts reads content in parts.
func (m *ChatMessage) parts(content json.RawMessage) error {
	var parts []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		ImageURL struct {
			URL string `json:"url"`
		} `json:"image_url"`
	}
	if err := json.Unmarshal(content, &parts); err != nil {
		return err
	}
	if len(parts) == 0 {
		return errors.New("content has no parts")
	}
	var texts []string
	for i, p := range parts {
		switch p.Type {
		case "text":
			texts = append(texts, p.Text)
		case "image_url":
			image, err := parseDataURL(p.ImageURL.URL)
			if err != nil {
				return fmt.Errorf("content[%d]: %w", i, err)
			}
			m.Images = append(m.Images, image)
		default:
			return fmt.Errorf("content[%d]: blocks are expected to be either text or image_url type", i)
		}
	}
	text := strings.Join(texts, "\n")
	m.Content = &text
	return nil
}

// parseDataURL reads a picture. As services do, it refuses types they do not know
// and bytes that are of another type than they are said to be.
func parseDataURL(url string) (Image, error) {
	head, data, found := strings.Cut(url, ",")
	mime, ok := strings.CutPrefix(head, "data:")
	mime, isBase64 := strings.CutSuffix(mime, ";base64")
	if !found || !ok || !isBase64 {
		return Image{}, errors.New("this service takes pictures as data URLs in base64")
	}
	picture, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return Image{}, fmt.Errorf("the picture is not base64: %w", err)
	}
	switch mime {
	case "image/jpeg", "image/png", "image/webp", "image/gif":
	default:
		return Image{}, fmt.Errorf("the picture's type %q is not one of image/jpeg, image/png, image/webp and image/gif", mime)
	}
	if is := http.DetectContentType(picture); is != mime {
		return Image{}, fmt.Errorf("the picture is said to be %s and is %s", mime, is)
	}
	return Image{MIMEType: mime, Data: picture}, nil
}
