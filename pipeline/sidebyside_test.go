package pipeline

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// crowd is a toolbox that counts the calls under way. A call takes a second.
type crowd struct{ now, most, made atomic.Int64 }

func (*crowd) Tools() []Tool { return []Tool{{Name: "lamp", Schema: []byte(`{"type":"object"}`)}} }

func (b *crowd) Call(ctx context.Context, _ Call) (ToolResult, error) {
	b.made.Add(1)
	for n := b.now.Add(1); ; {
		most := b.most.Load()
		if n <= most || b.most.CompareAndSwap(most, n) {
			break
		}
	}
	defer b.now.Add(-1)
	select {
	case <-time.After(time.Second):
		return ToolResult{Text: "done"}, nil
	case <-ctx.Done():
		return ToolResult{}, ctx.Err()
	}
}

// A model that asks for many calls at once gets them, a few at a time, and none
// after the time they have together: what it uses is others', too.
func TestManyCallsTakeTurns(t *testing.T) {
	for name, tt := range map[string]struct {
		timeout time.Duration
		made    int64
		took    time.Duration
	}{
		"in time":     {time.Minute, 20, 3 * time.Second},
		"not in time": {1500 * time.Millisecond, 16, 1500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newTestbed(t, func(c *Config) { c.ToolTimeout = tt.timeout })
				box := new(crowd)
				b.c.p.Tools = box
				for i := range 20 {
					b.llm.calls = append(b.llm.calls, fmt.Sprint("lamp", i))
				}
				b.ask()
				b.after(30 * time.Second)
				if box.most.Load() != maxSideBySide || box.made.Load() != tt.made {
					t.Errorf("%d calls at once, %d in all; want %d and %d", box.most.Load(), box.made.Load(), maxSideBySide, tt.made)
				}
				tr := b.traces()[0]
				var longest time.Duration
				for _, tool := range tr.Tools {
					longest = max(longest, tool.Took)
				}
				if len(tr.Tools) != 20 || longest != tt.took {
					t.Errorf("%d results, the last after %v; want 20 and %v", len(tr.Tools), longest, tt.took)
				}
			})
		})
	}
}
