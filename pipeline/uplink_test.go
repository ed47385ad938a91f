package pipeline

import (
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// played runs packets with these sequence numbers through an uplink, 60 ms
// apart, and returns the loudness of what came out: L loud, q quiet.
func played(t *testing.T, seqs []uint32, packet func(seq uint32) []byte) (out string, u *uplink) {
	t.Helper()
	u = &uplink{}
	if err := u.init(); err != nil {
		t.Fatal(err)
	}
	emit := func(pcm []int16) {
		for len(pcm) >= SampleRate*60/1000 {
			if (loudness{}).Speech(pcm[:SampleRate*60/1000]) {
				out += "L"
			} else {
				out += "q"
			}
			pcm = pcm[SampleRate*60/1000:]
		}
	}
	for _, s := range seqs {
		now := time.Now()
		if !u.deadline.IsZero() && !now.Before(u.deadline) {
			u.skip(now, emit)
		}
		u.take(newPacket(s, packet(s)), emit)
		time.Sleep(PacketDuration)
	}
	if !u.deadline.IsZero() {
		time.Sleep(time.Until(u.deadline))
		u.skip(time.Now(), emit)
	}
	return out, u
}

// loudAt is a stream that is loud in the packets named and silent otherwise.
func loudAt(loud ...uint32) func(uint32) []byte {
	return func(seq uint32) []byte {
		for _, l := range loud {
			if l == seq {
				return tonePacket
			}
		}
		return silencePacket
	}
}

func TestUplinkRepairs(t *testing.T) {
	all := func(uint32) []byte { return tonePacket }
	for _, c := range []struct {
		name       string
		seqs       []uint32
		packet     func(uint32) []byte
		want       string
		late, lost uint64
	}{
		{"in order", []uint32{1, 2, 3, 4}, all, "LLLL", 0, 0},
		{"swapped", []uint32{1, 3, 2, 4, 5}, loudAt(3), "qqLqq", 0, 0},
		{"two late by two", []uint32{1, 4, 2, 3, 5}, loudAt(4), "qqqLq", 0, 0},
		{"one lost is concealed", []uint32{1, 2, 4, 5, 6, 7}, all, "LLLLLLL", 0, 1},
		{"late beyond the bound", []uint32{1, 3, 4, 5, 6, 7, 2, 8}, all, "LLLLLLLL", 1, 1},
		{"a long gap is not filled", []uint32{1, 50, 51, 52, 53, 54}, all, "LLLLLLLLL", 0, 48},
		{"around the wrap", []uint32{0xfffffffe, 0xffffffff, 0, 1}, all, "LLLL", 0, 0},
		{"DTX is silence", []uint32{1, 2, 3}, func(s uint32) []byte { return []byte{0x0b, 0, 0}[:s%4] }, "qqq", 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got, u := played(t, c.seqs, c.packet)
				// Concealment fades, and a tone rings on into the packet after it.
				upTo := strings.IndexByte(c.want, 'L') + 1
				if len(got) != len(c.want) || got[:upTo] != c.want[:upTo] {
					t.Errorf("played %s, want %s", got, c.want)
				}
				if u.late != c.late || u.lost != c.lost {
					t.Errorf("late %d, lost %d; want %d and %d", u.late, u.lost, c.late, c.lost)
				}
			})
		})
	}
}

// TestClientsThatCountByTwo are heard as they speak, after half a second in which
// they seem to lose every other packet; and a line that does is not taken for one
// of them for long.
func TestClientsThatCountByTwo(t *testing.T) {
	for name, c := range map[string]struct {
		seq  func(i uint32) uint32
		lost uint64 // at most
		long int    // packets played, at most
	}{
		"all the time":    {func(i uint32) uint32 { return 2*i + 2 }, 8, 108},
		"around the wrap": {func(i uint32) uint32 { return 2*i - 100 }, 8, 108},
		"and swap some": {func(i uint32) uint32 {
			if i >= 30 && i%10 < 2 {
				i ^= 1
			}
			return 2*i + 2
		}, 8, 108},
		"and lose some": {func(i uint32) uint32 { return 2*(i+i/30) + 2 }, 8 + 3, 108 + 3},
		"only for a while": {func(i uint32) uint32 {
			if i < 20 {
				return 2*i + 2
			}
			return 22 + i
		}, 8, 108},
		"never": {func(i uint32) uint32 { return i + 1 }, 0, 100},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seqs []uint32
				for i := range uint32(100) {
					seqs = append(seqs, c.seq(i))
				}
				got, u := played(t, seqs, func(uint32) []byte { return tonePacket })
				if u.lost > c.lost || u.late > 0 || len(got) < 100 || len(got) > c.long {
					t.Errorf("%d packets became %d, %d lost, %d late", len(seqs), len(got), u.lost, u.late)
				}
				if u.waits > 0 {
					t.Errorf("%d wait in the end", u.waits)
				}
			})
		})
	}
}

func TestUplinkSurvivesWhatIsNotOpus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got, u := played(t, []uint32{1, 2, 3}, func(s uint32) []byte {
			if s == 2 {
				return []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
			}
			return tonePacket
		})
		if len(got) != 3 || u.lost != 1 {
			t.Errorf("played %s, lost %d", got, u.lost)
		}
	})
}

func TestCompleteness(t *testing.T) {
	for text, want := range map[string]completion{
		"":                     complete,
		"turn on the light":    complete,
		"turn on the":          unfinished,
		"set the volume to 50": doubtful,
		"I would like, um":     unfinished,
		"first this,":          unfinished,
		"Who is that?":         complete,
		"今天天气怎么样":              complete,
		"我想要听音乐，然后":            unfinished,
	} {
		if got := completeness(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestHeard(t *testing.T) {
	at := time.Unix(1000, 0)
	spans := []span{
		{"One two.", at, at.Add(2 * time.Second)},
		{"Three four five.", at.Add(2 * time.Second), at.Add(4 * time.Second)},
	}
	for _, c := range []struct {
		after    time.Duration
		complete bool
		want     string
	}{
		{0, true, ""},
		{time.Second, true, "One"},
		{2 * time.Second, true, "One two."},
		{3 * time.Second, true, "One two. Three"},
		{time.Hour, true, "One two. Three four five."},
		// Cut: only as much as its two seconds hold at the pace of the first,
		// four letters a second.
		{time.Hour, false, "One two. Three"},
	} {
		if got := heard(spans, c.complete, at.Add(c.after)); got != c.want {
			t.Errorf("after %v: %q, want %q", c.after, got, c.want)
		}
	}
	zh := []span{{"今天天气很好。", at, at.Add(660 * ms)}}
	if got := heard(zh, false, at.Add(time.Hour)); got != "今天天" {
		t.Errorf("heard %q of a cut sentence", got)
	}
}

func TestJoinWords(t *testing.T) {
	for _, c := range [][3]string{{"a", "b", "a b"}, {"", "b", "b"}, {"你好", "世界", "你好世界"}, {"a ", " b", "a b"}} {
		if got := joinWords(c[0], c[1]); got != c[2] {
			t.Errorf("%q and %q: %q", c[0], c[1], got)
		}
	}
	if got := split("你好。"); !reflect.DeepEqual(got, []string{"你好。"}) {
		t.Errorf("%q", got)
	}
}
