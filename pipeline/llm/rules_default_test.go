package llm_test

import (
	"strings"
	"testing"

	"parley/pipeline"
	"parley/pipeline/llm"
)

// TestDefaultRulesTakeNumbersWithinBounds asserts what the default rules call where
// a number is said, and that numbers that mean nothing are not understood.
func TestDefaultRulesTakeNumbersWithinBounds(t *testing.T) {
	c := converse(t, newRules(t, llm.RulesConfig{Rules: defaultRules(t), Unknown: []string{"What?"}}))
	for _, name := range []string{
		"set_timer", "set_alarm", "set_reminder", "cancel_timer",
		"home_set_cover", "home_turn_on", "home_set_climate", "home_set_fan",
	} {
		c.tools = append(c.tools, pipeline.Tool{Name: name})
	}
	const nothing = ""
	for _, test := range []struct{ say, call string }{
		{"set the volume to 0", `self_audio_speaker_set_volume{"volume":0}`},
		{"volume one hundred percent", `self_audio_speaker_set_volume{"volume":100}`},
		{"set the volume to 150", nothing},
		{"set the brightness to a hundred and one", nothing},
		{"brightness 100", `self_screen_set_brightness{"brightness":100}`},

		{"set a timer for ten minutes", `set_timer{"minutes":10}`},
		{"set a timer for one hundred and twenty minutes", `set_timer{"minutes":120}`},
		{"set a timer for 2 minutes and 59 seconds", `set_timer{"minutes":2,"seconds":59}`},
		{"start timer for 24 hours 30 minutes", `set_timer{"hours":24,"minutes":30}`},
		{"set a timer for ninety seconds", `set_timer{"seconds":90}`},
		{"a five minute timer", `set_timer{"minutes":5}`},
		{"set a timer for zero minutes", nothing},
		{"set a timer for 25 hours", nothing},

		{"wake me at seven thirty", `set_alarm{"time":" 7:30 "}`},
		{"wake me up tomorrow at 7:05 am", `set_alarm{"time":"tomorrow 7:5 am"}`},
		{"set an alarm for seven oh five", `set_alarm{"time":" 7:5 "}`},
		{"set an alarm for seven o'clock in the evening", `set_alarm{"time":" 7:00 in the evening"}`},
		{"wake me at twenty three", `set_alarm{"time":" 23:00 "}`},
		{"wake me at twenty one fifteen", `set_alarm{"time":" 21:15 "}`},
		{"wake me every day at six forty five", `set_alarm{"repeat":"daily","time":"6:45 "}`},
		{"set a daily alarm for twenty two", `set_alarm{"repeat":"daily","time":"22:00 "}`},
		{"wake me on weekdays at 6", `set_alarm{"repeat":"weekdays","time":"6:00 "}`},
		{"set an alarm every weekday at six thirty a m", `set_alarm{"repeat":"weekdays","time":"6:30 a m"}`},
		{"wake me at seventy thirty", nothing},
		{"wake me at seven sixty", nothing},
		{"wake me at 24", nothing},

		{"remind me in 180 minutes to turn off the oven", `set_reminder{"in_minutes":180,"text":"turn off the oven"}`},
		{"remind me to call Ann at 6 15 pm", `set_reminder{"at":" 6:15 pm","text":"call Ann"}`},
		{"remind me tomorrow at twenty two to sleep", `set_reminder{"at":"tomorrow 22:00 ","text":"sleep"}`},

		{"cancel timer number two", `cancel_timer{"kind":"timer","which":2}`},
		{"delete alarm 64", `cancel_timer{"kind":"alarm","which":64}`},
		{"cancel timer number seventy", nothing},

		{"set the bedroom blind to 30 percent", `home_set_cover{"name":"bedroom blind","position":30}`},
		{"set the ceiling fan to 100", `home_set_fan{"name":"the ceiling fan","percent":100}`},
		{"dim the lamp to 40%", `home_turn_on{"brightness":40,"name":"the lamp"}`},
		{"dim the lamp to 140%", nothing},
		// The tool refuses what the heating cannot do; it must not become a lamp.
		{"set the bathroom heating to 68", `home_set_climate{"name":"the bathroom temperature","temperature":68}`},
		{"set the oven to 180 degrees", `home_set_climate{"name":"the oven temperature","temperature":180}`},
	} {
		answer := c.say(test.say)
		if got := strings.Join(c.calls, " "); got != test.call {
			t.Errorf("%q: calls %s, want %s", test.say, got, test.call)
		}
		if test.call == nothing && answer != "What?" {
			t.Errorf("%q: answer %q, want that it is not understood", test.say, answer)
		}
	}
}
