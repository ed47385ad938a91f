package record_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/audio"
	"parley/internal/record"
)

// A session as they are: the device speaks, Parley answers ahead of time, and
// nobody says anything in between.
func TestRecordingKeepsPacketsAndTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "of", "need")
	question := speech(t, audio.MicrophoneEncoding(), frame)
	answer := speech(t, audio.SpeakerEncoding(), frame)
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		opened := time.Now()
		time.Sleep(time.Second)
		for i, p := range question { // the first from 1 s to 1.06 s
			time.Sleep(frame)
			tap.Up(uint32(i+1), p)
		}
		time.Sleep(700 * time.Millisecond)
		began := time.Since(opened)
		for i, p := range answer {
			if i >= 3 {
				time.Sleep(frame)
			}
			tap.Down(p)
		}
		time.Sleep(5 * time.Second)
		ended := time.Since(opened)
		tap.Close()
		tap.Up(1000, question[0]) // too late, and no harm
		stop(t, r)

		tracks := load(t, only(t, dir))
		device, parley := tracks[0], tracks[1]
		if device.title != "device" || device.rate != 16000 || parley.title != "parley" || parley.rate != 24000 {
			t.Errorf("tracks %q at %d Hz and %q at %d Hz", device.title, device.rate, parley.title, parley.rate)
		}
		for i, at := range device.places(t, question) {
			if want := time.Second + time.Duration(i)*frame; at != want {
				t.Fatalf("packet %d of the device is at %v, want %v", i, at, want)
			}
		}
		for i, at := range parley.places(t, answer) {
			if want := began + time.Duration(i)*frame; at != want {
				t.Fatalf("packet %d of Parley is at %v, want %v", i, at, want)
			}
		}
		if device.length() != ended || parley.length() != ended || !device.closed || !parley.closed {
			t.Errorf("tracks of %v and %v (ended: %t, %t), want %v", device.length(), parley.length(), device.closed, parley.closed, ended)
		}
		if device.behind > 3*time.Second || parley.behind > 3*time.Second {
			t.Errorf("pages are %v and %v out of order", device.behind, parley.behind)
		}
		for name, peak := range map[string]int{
			"before the question": loudness(t, device, 0, time.Second),
			"after the question":  loudness(t, device, began, ended),
			"before the answer":   loudness(t, parley, 0, began),
			"after the answer":    loudness(t, parley, ended-4*time.Second, ended),
		} {
			if peak != 0 {
				t.Errorf("%s: samples of up to %d, want silence", name, peak)
			}
		}
		if peak := loudness(t, device, time.Second, 4*time.Second); peak < 1000 {
			t.Errorf("the question is not heard: %d", peak)
		}
		s := r.Stats()
		if want := uint64(len(question) + len(answer)); s.Packets != want || s.Files != 1 || s.Open != 0 || s.Dropped+s.Bad+s.Late+s.Ahead+s.Failed+s.Cut != 0 {
			t.Errorf("%+v, want %d packets and one file", s, want)
		}
	})
}

func TestRecordingIsPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "recordings")
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		tap.Up(1, []byte{11 << 3})
		stop(t, r) // ends the tap too
		path := only(t, dir)
		// The bubble's clock begins at midnight UTC, 2000-01-01.
		if got, want := filepath.Base(path), "20000101T000000Z_a0_85_e3_f4_49_34_K3YJPX5D.ogg"; got != want {
			t.Errorf("file %s, want %s", got, want)
		}
		for p, want := range map[string]os.FileMode{path: 0o600, dir: 0o700 | os.ModeDir} {
			info, err := os.Stat(p)
			if err != nil || info.Mode() != want {
				t.Errorf("%s: mode %v, %v; want %v", p, info.Mode(), err, want)
			}
		}
		if _, err := r.Open(device, session); err != record.ErrClosed {
			t.Errorf("open after close: %v", err)
		}
	})
}

// Lost packets leave their time, those out of order find their place, and what
// comes twice is heard once.
func TestUplinkIsRepaired(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)[:30]
	for name, tt := range map[string]struct {
		order []int // indices of packets, sent at their time; −1 for a lost one
		late  uint64
	}{
		"in order":          {[]int{0, 1, 2, 3, 4, 5}, 0},
		"one lost":          {[]int{0, 1, -1, 3, 4, 5}, 0},
		"four lost":         {[]int{0, 1, -1, -1, -1, -1, 6, 7}, 0},
		"swapped":           {[]int{0, 2, 1, 3, 4, 5}, 0},
		"swapped at once":   {[]int{1, 0, 2, 3, 4, 5}, 0},
		"far out of order":  {[]int{0, 1, 3, 4, 5, 2, 6}, 0},
		"repeated":          {[]int{0, 1, 1, 3, 4, 5}, 1},
		"too late for time": {[]int{0, -1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1, 12}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				r := start(t, record.Config{Dir: dir}, quiet())
				tap := open(t, r, session)
				last := 0
				for _, i := range tt.order {
					time.Sleep(frame)
					if i >= 0 {
						tap.Up(uint32(i+1), question[i])
						last = max(last, i)
					}
				}
				tap.Close()
				stop(t, r)
				device := load(t, only(t, dir))[0]
				var found []int
				for _, h := range device.heard {
					for i, p := range question {
						if bytes.Equal(p, h.opus) {
							found = append(found, i)
							if want := time.Duration(i) * frame; h.at != want {
								t.Errorf("packet %d is at %v, want %v", i, h.at, want)
							}
						}
					}
				}
				for i := 1; i < len(found); i++ {
					if found[i] <= found[i-1] {
						t.Errorf("order %v", found)
					}
				}
				if want := time.Duration(len(tt.order)) * frame; device.length() != want {
					t.Errorf("length %v, want %v", device.length(), want)
				}
				if s := r.Stats(); s.Late != tt.late || int(s.Packets) != len(found) {
					t.Errorf("%+v with packets %v, want %d late", s, found, tt.late)
				}
			})
		})
	}
}

// Desktop clients send 20 ms, and some clients count by two.
func TestUplinkOfOtherClients(t *testing.T) {
	for _, length := range []time.Duration{20 * time.Millisecond, 40 * time.Millisecond} {
		question := speech(t, audio.MicrophoneEncoding(), length)
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, record.Config{Dir: dir}, quiet())
			tap := open(t, r, session)
			for i, p := range question {
				time.Sleep(length)
				tap.Up(uint32(2*i+1), p)
			}
			stop(t, r)
			device := load(t, only(t, dir))[0]
			if len(device.heard) != len(question) {
				t.Errorf("%v: %d packets, want %d and no filling", length, len(device.heard), len(question))
			}
		})
	}
}

// A packet that is lost leaves its own time, even if the next came early.
func TestLossIsExact(t *testing.T) {
	for _, length := range []time.Duration{20 * time.Millisecond, frame} {
		question := speech(t, audio.MicrophoneEncoding(), length)[:30]
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			r := start(t, record.Config{Dir: dir}, quiet())
			tap := open(t, r, session)
			for i, p := range question {
				if i == 10 {
					time.Sleep(length * 3 / 4)
				} else {
					time.Sleep(length)
				}
				if i != 9 {
					tap.Up(uint32(i+1), p)
				}
			}
			tap.Close()
			stop(t, r)
			for i, at := range load(t, only(t, dir))[0].places(t, append(question[:9:9], question[10:]...)) {
				if i >= 9 {
					i++
				}
				if want := time.Duration(i) * length; at != want {
					t.Fatalf("packet %d is at %v, want %v", i, at, want)
				}
			}
		})
	}
}

// A sender that is a little late is not silent in the middle of a word.
func TestLateDownlinkIsNoPause(t *testing.T) {
	answer := speech(t, audio.SpeakerEncoding(), frame)[:20]
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		for i, p := range answer {
			if i > 0 && i%2 == 0 {
				time.Sleep(2*frame + 2*time.Millisecond)
			}
			tap.Down(p)
		}
		tap.Close()
		stop(t, r)
		for i, at := range load(t, only(t, dir))[1].places(t, answer) {
			if want := time.Duration(i) * frame; at != want {
				t.Fatalf("packet %d is at %v, want %v", i, at, want)
			}
		}
	})
}

// A network that holds packets up and lets them go at once makes no gaps.
func TestUnevennessIsNoPause(t *testing.T) {
	question := speech(t, audio.MicrophoneEncoding(), frame)
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		for i, p := range question {
			time.Sleep(frame)
			switch {
			case i >= 5 && i < 20: // 900 ms held up
			case i == 20:
				for j := 5; j <= 20; j++ {
					tap.Up(uint32(j+1), question[j])
				}
			default:
				tap.Up(uint32(i+1), p)
			}
		}
		stop(t, r)
		device := load(t, only(t, dir))[0]
		if len(device.heard) != len(question) {
			t.Errorf("%d packets, want %d and no filling", len(device.heard), len(question))
		}
	})
}
