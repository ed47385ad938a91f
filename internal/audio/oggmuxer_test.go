package audio_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/pion/webrtc/v4/pkg/media/oggreader"

	"parley/internal/audio"
)

// Two tracks lie side by side: both headers first, each with its rate and
// title, then the packets in the order they were written, each counted in its
// own track.
func TestOggMuxer(t *testing.T) {
	var file bytes.Buffer
	m, err := audio.NewOggMuxer(&file, audio.OggTrack{Rate: 16000, Title: "left"}, audio.OggTrack{Rate: 24000})
	if err != nil {
		t.Fatal(err)
	}
	packets := [][]byte{{11 << 3, 1}, {31 << 3, 2}, {31 << 3, 3}, {11 << 3, 4}} // 60, 20, 20 and 60 ms
	for i, track := range []int{0, 1, 1, 0} {
		if err := m.WritePacket(track, packets[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(m.WritePacket(0, packets[0]), m.Close()); err != nil {
		t.Fatal(err)
	}

	r, err := oggreader.NewWithOptions(&file, oggreader.WithDoChecksum(true))
	if err != nil {
		t.Fatal(err)
	}
	const none = 1<<64 - 1
	var serials []uint32
	for i, want := range []struct {
		track    int
		position uint64
		head     string
		data     []byte
	}{
		{0, 0, "OpusHead", nil}, {1, 0, "OpusHead", nil}, {0, 0, "OpusTags", nil}, {1, 0, "OpusTags", nil},
		{0, 2880, "", packets[0]}, {1, 960, "", packets[1]}, {1, 1920, "", packets[2]}, {0, 5760, "", packets[3]},
		{0, 8640, "", packets[0]}, {0, none, "", nil}, {1, none, "", nil},
	} {
		data, page, err := r.ParseNextPage()
		if err != nil {
			t.Fatal(err)
		}
		if len(serials) < 2 {
			serials = append(serials, page.Serial)
			if rate := binary.LittleEndian.Uint32(data[12:]); rate != []uint32{16000, 24000}[i] || data[10] != 312&0xff || data[11] != 312>>8 {
				t.Errorf("header %d: %x", i, data)
			}
		}
		ok := bytes.Equal(data, want.data)
		if want.head != "" {
			ok = bytes.HasPrefix(data, []byte(want.head)) && bytes.Contains(data, []byte("TITLE=left")) == (i == 2)
		}
		if !ok || page.Serial != serials[want.track] || page.GranulePosition != want.position {
			t.Errorf("page %d at %d of %x holds %q, want %+v", i, page.GranulePosition, page.Serial, data, want)
		}
	}
	if _, _, err := r.ParseNextPage(); err != io.EOF {
		t.Errorf("after the last page: %v", err)
	}
	if serials[0] == serials[1] {
		t.Error("both tracks have one serial number")
	}
}

func TestOggMuxerRefuses(t *testing.T) {
	if _, err := audio.NewOggMuxer(io.Discard); err == nil {
		t.Error("a file without tracks is accepted")
	}
	if _, err := audio.NewOggMuxer(io.Discard, audio.OggTrack{Rate: 16000}, audio.OggTrack{}); err == nil {
		t.Error("0 Hz accepted")
	}
}
