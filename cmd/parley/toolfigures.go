package main

import (
	"parley/broker"
	"parley/internal/metrics"
	"parley/mcp/servers"
)

// A reading is one figure of tools and how it is read: by the values of its label,
// "" where it has none.
type reading struct {
	metrics.Figure
	read func(*node) map[string]uint64
}

// one is a reading without a label.
func one(kind metrics.Kind, name, help string, read func(*node) uint64) reading {
	return reading{metrics.Figure{Kind: kind, Name: name, Help: help}, func(n *node) map[string]uint64 {
		return map[string]uint64{"": read(n)}
	}}
}

// toolReadings are the figures of what lends tools, and of what operators use.
func toolReadings() []reading {
	return append(serverReadings(), append(doorReadings(), homeReadings()...)...)
}

// serverReadings are the figures of MCP servers and of Parley's own tools.
func serverReadings() []reading {
	byServer := func(name, help string, of func(servers.Health) uint64) reading {
		return reading{metrics.Figure{Kind: metrics.Gauge, Name: name, Help: help, Label: "server"}, func(n *node) map[string]uint64 {
			out := map[string]uint64{}
			for _, s := range n.sources.servers {
				out[s.Name()] = of(s.Health())
			}
			return out
		}}
	}
	return []reading{
		byServer("mcp_server_up", "1 while the server has told its tools.", func(h servers.Health) uint64 {
			if h.State == servers.Ready {
				return 1
			}
			return 0
		}),
		byServer("mcp_server_tools", "Tools the server offers.", func(h servers.Health) uint64 { return uint64(h.Tools) }),
		byServer("mcp_server_restarts", "Times the server was started again.", func(h servers.Health) uint64 { return uint64(h.Restarts) }),
		one(metrics.Counter, "mcp_server_calls_total", "Tool calls sent to MCP servers, Parley's own included.",
			func(n *node) uint64 { return n.sources.clients.Calls.Load() }),
		one(metrics.Counter, "mcp_server_failures_total", "Of them, those without a result.",
			func(n *node) uint64 { return n.sources.clients.Failures.Load() }),
		one(metrics.Counter, "mcp_server_timeouts_total", "Of them, those not answered in time.",
			func(n *node) uint64 { return n.sources.clients.Timeouts.Load() }),
		one(metrics.Counter, "mcp_server_busy_total", "Tool calls refused because too many were under way with one server.",
			func(n *node) uint64 { return n.sources.clients.Busy.Load() }),
		one(metrics.Counter, "mcp_server_malformed_total", "Messages of MCP servers that could not be read, or were too large.",
			func(n *node) uint64 { return n.sources.clients.Malformed.Load() + n.sources.clients.TooLarge.Load() }),
		one(metrics.Counter, "mcp_server_starts_total", "Starts of MCP servers' programs, and attempts to connect.",
			func(n *node) uint64 { return n.sources.starts.Starts.Load() }),
		one(metrics.Counter, "mcp_server_ends_total", "Sessions with MCP servers that ended, or did not begin, unasked.",
			func(n *node) uint64 { return n.sources.starts.Failures.Load() }),
		one(metrics.Counter, "mcp_server_lines_dropped_total", "Lines of MCP servers' messages the log had no room for.",
			func(n *node) uint64 { return n.sources.starts.Dropped.Load() }),
		one(metrics.Gauge, "reminders", "Timers, alarms and reminders that are set.",
			func(n *node) uint64 { return n.sources.own.Stats().Entries }),
		one(metrics.Gauge, "reminders_waiting", "Of them, those that are due and not delivered.",
			func(n *node) uint64 { return n.sources.own.Stats().Waiting }),
		{metrics.Figure{Kind: metrics.Counter, Name: "reminders_delivered_total", Help: "Notices delivered, by their way.", Label: "way"}, func(n *node) map[string]uint64 {
			s := n.sources.own.Stats()
			return map[string]uint64{"spoken": s.Spoken, "called": s.Called, "shown": s.Shown}
		}},
		one(metrics.Counter, "reminders_late_total", "Notices delivered a minute or more after they were due.",
			func(n *node) uint64 { return n.sources.own.Stats().Late }),
		one(metrics.Counter, "reminders_dropped_total", "Notices given up after a day.",
			func(n *node) uint64 { return n.sources.own.Stats().Dropped }),
		one(metrics.Counter, "reminders_write_failures_total", "Failed writes of the file of timers.",
			func(n *node) uint64 { return n.sources.own.Stats().WriteFailures }),
		{metrics.Figure{Kind: metrics.Counter, Name: "web_pages_total", Help: "Web pages for models, by what became of them.", Label: "result"}, func(n *node) map[string]uint64 {
			s := n.sources.own.Stats()
			return map[string]uint64{"read": s.Fetched, "refused": s.FetchRefused}
		}},
	}
}

// doorReadings are the figures of what is served to programs: the access point,
// the API, and pictures.
func doorReadings() []reading {
	return []reading{
		one(metrics.Gauge, "access_connections", "Programs connected to the access point.", func(n *node) uint64 {
			if n.sources.access == nil {
				return 0
			}
			return uint64(len(n.sources.access.Connections()))
		}),
		one(metrics.Counter, "access_accepted_total", "Connections the access point has accepted.",
			func(n *node) uint64 { return n.sources.lent.Accepted.Load() }),
		{metrics.Figure{Kind: metrics.Counter, Name: "access_refused_total", Help: "Connections it has refused, by reason.", Label: "reason"}, func(n *node) map[string]uint64 {
			c := &n.sources.lent
			return map[string]uint64{
				"malformed": c.Malformed.Load(), "signature": c.Signature.Load(), "expired": c.Expired.Load(),
				"revoked": c.Revoked.Load(), "full": c.Full.Load(),
			}
		}},
		{metrics.Figure{Kind: metrics.Counter, Name: "access_ended_total", Help: "Connections it has ended, by reason.", Label: "reason"}, func(n *node) map[string]uint64 {
			return map[string]uint64{"silent": n.sources.lent.Silent.Load(), "lost": n.sources.lent.Lost.Load()}
		}},
		{metrics.Figure{Kind: metrics.Counter, Name: "api_refused_total", Help: "Requests the API has refused, by reason.", Label: "reason"}, func(n *node) map[string]uint64 {
			s := n.api.Stats()
			return map[string]uint64{"token": s.Refused, "rate": s.Limited, "scope": s.Forbidden, "overload": s.Overload}
		}},
		{metrics.Figure{Kind: metrics.Counter, Name: "api_actions_total", Help: "Controlling requests, by what became of them.", Label: "result"}, func(n *node) map[string]uint64 {
			s := n.api.Stats()
			return map[string]uint64{"done": s.Actions - s.Failed, "failed": s.Failed}
		}},
		one(metrics.Gauge, "api_listeners", "Streams of events that are open.", func(n *node) uint64 { return uint64(n.api.Stats().Listeners) }),
		one(metrics.Counter, "api_events_total", "Events published.", func(n *node) uint64 { return n.api.Stats().Events }),
		one(metrics.Counter, "api_events_missed_total", "Events not sent to a listener that read too slowly.",
			func(n *node) uint64 { return n.api.Stats().Missed }),
		{metrics.Figure{Kind: metrics.Counter, Name: "vision_requests_total", Help: "Pictures of devices, by what became of them.", Label: "result"}, func(n *node) map[string]uint64 {
			s := n.vision.Stats()
			return map[string]uint64{
				"explained": s.Explained, "failed": s.Failed, "unauthorized": s.Unauthorized, "busy": s.Busy,
				"too_large": s.TooLarge, "invalid": s.Invalid,
			}
		}},
	}
}

// homeReadings are the figures of home clients and of the home; nothing where
// there is none.
func homeReadings() []reading {
	stats := func(n *node) broker.HomeStats { return n.broker.Stats().Home }
	return []reading{
		one(metrics.Gauge, "home_clients", "Home clients connected.", func(n *node) uint64 { return uint64(stats(n).Connected) }),
		one(metrics.Gauge, "home_retained", "Retained messages of home clients.", func(n *node) uint64 { return uint64(stats(n).Retained) }),
		one(metrics.Gauge, "home_retained_bytes", "Their size.", func(n *node) uint64 { return uint64(stats(n).RetainedBytes) }),
		one(metrics.Counter, "home_received_total", "Messages of home clients.", func(n *node) uint64 { return uint64(stats(n).Received) }),
		one(metrics.Counter, "home_sent_total", "Messages to home clients.", func(n *node) uint64 { return uint64(stats(n).Sent) }),
		one(metrics.Counter, "home_dropped_total", "Messages home clients had no room for.", func(n *node) uint64 { return uint64(stats(n).Dropped) }),
		one(metrics.Counter, "home_denied_total", "Publications, subscriptions and deliveries that a user's filters do not allow.",
			func(n *node) uint64 { return uint64(stats(n).Denied) }),
		{metrics.Figure{Kind: metrics.Counter, Name: "home_disconnected_total", Help: "Home clients disconnected by the broker, by reason.", Label: "reason"}, func(n *node) map[string]uint64 {
			s := stats(n)
			return map[string]uint64{
				"taken_over": uint64(s.TakenOver), "slow": uint64(s.Slow), "silent": uint64(s.Silent), "protocol": uint64(s.Violated),
			}
		}},
		{metrics.Figure{Kind: metrics.Gauge, Name: "home_things", Help: "Things of the home that announced themselves.", Label: "state"}, func(n *node) map[string]uint64 {
			if n.sources.home == nil {
				return nil
			}
			c := n.sources.home.Counters()
			known, available := max(c.Entities.Load(), 0), max(c.Available.Load(), 0)
			return map[string]uint64{"online": uint64(available), "offline": uint64(max(known-available, 0))}
		}},
		{metrics.Figure{Kind: metrics.Counter, Name: "home_commands_total", Help: "Commands to the home, by whether its state followed.", Label: "result"}, func(n *node) map[string]uint64 {
			if n.sources.home == nil {
				return nil
			}
			c := n.sources.home.Counters()
			return map[string]uint64{"confirmed": c.Confirmed.Load(), "sent": c.Sent.Load()}
		}},
	}
}
