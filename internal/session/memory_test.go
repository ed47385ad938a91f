package session

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/protocol"
	"parley/pipeline"
)

// conversation is n exchanges whose tool answers with size bytes.
func conversation(n, size int) (said []pipeline.Message) {
	for range n {
		said = append(said,
			pipeline.Message{Role: pipeline.RoleUser, Text: "read me the page"},
			pipeline.Message{Role: pipeline.RoleAssistant, Calls: []pipeline.Call{{ID: "1", Name: "fetch", Args: []byte("{}")}}},
			pipeline.Message{Role: pipeline.RoleTool, CallID: "1", Text: strings.Repeat("x", size)},
			pipeline.Message{Role: pipeline.RoleAssistant, Text: "It says nothing."})
	}
	return said
}

// TestMemoriesAreBounded: ten thousand devices that read long pages must not fill
// the machine; what is kept begins with a user's words.
func TestMemoriesAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ exchanges, size, want int }{
		"all of an ordinary one":   {10, 100, 40},
		"the end of a long one":    {10, 10 << 10, 12},
		"nothing of a monstrous":   {1, 64 << 10, 0},
		"what followed a monster":  {0, 0, 4},
		"one that begins in haste": {0, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			said := conversation(c.exchanges, c.size)
			switch name {
			case "what followed a monster":
				said = append(conversation(1, 64<<10), conversation(1, 1)...)
			case "one that begins in haste":
				said = []pipeline.Message{{Role: pipeline.RoleAssistant, Text: "Your timer has ended."}}
			}
			m := memories{keep: time.Minute, of: map[protocol.DeviceID]memory{}}
			m.put("a", 1, said)
			got := m.recall("a")
			if len(got) != c.want {
				t.Fatalf("%d messages are kept, want %d", len(got), c.want)
			}
			if len(got) > 1 && got[0].Role != pipeline.RoleUser {
				t.Errorf("it begins with %+v", got[0].Role)
			}
		})
	}
}

// TestMemoriesOfOverlappingSessions: the later session's stays, whichever ends
// first, and neither sees the other's in the making.
func TestMemoriesOfOverlappingSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := memories{keep: time.Minute, of: map[protocol.DeviceID]memory{}}
		m.put("a", 2, conversation(2, 1))
		m.put("a", 1, conversation(1, 1))
		first, second := m.recall("a"), m.recall("a")
		if len(first) != 8 || len(second) != 8 {
			t.Fatalf("%d and %d messages, want those of the later session", len(first), len(second))
		}
		time.Sleep(2 * time.Minute)
		m.put("b", 3, conversation(1, 1))
		if len(m.of) != 1 {
			t.Errorf("%d devices are remembered after the sweep", len(m.of))
		}
	})
}
