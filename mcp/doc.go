// Package mcp knows tools: it learns what each source offers, names it for the
// model, and routes the model's calls to where they run.
//
// A device is the MCP server and Parley its client. [Device] speaks to one
// device over the official Go SDK through a transport of its own, because
// devices are no ordinary servers: they drop requests without a word (a string
// id, "params":null), answer errors without a code, and do everything on one
// serial main task that a tool, or a hello, may hold for many seconds. What the
// transport changes on the way is listed at conn; docs/protocol.md describes
// the wire.
//
// A [Set] joins the sources of one conversation and shows the model what its
// role allows, under names that model APIs accept.
package mcp
