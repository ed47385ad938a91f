package record_test

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"parley/internal/audio"
	"parley/internal/record"
)

// A disk that is full in the middle ends the recording: what fits stays, and is
// what is counted. A limit of the process on the size of files stands for it.
func TestDiskFull(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	question := speech(t, audio.MicrophoneEncoding(), frame)
	synctest.Test(t, func(t *testing.T) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 3000, Max: old.Max}); err != nil {
			t.Skip(err)
		}
		defer func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
				t.Error(err)
			}
		}()
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		talk(tap, question)
		stop(t, r)
		info, err := os.Stat(only(t, dir))
		if err != nil || info.Size() != 3000 {
			t.Errorf("%d bytes, %v", info.Size(), err)
		}
		if s := r.Stats(); s.Failed != 1 || s.Bytes != 3000 || s.Packets != uint64(len(question)) {
			t.Errorf("%+v", s)
		}
	})
}
