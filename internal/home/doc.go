// Package home joins the house on the broker with the conversation: what is
// announced there becomes tools of the model, and voice devices announce
// themselves there.
//
// Lamps, sensors and the rest announce themselves by Home Assistant's MQTT
// discovery, as Zigbee2MQTT, Tasmota, ESPHome and WLED do. [Home] reads these
// announcements, follows the states they name, and offers a handful of tools:
// home_turn_on, home_read and so on, each with the names of the entities that it
// fits. A tool is there only while there is something to use it on, and an
// entity only while it is online. Names are matched as people say them, and a
// room's name means its lights. Locks, alarm panels, garage doors and gates have
// tools of their own, [GuardedTools], that a role must allow by name.
//
// What does not announce itself becomes a tool by a [Custom].
//
// In the other direction [Home.Announce] shows a voice device to Home Assistant:
// whether it is online, what it is doing, its volume, and a way to make it speak.
//
// Everything that arrives on the bus goes through one bounded queue to one
// goroutine, that of [Home.Run], so a publisher never waits. Payloads are not
// trusted: they are bounded in size, number and nesting, and their templates are
// a subset of Jinja without loops.
package home
