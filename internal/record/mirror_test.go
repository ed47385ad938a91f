package record_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pion/rtp"

	"parley/internal/audio"
	"parley/internal/record"
)

// listeners opens the sockets a player would, at a free even port of 127.0.0.1
// and the next even one.
func listeners(t *testing.T) (device, parley *net.UDPConn, mirror string) {
	t.Helper()
	for range 100 {
		first, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		at := first.LocalAddr().(*net.UDPAddr).AddrPort()
		if at.Port()%2 == 0 && at.Port() < 65000 {
			second, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.Addr(), at.Port()+2)))
			if err == nil {
				t.Cleanup(func() { first.Close(); second.Close() })
				return first, second, at.String()
			}
		}
		first.Close()
	}
	t.Fatal("no two free ports")
	return nil, nil, ""
}

// received reads n RTP packets that have arrived, and makes sure that there is
// not one more.
func received(t *testing.T, c *net.UDPConn, n int) []rtp.Packet {
	t.Helper()
	packets := make([]rtp.Packet, n)
	buf := make([]byte, 2000)
	for i := range packets {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		size, err := c.Read(buf)
		if err != nil {
			t.Fatalf("after %d packets of %d: %v", i, n, err)
		}
		if err := packets[i].Unmarshal(bytes.Clone(buf[:size])); err != nil {
			t.Fatal(err)
		}
	}
	// Loopback delivers before the send returns.
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(buf); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("more than %d packets", n)
	}
	return packets
}

func TestMirrorIsRTP(t *testing.T) {
	deviceConn, parleyConn, mirror := listeners(t)
	dir := t.TempDir()
	question := speech(t, audio.MicrophoneEncoding(), frame)[:20]
	answer := speech(t, audio.SpeakerEncoding(), frame)[:20]
	var sdp []byte
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir, Mirror: mirror, MirrorOnly: true}, quiet())
		tap := open(t, r, session)
		time.Sleep(time.Second)
		for i, p := range question {
			time.Sleep(frame)
			if i == 10 {
				time.Sleep(2 * time.Second) // a pause
			}
			if i == 15 {
				continue // lost
			}
			tap.Up(uint32(i+1), p)
		}
		for _, p := range answer {
			tap.Down(p)
			time.Sleep(frame)
		}
		time.Sleep(time.Second)
		var err error
		if sdp, err = os.ReadFile(only(t, dir)); err != nil {
			t.Fatal(err)
		}
		stop(t, r)
		if left := files(t, dir); len(left) != 0 {
			t.Errorf("files %v are left", left)
		}
	})

	lost := append(append([][]byte(nil), question[:15]...), question[16:]...)
	fromDevice, fromParley := received(t, deviceConn, len(lost)), received(t, parleyConn, len(answer))
	checkStream(t, fromDevice, lost, func(i int) time.Duration {
		at := time.Duration(i) * frame
		if i >= 10 {
			at += 2 * time.Second
		}
		if i >= 15 {
			at += frame
		}
		return at
	}, map[int]bool{0: true, 10: true, 15: true})
	checkStream(t, fromParley, answer, func(i int) time.Duration { return time.Duration(i) * frame }, map[int]bool{0: true})
	if fromDevice[0].SSRC == fromParley[0].SSRC {
		t.Error("both directions have one SSRC")
	}
	port := deviceConn.LocalAddr().(*net.UDPAddr).Port
	for _, want := range []string{
		"v=0\r\n", "c=IN IP4 127.0.0.1\r\n",
		fmt.Sprintf("m=audio %d RTP/AVP 111\r\ni=device\r\na=rtpmap:111 opus/48000/2\r\n", port),
		fmt.Sprintf("m=audio %d RTP/AVP 111\r\ni=parley\r\na=rtpmap:111 opus/48000/2\r\n", port+2),
		fmt.Sprintf("a=ssrc:%d ", fromDevice[0].SSRC), fmt.Sprintf("a=ssrc:%d ", fromParley[0].SSRC),
	} {
		if !strings.Contains(string(sdp), want) {
			t.Errorf("the SDP lacks %q:\n%s", want, sdp)
		}
	}
}

// checkStream checks one direction: what came is what was sent, numbered
// without gaps, and at the time it has in the session.
func checkStream(t *testing.T, got []rtp.Packet, want [][]byte, at func(i int) time.Duration, spurts map[int]bool) {
	t.Helper()
	for i, p := range got {
		if p.Version != 2 || p.PayloadType != 111 || p.SSRC != got[0].SSRC || p.Padding || p.Extension || len(p.CSRC) > 0 {
			t.Fatalf("packet %d: header %+v", i, p.Header)
		}
		if !bytes.Equal(p.Payload, want[i]) {
			t.Fatalf("packet %d holds %x, want %x", i, p.Payload, want[i])
		}
		if p.SequenceNumber != got[0].SequenceNumber+uint16(i) {
			t.Errorf("packet %d has number %d after %d", i, p.SequenceNumber, got[0].SequenceNumber)
		}
		if d, want := p.Timestamp-got[0].Timestamp, uint32(at(i).Milliseconds()*48); d != want {
			t.Errorf("packet %d is at %d, want %d", i, d, want)
		}
		if p.Marker != spurts[i] {
			t.Errorf("packet %d: marker %t", i, p.Marker)
		}
	}
}

func TestMirrorAddress(t *testing.T) {
	for _, bad := range []string{"192.168.1.5:5004", "0.0.0.0:5004", "[::]:5004", "localhost:5004", "127.0.0.1", "127.0.0.1:5005", "127.0.0.1:0", "127.0.0.1:65500", "8.8.8.8:5004", "[fe80::1%lo]:5004"} {
		if r, err := record.New(record.Config{Dir: t.TempDir(), Mirror: bad}, quiet()); !errors.Is(err, record.ErrMirror) {
			t.Errorf("%s: %v, %v", bad, r, err)
		}
	}
	for _, good := range []string{"127.0.0.1:5004", "127.3.2.1:5004", "[::ffff:127.0.0.1]:5004"} {
		stop(t, start(t, record.Config{Dir: t.TempDir(), Mirror: good}, quiet()))
	}
}

// Each session has its own ports, and gives them back.
func TestMirrorPorts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, record.Config{Dir: dir, Mirror: "127.0.0.1:20000"}, quiet())
		var taps []*record.Tap
		for i := range record.MirrorSessions + 1 {
			tap := open(t, r, fmt.Sprintf("S%02d", i))
			tap.Up(1, []byte{11 << 3})
			taps = append(taps, tap)
		}
		synctest.Wait()
		described, err := filepath.Glob(filepath.Join(dir, "*.sdp"))
		if err != nil || len(described) != record.MirrorSessions {
			t.Fatalf("%d SDP files, %v", len(described), err)
		}
		ports := map[string]bool{}
		for _, name := range described {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if strings.HasPrefix(line, "m=") {
					ports[strings.Fields(line)[1]] = true
				}
			}
		}
		if len(ports) != 2*record.MirrorSessions {
			t.Errorf("%d ports for %d sessions", len(ports), record.MirrorSessions)
		}
		if s := r.Stats(); s.Unmirrored != 1 || s.Open != len(taps) {
			t.Errorf("%+v, want one session without ports", s)
		}
		for _, tap := range taps {
			tap.Close()
		}
		synctest.Wait()
		open(t, r, "again")
		synctest.Wait()
		if described, _ := filepath.Glob(filepath.Join(dir, "*.sdp")); len(described) != 1 {
			t.Errorf("SDP files %v, want that of the new session", described)
		}
		stop(t, r)
	})
}
