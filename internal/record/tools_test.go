package record_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"

	"parley/internal/audio"
	"parley/internal/record"
)

// tool runs a program that people look at sound with and returns what it says.
func tool(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%v; make test installs it", err)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	return string(out), err
}

// What others say about a recording of a session with pauses, silence and lost
// packets: opusinfo, which is strict, and ffmpeg, which plays it.
func TestRecordingInOtherTools(t *testing.T) {
	dir := t.TempDir()
	question := speech(t, audio.MicrophoneEncoding(), frame)
	answer := speech(t, audio.SpeakerEncoding(), frame)
	var length time.Duration
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir}, quiet())
		tap := open(t, r, session)
		began := time.Now()
		for i, p := range question {
			time.Sleep(frame)
			switch {
			case i%17 == 3: // lost
			case i%5 == 4:
				tap.Up(uint32(i+1), []byte{11 << 3}) // silence
			default:
				tap.Up(uint32(i+1), p)
			}
		}
		time.Sleep(3 * time.Second)
		for _, p := range answer {
			tap.Down(p)
			time.Sleep(frame)
		}
		length = time.Since(began)
		tap.Close()
		stop(t, r)
	})
	file := only(t, dir)

	out, err := tool(t, "opusinfo", file)
	if err != nil {
		t.Fatalf("opusinfo: %v\n%s", err, out)
	}
	for _, fault := range []string{"WARNING", "ERROR", "Warning", "Error", "Illegal", "hole"} {
		if strings.Contains(out, fault) {
			t.Errorf("opusinfo finds a fault:\n%s", out)
			break
		}
	}
	tracks := 0
	for line := range strings.Lines(out) {
		var seconds float64
		if n, _ := fmt.Sscanf(strings.TrimSpace(line), "Playback length: 0m:%fs", &seconds); n == 1 {
			tracks++
			if d := time.Duration(seconds*float64(time.Second)) - length; d.Abs() > 10*time.Millisecond { // a pre-skip of 6.5 ms
				t.Errorf("opusinfo says %v s, want %v", seconds, length)
			}
		}
	}
	if tracks != 2 {
		t.Errorf("opusinfo finds %d tracks, want 2:\n%s", tracks, out)
	}

	for track := range 2 {
		wav := filepath.Join(t.TempDir(), "track.wav")
		out, err := tool(t, "ffmpeg", "-v", "warning", "-i", file, "-map", fmt.Sprintf("0:%d", track), "-ar", "16000", "-ac", "1", wav)
		if err != nil || strings.TrimSpace(out) != "" {
			t.Fatalf("ffmpeg, track %d: %v\n%s", track, err, out)
		}
		b, err := os.ReadFile(wav)
		if err != nil {
			t.Fatal(err)
		}
		pcm, rate, err := audio.ReadWAV(bytes.NewReader(b), 8<<20)
		if err != nil {
			t.Fatal(err)
		}
		got := time.Duration(len(pcm)) * time.Second / time.Duration(rate)
		if d := got - length; d.Abs() > 10*time.Millisecond {
			t.Errorf("ffmpeg plays %v of track %d, want %v", got, track, length)
		}
		loudest := int16(0)
		for _, v := range pcm {
			loudest = max(loudest, v)
		}
		if loudest < 3000 {
			t.Errorf("track %d is at most %d loud: no speech", track, loudest)
		}
	}
}

// Wireshark takes the mirror for RTP with Opus.
func TestMirrorInWireshark(t *testing.T) {
	deviceConn, _, mirror := listeners(t)
	question := speech(t, audio.MicrophoneEncoding(), frame)[:20]
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: t.TempDir(), Mirror: mirror, MirrorOnly: true}, quiet())
		tap := open(t, r, session)
		for i, p := range question {
			tap.Up(uint32(i+1), p)
			time.Sleep(frame)
		}
		stop(t, r)
	})
	packets := received(t, deviceConn, len(question))
	port := deviceConn.LocalAddr().(*net.UDPAddr).Port
	file := filepath.Join(t.TempDir(), "mirror.pcap")
	if err := os.WriteFile(file, capture(t, packets, port), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := tool(t, "tshark", "-n", "-r", file,
		"-d", fmt.Sprintf("udp.port==%d,rtp", port), "-o", "opus.dynamic.payload.type:111",
		"-T", "fields", "-E", "separator=,", "-e", "rtp.ssrc", "-e", "rtp.seq", "-e", "rtp.timestamp", "-e", "frame.protocols", "-e", "opus.TOC.config", "-e", "_ws.malformed")
	if err != nil {
		t.Fatalf("tshark: %v\n%s", err, out)
	}
	var lines []string
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "0x") { // tshark warns about running as root
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != len(packets) {
		t.Fatalf("tshark reads %d packets of %d:\n%s", len(lines), len(packets), out)
	}
	for i, line := range lines {
		p := packets[i]
		want := fmt.Sprintf("0x%08x,%d,%d,raw:ip:udp:rtp:opus,", p.SSRC, p.SequenceNumber, p.Timestamp)
		if !strings.HasPrefix(line, want) || !strings.HasSuffix(line, ",") {
			t.Errorf("packet %d: tshark says %q, want %q…", i, line, want)
		}
	}
}

// capture is a pcap file with the packets as UDP datagrams over IPv4.
func capture(t *testing.T, packets []rtp.Packet, port int) []byte {
	t.Helper()
	const rawIP = 101 // the link type of packets that begin with IP
	le, be := binary.LittleEndian, binary.BigEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint16(le.AppendUint16(b, 2), 4)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(le.AppendUint32(b, 65535), rawIP)
	for i, p := range packets {
		body, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		udp := be.AppendUint16(be.AppendUint16(nil, 40000), uint16(port))
		udp = append(be.AppendUint16(udp, uint16(8+len(body))), 0, 0) // no checksum
		udp = append(udp, body...)
		ip := be.AppendUint16([]byte{0x45, 0}, uint16(20+len(udp)))
		ip = append(ip, 0, 0, 0, 0, 64, 17, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1)
		ip = append(ip, udp...)
		at := time.Duration(i) * frame
		b = le.AppendUint32(b, uint32(at/time.Second))
		b = le.AppendUint32(b, uint32(at%time.Second/time.Microsecond))
		b = le.AppendUint32(le.AppendUint32(b, uint32(len(ip))), uint32(len(ip)))
		b = append(b, ip...)
	}
	return b
}
