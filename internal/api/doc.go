// Package api is the door for operators and their programs: which devices are
// connected, what they can do, and making them do it.
//
// There are three ways in, to the same operations with the same rights:
//
//   - REST under /api/v1/, described by the OpenAPI document this package
//     serves at /api/openapi.json, with a stream of what happens to devices;
//   - an MCP server at /mcp, for agents;
//   - the management API of the Node gateway at /api/commands/ and
//     /api/devices/status, for programs written for that, where the operator
//     has switched it on.
//
// Who asks is known by a bearer token. A token has a name, which every
// controlling request leaves in the log, and scopes, which say what it is for.
// Without any token configured nothing is answered.
//
// The package knows no sessions: what it operates on is a [Fleet], and what
// happens there it is told by [API.Publish].
package api
