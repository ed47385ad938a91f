package broker

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// The bus works without a client, and before the broker serves.
func TestBusAlone(t *testing.T) {
	b, err := New(homeConfig(newPipeListener()), quiet{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	bus := b.Home()
	payload := []byte("on")
	if err := bus.Publish("lamp/1", payload, true); err != nil {
		t.Fatal(err)
	}
	payload[1] = 'X' // the caller's again
	var heard []string
	cancel, err := bus.Subscribe("lamp/+", func(m Message) {
		heard = append(heard, fmt.Sprint(m.Topic, " ", string(m.Payload), " ", m.Retained))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"lamp/1", "lamp/2", "lamp/1/x"} {
		if err := bus.Publish(topic, []byte("off"), false); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	cancel()
	if err := bus.Publish("lamp/1", nil, false); err != nil {
		t.Fatal(err)
	}
	if want := []string{"lamp/1 on true", "lamp/1 off false", "lamp/2 off false"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
	for _, topic := range []string{"", "a/#", "+", "a\x00", "\xff", strings.Repeat("x", 1025)} {
		if err := bus.Publish(topic, nil, false); err == nil {
			t.Errorf("published to %q", topic)
		}
	}
	for _, filter := range []string{"", "a#", "#/a", "\xff", "$share/g/a"} {
		if _, err := bus.Subscribe(filter, func(Message) {}); err == nil {
			t.Errorf("subscribed to %q", filter)
		}
	}
	if err := bus.Publish("t", make([]byte, 256<<10), false); !errors.Is(err, ErrTooLarge) {
		t.Errorf("256 KiB and a topic: %v", err)
	}
	if len(b.home.root.next) != 1 {
		t.Errorf("nodes left in the tree: %v", b.home.root.next)
	}
}

// A subscriber may publish to itself, subscribe and cancel from its function.
func TestBusWithinCall(t *testing.T) {
	b, err := New(homeConfig(newPipeListener()), quiet{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	bus := b.Home()
	var heard []string
	var cancel func()
	cancel, err = bus.Subscribe("n", func(m Message) {
		heard = append(heard, string(m.Payload))
		switch n := len(heard); {
		case n < 5:
			if err := bus.Publish("n", fmt.Append(nil, n), true); err != nil {
				t.Error(err)
			}
		case n == 5:
			c, err := bus.Subscribe("n", func(m Message) { heard = append(heard, "inner "+string(m.Payload)) })
			if err != nil {
				t.Error(err)
			}
			c()
			cancel()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := bus.Publish("n", []byte("0"), false); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"0", "1", "2", "3", "4", "inner 4"}; !slices.Equal(heard, want) {
		t.Errorf("heard %q, want %q", heard, want)
	}
}

// Many publish while subscribers come: each hears the retained messages first and
// then all that follows them, one at a time and in order.
func TestBusOrder(t *testing.T) {
	b, err := New(homeConfig(newPipeListener()), quiet{}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	const publishers, rounds, each = 3, 20, 200 // fewer at once than may wait
	bus := b.Home()
	for round := range rounds {
		var all sync.WaitGroup
		for p := range publishers {
			all.Go(func() {
				for n := range each {
					if err := bus.Publish(fmt.Sprint("t/", p), fmt.Append(nil, round*each+n), true); err != nil {
						t.Error(err)
					}
				}
			})
		}
		var heard [3]map[string]int
		var cancels [3]func()
		for i := range heard {
			heard[i] = make(map[string]int)
			all.Go(func() {
				var err error
				if cancels[i], err = bus.Subscribe("t/+", inOrder(t, heard[i])); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for _, cancel := range cancels {
			cancel()
		}
		for _, last := range heard {
			for p := range publishers {
				if got, want := last[fmt.Sprint("t/", p)], (round+1)*each-1; got != want {
					t.Errorf("round %d: heard %d at last, want %d", round, got, want)
				}
			}
		}
	}
}

// inOrder is a subscriber that writes down the last number of each topic.
func inOrder(t *testing.T, last map[string]int) func(Message) {
	var busy sync.Mutex
	return func(m Message) {
		if !busy.TryLock() {
			t.Error("two calls at a time")
			return
		}
		defer busy.Unlock()
		n, err := strconv.Atoi(string(m.Payload))
		if err != nil {
			t.Error(err)
		}
		before, ok := last[m.Topic]
		if last[m.Topic] = n; ok && n != before+1 || ok && m.Retained {
			t.Errorf("%s: %d (retained %v) after %d", m.Topic, n, m.Retained, before)
		}
	}
}

// What the bus publishes goes out with QoS 1, and absent clients get it later.
func TestBusToClients(t *testing.T) {
	inHome(t, HomeLimits{}, func(t *testing.T, b *Embedded, l *pipeListener) {
		zero, one := home(t, l, "zero"), joinHome(t, l.dial(t, "10.0.0.1:1"), kept("one"))
		zero.mustSubscribe("t", 0)
		one.mustSubscribe("t", 2)
		one.leave()
		time.Sleep(time.Minute)
		if err := b.Home().Publish("t", []byte("x"), true); err != nil {
			t.Fatal(err)
		}
		if pk := zero.heard(); pk.FixedHeader.Qos != 0 || pk.FixedHeader.Retain {
			t.Errorf("header %+v, want QoS 0", pk.FixedHeader)
		}
		one = joinHome(t, l.dial(t, "10.0.0.1:1"), kept("one"))
		if pk := one.heard(); pk.FixedHeader.Qos != 1 {
			t.Errorf("header %+v, want QoS 1", pk.FixedHeader)
		}
	})
}
