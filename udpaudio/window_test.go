package udpaudio

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestWindow(t *testing.T) {
	const far = windowAhead - 1
	for _, c := range []struct {
		name     string
		accepted []uint32
		seq      uint32
		want     outcome
	}{
		{"0 is no sequence number", nil, 0, dropReplayed},
		{"0 later", []uint32{5}, 0, dropReplayed},
		{"the first", nil, 1, delivered},
		{"the first, far along", nil, far, delivered},
		{"the first, too far", nil, far + 1, dropAhead},
		{"next", []uint32{1}, 2, delivered},
		{"again", []uint32{1}, 1, dropReplayed},
		{"a gap filled", []uint32{1, 3}, 2, delivered},
		{"a gap filled twice", []uint32{1, 3, 2}, 2, dropReplayed},
		{"63 behind", []uint32{1, 164}, 101, delivered},
		{"63 behind again", []uint32{101, 164}, 101, dropReplayed},
		{"64 behind", []uint32{1, 165}, 101, dropOld},
		{"everything forgotten after a jump", []uint32{99, 100, 164}, 163, delivered},
		{"but not what was last", []uint32{99, 100, 163}, 100, dropReplayed},
		{"nor what was before", []uint32{99, 100, 162}, 99, dropReplayed},
		{"as far ahead as may be", []uint32{10}, 10 + far, delivered},
		{"one further", []uint32{10}, 11 + far, dropAhead},
		{"all the way ahead", []uint32{10}, math.MaxUint32, dropAhead},
	} {
		var w window
		for _, seq := range c.accepted {
			w.accept(seq)
		}
		if got := w.fresh(c.seq); got != c.want {
			t.Errorf("%s: outcome %d, want %d", c.name, got, c.want)
		}
	}
}

// Sequences do not wrap: what follows the last number is old.
func TestWindowEnds(t *testing.T) {
	w := window{last: math.MaxUint32 - 1, seen: 1}
	for seq, want := range map[uint32]outcome{
		math.MaxUint32:      delivered,
		math.MaxUint32 - 1:  dropReplayed,
		math.MaxUint32 - 2:  dropReplayed,
		math.MaxUint32 - 3:  delivered,
		math.MaxUint32 - 65: dropOld,
		0:                   dropReplayed,
		1:                   dropOld,
	} {
		if got := w.fresh(seq); got != want {
			t.Errorf("%d: outcome %d, want %d", seq, got, want)
		}
	}
	w.accept(math.MaxUint32)
	for _, seq := range []uint32{0, 1, 2, windowAhead - 1, math.MaxUint32} {
		if w.fresh(seq) == delivered {
			t.Errorf("%d accepted after the last", seq)
		}
	}
}

// The window does what a set of all numbers seen would do.
func TestWindowAgainstSet(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var w window
	seen := map[uint32]bool{0: true}
	newest := uint32(0)
	accepted := 0
	for range 300000 {
		seq := uint32(max(0, int64(newest)+int64(r.IntN(150))-100))
		if r.IntN(1000) == 0 {
			seq = newest + uint32(r.IntN(2*windowAhead))
		}
		want := delivered
		switch {
		case int64(seq) >= int64(newest)+windowAhead:
			want = dropAhead
		case int64(seq) <= int64(newest)-windowBehind && seq != 0:
			want = dropOld
		case seen[seq]:
			want = dropReplayed
		}
		if got := w.fresh(seq); got != want {
			t.Fatalf("%d with newest %d: outcome %d, want %d", seq, newest, got, want)
		}
		if want == delivered {
			w.accept(seq)
			seen[seq] = true
			newest = max(newest, seq)
			accepted++
		}
	}
	if accepted < 1000 {
		t.Errorf("only %d accepted: the test tests little", accepted)
	}
}
