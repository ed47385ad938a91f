// Package servers keeps the MCP servers that an operator has configured: a
// program on this machine that speaks MCP on its standard streams, or a service
// somewhere that speaks it over HTTP.
//
// A [Config] says what one server is, whether it comes from config.toml or from a
// file the user already has ([ReadFile]). A [Server] made of it is a source of
// tools like a device. Its Run keeps one session up: it starts the program or
// connects, and when that ends, for whatever reason, begins anew after a pause
// that grows. Between sessions the server has no tools and calls fail at once.
//
// A [Process] is a running program. Nothing of it is left when it has ended, and
// nothing when Parley has, even if Parley was killed: the [Guard] sees to that.
package servers
