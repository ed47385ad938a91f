package builtin_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"parley/internal/protocol"
	"parley/mcp"
	"parley/mcp/builtin"
)

// board gives a house's devices the tools of a board with speaker and screen.
func board(status func() string, refuse *bool) (tools map[string]func(map[string]any) (mcp.Result, error), calls *[]string) {
	calls = new([]string)
	tools = map[string]func(map[string]any) (mcp.Result, error){
		"self.get_device_status": func(map[string]any) (mcp.Result, error) { return mcp.Result{Text: status()}, nil },
	}
	for tool, argument := range map[string]string{
		"self.audio_speaker.set_volume": "volume", "self.screen.set_brightness": "brightness", "self.screen.set_theme": "theme",
	} {
		tools[tool] = func(args map[string]any) (mcp.Result, error) {
			if *refuse {
				return mcp.Result{Text: "false"}, nil
			}
			*calls = append(*calls, fmt.Sprint(argument, "=", args[argument]))
			return mcp.Result{Text: "true"}, nil
		}
	}
	return tools, calls
}

func TestVolumeAndScreenInPlainWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, refuse := `{"audio_speaker":{"volume":70},"screen":{"brightness":"95","theme":"light"}}`, false
		h := &house{}
		var calls *[]string
		h.tools, calls = board(func() string { return status }, &refuse)
		r := run(t, builtin.Config{}, h)
		for _, c := range []struct{ tool, args, says, does string }{
			{"adjust_volume", `{"change":"louder"}`, "The volume is now 80 percent.", "volume=80"},
			{"adjust_volume", `{"change":"Quieter","percent":"25"}`, "The volume is now 45 percent.", "volume=45"},
			{"adjust_volume", `{"change":"louder","percent":100}`, "The volume is now 100 percent.", "volume=100"},
			{"adjust_volume", `{"change":"mute"}`, "The volume is now 0 percent.", "volume=0"},
			{"adjust_volume", `{"change":"max"}`, "The volume is now 100 percent.", "volume=100"},
			{"adjust_volume", `{"change":"set","percent":33.4}`, "The volume is now 33 percent.", "volume=33"},
			{"adjust_volume", `{"change":"set","percent":-5}`, "The volume is now 0 percent.", "volume=0"},
			{"adjust_volume", `{"change":"set","percent":1e30}`, "The volume is now 100 percent.", "volume=100"},
			{"adjust_screen", `{"change":"brighter"}`, "The brightness is now 100 percent.", "brightness=100"},
			{"adjust_screen", `{"change":"darker"}`, "The brightness is now 75 percent.", "brightness=75"},
			{"adjust_screen", `{"change":"dark"}`, "The screen is dark now.", "theme=dark"},
			{"adjust_screen", `{"change":"set","percent":5}`, "The brightness is now 5 percent.", "brightness=5"},
		} {
			*calls = nil
			r.must(kitchen, c.tool, c.args, c.says)
			if !slices.Equal(*calls, []string{c.does}) {
				t.Errorf("%s: the device did %q, want %q", c.args, *calls, c.does)
			}
		}
		*calls = nil
		for _, c := range []struct{ tool, args, says string }{
			{"adjust_volume", `{}`, "change is missing"},
			{"adjust_volume", `{"change":"dark"}`, "change must be one of"},
			{"adjust_volume", `{"change":"set"}`, "percent is missing"},
			{"adjust_volume", `{"change":"louder","percent":101}`, "percent must be from 0 to 100"},
			{"adjust_screen", `{}`, "change is missing"},
		} {
			r.refuses(kitchen, c.tool, c.args, c.says)
		}
		status = `{"audio_speaker":{"volume":100}}`
		r.must(kitchen, "adjust_volume", `{"change":"louder"}`, "The volume is at 100 percent, which is as far as it goes.")
		for _, s := range []string{`{"audio_speaker":{"volume":1000}}`, `{"audio_speaker":7}`, `nonsense`, `{"audio_speaker":{"volume":"NaN"}}`} {
			status = s
			r.refuses(kitchen, "adjust_volume", `{"change":"louder"}`, "does not tell its volume; use change set")
		}
		refuse = true
		r.refuses(kitchen, "adjust_volume", `{"change":"mute"}`, "the device refused")
		h.tools["self.audio_speaker.set_volume"] = func(map[string]any) (mcp.Result, error) { return mcp.Result{}, errors.New("disconnected") }
		r.refuses(kitchen, "adjust_volume", `{"change":"mute"}`, "the device did not do it: disconnected")
		delete(h.tools, "self.screen.set_theme")
		r.refuses(kitchen, "adjust_screen", `{"change":"dark"}`, "this device cannot do that")
		if len(*calls) != 0 {
			t.Errorf("the device did %q", *calls)
		}
	})
}

func TestHide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse := false
		tools, _ := board(func() string { return "" }, &refuse)
		h := &house{tools: tools, roles: []string{"default", "tutor"}}
		r := run(t, builtin.Config{Roles: h.roles}, h)
		visible := func() string {
			hide := r.Hide(kitchen)
			var names []string
			for _, tool := range r.Source().Tools() {
				if !hide(tool.Name) {
					names = append(names, tool.Name)
				}
			}
			return strings.Join(names, " ")
		}
		const always = "cancel_timer end_conversation get_time list_timers set_alarm set_reminder set_timer"
		if got := visible(); got != "adjust_screen adjust_volume "+always+" switch_role" {
			t.Errorf("got %s", got)
		}
		delete(h.tools, "self.screen.set_brightness")
		if got := visible(); !strings.Contains(got, "adjust_screen") {
			t.Errorf("a theme is something to adjust: %s", got)
		}
		delete(h.tools, "self.screen.set_theme")
		delete(h.tools, "self.audio_speaker.set_volume")
		h.roles = h.roles[:1]
		if got := visible(); got != always {
			t.Errorf("got %s", got)
		}
	})
}

func TestTalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{roles: []string{"default", "Tutor"}}
		r := run(t, builtin.Config{Roles: []string{"default", "Tutor"}}, h)
		for _, tool := range r.Source().Tools() {
			if tool.Name == "switch_role" && !strings.Contains(tool.Description, "default, Tutor") {
				t.Errorf("described as %q", tool.Description)
			}
		}
		r.must(kitchen, "end_conversation", `{}`, "The conversation ends when you have answered. Say goodbye in a few words.")
		if !slices.Equal(h.ended, []protocol.DeviceID{kitchen}) {
			t.Errorf("ended %v", h.ended)
		}
		r.must(kitchen, "switch_role", `{"role":"tutor"}`, "The role is Tutor from the next conversation on.")
		if h.role != "Tutor" {
			t.Errorf("switched to %q", h.role)
		}
		r.must(kitchen, "switch_role", `{"role":"default"}`, "The role is default already.")
		r.refuses(kitchen, "switch_role", `{"role":"admin"}`, `there is no role "admin"; there are default, Tutor`)
		r.refuses(kitchen, "switch_role", `{}`, "there is no role")
		if h.role != "default" { // a change of mind, before Tutor's first conversation

			t.Errorf("switched to %q", h.role)
		}
	})
}
