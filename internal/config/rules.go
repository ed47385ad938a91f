package config

// defaultRules are the requests the offline default understands: what every
// device has a tool for, and a little manners.
func defaultRules() []Rule {
	return []Rule{
		{
			Match:     []string{"[set] [the] volume [to] {volume:number} [percent]", "(turn|set) the volume to {volume:number} [percent]"},
			Call:      "self.audio_speaker.set_volume",
			Arguments: map[string]any{"volume": "{volume}"},
			Answer:    "The volume is at {volume}.",
			Failed:    "I could not change the volume.",
			Emotion:   "happy",
		},
		{
			Match:     []string{"mute", "be quiet", "mute the sound"},
			Call:      "self.audio_speaker.set_volume",
			Arguments: map[string]any{"volume": int64(0)},
			Answer:    "Muted.",
			Failed:    "I could not change the volume.",
		},
		{
			Match:     []string{"[set] [the] brightness [to] {brightness:number} [percent]"},
			Call:      "self.screen.set_brightness",
			Arguments: map[string]any{"brightness": "{brightness}"},
			Answer:    "The brightness is at {brightness}.",
			Failed:    "I could not change the brightness.",
		},
		{
			Match:     []string{"[switch to] [the] {theme:light|dark} theme"},
			Call:      "self.screen.set_theme",
			Arguments: map[string]any{"theme": "{theme}"},
			Answer:    "Here is the {theme} theme.",
			Failed:    "I could not change the theme.",
		},
		{
			Match:  []string{"how loud are you", "what is the volume"},
			Call:   "self.get_device_status",
			Answer: "The volume is at {result.audio_speaker.volume}.",
			Failed: "I could not find out.",
		},
		{
			Match:  []string{"what time is it", "what is the time"},
			Answer: "It is {now.time}.",
		},
		{
			Match:   []string{"hello", "hi", "good (morning|afternoon|evening)"},
			Answer:  "Hello! What can I do for you?",
			Emotion: "happy",
		},
		{
			Match:   []string{"thank you", "thanks"},
			Answer:  "You are welcome.",
			Emotion: "loving",
		},
		{
			Match:   []string{"who are you", "what is your name"},
			Answer:  "I am Parley, your voice assistant.",
			Emotion: "winking",
		},
	}
}
