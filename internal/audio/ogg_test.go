package audio_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"testing/iotest"

	"github.com/pion/webrtc/v4/pkg/media/oggreader"

	"parley/internal/audio"
)

// oggFile writes packets as an Ogg file.
func oggFile(tb testing.TB, rate int, packets [][]byte) []byte {
	tb.Helper()
	var file bytes.Buffer
	w, err := audio.NewOggWriter(&file, rate)
	if err != nil {
		tb.Fatal(err)
	}
	for _, p := range packets {
		if err := w.WritePacket(p); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return file.Bytes()
}

// readOgg reads every packet.
func readOgg(r io.Reader) (packets [][]byte, err error) {
	o, err := audio.NewOggReader(r)
	if err != nil {
		return nil, err
	}
	for {
		p, err := o.Next()
		if err == io.EOF {
			return packets, nil
		}
		if err != nil {
			return packets, err
		}
		packets = append(packets, bytes.Clone(p))
	}
}

func samePackets(t *testing.T, want, got [][]byte) {
	t.Helper()
	if len(want) != len(got) {
		t.Fatalf("%d packets, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(want[i], got[i]) {
			t.Fatalf("packet %d is %x, want %x", i, got[i], want[i])
		}
	}
}

// What is written is right in an independent reader's eyes: pages in order with
// good checksums, the right header, and positions that count the samples.
func TestOggWriter(t *testing.T) {
	packets := encode(t, audio.MicrophoneEncoding(), speechAt(t, 16000), 960)
	packets = append(packets, encode(t, audio.SpeakerEncoding(), speechAt(t, 24000), 480)...) // and 20 ms
	file := oggFile(t, 16000, packets)

	r, header, err := oggreader.NewWith(bytes.NewReader(file)) // checks checksums
	if err != nil {
		t.Fatal(err)
	}
	if header.Channels != 1 || header.SampleRate != 16000 || header.PreSkip != 312 || header.OutputGain != 0 {
		t.Errorf("header %+v", header)
	}
	if _, page, err := r.ParseNextPage(); err != nil || page.GranulePosition != 0 {
		t.Fatalf("comment page %+v, %v", page, err)
	}
	samples := uint64(0)
	for i, want := range packets {
		got, page, err := r.ParseNextPage()
		if err != nil {
			t.Fatal(err)
		}
		d, err := audio.Duration(want)
		if err != nil {
			t.Fatal(err)
		}
		samples += uint64(d.Microseconds()) * 48 / 1000
		if !bytes.Equal(got, want) || page.GranulePosition != samples {
			t.Fatalf("page %d at %d holds %x, want %x at %d", i, page.GranulePosition, got, want, samples)
		}
	}
	if payload, page, err := r.ParseNextPage(); err != nil || len(payload) != 0 || page.GranulePosition != math.MaxUint64 {
		t.Errorf("last page holds %x: %+v, %v", payload, page, err)
	}
	if _, _, err := r.ParseNextPage(); err != io.EOF {
		t.Errorf("after the last page: %v", err)
	}
	// The flag that ends the stream is in the last page's header.
	if last := file[bytes.LastIndex(file, []byte("OggS")):]; last[5]&4 == 0 {
		t.Error("the last page does not end the stream")
	}
}

func TestOggWriterRefuses(t *testing.T) {
	var file bytes.Buffer
	w, err := audio.NewOggWriter(&file, 16000)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range [][]byte{nil, {3, 0}} {
		if err := w.WritePacket(p); !errors.Is(err, audio.ErrPacket) {
			t.Errorf("%x: %v, want ErrPacket", p, err)
		}
	}
	if _, err := audio.NewOggWriter(&file, 0); err == nil {
		t.Error("0 Hz accepted")
	}
	full := errors.New("the disk is full")
	w, err = audio.NewOggWriter(failing{full}, 16000)
	if err == nil {
		err = w.WritePacket([]byte{9 << 3, 1})
	}
	if !errors.Is(err, full) {
		t.Errorf("got %v, want the writer's error", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// The writer is not the owner of what it writes to.
func TestOggWriterDoesNotCloseItsOutput(t *testing.T) {
	r, pipe := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, r)
		done <- err
	}()
	w, err := audio.NewOggWriter(pipe, 16000)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.WritePacket([]byte{9 << 3, 1}), w.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := pipe.Write([]byte("still open")); err != nil {
		t.Error(err)
	}
	pipe.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An oggMuxer makes pages by hand, as other programs lay them out.
type oggMuxer struct {
	bytes.Buffer
	serial, page uint32
}

// write adds a page of segments, given by their lengths, and their data.
func (m *oggMuxer) write(flags byte, segments, data []byte) {
	b := join([]byte("OggS"), 0, int(flags), make([]byte, 8))
	b = binary.LittleEndian.AppendUint32(b, m.serial)
	b = binary.LittleEndian.AppendUint32(b, m.page)
	b = join(b, make([]byte, 4), len(segments), segments, data)
	var crc uint32
	for _, x := range b {
		crc ^= uint32(x) << 24
		for range 8 {
			carry := crc >> 31
			crc = crc<<1 ^ carry*0x04c11db7
		}
	}
	binary.LittleEndian.PutUint32(b[22:], crc)
	m.page++
	m.Write(b)
}

// head begins a stream.
func (m *oggMuxer) head(serial uint32, channels int) {
	m.serial, m.page = serial, 0
	m.write(2, []byte{19}, join([]byte("OpusHead"), 1, channels, u16(312), u32(24000), u16(0), 0))
	m.write(0, []byte{12}, []byte("OpusTags....")) // its content is nobody's business
}

func bytesOf(x byte, n int) []byte { return bytes.Repeat([]byte{x}, n) }

func TestOggReaderReadsItsWriter(t *testing.T) {
	packets := encode(t, audio.SpeakerEncoding(), speechAt(t, 24000), audio.SpeakerFrame)
	file := oggFile(t, 24000, packets)
	for _, r := range []io.Reader{bytes.NewReader(file), iotest.OneByteReader(bytes.NewReader(file))} {
		got, err := readOgg(r)
		if err != nil {
			t.Fatal(err)
		}
		samePackets(t, packets, got)
	}
}

func TestOggReaderJoinsAndParts(t *testing.T) {
	a, b, c := bytesOf('a', 100), bytesOf('b', 255), bytesOf('c', 700)
	var m oggMuxer
	m.head(7, 2)
	// Two packets on a page, the second of which takes a zero length to end,
	// and the beginning of a third that ends on the next but one.
	m.write(0, []byte{100, 255, 0, 255}, join(a, b, c[:255]))
	m.write(1, []byte{255}, c[255:510])
	m.write(1, []byte{190, 0, 100}, join(c[510:], a)) // an empty packet in between
	o, err := audio.NewOggReader(bytes.NewReader(m.Bytes()))
	if err != nil || o.Channels() != 2 {
		t.Fatal(o, err)
	}
	got, err := readOgg(bytes.NewReader(m.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	samePackets(t, [][]byte{a, b, c, a}, got)
}

// Comments may be long, and hold a picture.
func TestOggReaderSkipsLongComments(t *testing.T) {
	var m oggMuxer
	m.serial = 7
	m.write(2, []byte{19}, join([]byte("OpusHead"), 1, 1, u16(312), u32(24000), u16(0), 0))
	flags := byte(0)
	for range 3 {
		m.write(flags, bytesOf(255, 255), make([]byte, 255*255))
		flags = 1
	}
	m.write(1, []byte{9, 2}, []byte("the end..ok"))
	got, err := readOgg(bytes.NewReader(m.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	samePackets(t, [][]byte{[]byte("ok")}, got)
}

// A service that answers sentence by sentence sends a file for each.
func TestOggReaderReadsChainedStreams(t *testing.T) {
	var m oggMuxer
	m.head(1, 1)
	m.write(0, []byte{3, 255}, join([]byte("one"), bytesOf('x', 255))) // and the rest is missing
	m.head(2, 1)
	m.write(4, []byte{3}, []byte("two"))
	m.head(1, 1)
	m.write(4, []byte{5}, []byte("three"))
	got, err := readOgg(bytes.NewReader(m.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	samePackets(t, [][]byte{[]byte("one"), []byte("two"), []byte("three")}, got)
}

func TestOggReaderSkipsOtherStreams(t *testing.T) {
	var m oggMuxer
	m.serial = 99
	m.write(2, []byte{8}, []byte("fishead\x00"))
	m.head(1, 1)
	m.serial = 99
	m.write(0, []byte{4}, []byte("fish"))
	m.serial = 1
	m.write(4, []byte{4}, []byte("opus"))
	got, err := readOgg(bytes.NewReader(m.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	samePackets(t, [][]byte{[]byte("opus")}, got)
}

// Where a page is missing, its packets are, and nothing is made up of halves.
func TestOggReaderDropsHalfPackets(t *testing.T) {
	var m oggMuxer
	m.head(1, 1)
	m.write(1, []byte{4, 3}, []byte("tailone")) // continues what never began
	m.write(0, []byte{3, 255}, join([]byte("two"), bytesOf('x', 255)))
	m.write(0, []byte{5}, []byte("three")) // does not continue what began
	got, err := readOgg(bytes.NewReader(m.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	samePackets(t, [][]byte{[]byte("one"), []byte("two"), []byte("three")}, got)
}

func TestOggReaderRefuses(t *testing.T) {
	var surround, endless oggMuxer
	surround.head(1, 6)
	endless.head(1, 1)
	flags := byte(0)
	for range 2 {
		endless.write(flags, bytesOf(255, 255), make([]byte, 255*255))
		flags = 1
	}
	good := oggFile(t, 24000, [][]byte{bytesOf(9<<3, 50)})
	damaged := bytes.Clone(good)
	damaged[len(damaged)-40] ^= 1 // in the packet's page
	for name, tt := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                  {nil, audio.ErrOgg},
		"MP3":                    {bytesOf(0xff, 100), audio.ErrOgg},
		"cut within the header":  {good[:30], audio.ErrOgg},
		"six channels":           {surround.Bytes(), audio.ErrOgg},
		"a packet without end":   {endless.Bytes(), audio.ErrOgg},
		"a wrong checksum":       {damaged, audio.ErrOgg},
		"garbage after the page": {append(bytes.Clone(good), bytesOf('x', 30)...), audio.ErrOgg},
		"cut within a page":      {good[:len(good)-40], io.ErrUnexpectedEOF},
		"cut in a page's header": {good[:len(good)-10], io.ErrUnexpectedEOF},
	} {
		if _, err := readOgg(bytes.NewReader(tt.file)); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
	broken := errors.New("the connection broke")
	if _, err := readOgg(io.MultiReader(bytes.NewReader(good), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("got %v, want the reader's error", err)
	}
}

func FuzzOggReader(f *testing.F) {
	f.Add(oggFile(f, 24000, [][]byte{{9 << 3, 1, 2}, {9 << 3, 3}}))
	var m oggMuxer
	m.head(7, 2)
	m.write(0, []byte{3, 255, 0, 255}, make([]byte, 513))
	m.write(1, []byte{255, 1}, make([]byte, 256))
	f.Add(m.Bytes())
	f.Fuzz(func(t *testing.T, file []byte) {
		packets, err := readOgg(bytes.NewReader(file))
		if err != nil && !errors.Is(err, audio.ErrOgg) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("error %v is neither ErrOgg nor io.ErrUnexpectedEOF", err)
		}
		total := 0
		for _, p := range packets {
			if len(p) == 0 {
				t.Fatal("an empty packet")
			}
			total += len(p)
		}
		if total > len(file) {
			t.Fatalf("%d bytes make packets of %d", len(file), total)
		}
	})
}
