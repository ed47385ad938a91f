package audio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrOgg is wrapped by every error about bytes that are not an Ogg Opus stream.
var ErrOgg = errors.New("not an Ogg Opus stream")

const (
	oggHeaderBytes = 27
	// oggMaxPacket is the length of the longest packet kept, in bytes. An Opus
	// packet has at most 61,298 (48 frames of 1,275 and their lengths).
	// Comment headers may be longer, with a picture in them, and are skipped.
	oggMaxPacket = 1 << 16

	oggContinued = 1 // the page begins with the rest of a packet
	oggFirst     = 2 // the page begins a logical stream
)

// An OggReader takes the Opus packets out of an Ogg stream as it arrives
// (RFC 3533, RFC 7845). Streams that follow one another are read as one, as
// services send them that answer sentence by sentence; other streams in between
// are skipped. It is not safe for concurrent use.
//
// It does not drop the pre-skip of the first packets nor trim the last one:
// what a packet is worth is for the decoder to say, and neither is audible in
// speech.
type OggReader struct {
	r        io.Reader
	crc      *[256]uint32
	serial   uint32
	channels int
	headers  int // packets of this stream still to come before audio
	page     []byte
	segments []byte // of the page, not yet read
	body     []byte // of the page, not yet read
	packet   []byte // what has been read of the current packet
	skipping bool   // the current packet is not kept
}

// NewOggReader reads up to the identification header and returns a reader of
// the packets. The error wraps [ErrOgg] if r does not hold Opus in Ogg with one
// or two channels, and the error of r if that failed.
func NewOggReader(r io.Reader) (*OggReader, error) {
	o := &OggReader{r: r, crc: oggTable()}
	for o.channels == 0 {
		switch err := o.nextPage(); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil, fmt.Errorf("%w: it ends before an Opus stream begins", ErrOgg)
		case err != nil:
			return nil, err
		}
	}
	return o, nil
}

// Channels is 1 or 2.
func (o *OggReader) Channels() int { return o.channels }

// Next returns the next packet, valid until the next call, or io.EOF at the end
// of the stream. A stream cut off within a page ends with io.ErrUnexpectedEOF.
// Packets are as they were sent: [Inspect] says whether one is Opus. The error
// wraps [ErrOgg] if the stream is damaged.
func (o *OggReader) Next() ([]byte, error) {
	for {
		for len(o.segments) > 0 {
			n := int(o.segments[0])
			o.segments = o.segments[1:]
			if err := o.take(n); err != nil {
				return nil, err
			}
			if n == 255 {
				continue // the packet goes on
			}
			packet, skipped := o.packet, o.skipping
			o.packet, o.skipping = o.packet[:0], false
			switch {
			case o.headers > 0:
				o.headers--
			case !skipped && len(packet) > 0:
				return packet, nil
			}
		}
		if err := o.nextPage(); err != nil {
			return nil, err
		}
	}
}

// take adds the next n bytes of the page to the packet.
func (o *OggReader) take(n int) error {
	part := o.body[:n]
	o.body = o.body[n:]
	if o.skipping || o.headers > 0 {
		return nil
	}
	if len(o.packet)+n > oggMaxPacket {
		return fmt.Errorf("%w: a packet of more than %d bytes", ErrOgg, oggMaxPacket)
	}
	o.packet = append(o.packet, part...)
	return nil
}

// nextPage reads the next page of an Opus stream.
func (o *OggReader) nextPage() error {
	for {
		if err := o.readPage(); err != nil {
			return err
		}
		flags := o.page[5]
		serial := binary.LittleEndian.Uint32(o.page[14:])
		if flags&oggFirst != 0 && o.begin(serial) {
			return nil
		}
		if o.channels == 0 || serial != o.serial {
			continue // another stream's
		}
		o.resume(flags&oggContinued != 0)
		return nil
	}
}

// begin looks at the first page of a logical stream and, if it is an Opus
// stream, turns to it.
func (o *OggReader) begin(serial uint32) bool {
	head := o.body
	if len(head) < 19 || string(head[:8]) != "OpusHead" || head[8]&0xf0 != 0 {
		return false
	}
	if channels := int(head[9]); channels == 1 || channels == 2 {
		o.serial, o.channels = serial, channels
		o.segments, o.body = nil, nil // OpusHead is alone on its page
		o.packet, o.skipping = o.packet[:0], false
		o.headers = 1 // OpusTags
		return true
	}
	return false
}

// resume joins the packet begun on the page before with the one this page
// begins with. Where a page is missing, what is left of its packet is dropped.
func (o *OggReader) resume(continued bool) {
	begun := len(o.packet) > 0 || o.skipping
	switch {
	case continued && !begun && o.headers == 0:
		o.skipping = true
	case !continued && begun:
		o.packet, o.skipping = o.packet[:0], false
	}
}

// readPage reads one page and checks it. It returns io.EOF only between pages.
func (o *OggReader) readPage() error {
	o.page = append(o.page[:0], make([]byte, oggHeaderBytes)...)
	if _, err := io.ReadFull(o.r, o.page); err != nil {
		return err
	}
	if string(o.page[:4]) != "OggS" || o.page[4] != 0 {
		return fmt.Errorf("%w: a page begins with %q, want OggS and version 0", ErrOgg, o.page[:5])
	}
	count := int(o.page[26])
	if err := o.extend(count); err != nil {
		return err
	}
	size := 0
	for _, s := range o.page[oggHeaderBytes:] {
		size += int(s)
	}
	if err := o.extend(size); err != nil {
		return err
	}
	want := binary.LittleEndian.Uint32(o.page[22:])
	binary.LittleEndian.PutUint32(o.page[22:], 0)
	if got := oggChecksum(o.crc, o.page); got != want {
		return fmt.Errorf("%w: a page's checksum is %08x, want %08x", ErrOgg, got, want)
	}
	o.segments = o.page[oggHeaderBytes : oggHeaderBytes+count]
	o.body = o.page[oggHeaderBytes+count:]
	return nil
}

// extend reads n more bytes of the page.
func (o *OggReader) extend(n int) error {
	have := len(o.page)
	o.page = append(o.page, make([]byte, n)...)
	_, err := io.ReadFull(o.r, o.page[have:])
	if err == io.EOF && n > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}
