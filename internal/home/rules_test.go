package home_test

import (
	"testing"

	"github.com/BurntSushi/toml"

	"parley/internal/home"
	"parley/internal/phrase"
)

// TestRules: the rules for the offline model turn what is said into the right
// call, and the names in it mean the right thing.
func TestRules(t *testing.T) {
	var doc struct {
		LLM struct {
			Rules struct {
				Rule []struct {
					Match     []string
					Call      string
					Arguments map[string]string
				}
			}
		}
	}
	if _, err := toml.DecodeFile("testdata/rules.toml", &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.LLM.Rules.Rule) < 10 {
		t.Fatalf("%d rules", len(doc.LLM.Rules.Rule))
	}
	call := func(said string) (string, string) {
		for _, r := range doc.LLM.Rules.Rule {
			for _, m := range r.Match {
				p, err := phrase.Parse(m)
				if err != nil {
					t.Fatal(err)
				}
				if v, ok := p.Match(said); ok {
					return r.Call, v["name"].Text
				}
			}
		}
		return "", ""
	}
	for said, want := range map[string][2]string{
		"turn on the kitchen light":                  {"home_turn_on", "the kitchen light"},
		"Switch the kitchen light on, please.":       {"home_turn_on", "the kitchen light"},
		"turn off all the lights in the living room": {"home_turn_off", "all the lights in the living room"},
		"set the kitchen light to 40 percent":        {"home_turn_on", "the kitchen light"},
		"make the lamp blue":                         {"home_turn_on", "the lamp"},
		"open the bedroom blind":                     {"home_set_cover", "the bedroom blind"},
		"set the bedroom blind to 30 percent":        {"home_set_cover", "bedroom"},
		"set the ceiling fan speed to 50 percent":    {"home_set_fan", "the ceiling"},
		"set the bathroom heating to 22 degrees":     {"home_set_climate", "the bathroom"},
		"how warm is the living room":                {"home_read", "the living room"},
		"what is the temperature in the living room": {"home_read", "the living room"},
		"is the balcony door open":                   {"home_read", "the balcony door"},
		"is the kitchen light on":                    {"home_read", "the kitchen light"},
		"activate the scene movie night":             {"home_activate_scene", "movie night"},
		"open the garage door":                       {"home_set_gate", ""},
		"what can you control":                       {"home_list", ""},
		"unlock the front door":                      {"", ""},
	} {
		if tool, name := call(said); tool != want[0] || name != want[1] {
			t.Errorf("%q calls %s %q, want %s %q", said, tool, name, want[0], want[1])
		}
	}
	b := newBus()
	b.load(t, "zigbee2mqtt.txt")
	inHouse(t, home.Config{Discover: true}, b, func(h *house) {
		if got := h.call("home_read", `{"name":"the living room temperature"}`).Text; got != "The living room sensor temperature is 21.5 degrees Celsius." {
			t.Errorf("read as %q", got)
		}
		h.call("home_set_cover", `{"name":"bedroom blind","position":"30 percent"}`)
	})
}
