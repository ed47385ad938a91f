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

func TestLabelsInRules(t *testing.T) {
	device := shelfOf("device", "self.get_status", "get_time")
	weather := shelfOf("weather", "forecast", "get_time")
	for name, test := range map[string]struct {
		rules mcp.Rules
		want  string
	}{
		"a whole source":      {mcp.Rules{Deny: []string{"weather:*"}}, "self_get_status get_time"},
		"only one source":     {mcp.Rules{Allow: []string{"weather:*"}}, "forecast get_time"},
		"one of its tools":    {mcp.Rules{Deny: []string{"weather:get_*"}}, "self_get_status get_time forecast"},
		"labels by pattern":   {mcp.Rules{Deny: []string{"[dw]e*:get_time"}}, "self_get_status forecast"},
		"not without a colon": {mcp.Rules{Deny: []string{"weather*", "device"}}, "self_get_status get_time forecast weather_get_time"},
		"another's label":     {mcp.Rules{Deny: []string{"other:*"}}, "self_get_status get_time forecast weather_get_time"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(toolNames(newSet(t, test.rules, device, weather).Tools()), " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestGuardedToolsMustBeNamed(t *testing.T) {
	home := shelfOf("home", "turn_on", "unlock")
	guarded := func(name string) bool { return name == "unlock" }
	for allow, want := range map[string]string{
		"":               "turn_on",
		"*":              "turn_on",
		"home:*":         "turn_on",
		"**":             "turn_on",
		"unlock":         "unlock",
		"*lock":          "unlock",
		"home:un*":       "unlock",
		"*,home:unlock":  "turn_on unlock",
		"turn_*,unlock*": "turn_on unlock",
		"other:unlock,*": "turn_on",
	} {
		var rules mcp.Rules
		if allow != "" {
			rules.Allow = strings.Split(allow, ",")
		}
		set, err := mcp.NewSet(rules, mcp.Member{Label: "home", Source: home, Guarded: guarded})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(toolNames(set.Tools()), " "); got != want {
			t.Errorf("allow %q: %q, want %q", allow, got, want)
		}
	}
}

func TestNamesThatCollideGetTheirLabel(t *testing.T) {
	long := strings.Repeat("x", 60)
	set := newSet(t, mcp.Rules{}, shelfOf("device", "search", long), shelfOf("web", "search", long, "web_search", "a.b"), shelfOf("Küche", "search", "a b"))
	got := toolNames(set.Tools())
	want := []string{"search", long, "web_search", "", "", "a_b", "K_che_search", "K_che_a_b"}
	for i := range want {
		if want[i] == "" && (!modelName.MatchString(got[i]) || slices.Contains(want, got[i])) || want[i] != "" && got[i] != want[i] {
			t.Errorf("tool %d is named %q, want %q", i, got[i], want[i])
		}
	}
}

func TestHiddenAndLostToolsAreRefused(t *testing.T) {
	hidden := false
	device := shelfOf("device", "a", "b")
	set, err := mcp.NewSet(mcp.Rules{}, mcp.Member{Label: "device", Source: device, Hide: func(name string) bool { return hidden && name == "b" }})
	if err != nil {
		t.Fatal(err)
	}
	if got := toolNames(set.Tools()); len(got) != 2 {
		t.Fatalf("tools %v", got)
	}
	refused := func(name string) {
		t.Helper()
		if slices.Contains(toolNames(set.Tools()), name) {
			t.Errorf("%s is shown", name)
		}
		if res, err := set.Call(t.Context(), name, nil); !errors.Is(err, mcp.ErrUnknownTool) || !strings.Contains(err.Error(), "not available any more") {
			t.Errorf("%s: %+v, %v", name, res, err)
		}
	}
	hidden = true
	refused("b")
	all := device.tools
	device.tools = nil // the source goes away
	refused("a")
	device.tools, hidden = all, false
	for _, name := range []string{"a", "b"} {
		if res, err := set.Call(t.Context(), name, nil); err != nil || res.Text != "device:"+name {
			t.Errorf("%s again: %+v, %v", name, res, err)
		}
	}
	device.tools = shelfOf("", "user.a").tools
	device.tools[0].Name = "a" // the same tool, for people now
	refused("a")
}

// A counted shelf tells its version and counts how often it is asked.
type counted struct {
	*shelf
	version uint64
	asked   int
}

func (c *counted) Version() uint64   { return c.version }
func (c *counted) Tools() []mcp.Tool { c.asked++; return c.shelf.Tools() }

func TestVersionedSourcesAreAskedOnce(t *testing.T) {
	c := &counted{shelf: shelfOf("device", "a", "b")}
	set, err := mcp.NewSet(mcp.Rules{Deny: []string{"b"}}, mcp.Member{Label: "device", Source: c})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if tools := set.Tools(); len(tools) != 1 {
			t.Fatalf("%v", tools)
		} else {
			tools[0].Name = "mine" // the slice is the caller's
		}
		if _, err := set.Call(t.Context(), "a", nil); err != nil {
			t.Error(err)
		}
	}
	c.tools = shelfOf("", "a", "c").tools
	c.version++
	if got := strings.Join(toolNames(set.Tools()), " "); got != "a c" || c.asked != 2 {
		t.Errorf("tools %q, asked %d times", got, c.asked)
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
