// Package session is where the planes meet: messages from the broker, audio from
// udpaudio, tools from mcp and the conversation of pipeline. None of those knows
// the others.
//
// A [Server] has a peer for every connected device. A device that says hello
// gets a session: an audio channel and a conversation, which live until either
// side says goodbye, the connection ends, or another hello replaces them.
//
//	broker ──messages──► peer ──signals──► pipeline.Conversation
//	udpaudio ──Opus──► session ──Opus──►        │
//	device ◄──messages, Opus── session ◄────────┘
package session
