package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"parley/mcp"
)

// A shelf is a source of tools that answer with their own name.
type shelf struct {
	label string
	tools []mcp.Tool
}

func (s *shelf) Tools() []mcp.Tool { return slices.Clone(s.tools) }

func (s *shelf) Call(_ context.Context, name string, args json.RawMessage) (mcp.Result, error) {
	return mcp.Result{Text: s.label + ":" + name + string(args)}, nil
}

func shelfOf(label string, names ...string) *shelf {
	s := &shelf{label: label}
	for _, n := range names {
		s.tools = append(s.tools, mcp.Tool{Name: n, UserOnly: strings.HasPrefix(n, "user.")})
	}
	return s
}

func newSet(t *testing.T, rules mcp.Rules, shelves ...*shelf) *mcp.Set {
	t.Helper()
	var members []mcp.Member
	for _, s := range shelves {
		members = append(members, mcp.Member{Label: s.label, Source: s})
	}
	set, err := mcp.NewSet(rules, members...)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var modelName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

func TestEveryToolHasItsOwnAcceptableName(t *testing.T) {
	long := strings.Repeat("long", 30)
	device := shelfOf("device", "self.audio_speaker.set_volume", "a.b", "a b", "a_b", "a-b", "设置音量", "设置亮度",
		long+"1", long+"2", "-", "_", "Ünïcödé", "a/b", "tool")
	other := shelfOf("other", "a_b", "a.b", "new")
	set := newSet(t, mcp.Rules{}, device, other)
	tools := set.Tools()
	if len(tools) != len(device.tools)+len(other.tools) {
		t.Fatalf("%d tools", len(tools))
	}
	seen := map[string]bool{}
	for i, tool := range tools {
		if !modelName.MatchString(tool.Name) || seen[tool.Name] {
			t.Errorf("name %q is doubled or unacceptable", tool.Name)
		}
		seen[tool.Name] = true
		want := "device:"
		if i >= len(device.tools) {
			want = "other:" + other.tools[i-len(device.tools)].Name
		} else {
			want += device.tools[i].Name
		}
		if res, err := set.Call(t.Context(), tool.Name, nil); err != nil || res.Text != want {
			t.Errorf("%q calls %q (%v), want %q", tool.Name, res.Text, err, want)
		}
	}
	if got := tools[0].Name; got != "self_audio_speaker_set_volume" {
		t.Errorf("the plain case is named %q", got)
	}
	if got := tools[1].Name; got != "a_b" {
		t.Errorf("the first to want a name got %q", got)
	}
}

func TestNamesAreStable(t *testing.T) {
	device, other := shelfOf("device", "a.b"), shelfOf("other", "a_b")
	first := newSet(t, mcp.Rules{}, device, other)
	second := newSet(t, mcp.Rules{}, device, other)
	if a, b := toolNames(first.Tools()), toolNames(second.Tools()); !slices.Equal(a, b) {
		t.Errorf("two conversations: %v and %v", a, b)
	}
	// A source that gets ready, or loses a tool, renames nothing.
	late := shelfOf("late")
	set := newSet(t, mcp.Rules{}, late, other)
	before := toolNames(set.Tools())
	late.tools = shelfOf("", "a_b").tools
	after := toolNames(set.Tools())
	if after[1] != before[0] || before[0] != "a_b" || after[0] == "a_b" {
		t.Errorf("before %v, after %v", before, after)
	}
	if res, err := set.Call(t.Context(), "a_b", nil); err != nil || res.Text != "other:a_b" {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestRules(t *testing.T) {
	device := shelfOf("device", "self.get_device_status", "self.camera.take_photo", "self.upgrade_firmware", "user.reboot", "files/delete", "other")
	for name, test := range map[string]struct {
		rules mcp.Rules
		want  string
	}{
		"nothing said":     {mcp.Rules{}, "self_get_device_status self_camera_take_photo files_delete other"},
		"allow":            {mcp.Rules{Allow: []string{"self.*"}}, "self_get_device_status self_camera_take_photo"},
		"deny":             {mcp.Rules{Deny: []string{"*camera*", "other"}}, "self_get_device_status files_delete"},
		"deny beats allow": {mcp.Rules{Allow: []string{"*"}, Deny: []string{"file*"}}, "self_get_device_status self_camera_take_photo other"},
		"never these":      {mcp.Rules{Allow: []string{"self.upgrade_firmware", "user.reboot"}}, ""},
		"a slash":          {mcp.Rules{Allow: []string{"f*e", "[^/]ther"}}, "files_delete other"},
	} {
		t.Run(name, func(t *testing.T) {
			set := newSet(t, test.rules, device)
			if got := strings.Join(toolNames(set.Tools()), " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheModelReachesOnlyWhatItIsShown(t *testing.T) {
	device := shelfOf("device", "self.get_device_status", "self.upgrade_firmware", "user.reboot", "secret")
	set := newSet(t, mcp.Rules{Deny: []string{"secret"}}, device)
	set.Tools()
	for _, name := range []string{"self.upgrade_firmware", "self_upgrade_firmware", "user.reboot", "user_reboot", "secret", "", "self.get_device_status"} {
		if res, err := set.Call(t.Context(), name, nil); !errors.Is(err, mcp.ErrUnknownTool) {
			t.Errorf("%q: %+v, %v", name, res, err)
		}
	}
}

func TestSetRefusesNonsense(t *testing.T) {
	if _, err := mcp.NewSet(mcp.Rules{Deny: []string{"ok", "a[b"}}); err == nil || !strings.Contains(err.Error(), `deny[1]: pattern "a[b"`) {
		t.Errorf("bad pattern: %v", err)
	}
	one := mcp.Member{Label: "x", Source: shelfOf("x")}
	if _, err := mcp.NewSet(mcp.Rules{}, one, one); err == nil || !strings.Contains(err.Error(), `"x"`) {
		t.Errorf("doubled label: %v", err)
	}
}
