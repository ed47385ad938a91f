package session_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/device"
	"parley/internal/protocol"
	"parley/internal/simnet"
	"parley/pipeline"
)

// A network is one row of the matrix: how the packets of a device travel.
type network struct {
	name   string
	line   line
	rebind bool // the NAT gives the device another port in mid-sentence
}

// networks are the profiles every client must be heard through.
func networks() []network {
	both := func(p simnet.Path) line { return line{p, p, p, p} }
	udp := func(p simnet.Path) line {
		return line{mqttUp: simnet.Path{Delay: p.Delay}, mqttDown: simnet.Path{Delay: p.Delay}, udpUp: p, udpDown: p}
	}
	slow := simnet.Path{Delay: 500 * ms}
	return []network{
		{name: "LAN", line: both(simnet.Path{Delay: ms})},
		{name: "Wi-Fi, 50 ms jitter", line: both(simnet.Path{Delay: 5 * ms, Jitter: 50 * ms})},
		{name: "4G, 300 ms, reordering", line: udp(simnet.Path{Delay: 300 * ms, Reorder: 0.02, ReorderBy: 80 * ms})},
		{name: "5 % loss", line: udp(simnet.Path{Delay: 20 * ms, Loss: 0.05})},
		{name: "10 % loss", line: udp(simnet.Path{Delay: 20 * ms, Loss: 0.10})},
		{name: "MQTT 500 ms slower", line: line{mqttUp: slow, mqttDown: slow}},
		{name: "UDP 500 ms slower", line: line{udpUp: slow, udpDown: slow}},
		{name: "NAT rebinding", line: both(simnet.Path{Delay: 20 * ms}), rebind: true},
	}
}

// A cell is what a listener met in one corner of the matrix.
type cell struct {
	clipped, received, played int64
	underruns                 int64         // gaps within sentences
	gap                       time.Duration // their sum
	stopEarly, stopLate       int           // answers whose tts stop came before their last frame was heard, or over 300 ms after it would have been
}

// TestMatrix has every client converse in every mode through every network.
// With PARLEY_MATRIX=FILE it also writes its table, for docs/performance.md.
func TestMatrix(t *testing.T) {
	modes := []protocol.Mode{protocol.ModeAuto, protocol.ModeManual, protocol.ModeRealtime}
	table := "| client | mode |"
	for _, n := range networks() {
		table += " " + n.name + " |"
	}
	table += "\n|---|---|" + strings.Repeat("---|", len(networks())) + "\n"
	for _, p := range device.Profiles() {
		for _, m := range modes {
			table += fmt.Sprintf("| %v | %s |", p, m)
			for _, n := range networks() {
				t.Run(fmt.Sprint(p, "/", m, "/", n.name), func(t *testing.T) {
					virtual(t, func(t *testing.T) {
						c := runCell(t, p, m, n)
						if c.clipped != 0 || c.stopEarly != 0 || c.stopLate != 0 {
							t.Errorf("clipped %d of %d frames; stop early %d times, late %d", c.clipped, c.received, c.stopEarly, c.stopLate)
						}
						t.Logf("underrun %d, %v; share %.3f", c.underruns, c.gap, share(c))
						table += fmt.Sprintf(" %d / %d / %d / %.0f %% |", c.clipped, c.stopEarly, c.stopLate, 100*share(c))
					})
				})
			}
			table += "\n"
		}
	}
	t.Logf("clipped / stop early / stop late / share heard\n%s", table)
	if file := os.Getenv("PARLEY_MATRIX"); file != "" {
		if err := os.WriteFile(file, []byte(table), 0o600); err != nil {
			t.Error(err)
		}
	}
}

// share is how much of what was said to the device it played.
func share(c cell) float64 {
	return float64(c.played) / float64(matrixTurns*matrixFrames)
}

const (
	matrixTurns  = 3
	matrixFrames = int64(len(answer) - 1) // a packet for every letter, none for the space between the sentences
)

func runCell(t *testing.T, p device.Profile, m protocol.Mode, n network) cell {
	h := newHouse(t, nil)
	var conns []*simnet.UDPConn
	d := h.device(1, n.line, func(o *device.Options) {
		o.Profile, o.Mode = p, m
		if p == device.FW24 {
			o.MQTT.Username = protocol.Enrolment{Agent: "board/2.4.2"}.Username()
		}
		h.watchUDP(o, &conns)
	})
	var c cell
	for turn := range matrixTurns {
		if n.rebind && turn == 1 {
			go func() {
				time.Sleep(2500 * ms)
				conns[len(conns)-1].Rebind()
			}()
		}
		a, err := h.ask(d)
		if err != nil {
			t.Fatalf("turn %d: %v (sentences %q, alerts %q)", turn+1, err, a.Sentences, a.Alerts)
		}
		if !a.Silent.IsZero() && a.ReplyStop.Before(a.Silent) {
			c.stopEarly++
		}
		// The network may have lost the last frames, so late is what comes long
		// after the last one would have been heard.
		turns := h.turns()
		tr := turns[len(turns)-1]
		last := tr.FirstPacket.Add(time.Duration(tr.Packets)*pipeline.PacketDuration + n.line.udpDown.Delay)
		if tr.PlayoutEnd.Add(n.line.mqttDown.Delay).Sub(last) > 300*ms {
			c.stopLate++
		}
	}
	time.Sleep(2 * time.Second)
	synctest.Wait()
	r := d.Report()
	c.clipped, c.received, c.played = r.Clipped(), r.Received, r.Played
	c.underruns, c.gap = r.Underruns, r.UnderrunTime
	return c
}
