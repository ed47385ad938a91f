package home

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"parley/mcp"
)

// customTools are the configured tools for the model.
func customTools(customs []*custom) []mcp.Tool {
	var tools []mcp.Tool
	for _, c := range customs {
		tools = append(tools, mcp.Tool{Name: c.Name, Description: c.Description, Schema: c.schema})
	}
	return tools
}

// callCustom publishes a configured tool's message and returns the reply, if it
// has one.
func (h *Home) callCustom(ctx context.Context, c *custom, raw json.RawMessage) (mcp.Result, error) {
	args, err := c.accept(raw)
	if err != nil {
		return mcp.Result{}, fmt.Errorf("tool %q: %w: %w", c.Name, mcp.ErrArguments, err)
	}
	topic, payload, replyTopic := c.topic.topic(args), c.payload.text(args), c.replyTopic.topic(args)
	if err := checkTopic(topic); err != nil {
		return mcp.Result{}, fmt.Errorf("tool %q: %w: %w", c.Name, mcp.ErrArguments, err)
	}
	if c.ReplyTopic == "" {
		if err := h.bus.Publish(topic, []byte(payload), c.Retain); err != nil {
			return mcp.Result{}, fmt.Errorf("tool %q: %w", c.Name, err)
		}
		h.counters.Sent.Add(1)
		return result(map[string]any{"text": "The command was sent."}), nil
	}
	if err := checkTopic(replyTopic); err != nil {
		return mcp.Result{}, fmt.Errorf("tool %q: reply: %w: %w", c.Name, mcp.ErrArguments, err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.ReplyWait)
	defer cancel()
	reply, err := h.ask(ctx, c, topic, payload, replyTopic)
	if err != nil {
		if errors.Is(err, errOthersWait) {
			return mcp.Result{Text: "Other calls are waiting for an answer there; nothing was sent. Try again.", IsError: true}, nil
		}
		if errors.Is(err, context.DeadlineExceeded) {
			return mcp.Result{Text: fmt.Sprintf("The command was sent, and no answer came within %v.", c.ReplyWait), IsError: true}, nil
		}
		return mcp.Result{}, fmt.Errorf("tool %q: %w", c.Name, err)
	}
	h.counters.Confirmed.Add(1)
	text, err := (&report{text: reply}).render(c.reply)
	if err != nil {
		return mcp.Result{Text: "The answer was not what was expected: " + err.Error(), IsError: true}, nil
	}
	return mcp.Result{Text: cutText(strings.ToValidUTF8(text, "\uFFFD"), maxReplyText)}, nil
}

// cutText shortens a text to at most n bytes, between characters.
func cutText(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n] + "…"
}

// accept reads the arguments of a call, leniently, and checks each.
func (c *custom) accept(raw json.RawMessage) (map[string]any, error) {
	given := map[string]any{}
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &given); err != nil {
			return nil, err
		}
	}
	args := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(c.Arguments)) {
		a := c.Arguments[name]
		v, ok := given[name]
		if !ok || v == nil {
			if a.Required {
				return nil, fmt.Errorf("%s is missing", name)
			}
			continue
		}
		var err error
		if args[name], err = a.accept(v); err != nil {
			return nil, fmt.Errorf("%s %w", name, err)
		}
	}
	if err := c.topic.checkLevels(args); err != nil {
		return nil, err
	}
	return args, c.replyTopic.checkLevels(args)
}

// errOthersWait reports a call that had no time left when those before it were
// answered.
var errOthersWait = errors.New("others wait for an answer on the topic")

// ask publishes and waits for the next message on the reply topic, alone among
// the calls that wait there.
func (h *Home) ask(ctx context.Context, c *custom, topic, payload, replyTopic string) (string, error) {
	unlock, err := h.replies.lock(ctx, replyTopic)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errOthersWait, err)
	}
	defer unlock()
	reply := make(chan string, 1) // the first message counts, later ones are dropped
	cancel, err := h.bus.Subscribe(replyTopic, func(m Message) {
		if m.Retained || len(m.Payload) > MaxPayload {
			return
		}
		select {
		case reply <- string(m.Payload):
		default:
		}
	})
	if err != nil {
		return "", err
	}
	defer cancel()
	if err := h.bus.Publish(topic, []byte(payload), c.Retain); err != nil {
		return "", err
	}
	select {
	case text := <-reply:
		return text, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// replyLocks has one lock for each reply topic that is waited on.
type replyLocks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// lock waits for the reply topic, and returns how to let go of it.
func (l *replyLocks) lock(ctx context.Context, topic string) (unlock func(), err error) {
	for {
		l.mu.Lock()
		busy := l.held[topic]
		if busy == nil {
			free := make(chan struct{})
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[topic] = free
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, topic)
				l.mu.Unlock()
				close(free)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
