package llm

import (
	"encoding/base64"
	"fmt"
	"net/http"

	"parley/pipeline"
)

// A chatMessage is a message as the service wants it.
type chatMessage struct {
	Role pipeline.Role `json:"role"`
	// Content is a string, always present, because some servers refuse a message
	// without it; with pictures it is a []contentPart.
	Content any        `json:"content"`
	Calls   []chatCall `json:"tool_calls,omitempty"`
	CallID  string     `json:"tool_call_id,omitempty"`
}

type chatCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// A contentPart is a text or one picture, in the content of a user message.
type contentPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// chatMessages maps a conversation's history. An assistant message that says and
// asks nothing is left out, because some servers refuse it. Pictures of tool
// results follow the round's results in a message of the user: those of tools
// may hold text only.
func chatMessages(messages []pipeline.Message, vision bool) []chatMessage {
	mapped := make([]chatMessage, 0, len(messages))
	var shown []contentPart      // pictures of the round's results
	tools := map[string]string{} // names by the id of the call
	for _, m := range messages {
		var pictures []contentPart
		if vision {
			pictures = pictureParts(m.Images)
		}
		if len(pictures) < len(m.Images) {
			m = m.WithoutImages() // a mark for those that cannot be shown
		}
		if m.Role != pipeline.RoleTool && len(shown) > 0 {
			mapped, shown = append(mapped, chatMessage{Role: pipeline.RoleUser, Content: shown}), nil
		}
		c := chatMessage{Role: m.Role, Content: m.Text}
		switch m.Role {
		case pipeline.RoleUser:
			if len(pictures) > 0 {
				c.Content = append(textPart(m.Text), pictures...)
			}
		case pipeline.RoleAssistant:
			text := m.Text
			if m.Interrupted {
				text += "…"
			}
			if text == "" && len(m.Calls) == 0 {
				continue
			}
			c.Content, c.Calls = text, chatCalls(m.Calls, tools)
		case pipeline.RoleTool:
			c.CallID = m.CallID
			if m.Failed {
				c.Content = "error: " + m.Text
			}
			if len(pictures) > 0 {
				shown = append(append(shown, textPart(fmt.Sprintf("What the tool %s answered to call %s, as a picture:",
					tools[m.CallID], m.CallID))...), pictures...)
				if m.Text == "" {
					c.Content = "The result is a picture. It follows."
				}
			}
		}
		mapped = append(mapped, c)
	}
	if len(shown) > 0 {
		mapped = append(mapped, chatMessage{Role: pipeline.RoleUser, Content: shown})
	}
	return mapped
}

// chatCalls maps the calls of one message and notes their tools.
func chatCalls(calls []pipeline.Call, tools map[string]string) []chatCall {
	var mapped []chatCall
	for _, call := range calls {
		tools[call.ID] = call.Name
		args := string(call.Args)
		if args == "" {
			args = "{}"
		}
		mapped = append(mapped, chatCall{call.ID, "function", chatFunction{call.Name, args}})
	}
	return mapped
}

func textPart(text string) []contentPart {
	if text == "" {
		return nil
	}
	return []contentPart{{Type: "text", Text: text}}
}

// pictureParts maps the pictures that services know: JPEG, PNG, WebP and GIF. The
// type is what the bytes say: a service that finds another than it was told
// refuses the whole request, and with it the conversation.
func pictureParts(images []pipeline.Image) []contentPart {
	var parts []contentPart
	for _, i := range images {
		switch found := http.DetectContentType(i.Data); found {
		case "image/jpeg", "image/png", "image/webp", "image/gif":
			url := "data:" + found + ";base64," + base64.StdEncoding.EncodeToString(i.Data)
			parts = append(parts, contentPart{Type: "image_url", ImageURL: &imageURL{url}})
		}
	}
	return parts
}
