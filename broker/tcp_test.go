package broker

import (
	"strings"
	"sync"
	"testing"

	paho "github.com/eclipse/paho.mqtt.golang"

	"parley/internal/protocol"
)

// Over real TCP a device that does not read is found out when the kernel's
// buffers and then the queue are full.
func TestSlowReaderTCP(t *testing.T) {
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0"}, r)
	c := dialTCP(t, b)
	defer c.Close()
	if _, err := c.Write(hello{clientID: clientID(macA)}.packet()); err != nil {
		t.Fatal(err)
	}
	l := r.next(t, "connect").link
	other := join(t, dialTCP(t, b), hello{clientID: clientID(macB)})
	r.next(t, "connect")
	payload := make([]byte, 60<<10)
	var err error
	for err == nil {
		err = l.Send(payload)
	}
	wantReason(t, err, ErrSlow)
	wantReason(t, r.next(t, "disconnected").reason, ErrSlow)
	other.ping()
}

// A real client understands why it is refused.
func TestRefusalTCP(t *testing.T) {
	b := start(t, Config{Listen: "127.0.0.1:0", Key: testKey}, newRecorder())
	for _, c := range []struct{ id, password, want string }{
		{clientID(macA), "wrong", "bad user name or password"},
		{clientID(macA), "", "not Authorized"},
		{"laptop", "wrong", "identifier rejected"},
	} {
		o := paho.NewClientOptions().AddBroker("tcp://" + b.Addr().String()).SetProtocolVersion(4).
			SetClientID(c.id).SetUsername(protocol.Enrolment{}.Username()).SetPassword(c.password)
		tok := paho.NewClient(o).Connect()
		tok.Wait()
		if err := tok.Error(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with password %q: %v, want %q", c.id, c.password, err, c.want)
		}
	}
}

// Many goroutines send on one link while the device comes and goes.
func TestConcurrentSend(t *testing.T) {
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0", Limits: Limits{ConnectRate: -1}}, r)
	for round := range 20 {
		c := dialTCP(t, b)
		join(t, c, hello{version: byte(4 + round%2), clientID: clientID(macA)})
		l := r.next(t, "connect").link
		var senders sync.WaitGroup
		for range 4 {
			senders.Go(func() {
				for l.Send([]byte("{}")) == nil {
				}
			})
		}
		if round%4 == 0 {
			l.Close("end of the round")
		} else {
			c.Close()
		}
		senders.Wait()
		r.next(t, "disconnected")
	}
}

// However many connections of one device arrive at once, one stays, and its
// handler sees one at a time, each ended before the next begins.
func TestTakeoverStorm(t *testing.T) {
	const connections = 64
	r := newRecorder()
	b := start(t, Config{Listen: "127.0.0.1:0", Limits: Limits{ConnectRate: -1}}, r)
	ended := make(chan struct{}, connections)
	for range connections {
		p := newPeer(t, dialTCP(t, b))
		go func() {
			_, _ = p.conn.Write(hello{clientID: clientID(macA)}.packet())
			for range p.in { // until it ends
			}
			ended <- struct{}{}
		}()
	}
	for range connections - 1 {
		<-ended
	}
	var open *Link
	for open == nil || open.Send([]byte("{}")) != nil { // until the one that stays
		switch e := <-r.events; e.what {
		case "connect":
			if open != nil {
				t.Fatal("a connection began before the previous one had ended")
			}
			open = e.link
		case "disconnected":
			if open != e.link {
				t.Fatal("a connection ended that was not the current one")
			}
			wantReason(t, e.reason, ErrTakenOver)
			open = nil
		}
	}
	s := b.Stats()
	if n := s.TakenOver + s.Refused[RefusedOvertaken]; n != connections-1 || s.Connected != 1 || s.Refused[RefusedBusy] != 0 {
		t.Errorf("stats %+v, want %d overtaken and 1 connected", s, connections-1)
	}
}
