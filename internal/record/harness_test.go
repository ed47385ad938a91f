package record_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/pion/webrtc/v4/pkg/media/oggreader"

	"parley/internal/audio"
	"parley/internal/protocol"
	"parley/internal/record"
)

const device protocol.DeviceID = "a0:85:e3:f4:49:34"

const (
	session = "K3YJPX5D"
	frame   = 60 * time.Millisecond
)

// speech is about 3 s of a synthetic voice, as packets of the given length.
func speech(tb testing.TB, c audio.EncoderConfig, length time.Duration) [][]byte {
	tb.Helper()
	b, err := os.ReadFile("../audio/testdata/fox.wav")
	if err != nil {
		tb.Fatal(err)
	}
	pcm, rate, err := audio.ReadWAV(bytes.NewReader(b), 1<<20)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := audio.NewResampler(rate, c.Rate)
	if err != nil {
		tb.Fatal(err)
	}
	pcm = r.Flush(r.Append(nil, pcm))
	enc, err := audio.NewEncoder(c)
	if err != nil {
		tb.Fatal(err)
	}
	n := int(length * time.Duration(c.Rate) / time.Second)
	var packets [][]byte
	for ; len(pcm) >= n; pcm = pcm[n:] {
		out := make([]byte, audio.MaxPayload)
		size, err := enc.Encode(pcm[:n], out)
		if err != nil {
			tb.Fatal(err)
		}
		packets = append(packets, out[:size])
	}
	return packets
}

func start(tb testing.TB, cfg record.Config, log *slog.Logger) *record.Recorder {
	tb.Helper()
	r, err := record.New(cfg, log)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func open(tb testing.TB, r *record.Recorder, session string) *record.Tap {
	tb.Helper()
	t, err := r.Open(device, session)
	if err != nil {
		tb.Fatal(err)
	}
	return t
}

func stop(tb testing.TB, r *record.Recorder) {
	tb.Helper()
	if err := r.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
}

// files lists what is in a directory.
func files(tb testing.TB, dir string) []string {
	tb.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		tb.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// only is the path of the one file in dir.
func only(tb testing.TB, dir string) string {
	tb.Helper()
	names := files(tb, dir)
	if len(names) != 1 {
		tb.Fatalf("files %v, want one", names)
	}
	return filepath.Join(dir, names[0])
}

// A heard is one packet of a recording, with its place in it.
type heard struct {
	at, length time.Duration
	opus       []byte
}

// A recorded is one track of a file.
type recorded struct {
	title  string
	rate   uint32
	heard  []heard
	closed bool
	behind time.Duration // how far pages are behind those before them
}

func (r *recorded) length() time.Duration {
	if len(r.heard) == 0 {
		return 0
	}
	last := r.heard[len(r.heard)-1]
	return last.at + last.length
}

// places is where the packets of want are, in their order.
func (r *recorded) places(tb testing.TB, want [][]byte) []time.Duration {
	tb.Helper()
	var places []time.Duration
	i := 0
	for _, h := range r.heard {
		if i < len(want) && bytes.Equal(h.opus, want[i]) {
			places = append(places, h.at)
			i++
		}
	}
	if i < len(want) {
		tb.Fatalf("packet %d of %d is not in the recording", i, len(want))
	}
	return places
}

// load reads a recording with an independent reader and checks its form: pages
// with right checksums, each one packet of Opus, positions that advance by
// exactly what the packets hold.
func load(tb testing.TB, path string) (tracks [2]*recorded) {
	tb.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		tb.Fatal(err)
	}
	r, err := oggreader.NewWithOptions(bytes.NewReader(b), oggreader.WithDoChecksum(true))
	if err != nil {
		tb.Fatal(err)
	}
	bySerial := map[uint32]*recorded{}
	var newest time.Duration
	n := 0
	tracks = [2]*recorded{{}, {}}
	for {
		payload, page, err := r.ParseNextPage()
		if errors.Is(err, io.EOF) {
			return tracks
		}
		if err != nil {
			tb.Fatalf("page %d: %v", n, err)
		}
		t := bySerial[page.Serial]
		switch kind, is := page.HeaderType(payload); {
		case is && kind == oggreader.HeaderOpusID:
			head, err := oggreader.ParseOpusHead(payload)
			if err != nil || head.Channels != 1 || head.PreSkip != 312 {
				tb.Fatalf("header %+v, %v", head, err)
			}
			t = &recorded{rate: head.SampleRate}
			bySerial[page.Serial] = t
			tracks[n] = t
		case is:
			tags, err := oggreader.ParseOpusTags(payload)
			if err != nil {
				tb.Fatal(err)
			}
			for _, c := range tags.UserComments {
				t.title = c.Value
			}
		case len(payload) == 0:
			t.closed = true
		default:
			d, err := audio.Duration(payload)
			if err != nil {
				tb.Fatalf("page %d holds %x: %v", n, payload, err)
			}
			h := heard{t.length(), d, bytes.Clone(payload)}
			if got, want := page.GranulePosition, uint64((h.at+d).Microseconds())*48/1000; got != want {
				tb.Fatalf("page %d ends at %d, want %d", n, got, want)
			}
			newest = max(newest, h.at)
			t.behind = max(t.behind, newest-h.at)
			t.heard = append(t.heard, h)
		}
		n++
	}
}

// loudness is the highest sample of a track in a time, decoded.
func loudness(tb testing.TB, t *recorded, from, to time.Duration) int {
	tb.Helper()
	const rate = 48000
	dec, err := audio.NewDecoder(rate)
	if err != nil {
		tb.Fatal(err)
	}
	peak := 0
	pcm := make([]int16, rate*120/1000)
	for _, h := range t.heard {
		n, err := dec.Decode(h.opus, pcm)
		if err != nil || time.Duration(n)*time.Second/rate != h.length {
			tb.Fatalf("%x decodes to %d samples, %v", h.opus, n, err)
		}
		for i, s := range pcm[:n] {
			if at := h.at + time.Duration(i)*time.Second/rate; at >= from && at < to {
				peak = max(peak, int(s), -int(s))
			}
		}
	}
	return peak
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
