package home_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"parley/internal/home"
	"parley/internal/protocol"
)

const deviceID = protocol.DeviceID("a0:85:e3:f4:49:34")

// A stubHouse records what Home Assistant asks of devices.
type stubHouse struct {
	mu    sync.Mutex
	calls []string
	block chan struct{} // if set, Say waits for it or its context
}

func (s *stubHouse) Say(ctx context.Context, id protocol.DeviceID, text string) error {
	s.mu.Lock()
	s.calls = append(s.calls, fmt.Sprint(id, " say ", text))
	block := s.block
	s.mu.Unlock()
	if block != nil {
		select {
		case <-block:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *stubHouse) SetVolume(_ context.Context, id protocol.DeviceID, percent int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprint(id, " volume ", percent))
	if percent == 43 {
		return errors.New("the device said no")
	}
	return nil
}

// silence has Say wait for its context.
func (s *stubHouse) silence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.block = make(chan struct{})
}

func (s *stubHouse) taken() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// TestAnnouncedDevice reads the announcement as Home Assistant does: every key is
// one of its abbreviations or stands for itself, and what its documentation calls
// required is there.
func TestAnnouncedDevice(t *testing.T) {
	cfg := home.Config{Announce: true, LastWords: true, House: &stubHouse{}, Version: "1.2.3", Discover: true}
	inHouse(t, cfg, newBus(), func(h *house) {
		h.Announce(home.Device{ID: deviceID, Name: "Kitchen_Voice", Board: "bread-compact-wifi", Firmware: "2.2.1", Area: "Kitchen", HasVolume: true})
		h.Volume(deviceID, 70)
		synctest.Wait()
		published := map[string]string{}
		for _, s := range h.taken() {
			published[s.topic] = s.payload
			if !s.retain {
				t.Errorf("%s is not retained", s.topic)
			}
		}
		const topic = "homeassistant/device/parley_a085e3f44934/config"
		var config struct {
			Dev struct {
				IDs              []string `json:"ids"`
				Name, Mf, Mdl    string
				Sw, Sa           string
				Cns              [][2]string
				ConfigurationURL *string `json:"cu"`
			}
			O    struct{ Name, Sw string }
			Cmps map[string]map[string]any
		}
		d := json.NewDecoder(strings.NewReader(published[topic]))
		d.DisallowUnknownFields()
		if err := d.Decode(&config); err != nil {
			t.Fatalf("%s: %v", published[topic], err)
		}
		if dev := config.Dev; dev.Name != "Kitchen Voice" || dev.Mdl != "bread-compact-wifi" || dev.Sw != "2.2.1" || dev.Sa != "Kitchen" ||
			len(dev.IDs) != 1 || !slices.Equal(dev.Cns, [][2]string{{"mac", string(deviceID)}}) || config.O.Name != "Parley" || config.O.Sw != "1.2.3" {
			t.Errorf("device %+v of %+v", dev, config.O)
		}
		known := strings.Fields("p name dev_cla ent_cat stat_t cmd_t pl_on pl_off avty avty_mode uniq_id ops ic min max step unit_of_meas")
		required := map[string][]string{
			"binary_sensor": {"stat_t"}, "sensor": {"stat_t"}, "number": {"cmd_t"}, "notify": {"cmd_t"},
		}
		ids := map[string]bool{}
		for name, c := range config.Cmps {
			platform, _ := c["p"].(string)
			for _, key := range append(required[platform], "uniq_id", "avty", "name") {
				if c[key] == nil {
					t.Errorf("%s, a %s, has no %s", name, platform, key)
				}
			}
			if required[platform] == nil {
				t.Errorf("%s is a %q", name, platform)
			}
			for key := range c {
				if !slices.Contains(known, key) {
					t.Errorf("%s has the key %s", name, key)
				}
			}
			ids[c["uniq_id"].(string)] = true
		}
		if len(ids) != 6 || len(config.Cmps) != 6 {
			t.Errorf("components %v", config.Cmps)
		}
		delete(published, topic)
		want := map[string]string{"parley/a0_85_e3_f4_49_34/online": "online", "parley/a0_85_e3_f4_49_34/state": "idle", "parley/a0_85_e3_f4_49_34/volume": "70"}
		for topic, payload := range want {
			if published[topic] != payload {
				t.Errorf("%s is %q, want %q", topic, published[topic], payload)
			}
		}
		if len(published) != len(want) {
			t.Errorf("published %v", published)
		}
		// Our own announcements are no tools.
		if tools := h.source.Tools(); len(tools) != 0 {
			t.Errorf("offered %v", tools)
		}
	})
}

func TestStatesAreNotPublishedMoreThanNeeded(t *testing.T) {
	cfg := home.Config{Announce: true, House: &stubHouse{}}
	inHouse(t, cfg, newBus(), func(h *house) {
		const state = "parley/a0_85_e3_f4_49_34/state"
		h.Announce(home.Device{ID: deviceID})
		synctest.Wait()
		h.taken()
		began := time.Now()
		var at []time.Duration
		var got []string
		cancel, _ := h.Subscribe(state, func(m home.Message) {
			if !m.Retained {
				at, got = append(at, time.Since(began)), append(got, string(m.Payload))
			}
		})
		defer cancel()
		for range 10 { // quick changes
			for _, s := range []home.State{home.Listening, home.Thinking, home.Speaking, home.Idle} {
				h.State(deviceID, s)
				time.Sleep(35 * time.Millisecond)
			}
		}
		h.State(deviceID, home.Speaking)
		time.Sleep(time.Second)
		synctest.Wait()
		synctest.Wait()
		if len(got) < 5 || len(got) > 9 || got[len(got)-1] != "speaking" {
			t.Errorf("published %q", got)
		}
		for i := 1; i < len(at); i++ {
			if at[i]-at[i-1] < 200*time.Millisecond {
				t.Errorf("published at %v", at)
				break
			}
		}
		h.taken()
		h.State(deviceID, home.Speaking) // as it was
		h.Announce(home.Device{ID: deviceID})
		h.LastWords(deviceID, "open the safe", "no") // not asked for
		h.State("ff:ff:ff:ff:ff:ff", home.Idle)      // never announced
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.taken(); len(got) != 0 {
			t.Errorf("published %+v", got)
		}
		h.Offline(deviceID)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.taken(); !slices.Equal(got, []sent{{"parley/a0_85_e3_f4_49_34/online", "offline", true}, {state, "idle", true}}) {
			t.Errorf("gone: %+v", got)
		}
	})
}

func TestLastWords(t *testing.T) {
	cfg := home.Config{Announce: true, LastWords: true, House: &stubHouse{}, Base: "voice"}
	inHouse(t, cfg, newBus(), func(h *house) {
		h.Announce(home.Device{ID: deviceID})
		synctest.Wait()
		h.taken()
		h.LastWords(deviceID, "what\ntime  is it", strings.Repeat("é", 300))
		time.Sleep(time.Second)
		synctest.Wait()
		want := []sent{{"voice/a0_85_e3_f4_49_34/answered", strings.Repeat("é", 249) + "…", true}, {"voice/a0_85_e3_f4_49_34/heard", "what time is it", true}}
		if got := h.taken(); !slices.Equal(got, want) {
			t.Errorf("published %+v", got)
		}
	})
}

func TestHomeAssistantRestarts(t *testing.T) {
	cfg := home.Config{Announce: true, House: &stubHouse{}}
	b := newBus()
	inHouse(t, cfg, b, func(h *house) {
		for i := range 3 {
			h.Announce(home.Device{ID: protocol.DeviceID(fmt.Sprintf("a0:85:e3:f4:49:%02x", i))})
		}
		synctest.Wait()
		h.taken()
		h.send("homeassistant/status", "offline", false)
		h.send("homeassistant/status", "online", false)
		time.Sleep(time.Second)
		synctest.Wait()
		var topics []string
		for _, s := range h.taken() {
			topics = append(topics, s.topic)
		}
		want := []string{"homeassistant/device/parley_a085e3f44900/config", "homeassistant/device/parley_a085e3f44901/config", "homeassistant/device/parley_a085e3f44902/config"}
		if !slices.Equal(topics, want) {
			t.Errorf("published again: %q", topics)
		}
	})
	if got := b.retained["parley/status"]; got != "offline" {
		t.Errorf("after the end the status is %q", got)
	}
}

func TestCommandsToDevices(t *testing.T) {
	stub := &stubHouse{}
	cfg := home.Config{Announce: true, House: stub}
	inHouse(t, cfg, newBus(), func(h *house) {
		h.Announce(home.Device{ID: deviceID, HasVolume: true})
		synctest.Wait()
		h.replay("parley/a0_85_e3_f4_49_34/say", "an old command")
		for _, m := range [][2]string{
			{"a0_85_e3_f4_49_34/say", " Dinner is ready. "}, {"a0_85_e3_f4_49_34/volume/set", "42.6"},
			{"a0_85_e3_f4_49_34/say", ""}, {"a0_85_e3_f4_49_34/say", strings.Repeat("x", 5000)}, {"a0_85_e3_f4_49_34/volume/set", "101"},
			{"a0_85_e3_f4_49_34/volume/set", "NaN"}, {"a0_85_e3_f4_49_35/say", "to a stranger"}, {"nobody/say", "x"}, {"x/volume/set", "5"},
		} {
			h.send("parley/"+m[0], m[1], false)
		}
		synctest.Wait()
		want := []string{string(deviceID) + " say Dinner is ready.", string(deviceID) + " volume 43"}
		if got := stub.taken(); !slices.Equal(got, want) {
			t.Errorf("carried out %q", got)
		}
		// A volume is shown once the device has it, and not if it refused.
		const volume = "parley/a0_85_e3_f4_49_34/volume"
		time.Sleep(time.Second)
		synctest.Wait()
		if got, told := h.retained[volume]; told {
			t.Errorf("a volume that was refused is shown as %s", got)
		}
		h.send(volume+"/set", "20", false)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := h.retained[volume]; got != "20" {
			t.Errorf("the volume is shown as %q", got)
		}
		stub.taken()
		// A device that does not answer holds up only itself, and not for ever.
		stub.silence()
		for i := range 30 {
			h.send("parley/a0_85_e3_f4_49_34/say", fmt.Sprint(i), false)
			synctest.Wait()
		}
		if c := h.Counters(); c.Overrun.Load() != 30-17 || c.Commands.Load() != 33 {
			t.Errorf("dropped %d of %d", c.Overrun.Load(), c.Commands.Load())
		}
		time.Sleep(20 * time.Minute)
		if got := stub.taken(); len(got) != 17 || got[16] != string(deviceID)+" say 16" {
			t.Errorf("carried out %q", got)
		}
	})
}

// TestEndWithCommandsUnderWay: Run returns at once although a device is silent.
func TestEndWithCommandsUnderWay(t *testing.T) {
	stub := &stubHouse{}
	inHouse(t, home.Config{Announce: true, House: stub}, newBus(), func(h *house) {
		stub.silence()
		h.Announce(home.Device{ID: deviceID})
		synctest.Wait()
		for range 10 {
			h.send("parley/a0_85_e3_f4_49_34/say", "x", false)
		}
		synctest.Wait()
		began := time.Now()
		h.t.Cleanup(func() {
			if took := time.Since(began); took != 0 {
				t.Errorf("took %v", took)
			}
		})
	})
}
