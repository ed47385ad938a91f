// Package pipe lends MCP servers to an access point, Parley's or xiaozhi's cloud:
// it does in one program what the mcp_pipe.py of the tutorials does, and takes the
// same configuration.
//
// [Run] keeps one WebSocket for each server, over which the access point is the MCP
// client. With each connection the server is started anew: a program whose input
// and output are copied to and from the WebSocket, or a session with a service over
// HTTP. When either side ends, both do, and the next attempt follows after a pause
// that doubles from 1 second to 600, and is 1 second again after a connection that
// has lasted a minute.
//
// Messages are copied, not understood: what client and server have to say to each
// other is theirs. What a program prints that is no message is left out, because
// access points do not expect it.
//
// The address of an access point holds a token. It is in no log line and in no
// error text, and a program that is started does not get it, either.
package pipe
