package broker

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
)

// Many clients come, go, take each other's place, subscribe and publish, all at
// once. Afterwards nothing is left of them.
func TestHomeStorm(t *testing.T) {
	limits := Limits{ConnectRate: -1, Home: HomeLimits{MessageRate: -1, MaxQueued: 50, MaxInflight: 4}}
	b := start(t, Config{Listen: "127.0.0.1:0", Users: homeUsers(), Limits: limits}, quiet{})
	var clients sync.WaitGroup
	for seed := range uint64(8) {
		clients.Go(func() {
			dice := rand.New(rand.NewPCG(seed, 1))
			for range 30 {
				c := dialTCP(t, b)
				h := asUser("admin", fmt.Sprint("p", dice.IntN(4)))
				h.version, h.unclean = byte(4+dice.IntN(2)), dice.IntN(2) == 0
				if h.version == 5 {
					h.props = seconds(0x11, uint32(dice.IntN(2)*60))
				}
				h.last = &lastWord{topic: fmt.Sprint("t/", dice.IntN(3)), payload: "will", qos: byte(dice.IntN(3)), retain: true}
				data := h.packet()
				for id := range byte(dice.IntN(20)) {
					topic, qos := fmt.Sprint("t/", dice.IntN(3)), byte(dice.IntN(3))
					var props []byte
					if h.version == 5 {
						props = []byte{0}
					}
					switch dice.IntN(4) {
					case 0:
						data = append(data, frame(0x82, append(appendString(append([]byte{0, id + 1}, props...), "t/+"), qos))...)
					case 1:
						data = append(data, frame(0xA2, appendString(append([]byte{0, id + 1}, props...), "t/+"))...)
					case 2:
						data = append(data, frame(firstPublish|byte(dice.IntN(2)), append(append(appendString(nil, topic), props...), 'x'))...)
					case 3:
						data = append(data, ackPacket([]byte{firstPuback, firstPubrec, firstPubrel, firstPubcomp}[dice.IntN(4)], uint16(id+1), 0, false)...)
					}
				}
				p := newPeer(t, c)
				_, _ = c.Write(data) // another may have its place by now
				if dice.IntN(2) == 0 {
					_, _ = c.Write([]byte{firstDisconnect, 0})
					for range p.in { // until the broker closes
					}
				}
				c.Close()
			}
		})
	}
	clients.Wait()
	for i := range 4 { // end the sessions that were kept
		joinHome(t, dialTCP(t, b), asUser("admin", fmt.Sprint("p", i))).leave()
	}
	for i := range 3 {
		if err := b.Home().Publish(fmt.Sprint("t/", i), nil, true); err != nil {
			t.Fatal(err)
		}
	}
	for s := b.Stats().Home; s.Connected > 0 || s.Sessions > 0; s = b.Stats().Home {
		runtime.Gosched() // readers notice on their own goroutines
	}
	b.home.mu.Lock()
	defer b.home.mu.Unlock()
	if h := b.home; len(h.root.next) > 0 || h.filters != 0 || h.retained != 0 || h.bytes != 0 {
		t.Errorf("left: %d nodes, %d subscriptions, %d retained of %d bytes", len(h.root.next), h.filters, h.retained, h.bytes)
	}
}
