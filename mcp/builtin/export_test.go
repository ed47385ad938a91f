package builtin

import (
	"log/slog"
	"time"
)

// SetClock gives the tools another wall clock, as if it had been set.
func (t *Tools) SetClock(now func() time.Time) { t.book.now = now }

// SetWrite gives the tools another disk.
func (t *Tools) SetWrite(write func(path string, content []byte) error) { t.store.write = write }

// ReplaceFile is the disk they have.
func ReplaceFile(path string, content []byte) error { return replaceFile(path, content) }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
