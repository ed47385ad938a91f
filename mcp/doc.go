// Package mcp knows tools: it learns what each source offers, names it for the
// model, and routes the model's calls to where they run.
//
// There are two kinds of source, both over the official Go SDK, and both behind a
// transport of ours that changes what passes where the other side and the SDK
// differ.
//
// A [Device] speaks to one device, which is the MCP server and Parley its client.
// Devices are no ordinary servers: they drop requests without a word (a string
// id, "params":null), answer errors without a code and sometimes without valid
// JSON, and do everything on one serial main task that a tool, or a hello, may
// hold for many seconds. So it makes one call at a time and keeps no session
// between calls. What is changed on the way is listed at conn; docs/protocol.md
// describes the wire. What a device says of its own accord is in notify.go.
//
// A [Client] speaks to any other MCP server, such as a program, a URL or a part
// of this process. It holds a session as long as there is one, makes calls side
// by side, and survives a server that prints rubbish, answers twice or never, or
// dies. What is changed on the way is listed at filter. [LineTransport] carries
// messages over a pair of streams.
//
// A [Set] joins the sources of one conversation and shows the model what its
// role allows, under names that model APIs accept. [FaithfulSchema] and
// [StrictSchema] fit the arguments' schemas to what a model's API takes.
package mcp
