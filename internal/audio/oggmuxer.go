package audio

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4/pkg/media/oggwriter"
)

// An OggTrack describes one of the streams of an Ogg file.
type OggTrack struct {
	// Rate, in Hz, is what players are told the audio had before it was
	// encoded; it does not change how they play it.
	Rate int
	// Title is shown by players that let a listener choose a track. It may be
	// empty.
	Title string
}

// An OggMuxer writes several mono Opus streams side by side into one Ogg file
// (RFC 3533 §4: grouped streams), which begin together. It is not safe for
// concurrent use.
type OggMuxer struct {
	w      *oggwriter.Writer
	tracks []*oggTrackWriter
}

// An oggTrackWriter is one stream and its last packet, to number the next.
type oggTrackWriter struct {
	track *oggwriter.Track
	rtp   rtp.Packet
}

// NewOggMuxer returns a writer of the given tracks to w. Nothing is written
// before the first packet, or Close.
func NewOggMuxer(w io.Writer, tracks ...OggTrack) (*OggMuxer, error) {
	if len(tracks) == 0 {
		return nil, errors.New("write Ogg file: it has no tracks")
	}
	ogg, err := oggwriter.NewWriter(&oggPages{w: w}, oggwriter.WithChannelCount(1), oggwriter.WithVendor("parley"))
	if err != nil {
		return nil, fmt.Errorf("write Ogg file: %w", err)
	}
	m := &OggMuxer{w: ogg}
	for i, t := range tracks {
		if t.Rate < MinRate || t.Rate > MaxRate {
			return nil, fmt.Errorf("write Ogg file at %d Hz: rates lie between %d and %d Hz", t.Rate, MinRate, MaxRate)
		}
		options := []oggwriter.TrackOption{oggwriter.WithSampleRate(uint32(t.Rate))}
		if t.Title != "" {
			options = append(options, oggwriter.WithUserComments(oggwriter.UserComment{Comment: "TITLE", Value: t.Title}))
		}
		// The source identifier is only compared with that of the packets.
		track, err := ogg.NewTrack(uint32(i), options...)
		if err != nil {
			return nil, fmt.Errorf("write Ogg file: %w", err)
		}
		w := &oggTrackWriter{track: track}
		w.rtp.Version = 2
		w.rtp.SSRC = uint32(i)
		m.tracks = append(m.tracks, w)
	}
	return m, nil
}

// WritePacket writes one packet as a page of its own, so that a file cut short
// lacks nothing that was written. Tracks count from 0 in the order they were
// given in. The error wraps [ErrPacket] if packet is not an Opus packet, and is
// the underlying writer's otherwise.
func (m *OggMuxer) WritePacket(track int, packet []byte) error {
	duration, err := Duration(packet)
	if err != nil {
		return err
	}
	t := m.tracks[track]
	t.rtp.Payload = packet
	if err := t.track.WriteRTP(&t.rtp); err != nil {
		return fmt.Errorf("write Ogg page: %w", err)
	}
	t.rtp.SequenceNumber++
	t.rtp.Timestamp += uint32(duration * granuleRate / time.Second)
	t.rtp.Payload = nil
	return nil
}

// Close ends every track. It does not close the underlying writer.
func (m *OggMuxer) Close() error {
	if err := m.w.Close(); err != nil {
		return fmt.Errorf("end Ogg file: %w", err)
	}
	return nil
}
