package home

import (
	"bytes"
	"encoding/json"
	"strings"

	"parley/internal/protocol"
)

// deviceTopic is a topic of one voice device: <base>/<address>/<leaf>.
func deviceTopic(cfg *Config, id protocol.DeviceID, leaf string) string {
	return cfg.Base + "/" + id.Underscored() + "/" + leaf
}

// discoveryOf is the topic of a device's announcement.
func discoveryOf(cfg *Config, id protocol.DeviceID) string {
	return cfg.Prefix + "/device/" + objectOf(cfg, id) + "/config"
}

// objectOf is unique among all that is announced.
func objectOf(cfg *Config, id protocol.DeviceID) string {
	return cfg.Base + "_" + strings.ReplaceAll(string(id), ":", "")
}

// describeDevice is the announcement of a voice device, in the abbreviated form,
// since brokers keep one for every device.
func describeDevice(cfg *Config, d Device) string {
	type object = map[string]any
	unique := objectOf(cfg, d.ID)
	status := object{"t": cfg.Base + "/status"}
	connected := []object{status, {"t": deviceTopic(cfg, d.ID, "online")}}
	components := object{}
	add := func(name string, o object) {
		o["uniq_id"] = unique + "_" + name
		if o["avty"] == nil {
			o["avty"], o["avty_mode"] = connected, "all"
		}
		components[name] = o
	}
	add("online", object{
		"p": "binary_sensor", "name": "Connection", "dev_cla": "connectivity", "ent_cat": "diagnostic",
		"stat_t": deviceTopic(cfg, d.ID, "online"), "pl_on": "online", "pl_off": "offline", "avty": []object{status},
	})
	add("state", object{
		"p": "sensor", "name": "State", "dev_cla": "enum", "ops": []State{Idle, Listening, Thinking, Speaking},
		"stat_t": deviceTopic(cfg, d.ID, "state"), "ic": "mdi:account-voice",
	})
	add("say", object{"p": "notify", "name": "Say", "cmd_t": deviceTopic(cfg, d.ID, "say"), "ic": "mdi:bullhorn"})
	if d.HasVolume {
		add("volume", object{
			"p": "number", "name": "Volume", "cmd_t": deviceTopic(cfg, d.ID, "volume/set"),
			"stat_t": deviceTopic(cfg, d.ID, "volume"), "min": 0, "max": 100, "step": 1, "unit_of_meas": "%", "ic": "mdi:volume-high",
		})
	}
	if cfg.LastWords {
		add("heard", object{"p": "sensor", "name": "Last heard", "stat_t": deviceTopic(cfg, d.ID, "heard"), "ic": "mdi:ear-hearing"})
		add("answered", object{"p": "sensor", "name": "Last answer", "stat_t": deviceTopic(cfg, d.ID, "answered"), "ic": "mdi:message-text"})
	}
	name := speakable(d.Name)
	if name == "" {
		name = "Voice " + strings.ToUpper(strings.ReplaceAll(string(d.ID), ":", ""))[6:]
	}
	device := object{"ids": []string{unique}, "name": name, "mf": "xiaozhi", "cns": [][]string{{"mac", string(d.ID)}}}
	origin := object{"name": "Parley"}
	for _, member := range []struct {
		of    object
		key   string
		value string
	}{{device, "mdl", d.Board}, {device, "sw", d.Firmware}, {device, "sa", d.Area}, {origin, "sw", cfg.Version}} {
		if v := speakable(member.value); v != "" {
			member.of[member.key] = v
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(object{"dev": device, "o": origin, "cmps": components}); err != nil {
		panic(err) // texts, numbers and lists always marshal
	}
	return strings.TrimSpace(b.String())
}
