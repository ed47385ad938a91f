package builtin

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"parley/internal/protocol"
)

// fullBook holds as much as there can be set.
func fullBook() *book {
	b := newBook(time.UTC, new(counters), discard())
	for i := range maxEntries {
		device := protocol.DeviceID(fmt.Sprintf("00:00:00:00:%02x:%02x", i/50>>8, i/50&0xff))
		_, _, err := b.add(record{Device: device, Kind: Alarm, Text: "a name as people give them", Due: time.Now().Add(time.Duration(i) * time.Second), Repeat: daily, Clock: clock{7, 30, 0}})
		if err != nil {
			panic(err)
		}
	}
	return b
}

func TestFullBook(t *testing.T) {
	_, _, err := fullBook().add(record{Device: "a0:85:e3:f4:49:34", Kind: Timer, Due: time.Now().Add(time.Hour)})
	if !errors.Is(err, errAllFull) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkWrite writes 100,000 entries, as happens at most once a second.
func BenchmarkWrite(b *testing.B) {
	book := fullBook()
	s := &store{path: filepath.Join(b.TempDir(), fileName), book: book, stats: book.stats, log: book.log, write: replaceFile}
	b.ReportAllocs()
	for b.Loop() {
		s.saved = 0
		if err := s.flush(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSnapshot is how long a writing holds up everything else.
func BenchmarkSnapshot(b *testing.B) {
	book := fullBook()
	for b.Loop() {
		book.snapshot()
	}
}

// BenchmarkParse reads a file of 100,000 entries.
func BenchmarkParse(b *testing.B) {
	_, last, records := fullBook().snapshot()
	content := encodeFile(last, records)
	for b.Loop() {
		if _, kept, err := parseFile(content); err != nil || len(kept) != maxEntries {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(content)), "file-B")
}

// BenchmarkTick is the scheduler's look at a full book when nothing is due.
func BenchmarkTick(b *testing.B) {
	book := fullBook()
	b.ReportAllocs()
	for b.Loop() {
		book.tick()
	}
}
