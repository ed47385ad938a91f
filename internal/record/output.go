package record

import (
	"bufio"
	"errors"
	"os"
	"time"

	"parley/internal/audio"
)

// bufferBytes is how much of a recording waits in memory, 4 s at the most usual
// rates; it is written out every flushEvery.
const bufferBytes = 16 << 10

// An errFull ends a recording because there is no room left for any.
var errFull = errors.New("recordings take all the room they may")

// An output is where a tap's timeline goes: a file, the mirror, or both. Only
// the tap's goroutine uses it.
type output struct {
	tap    *Tap
	stream *stream // on the mirror, or nil

	file    *os.File // nil before the first packet and when the recording has ended
	buffer  *bufio.Writer
	ogg     *audio.OggMuxer
	size    int64            // bytes of the file, written or in buffer
	over    bool             // the file is not to be written, or no more
	ends    [2]time.Duration // of the tracks in the file
	flushed time.Duration    // when, on the timeline's clock
}

func newOutput(t *Tap) *output {
	o := &output{tap: t, over: t.recorder.cfg.MirrorOnly}
	m := t.recorder.mirror
	if m == nil {
		return o
	}
	s, err := m.open(t.recorder.store, t.name, t.device, t.session)
	switch {
	case errors.Is(err, errNoPorts):
		t.recorder.stats.unmirrored.Add(1)
		t.log.Warn("session not mirrored", "error", err)
	case err != nil:
		t.log.Warn("session not mirrored", "error", err)
	default:
		o.stream = s
		t.log.Info("mirroring", "sdp", s.path)
	}
	return o
}

// write is the timeline's sink.
func (o *output) write(p placed) {
	if o.stream != nil && !p.filling {
		o.stream.send(p)
	}
	if o.over {
		return
	}
	if p.at+p.length > o.tap.recorder.cfg.MaxDuration {
		o.cut("max_duration")
		return
	}
	if o.file == nil && !o.begin() {
		return
	}
	if err := o.ogg.WritePacket(int(p.direction), p.opus); err != nil {
		o.fail(err)
		return
	}
	o.ends[p.direction] = p.at + p.length
}

// begin makes the file.
func (o *output) begin() bool {
	t := o.tap
	file, err := t.recorder.store.create(t.name + recording)
	if err != nil {
		o.fail(err)
		return false
	}
	o.file = file
	o.buffer = bufio.NewWriterSize(counted{o}, bufferBytes)
	o.ogg, err = audio.NewOggMuxer(o.buffer,
		audio.OggTrack{Rate: audio.MicrophoneRate, Title: "device"},
		audio.OggTrack{Rate: audio.SpeakerRate, Title: "parley"})
	if err != nil {
		o.fail(err)
		return false
	}
	t.recorder.stats.files.Add(1)
	t.log.Info("recording", "file", file.Name())
	return true
}

// counted writes to an output's file what is within the store's limit.
type counted struct{ *output }

func (c counted) Write(b []byte) (int, error) {
	r := c.tap.recorder
	if !r.store.grow(len(b)) {
		return 0, errFull
	}
	n, err := c.file.Write(b)
	r.store.shrink(len(b) - n)
	c.size += int64(n)
	r.stats.bytes.Add(uint64(n))
	return n, err
}

// clean reports that flush has nothing to do.
func (o *output) clean() bool { return o.over || o.file == nil || o.buffer.Buffered() == 0 }

// flush writes out what has waited long enough.
func (o *output) flush(now time.Duration) {
	if o.clean() || now-o.flushed < flushEvery {
		return
	}
	o.flushed = now
	if err := o.buffer.Flush(); err != nil {
		o.fail(err)
	}
}

// close completes the file and leaves the mirror.
func (o *output) close() {
	if !o.over && o.file != nil {
		o.complete()
	}
	if o.stream != nil {
		o.stream.close()
	}
}

// cut ends the recording before the session ends.
func (o *output) cut(limit string) {
	o.tap.recorder.stats.cut.Add(1)
	o.tap.log.Warn("recording ended early", "limit", limit)
	if o.file != nil {
		o.complete()
	}
	o.over = true
}

// complete ends both tracks and closes the file.
func (o *output) complete() {
	if err := errors.Join(o.ogg.Close(), o.buffer.Flush()); err != nil {
		o.fail(err)
		return
	}
	o.release()
	o.tap.log.Info("recorded", "file", o.file.Name(), "duration", max(o.ends[up], o.ends[down]).Round(time.Millisecond),
		"bytes", o.size, "packets_dropped", o.tap.dropped.Load())
}

// fail ends the recording because of an error. What was written stays: it plays
// up to where it ends.
func (o *output) fail(err error) {
	if o.over {
		return
	}
	if errors.Is(err, errFull) {
		o.tap.recorder.stats.cut.Add(1)
		o.tap.log.Warn("recording ended early", "limit", "max_total")
	} else {
		o.tap.recorder.stats.failed.Add(1)
		o.tap.log.Error("recording failed", "error", err)
	}
	if o.file != nil {
		o.release()
	}
	o.over = true
}

// release closes the file and hands it to the store.
func (o *output) release() {
	o.over = true
	if err := o.file.Close(); err != nil {
		o.tap.log.Warn("recording not closed", "error", err)
	}
	o.tap.recorder.store.finish(o.tap.name+recording, o.size)
}
