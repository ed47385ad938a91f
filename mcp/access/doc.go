// Package access is the MCP access point: an address where people's own programs
// lend their tools to Parley's conversations.
//
// It is what xiaozhi's cloud calls an MCP endpoint. A user runs a pipe, such as
// the mcp_pipe.py of many tutorials or "parley pipe", on a machine that may be
// behind any router. The pipe opens a WebSocket to
//
//	ws://host/mcp_endpoint/mcp/?token=…
//
// and passes every message to and from an MCP server it has started. So the one
// who connects is the MCP server, and the one who is connected to, a [Point], is
// its client: it asks for the tools and calls them.
//
// # Who may lend to whom
//
// A token says for which conversations the tools of its holder are: those of one
// device, of one role, or all. It is signed and not stored, see [Mint]; it can
// expire, and be revoked by its id. Several programs may connect with one token.
//
// [Point.For] gives a conversation one source that has, at each moment, the tools
// of all connections that are for it. A connection is known by its token, the
// name its server gives itself and a number where two have the same name. These
// are the same when a pipe comes back, so its tools have their names again and a
// conversation goes on.
//
// # What a connection may do
//
// Its peer holds a valid token and may still be hostile or broken. Every
// connection has its own goroutines and limits, which limits.go lists; what it
// sends is bounded in size and rate, what it does not read is given up after 10
// seconds, and one that does not tell its tools or stops answering pings is
// closed with the reason.
package access
