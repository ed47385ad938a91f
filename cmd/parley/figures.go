package main

import (
	"parley/broker"
	"parley/internal/metrics"
)

// register adds the figures of the planes to the metrics.
func (n *node) register() error {
	var figures []metrics.Figure
	figure := func(kind metrics.Kind, name, help, label string) {
		figures = append(figures, metrics.Figure{Kind: kind, Name: name, Help: help, Label: label})
	}
	figure(metrics.Gauge, "devices_connected", "Devices connected by MQTT.", "")
	figure(metrics.Gauge, "sessions_open", "Open audio channels.", "")
	figure(metrics.Counter, "sessions_opened_total", "Audio channels opened.", "")
	figure(metrics.Counter, "hellos_refused_total", "Hellos beyond a device's rate, or while draining.", "")
	figure(metrics.Counter, "messages_bad_total", "Messages of devices that could not be read.", "")
	figure(metrics.Counter, "messages_unknown_total", "Messages of devices of a type nobody knows.", "")
	figure(metrics.Counter, "sessions_without_audio_total", "Sessions whose device was to be heard and was not.", "")
	figure(metrics.Counter, "signals_dropped_total", "Messages dropped because a conversation had fallen behind.", "")
	figure(metrics.Counter, "mqtt_connections_total", "TCP connections accepted.", "")
	figure(metrics.Counter, "mqtt_refused_total", "Connections refused, by reason.", "reason")
	figure(metrics.Counter, "mqtt_disconnected_total", "Connections ended by the broker, by reason.", "reason")
	figure(metrics.Gauge, "mqtt_pending", "Connections that have not sent their CONNECT yet.", "")
	figure(metrics.Counter, "mqtt_denied_total", "Publications and subscriptions to topics of others.", "")
	figure(metrics.Counter, "mqtt_received_total", "Messages received.", "")
	figure(metrics.Counter, "mqtt_sent_total", "Messages sent.", "")
	figure(metrics.Counter, "udp_delivered_total", "Audio packets delivered to conversations.", "")
	figure(metrics.Counter, "udp_sent_total", "Audio packets sent.", "")
	figure(metrics.Counter, "udp_send_errors_total", "Audio packets the system refused to send.", "")
	figure(metrics.Counter, "udp_dropped_total", "Datagrams not delivered, by reason.", "reason")
	figure(metrics.Counter, "udp_moves_total", "Changes of a device's address.", "")
	figure(metrics.Counter, "mcp_calls_total", "Tool calls sent to devices.", "")
	figure(metrics.Counter, "mcp_timeouts_total", "Requests to devices that were not answered in time.", "")
	figure(metrics.Counter, "mcp_busy_total", "Tool calls refused because too many were waiting.", "")
	figure(metrics.Counter, "mcp_unexpected_total", "Replies of devices that nobody waited for.", "")
	figure(metrics.Counter, "mcp_abandoned_total", "Devices that did not tell their tools.", "")
	figure(metrics.Counter, "mcp_salvaged_total", "Broken replies of devices whose error could be read.", "")
	figure(metrics.Counter, "mcp_notices_total", "Notifications of devices.", "")
	figure(metrics.Counter, "ota_requests_total", "Devices that asked for their configuration, by what they got.", "result")
	figure(metrics.Counter, "mcp_malformed_total", "Messages of devices that are no JSON-RPC reply.", "")
	readings := toolReadings()
	for _, r := range readings {
		figures = append(figures, r.Figure)
	}
	return n.metrics.Register(figures, func() []metrics.Sample {
		samples := n.samples()
		for _, r := range readings {
			for label, v := range r.read(n) {
				samples = append(samples, metrics.Sample{Name: r.Name, Label: label, Value: float64(v)})
			}
		}
		return samples
	})
}

// samples reads all figures at one moment.
func (n *node) samples() []metrics.Sample {
	var out []metrics.Sample
	one := func(name string, v uint64) { out = append(out, metrics.Sample{Name: name, Value: float64(v)}) }
	by := func(name, label string, v uint64) {
		out = append(out, metrics.Sample{Name: name, Label: label, Value: float64(v)})
	}
	s := n.sessions.Stats()
	one("devices_connected", s.Devices)
	one("sessions_open", s.Sessions)
	one("sessions_opened_total", s.Opened)
	one("hellos_refused_total", s.HellosRefused)
	one("messages_bad_total", s.BadMessages)
	one("messages_unknown_total", s.UnknownMessages)
	one("sessions_without_audio_total", s.NoAudio)
	one("signals_dropped_total", s.SignalsDropped)

	b := n.broker.Stats()
	one("mqtt_connections_total", uint64(b.Accepted))
	one("mqtt_pending", uint64(b.Pending))
	one("mqtt_denied_total", uint64(b.Denied))
	one("mqtt_received_total", uint64(b.Received))
	one("mqtt_sent_total", uint64(b.Sent))
	for _, r := range []broker.Refusal{
		broker.RefusedRate, broker.RefusedPending, broker.RefusedTimeout, broker.RefusedTooLarge, broker.RefusedMalformed,
		broker.RefusedVersion, broker.RefusedClientID, broker.RefusedCredentials, broker.RefusedPublic,
		broker.RefusedWill, broker.RefusedFull, broker.RefusedBusy, broker.RefusedOvertaken, broker.RefusedShutdown,
	} {
		by("mqtt_refused_total", string(r), uint64(b.Refused[r]))
	}
	by("mqtt_disconnected_total", "taken_over", uint64(b.TakenOver))
	by("mqtt_disconnected_total", "slow", uint64(b.Slow))
	by("mqtt_disconnected_total", "flood", uint64(b.Flooded))
	by("mqtt_disconnected_total", "silent", uint64(b.Silent))
	by("mqtt_disconnected_total", "protocol", uint64(b.Violated))

	u := n.audio.Stats()
	one("udp_delivered_total", u.Delivered)
	one("udp_sent_total", u.Sent)
	one("udp_send_errors_total", u.SendErrors)
	one("udp_moves_total", u.Moves)
	d := u.Dropped
	for _, r := range []struct {
		reason string
		n      uint64
	}{
		{"short", d.Short}, {"long", d.Long}, {"type", d.Type}, {"length", d.Length}, {"unknown_ssrc", d.UnknownSSRC},
		{"reflected", d.Reflected}, {"closed", d.Closed}, {"replayed", d.Replayed}, {"old", d.Old}, {"ahead", d.Ahead},
		{"implausible", d.Implausible}, {"foreign", d.Foreign},
	} {
		by("udp_dropped_total", r.reason, r.n)
	}
	one("mcp_calls_total", n.mcp.Calls.Load())
	one("mcp_timeouts_total", n.mcp.Timeouts.Load())
	one("mcp_busy_total", n.mcp.Busy.Load())
	one("mcp_unexpected_total", n.mcp.Unexpected.Load())
	one("mcp_abandoned_total", n.mcp.Abandoned.Load())
	one("mcp_salvaged_total", n.mcp.Salvaged.Load())
	one("mcp_notices_total", n.mcp.Notices.Load())
	o := n.ota.Stats()
	by("ota_requests_total", "enrolled", o.Enrolled)
	by("ota_requests_total", "homeless", o.Homeless)
	by("ota_requests_total", "refused", o.Refused)
	by("ota_requests_total", "invalid", o.Invalid)
	one("mcp_malformed_total", n.mcp.Malformed.Load())
	return out
}
