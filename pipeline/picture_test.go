package pipeline

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func picture(size int) []Image { return []Image{{"image/jpeg", make([]byte, size)}} }

// shown lists the sizes of the pictures in messages.
func shown(messages []Message) (sizes []int) {
	for _, m := range messages {
		for _, i := range m.Images {
			sizes = append(sizes, len(i.Data))
		}
	}
	return sizes
}

// TestPicturesOfToolsReachTheModel follows one from a tool to the model, through
// the question after it, and out of the history.
func TestPicturesOfToolsReachTheModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.box.images = []string{"lamp", "time"}, picture(1000)
		b.ask()
		b.after(20 * time.Second)
		if got := shown(b.llm.requests[1].Messages); len(got) != 2 {
			t.Errorf("the model sees pictures %v after the tools", got)
		}
		if tr := b.traces()[0]; tr.Images() != 2 || tr.Tools[0].Images != 1 {
			t.Errorf("traced %+v", tr.Tools)
		}
		b.llm.calls = nil
		for i, want := range []int{2, 0} { // the user may ask on, once
			b.ask()
			b.after(20 * time.Second)
			last := b.llm.requests[len(b.llm.requests)-1].Messages
			if got := shown(last); len(got) != want {
				t.Errorf("question %d after it: the model sees pictures %v", i+1, got)
			}
			if marks := 0; want == 0 {
				for _, m := range last {
					if strings.HasSuffix(m.Text, " done [picture]") {
						marks++
					}
				}
				if marks != 2 {
					t.Errorf("%d marks are left of them", marks)
				}
			}
		}
	})
}

// TestPicturesOfManyRoundsAreBounded: a turn is bounded, too, while it lasts.
func TestPicturesOfManyRoundsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestbed(t, nil)
		b.llm.calls, b.llm.always, b.box.images = []string{"lamp"}, true, picture(maxPictures/2+1)
		b.ask()
		b.after(time.Minute)
		for i, r := range b.llm.requests[1:] {
			if got := shown(r.Messages); len(got) != 1 || len(r.Messages[len(r.Messages)-1].Images) != 1 {
				t.Errorf("after round %d the model sees pictures %v", i+1, got)
			}
		}
	})
}

func TestPicturesAreBounded(t *testing.T) {
	const most = maxPictures
	user, call := Message{Role: RoleUser, Text: "?"}, Message{Role: RoleAssistant, Calls: []Call{{ID: "1"}}}
	result := func(size int) Message { return Message{Role: RoleTool, CallID: "1", Images: picture(size)} }
	for name, c := range map[string]struct {
		messages []Message
		want     []int
	}{
		"of the latest turn":       {[]Message{user, call, result(1), user, call, result(2)}, []int{2}},
		"of the turn before":       {[]Message{user, call, result(1), user}, []int{1}},
		"not of one before that":   {[]Message{user, call, result(1), user, user}, nil},
		"the user's own":           {[]Message{{Role: RoleUser, Images: picture(3)}, call, result(1)}, []int{3, 1}},
		"the latest that fit":      {[]Message{user, call, result(2), result(most - 1), result(1)}, []int{most - 1, 1}},
		"smaller ones behind fit":  {[]Message{user, call, result(1), result(most), result(2)}, []int{1, 2}},
		"one that is too large":    {[]Message{user, call, result(most + 1)}, nil},
		"without anybody's asking": {[]Message{call, result(1)}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			forgetPictures(c.messages)
			if got := shown(c.messages); !slices.Equal(got, c.want) {
				t.Errorf("pictures %v are kept, want %v", got, c.want)
			}
		})
	}
}

// TestNoPictureOutlivesItsSession: what is kept between sessions is text, and
// what an earlier session gave is not changed by the next.
func TestNoPictureOutlivesItsSession(t *testing.T) {
	past := []Message{{Role: RoleUser, Text: "Look.", Images: picture(10)}}
	c, _ := unstarted(t, nil)
	c.Remember(past)
	c.remember(Message{Role: RoleUser}, Message{Role: RoleUser})
	if got := c.History(); len(shown(got)) != 0 || got[0].Text != "Look. [picture]" {
		t.Errorf("kept %+v", got)
	}
	if len(shown(past)) != 1 {
		t.Error("the past of another conversation was changed")
	}
}

func TestDescribe(t *testing.T) {
	img := Image{"image/jpeg", []byte("a picture")}
	var got *Request
	model := modelFunc(func(_ context.Context, req *Request, yield func(Delta, error) bool) {
		got = req
		_ = yield(Delta{Text: " A "}, nil) && yield(Delta{Text: "cat. "}, nil) && yield(Delta{Usage: &Usage{1, 1}}, nil)
	})
	text, err := Describe(t.Context(), model, "Be brief.", "What is it?", img)
	if err != nil || text != "A cat." {
		t.Errorf("%q, %v", text, err)
	}
	m := got.Messages
	if !got.Sight || len(m) != 2 || m[0].Role != RoleSystem || m[0].Text != "Be brief." || m[1].Role != RoleUser ||
		m[1].Text != "What is it?" || len(m[1].Images) != 1 || !bytes.Equal(m[1].Images[0].Data, img.Data) {
		t.Errorf("asked %+v", got)
	}

	boom := errors.New("boom")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		chat modelFunc
		want error
	}{
		"fails": {t.Context(), func(_ context.Context, _ *Request, yield func(Delta, error) bool) {
			_ = yield(Delta{Text: "A"}, nil) && yield(Delta{}, boom)
		}, boom},
		"says nothing": {t.Context(), func(_ context.Context, _ *Request, yield func(Delta, error) bool) { yield(Delta{Text: " "}, nil) }, ErrNoWords},
		"is cut":       {ended, func(_ context.Context, _ *Request, yield func(Delta, error) bool) { yield(Delta{Text: "A"}, nil) }, context.Canceled},
	} {
		if _, err := Describe(c.ctx, c.chat, "", "", img); !errors.Is(err, c.want) {
			t.Errorf("a model that %s: %v, want %v", name, err, c.want)
		}
	}

	endless := modelFunc(func(_ context.Context, _ *Request, yield func(Delta, error) bool) {
		for yield(Delta{Text: "猫cat"}, nil) {
		}
	})
	if text, err := Describe(t.Context(), endless, "", "", img); err != nil || len([]rune(text)) != maxDescription {
		t.Errorf("%d characters of a model that never ends, %v", len([]rune(text)), err)
	}
}
