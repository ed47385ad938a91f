package home_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"parley/internal/home"
	"parley/mcp"
)

// TestConfirmation: a command waits for the state that shows it, and says so.
func TestConfirmation(t *testing.T) {
	b := newBus()
	b.load(t, "zigbee2mqtt.txt", "wled.txt")
	inHouse(t, discover, b, func(h *house) {
		began := time.Now()
		r := h.call("home_turn_on", `{"name":"kitchen lamp"}`)
		if took := time.Since(began); r.Confirmed || took != 2*time.Second || r.Text != "The kitchen lamp: the command was sent." {
			t.Errorf("a silent lamp: %+v after %v", r, took)
		}
		h.answer("zigbee2mqtt/kitchen_lamp/set", "zigbee2mqtt/kitchen_lamp", `{"state":"ON","brightness":102}`)
		began = time.Now()
		r = h.call("home_turn_on", `{"name":"kitchen lamp","brightness":40}`)
		if took := time.Since(began); !r.Confirmed || took != 0 || r.Text != "The kitchen lamp is on." {
			t.Errorf("a lamp that answers: %+v after %v", r, took)
		}
		// It answers that it is on when it is told to go off.
		if r = h.call("home_turn_off", `{"name":"kitchen lamp"}`); r.Confirmed {
			t.Errorf("a lamp that stays on: %+v", r)
		}
		// It has told that it is optimistic: nothing comes.
		began = time.Now()
		r = h.call("home_toggle", `{"name":"garden lights"}`)
		first := h.taken()
		h.call("home_toggle", `{"name":"garden lights"}`)
		second := h.taken()
		if time.Since(began) != 0 || r.Confirmed || first[len(first)-1].payload != "ON" || second[0].payload != "OFF" {
			t.Errorf("toggled twice: %+v, %+v after %v", first, second, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(h.t.Context(), 500*time.Millisecond)
		defer cancel()
		began = time.Now()
		if _, err := h.source.Call(ctx, "home_turn_off", []byte(`{"name":"kettle"}`)); err != nil || time.Since(began) != 500*time.Millisecond {
			t.Errorf("cancelled: %v after %v", err, time.Since(began))
		}
		c := h.Counters()
		if c.Calls.Load() != 6 || c.Confirmed.Load() != 1 || c.Sent.Load() != 5 {
			t.Errorf("calls %d, confirmed %d, sent %d", c.Calls.Load(), c.Confirmed.Load(), c.Sent.Load())
		}
	})
}

func rooms(h *house) {
	for _, l := range [][3]string{
		{"1", "Ceiling", "Living Room"}, {"2", "Floor Lamp", "Living Room"}, {"3", "Ceiling", "Kitchen"},
		{"4", "Desk", "Study"}, {"5", "TV", "Living Room"},
	} {
		kind := "light"
		if l[1] == "TV" {
			kind = "switch"
		}
		h.tell("homeassistant/"+kind+"/"+l[0]+"/config", `{"name":"`+l[1]+`","uniq_id":"u`+l[0]+`","cmd_t":"l/`+l[0]+`","opt":true,"dev":{"ids":"`+l[0]+`","sa":"`+l[2]+`"}}`)
	}
	h.tell("homeassistant/sensor/t/config", `{"dev_cla":"temperature","stat_t":"t","unit_of_meas":"°C","dev":{"ids":"t","name":"Hygro 7","sa":"Living Room"}}`)
	h.tell("t", "21.0")
}

func TestNamesAsPeopleSayThem(t *testing.T) {
	inHouse(t, discover, newBus(), func(h *house) {
		rooms(h)
		want := []string{"desk", "floor lamp", "kitchen ceiling", "living room ceiling", "living room lights", "TV"}
		slices.Sort(want)
		if got := h.names("home_turn_on"); !slices.Equal(got, want) {
			t.Errorf("offered %q", got)
		}
		for name, topics := range map[string]string{
			"the living room lights": "l/1 l/2", "Living Room": "l/1 l/2", "living room": "l/1 l/2", "all the lights in the living room": "l/1 l/2",
			"all lights": "l/1 l/2 l/3 l/4", "every light": "l/1 l/2 l/3 l/4",
			"kitchen light": "l/3", "the kitchen": "l/3", "kitchen lamps": "l/3", "kitchen ceiling": "l/3", "kitchen ceiling light": "l/3",
			"floor lamp": "l/2", "floorlamp": "l/2", "the Floor Lamp!": "l/2", "living room floor lamp": "l/2", "floor": "l/2",
			"desk": "l/4", "desk light": "l/4", "study lamp": "l/4", "tv": "l/5", "the TV": "l/5", "living_room_tv": "l/5", "living room TV": "l/5",
		} {
			h.call("home_turn_off", `{"name":"`+name+`"}`)
			var got []string
			for _, s := range h.taken() {
				got = append(got, s.topic)
			}
			slices.Sort(got)
			if strings.Join(got, " ") != topics {
				t.Errorf("%q switched %q, want %s", name, got, topics)
			}
		}
		if r := h.call("home_turn_off", `{"name":"living room lights"}`); r.Text != "The 2 lights: the command was sent." {
			t.Errorf("a room: %+v", r)
		}
		h.taken()
		for name, part := range map[string]string{
			"ceiling":     `may be several: kitchen ceiling, living room ceiling`,
			"bath light":  `nearest names are: `,
			"kitchen fan": `kitchen ceiling`,
			"":            "Say the name",
			"the":         "no \"the\"",
		} {
			if got := h.refused("home_turn_off", `{"name":"`+name+`"}`); !strings.Contains(got, part) {
				t.Errorf("%q: %s", name, got)
			}
		}
		if got := h.call("home_read", `{"name":"the living room temperature"}`); got.Text != "The hygro 7 temperature is 21 degrees Celsius." || got.Value != 21.0 || got.Unit != "°C" || got.Seen == "" {
			t.Errorf("the temperature of a room: %+v", got)
		}
		if got := h.taken(); len(got) != 0 {
			t.Errorf("refused, and published %+v", got)
		}
		list := h.call("home_list", `{"room":"the living room"}`)
		if list.Text != "I know of 2 lights, 1 sensor, 1 switch." {
			t.Errorf("listed %+v", list)
		}
	})
}

func TestWhatCannotBeDone(t *testing.T) {
	b := newBus()
	b.load(t, "zigbee2mqtt.txt", "tasmota.txt", "esphome.txt")
	inHouse(t, discover, b, func(h *house) {
		h.tell("homeassistant/cover/c/config", `{"name":"Awning","cmd_t":"awning","pl_stop":null,"opt":true}`)
		h.tell("homeassistant/light/plain/config", `{"name":"Plain","cmd_t":"plain"}`)
		for _, c := range []struct{ tool, args, part string }{
			{"home_turn_on", `{"name":"plain","brightness":50}`, "cannot be dimmed"},
			{"home_turn_on", `{"name":"plain","color":"red"}`, "no colours"},
			{"home_turn_on", `{"name":"kitchen light","color_temperature":3000}`, "no colour temperature"},
			{"home_turn_on", `{"name":"kettle","brightness":50}`, "is no light"},
			{"home_turn_on", `{"name":"kitchen lamp","brightness":140}`, "0 to 100"},
			{"home_turn_on", `{"name":"kitchen lamp","color":"octarine"}`, "no colour that is known"},
			{"home_turn_on", `{"name":"kitchen lamp","color_temperature":5}`, "kelvin"},
			{"home_set_cover", `{"name":"awning","position":30}`, "only be opened and closed"},
			{"home_set_cover", `{"name":"awning","action":"stop"}`, "cannot stop"},
			{"home_set_cover", `{"name":"bedroom blind"}`, "open, close or stop"},
			{"home_set_cover", `{"name":"garage door","action":"open"}`, "There is no"},
			{"home_set_climate", `{"name":"bathroom heating","temperature":80}`, "5 to 35"},
			{"home_set_climate", `{"name":"bathroom heating","mode":"arctic"}`, "heat, auto, off"},
			{"home_set_climate", `{"name":"bathroom heating"}`, "temperature or a mode"},
			{"home_set_fan", `{"name":"ceiling fan"}`, "percent"},
			{"home_read", `{"name":"study shutter"}`, "not reported anything"},
		} {
			if got := h.refused(c.tool, c.args); !strings.Contains(got, c.part) {
				t.Errorf("%s %s: %s", c.tool, c.args, got)
			}
		}
		for _, args := range []string{`[]`, `{`, `{"name":5}`, `{"name":"` + strings.Repeat("x", 17<<10) + `"}`} {
			if _, err := h.source.Call(h.t.Context(), "home_read", []byte(args)); !errors.Is(err, mcp.ErrArguments) {
				t.Errorf("arguments %.20s: %v", args, err)
			}
		}
		for _, tool := range []string{"home_arm", "nothing", ""} {
			if _, err := h.source.Call(h.t.Context(), tool, nil); !errors.Is(err, mcp.ErrUnknownTool) {
				t.Errorf("tool %q: %v", tool, err)
			}
		}
		if got := h.taken(); len(got) != 0 {
			t.Errorf("published %+v", got)
		}
	})
}

func TestLocksAndAlarms(t *testing.T) {
	guarded := home.GuardedTools()
	inHouse(t, discover, newBus(), func(h *house) {
		h.tell("homeassistant/lock/a/config", `{"name":"Shed","cmd_t":"shed","code_format":"^\\d{4}$"}`)
		h.tell("homeassistant/lock/b/config", `{"name":"Door","cmd_t":"door","cmd_tpl":"{ \"do\": \"{{ value }}\" }","ret":true,"opt":true}`)
		h.tell("homeassistant/alarm_control_panel/a/config", `{"name":"House Alarm","cmd_t":"alarm","stat_t":"alarm/state","code":"1234","cod_arm_req":false,"sup_feat":["arm_home","arm_away"],"pl_arm_away":"AWAY"}`)
		h.tell("homeassistant/alarm_control_panel/b/config", `{"name":"Office Alarm","cmd_t":"office","code":"REMOTE_CODE","cmd_tpl":"{{ action }}:{{ code }}","opt":true}`)
		for _, c := range []struct {
			tool, args string
			want       sent
		}{
			{"home_lock", `{"name":"door"}`, sent{"door", `{ "do": "LOCK" }`, true}},
			{"home_unlock", `{"name":"door"}`, sent{"door", `{ "do": "UNLOCK" }`, true}},
			{"home_arm", `{"name":"house alarm"}`, sent{"alarm", "AWAY", false}},
			{"home_arm", `{"name":"house","mode":"home"}`, sent{"alarm", "ARM_HOME", false}},
			{"home_disarm", `{"name":"house alarm","code":1234}`, sent{"alarm", "DISARM", false}},
			{"home_disarm", `{"name":"office","code":"99"}`, sent{"office", "DISARM:99", false}},
		} {
			h.call(c.tool, c.args)
			if got := h.taken(); !slices.Equal(got, []sent{c.want}) {
				t.Errorf("%s %s published %+v, want %+v", c.tool, c.args, got, c.want)
			}
		}
		for _, c := range []struct{ tool, args, part string }{
			{"home_unlock", `{"name":"shed"}`, "code"},
			{"home_disarm", `{"name":"house alarm"}`, "asks for its code"},
			{"home_disarm", `{"name":"house alarm","code":"1235"}`, "not the code"},
			{"home_arm", `{"name":"house alarm","mode":"night"}`, "cannot be armed"},
			{"home_arm", `{"name":"house alarm","mode":"x"}`, "home, away"},
			{"home_arm", `{"name":"office alarm"}`, "asks for its code"},
		} {
			if got := h.refused(c.tool, c.args); !strings.Contains(got, c.part) || len(h.taken()) != 0 {
				t.Errorf("%s %s: %s", c.tool, c.args, got)
			}
		}
		// Everything that opens the house is guarded, and nothing else.
		for _, tool := range h.source.Tools() {
			if want := tool.Name != "home_read" && tool.Name != "home_list"; slices.Contains(guarded, tool.Name) != want {
				t.Errorf("%s: guarded is not %v", tool.Name, want)
			}
		}
	})
}

func TestReadings(t *testing.T) {
	inHouse(t, discover, newBus(), func(h *house) {
		for i, c := range []struct{ kind, config, payload, text string }{
			{"sensor", `"name":"CO2","unit_of_meas":"ppm"`, "612", "The CO2 is 612 parts per million."},
			{"sensor", `"name":"Power","unit_of_meas":"W"`, "1", "The power is 1 watt."},
			{"sensor", `"name":"Energy","unit_of_meas":"kWh","sug_dsp_prc":0`, "1234.56", "The energy is 1235 kilowatt hours."},
			{"sensor", `"name":"My Mood"`, "splendid", "My mood is splendid."},
			{"sensor", `"name":"Air","unit_of_meas":"µg/m³"`, "3.14159", "The air is 3.14 micrograms per cubic metre."},
			{"sensor", `"name":"Outside","unit_of_meas":"°F"`, "-4", "The outside is -4 degrees Fahrenheit."},
			{"sensor", `"name":"Thing","unit_of_meas":"blips"`, "5", "The thing is 5 blips."},
			{"binary_sensor", `"name":"Window","dev_cla":"window"`, "OFF", "The window is closed."},
			{"binary_sensor", `"name":"Floor","dev_cla":"moisture","pl_on":1,"pl_off":0`, "1", "The floor is wet."},
			{"number", `"name":"Limit","cmd_t":"x","min":0,"max":50`, "20", "The limit is 20."},
			{"select", `"name":"Program","cmd_t":"x","ops":["Eco mode","Fast"]`, "Eco mode", "The program is Eco mode."},
			{"light", `"name":"Spot","cmd_t":"x","schema":"template","state_template":"{{ value.split(',')[0] }}","bri_tpl":"{{ value.split(',')[1] }}","cmd_on_tpl":"on","cmd_off_tpl":"off"`, "on,51", "The spot is on at 20 percent."},
		} {
			topic := "r" + string(rune('a'+i))
			h.tell("homeassistant/"+c.kind+"/"+topic+"/config", `{`+c.config+`,"stat_t":"`+topic+`"}`)
			h.tell(topic, c.payload)
			name := strings.ToLower(strings.Split(strings.Split(c.config, `"name":"`)[1], `"`)[0])
			if got := h.call("home_read", `{"name":"`+name+`"}`).Text; got != c.text {
				t.Errorf("%s: %q, want %q", name, got, c.text)
			}
		}
		h.call("home_set_value", `{"name":"program","value":"eco mode"}`)
		h.call("home_set_value", `{"name":"limit","value":12.5}`)
		if got := h.taken(); !slices.Equal(got, []sent{{"x", "Eco mode", false}, {"x", "12.5", false}}) {
			t.Errorf("published %+v", got)
		}
		h.refused("home_set_value", `{"name":"limit","value":"51"}`)
		h.refused("home_set_value", `{"name":"program","value":"Slow"}`)
		time.Sleep(2 * time.Hour)
		if got := h.call("home_read", `{"name":"co2"}`).Text; got != "The CO2 is 612 parts per million, as of 2 hours ago." {
			t.Errorf("an old reading: %q", got)
		}
		h.tell("homeassistant/sensor/e/config", `{"name":"Fresh","stat_t":"e","exp_aft":60}`)
		h.tell("e", "7")
		h.call("home_read", `{"name":"fresh"}`)
		time.Sleep(61 * time.Second)
		h.refused("home_read", `{"name":"fresh"}`)
		h.tell("e", "None")
		h.refused("home_read", `{"name":"fresh"}`)
	})
}

// TestPartialReports: Tasmota tells of one thing at a time on one topic.
func TestPartialReports(t *testing.T) {
	b := newBus()
	b.load(t, "tasmota.txt")
	inHouse(t, discover, b, func(h *house) {
		h.tell("stat/coffee/RESULT", `{"POWER":"ON"}`)
		h.tell("stat/coffee/RESULT", `{"Dimmer":7}`)
		h.tell("stat/coffee/RESULT", `not JSON`)
		if got := h.call("home_read", `{"name":"coffee machine"}`).Text; got != "The coffee machine is on." {
			t.Errorf("read as %q", got)
		}
	})
}
