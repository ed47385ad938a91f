package main

import (
	"testing"

	"parley/internal/config"
	"parley/internal/device"
)

// shortly is a reminder for the impatient: the model's tool takes parts of a
// minute.
const shortly = `
[[rule]]
match = ["remind me shortly to {text}"]
call = "set_reminder"
arguments = { text = "{text}", in_minutes = 0.05 }
answer = "Yes."
`

// alert is a notice on the screen.
func alert(e device.Event) bool { return e.Kind == device.Message && e.Type == "alert" }

// TestATimerIsSpoken sets a timer in a session that stays open until it is over.
func TestATimerIsSpoken(t *testing.T) {
	t.Parallel()
	n, _ := start(t, rules(t, ""))
	p := connect(t, n, kitchen, nil)
	open(p)
	from := p.now()
	p.Type("set a timer for two seconds")
	set, at := p.hears(from)
	if len(set) == 0 || !contains(set, "2 seconds") {
		t.Errorf("it says %q", set)
	}
	if over, _ := p.hears(at); len(over) != 1 || over[0] != "Your timer has ended." {
		t.Errorf("when the timer is over it says %q", over)
	}
	says(p, "what timers are set", "There is no timer set.")
}

// TestAReminderOfAnIdleDevice is shown where there is no session, and outlives the
// program.
func TestAReminderOfAnIdleDevice(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := func(c *config.Config) {
		rules(t, shortly)(c)
		c.Tools.Dir = dir
	}
	n, stop := start(t, kept)
	p := connect(t, n, kitchen, nil)
	says(p, "remind me shortly to water the plants", "Yes.")
	p.hangUp()
	shown, _ := p.await("the reminder", 0, alert)
	if shown.Detail != "Reminder" || shown.Text != "This is your reminder: water the plants." {
		t.Errorf("it shows %q, %q", shown.Detail, shown.Text)
	}
	says(p, "remind me shortly to feed the cat", "Yes.")
	p.hangUp()
	from := p.now()
	p.Close() // before the reminder is due, and with it the server
	stop()
	if n := len(p.between(from, p.now(), "alert", "Reminder")); n != 0 {
		t.Fatal("the reminder came before the restart")
	}
	n, _ = start(t, kept)
	again := connect(t, n, kitchen, nil)
	if shown, _ := again.await("the reminder", 0, alert); shown.Text != "This is your reminder: feed the cat." {
		t.Errorf("after the restart it shows %q", shown.Text)
	}
}

// TestEndOfConversation asserts that a device that was told goodbye rests, and not
// before the goodbye was heard.
func TestEndOfConversation(t *testing.T) {
	t.Parallel()
	n, _ := start(t, rules(t, ""))
	p := connect(t, n, kitchen, func(o *device.Options) { o.Decode = true })
	open(p)
	from := p.now()
	p.Type("that is all")
	said, at := p.hears(from)
	if len(said) != 1 || said[0] != "Goodbye." {
		t.Errorf("it says %q", said)
	}
	p.closes(at)
	if r := p.Report(); r.Clipped() != 0 || r.Played == 0 || r.Queued != 0 {
		t.Errorf("%d frames were played, %d clipped, %d are left", r.Played, r.Clipped(), r.Queued)
	}
	says(p, "are you there", "Yes, I hear you.") // in a new session
}

// TestSwitchOfRole asserts that another role counts from the next session on, for
// this device alone.
func TestSwitchOfRole(t *testing.T) {
	t.Parallel()
	path := configure(t, `
[llm.tutor]
type = "rules"
unknown = ["I am the tutor."]
[[llm.tutor.rule]]
match = ["back"]
call = "switch_role"
arguments = { role = "default" }
answer = "Bye."

[role.tutor]
llm = ["tutor"]
by_voice = true

[role.secret]
llm = ["tutor"]
`)
	n, _ := startFile(t, path, rules(t, `
[[rule]]
match = ["let me talk to the {role}"]
call = "switch_role"
arguments = { role = "{role}" }
answer = "Soon."
failed = "There is no {role}."
`))
	p, other := connect(t, n, kitchen, nil), connect(t, n, study, nil)
	says(p, "let me talk to the cook", "There is no cook.")
	says(p, "let me talk to the secret", "There is no secret.") // its role does not allow it
	says(p, "let me talk to the tutor", "Soon.")
	says(p, "are you there", "Yes, I hear you.")
	p.hangUp()
	says(p, "are you there", "I am the tutor.")
	says(other, "are you there", "Yes, I hear you.")
	says(p, "back", "Bye.")
	p.hangUp()
	says(p, "are you there", "Yes, I hear you.")
}
