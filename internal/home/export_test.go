package home

import (
	"strings"
	"time"
)

// Render parses a template and evaluates it for a message, as a state is read.
func Render(source, message string) (string, error) {
	t, err := parseTemplate(source)
	if err != nil {
		return "", err
	}
	return (&report{text: message, at: time.Now()}).render(t)
}

// RenderWith evaluates a template of a command.
func RenderWith(source string, vars map[string]any) (string, error) {
	t, err := parseTemplate(source)
	if err != nil {
		return "", err
	}
	return t.render(func(name string) (any, bool) { v, ok := vars[name]; return v, ok })
}

// Announce reads an announcement as Home does, and counts the entities.
func Announce(component, payload string) (int, error) {
	parts, err := parseAnnouncement(kindNamed(component), []byte(payload))
	n := 0
	for _, part := range parts {
		if e, _, err := newEntity("key", part); err == nil {
			n++
			r := &report{text: payload}
			for i := range e.listens {
				_, _ = e.take(&e.listens[i], r)
			}
			for i := range e.presence.sources {
				e.presence.take(i, r)
			}
			for _, tool := range []string{toolOn, toolOff, toolToggle, toolCover, toolFan, toolClimate, toolScene, toolValue, toolLock, toolArm} {
				for _, t := range nameThings([]*entity{e}) {
					_ = (&order{t: t}).fill(tool, &callArguments{Brightness: 50.0, Color: "red", Action: "open", Percent: 40.0, Temperature: 20.0, Value: strings.Repeat("1", 3)})
					t.say(time.Now())
				}
			}
		}
	}
	return n, err
}
