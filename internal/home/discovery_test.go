package home_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"parley/internal/home"
)

var discover = home.Config{Discover: true}

func TestZigbee2MQTT(t *testing.T) {
	b := newBus()
	b.load(t, "zigbee2mqtt.txt")
	inHouse(t, discover, b, func(h *house) {
		for tool, want := range map[string][]string{
			"home_turn_on":        {"ceiling fan", "kettle", "kitchen lamp"},
			"home_turn_off":       {"ceiling fan", "kettle", "kitchen lamp"},
			"home_set_cover":      {"bedroom blind"},
			"home_set_fan":        {"ceiling fan"},
			"home_set_climate":    {"bathroom heating"},
			"home_activate_scene": {"living room movie night"},
			"home_unlock":         {"front door lock"},
			"home_read": {"balcony door", "bathroom heating", "bedroom blind", "ceiling fan", "front door lock", "kettle", "kettle power",
				"kitchen lamp", "living room sensor humidity", "living room sensor temperature"},
			"home_press": nil, "home_set_value": nil, "home_arm": nil, "home_set_gate": nil,
		} {
			if got := h.names(tool); !slices.Equal(got, want) {
				t.Errorf("%s takes %q, want %q", tool, got, want)
			}
		}
		for _, c := range []struct{ tool, args, topic, payload string }{
			{"home_turn_on", `{"name":"the kitchen lamp"}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"ON"}`},
			{"home_turn_on", `{"name":"kitchen lamp","brightness":40}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"ON","brightness":102}`},
			{"home_turn_on", `{"name":"kitchen lamp","color":"red"}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"ON","color":{"x":0.701,"y":0.299}}`},
			{"home_turn_on", `{"name":"kitchen lamp","color_temperature":2700}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"ON","color_temp":370}`},
			{"home_turn_on", `{"name":"kitchen lamp","color":"warm white"}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"ON","color_temp":370}`},
			{"home_turn_on", `{"name":"kitchen lamp","color_temperature":9000}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"ON","color_temp":250}`},
			{"home_turn_off", `{"name":"kitchen_lamp"}`, "zigbee2mqtt/kitchen_lamp/set", `{"state":"OFF"}`},
			{"home_turn_off", `{"name":"Kettle"}`, "zigbee2mqtt/kettle/set", `OFF`},
			{"home_toggle", `{"name":"kettle"}`, "zigbee2mqtt/kettle/set", `OFF`},
			{"home_set_cover", `{"name":"bedroom blinds","action":"close"}`, "zigbee2mqtt/bedroom_blind/set", `CLOSE`},
			{"home_set_cover", `{"name":"bedroom blind","position":30}`, "zigbee2mqtt/bedroom_blind/set", `{ "position": 30 }`},
			{"home_set_cover", `{"name":"bedroom blind","action":"stop"}`, "zigbee2mqtt/bedroom_blind/set", `STOP`},
			{"home_set_fan", `{"name":"ceiling fan","percent":50}`, "zigbee2mqtt/ceiling_fan/set/fan_mode", `medium`},
			{"home_set_fan", `{"name":"ceiling fan","percent":"100"}`, "zigbee2mqtt/ceiling_fan/set/fan_mode", `on`},
			{"home_set_fan", `{"name":"ceiling fan","percent":0}`, "zigbee2mqtt/ceiling_fan/set/fan_state", `OFF`},
			{"home_set_climate", `{"name":"bathroom","temperature":22.5}`, "zigbee2mqtt/bathroom_heating/set/current_heating_setpoint", `22.5`},
			{"home_set_climate", `{"name":"bathroom heating","mode":"Auto"}`, "zigbee2mqtt/bathroom_heating/set/system_mode", `auto`},
			{"home_activate_scene", `{"name":"movie night"}`, "zigbee2mqtt/living_room/set", `{ "scene_recall": 4 }`},
			{"home_lock", `{"name":"front door"}`, "zigbee2mqtt/front_door_lock/set", `LOCK`},
			{"home_unlock", `{"name":"front door"}`, "zigbee2mqtt/front_door_lock/set", `UNLOCK`},
		} {
			h.call(c.tool, c.args)
			if got, want := h.taken(), []sent{{c.topic, c.payload, false}}; !slices.Equal(got, want) {
				t.Errorf("%s %s published %+v, want %+v", c.tool, c.args, got, want)
			}
		}
		for name, want := range map[string]string{
			"living room temperature":            "The living room sensor temperature is 21.5 degrees Celsius.",
			"the living room sensor temperature": "The living room sensor temperature is 21.5 degrees Celsius.",
			"living room humidity":               "The living room sensor humidity is 48.21 percent.",
			"balcony door":                       "The balcony door is open.",
			"bathroom heating":                   "The bathroom heating is at 19.4 degrees Celsius and is set to 21.",
			"bedroom blind":                      "The bedroom blind is open.",
			"front door lock":                    "The front door lock is locked.",
			"kitchen lamp":                       "The kitchen lamp is off.",
			"kettle power":                       "The kettle power is 1980.5 watts.",
			"ceiling fan":                        "The ceiling fan is on at 25 percent.",
		} {
			if got := h.call("home_read", `{"name":"`+name+`"}`).Text; got != want {
				t.Errorf("%q is read as %q, want %q", name, got, want)
			}
		}
	})
}

func TestOtherProducers(t *testing.T) {
	b := newBus()
	b.load(t, "tasmota.txt", "wled.txt", "esphome.txt", "device.txt", "zigbee2mqtt-1.txt")
	inHouse(t, discover, b, func(h *house) {
		for _, c := range []struct {
			tool, args string
			want       []sent
		}{
			// Tasmota's dimmer is what switches on, at the brightness it had.
			{"home_turn_on", `{"name":"kitchen light"}`, []sent{{"cmnd/tasmota_9F74BF/Dimmer", "60", false}}},
			{"home_turn_on", `{"name":"kitchen light","brightness":40}`, []sent{{"cmnd/tasmota_9F74BF/Dimmer", "40", false}}},
			{"home_turn_on", `{"name":"kitchen light","brightness":0}`, []sent{{"cmnd/tasmota_9F74BF/POWER", "OFF", false}}},
			{"home_turn_on", `{"name":"kitchen light","color":"blue","brightness":"10%"}`, []sent{
				{"cmnd/tasmota_9F74BF/Color2", "0,0,255", false}, {"cmnd/tasmota_9F74BF/Dimmer", "10", false}}},
			{"home_turn_off", `{"name":"kitchen light"}`, []sent{{"cmnd/tasmota_9F74BF/POWER", "OFF", false}}},
			{"home_turn_on", `{"name":"the coffee machine"}`, []sent{{"cmnd/coffee/POWER", "ON", false}}},
			{"home_set_cover", `{"name":"study shutter","position":"25"}`, []sent{{"cmnd/study/ShutterPosition1", "25", false}}},
			{"home_set_cover", `{"name":"study","action":"open"}`, []sent{{"cmnd/study/Backlog", "ShutterOpen1", false}}},
			{"home_turn_on", `{"name":"garden lights","color":"#ff8000"}`, []sent{
				{"gardenlights/84f3eb23b31c/col", "#ff8000", false}, {"gardenlights/84f3eb23b31c", "ON", false}}},
			{"home_turn_on", `{"name":"porch light","color":"green","brightness":50}`, []sent{
				{"porch/light/porch_light/command", `{"state":"ON","brightness":128,"color":{"b":0,"g":255,"r":0}}`, false}}},
			{"home_set_gate", `{"name":"garage door","action":"open"}`, []sent{{"garage/cover/garage_door/command", "OPEN", false}}},
			{"home_set_climate", `{"name":"office","temperature":23,"mode":"heat"}`, []sent{
				{"office/climate/thermostat/mode/command", "heat", false}, {"office/climate/thermostat/target_temperature/command", "23", false}}},
			{"home_turn_off", `{"name":"hall light"}`, []sent{{"zigbee2mqtt/hall_light/set", `{"state":"OFF"}`, false}}},
		} {
			h.call(c.tool, c.args)
			if got := h.taken(); !slices.Equal(got, c.want) {
				t.Errorf("%s %s published %+v, want %+v", c.tool, c.args, got, c.want)
			}
		}
		for name, want := range map[string]string{
			"cellar temperature":  "The cellar DHT11 temperature is 12 degrees Celsius.",
			"nursery temperature": "The nursery temperature is 18 degrees Celsius.",
			"nursery humidity":    "The nursery humidity is 52.5 percent.",
			"office temperature":  "The office thermostat is at 20.7 degrees Celsius and is set to 21.",
			"garage door":         "The garage door is closed.",
			"porch light":         "The porch light is off.",
		} {
			if got := h.call("home_read", `{"name":"`+name+`"}`).Text; got != want {
				t.Errorf("%q is read as %q, want %q", name, got, want)
			}
		}
	})
}

func TestOnlineAndOffline(t *testing.T) {
	for _, c := range []struct{ file, name, topic, offline, online string }{
		{"tasmota.txt", "kitchen light", "tele/tasmota_9F74BF/LWT", "Offline", "Online"},
		{"zigbee2mqtt.txt", "kitchen lamp", "zigbee2mqtt/kitchen_lamp/availability", `{"state":"offline"}`, `{"state":"online"}`},
		{"zigbee2mqtt.txt", "kitchen lamp", "zigbee2mqtt/bridge/state", `{"state":"offline"}`, `{"state":"online"}`},
		{"zigbee2mqtt-1.txt", "hall light", "zigbee2mqtt/hall_light/availability", "offline", "online"},
		{"esphome.txt", "porch light", "porch/status", "offline", "online"},
	} {
		b := newBus()
		b.load(t, c.file)
		inHouse(t, discover, b, func(h *house) {
			for _, step := range []struct {
				payload string
				want    bool
			}{{c.offline, false}, {"nonsense", false}, {c.online, true}} {
				h.tell(c.topic, step.payload)
				if got := slices.Contains(h.names("home_turn_on"), c.name); got != step.want {
					t.Errorf("%s: after %s %s, offered: %v", c.file, c.topic, step.payload, got)
				}
			}
			h.tell(c.topic, c.offline)
			if slices.Contains(h.names("home_read"), c.name) {
				t.Errorf("%s: %s can still be read", c.file, c.name)
			}
		})
	}
}

func TestAvailabilityModes(t *testing.T) {
	config := func(mode string) string {
		return `{"name":"Lamp","cmd_t":"lamp/set","avty":[{"t":"a","pl_avail":"1","pl_not_avail":"0"},{"topic":"b","val_tpl":"{{ value_json.up }}","pl_avail":"True","pl_not_avail":"False"}],"avty_mode":"` + mode + `"}`
	}
	for mode, want := range map[string]string{"all": "0001", "any": "0111", "latest": "0101"} {
		inHouse(t, discover, newBus(), func(h *house) {
			h.tell("homeassistant/light/lamp/config", config(mode))
			got := ""
			for _, m := range [][2]string{{"c", ""}, {"a", "1"}, {"b", `{"up":false}`}, {"b", `{"up":true}`}} {
				h.tell(m[0], m[1])
				got += map[bool]string{true: "1", false: "0"}[h.names("home_turn_on") != nil]
			}
			if got != want {
				t.Errorf("%s: online %s, want %s", mode, got, want)
			}
		})
	}
}

func TestAnnouncementsChange(t *testing.T) {
	b := newBus()
	inHouse(t, discover, b, func(h *house) {
		if tools := h.source.Tools(); len(tools) != 0 {
			t.Errorf("tools of an empty house: %v", tools)
		}
		lamp := func(name string) string {
			return `{"~":"lamps/1","name":"` + name + `","cmd_t":"~/set","stat_t":"~/state"}`
		}
		topic := "homeassistant/light/node/one/config"
		h.tell(topic, lamp("Desk Lamp"))
		h.tell("lamps/1/state", "ON")
		before := h.subscriptions()
		h.tell(topic, lamp("Reading Lamp"))
		if got := h.names("home_turn_on"); !slices.Equal(got, []string{"reading lamp"}) {
			t.Errorf("renamed: %q", got)
		}
		if got := h.call("home_read", `{"name":"reading lamp"}`).Text; got != "The reading lamp is on." {
			t.Errorf("after renaming it is read as %q", got)
		}
		if n := h.subscriptions(); n != before {
			t.Errorf("%d subscriptions, %d before", n, before)
		}
		h.tell(topic, `{"name":"Broken"`) // keeps what there was
		if got := h.names("home_turn_on"); !slices.Equal(got, []string{"reading lamp"}) {
			t.Errorf("after a broken announcement: %q", got)
		}
		h.tell(topic, "")
		if tools := h.source.Tools(); len(tools) != 0 || h.subscriptions() != before-1 {
			t.Errorf("after removal: %d tools, %d subscriptions", len(tools), h.subscriptions())
		}
		h.tell(topic, lamp("Desk Lamp"))
		if got := h.names("home_turn_on"); !slices.Equal(got, []string{"desk lamp"}) {
			t.Errorf("announced again: %q", got)
		}
	})
}

func TestDeviceLosesAComponent(t *testing.T) {
	b := newBus()
	inHouse(t, discover, b, func(h *house) {
		config := func(second string) string {
			return `{"dev":{"ids":"x","name":"Den"},"o":{"name":"x"},"cmps":{"l":{"p":"light","name":"Lamp","uniq_id":"l","cmd_t":"den/l"},"s":` + second + `},"avty":[{"t":"~/up"}],"~":"den"}`
		}
		h.tell("den/up", "online")
		h.tell("homeassistant/device/den/config", config(`{"p":"switch","name":"Socket","uniq_id":"s","cmd_t":"~/s"}`))
		if got := h.names("home_turn_on"); !slices.Equal(got, []string{"den lamp", "den socket"}) {
			t.Errorf("announced: %q", got)
		}
		h.call("home_turn_on", `{"name":"den socket"}`)
		if got := h.taken(); !slices.Equal(got, []sent{{"den/s", "ON", false}}) {
			t.Errorf("published %+v", got)
		}
		h.tell("homeassistant/device/den/config", config(`{"p":"switch"}`))
		if got := h.names("home_turn_on"); !slices.Equal(got, []string{"den lamp"}) {
			t.Errorf("after its component went: %q", got)
		}
	})
}

// TestSettingsAreNoTools: what configures a device is not for voices.
func TestSettingsAreNoTools(t *testing.T) {
	inHouse(t, discover, newBus(), func(h *house) {
		for i, more := range []string{`"ent_cat":"config"`, `"ent_cat":"diagnostic"`, `"en":false`} {
			h.tell("homeassistant/switch/"+string(rune('a'+i))+"/config", `{"name":"X","cmd_t":"x","stat_t":"x/s",`+more+`}`)
		}
		h.tell("homeassistant/event/x/config", `{"name":"X","stat_t":"x"}`)
		h.tell("homeassistant/switch/x/y/z/config", `{"name":"X","cmd_t":"x"}`)
		if tools := h.source.Tools(); len(tools) != 0 {
			t.Errorf("offered %v", tools)
		}
		h.tell("homeassistant/sensor/b/config", `{"dev":{"name":"Remote"},"dev_cla":"battery","ent_cat":"diagnostic","stat_t":"r","unit_of_meas":"%"}`)
		h.tell("r", "83")
		if got := h.call("home_read", `{"name":"remote battery"}`).Text; got != "The remote battery is 83 percent." {
			t.Errorf("the battery is read as %q", got)
		}
	})
}

func TestUselessAnnouncements(t *testing.T) {
	inHouse(t, discover, newBus(), func(h *house) {
		for i, payload := range []string{
			`[]`, `null`, `1`, `{`, `{}`, `{"name":"X"}`, `{"cmd_t":"x"}`, `{"name":"X","cmd_t":"a/#"}`, `{"name":"X","cmd_t":"$SYS/x"}`,
			`{"name":"X","cmd_t":5}`, `{"name":"X","cmd_t":"a\u0000b"}`, strings.Repeat("[", 70000), `{"name":"\u0007","cmd_t":"x"}`,
		} {
			h.tell("homeassistant/light/l"+string(rune('a'+i))+"/config", payload)
		}
		h.tell("homeassistant/device/x/config", `{"cmps":[]}`)
		if tools := h.source.Tools(); len(tools) != 0 {
			t.Errorf("offered %v", tools)
		}
		c := h.Counters()
		if c.Malformed.Load() != 13 || c.Refused.Load() != 1 {
			t.Errorf("malformed %d, refused %d", c.Malformed.Load(), c.Refused.Load())
		}
	})
}

func TestEntitiesAreBounded(t *testing.T) {
	b := newBus()
	for i := range home.MaxEntities + 10 {
		n := strconv.Itoa(i)
		b.send("homeassistant/light/l"+n+"/config", `{"name":"Lamp `+n+`","schema":"json","brightness":true,"cmd_t":"l/`+n+`/set","stat_t":"l/`+n+`","avty_t":"bridge","dev":{"ids":"`+n+`","sa":"Room `+strconv.Itoa(i%40)+`"}}`, true)
	}
	b.send("bridge", "online", true)
	inHouse(t, discover, b, func(h *house) {
		c := h.Counters()
		if c.Entities.Load() != home.MaxEntities || c.Available.Load() != home.MaxEntities || c.Refused.Load() != 10 {
			t.Errorf("%d entities, %d available, %d refused", c.Entities.Load(), c.Available.Load(), c.Refused.Load())
		}
		if names := h.names("home_turn_on"); len(names) != 0 {
			t.Errorf("%d names are told with every request", len(names))
		}
		total := 0
		for _, tool := range h.source.Tools() {
			total += len(tool.Schema) + len(tool.Description)
		}
		if total > 4096 {
			t.Errorf("the tools of a large house are told in %d bytes", total)
		}
		h.call("home_turn_on", `{"name":"lamp 1234"}`)
		if got := h.taken(); !slices.Equal(got, []sent{{"l/1234/set", `{"state":"ON"}`, false}}) {
			t.Errorf("published %+v", got)
		}
		h.tell("bridge", "offline")
		if tools := h.source.Tools(); len(tools) != 0 {
			t.Errorf("offered %v", tools)
		}
	})
}
