package access

import (
	"sync/atomic"
	"time"
)

// Defaults of [Config].
const (
	// DefaultMaxConnections bounds the connections of all tokens. Each takes four
	// goroutines and some 60 KiB, and at most 1 MiB more while a message comes.
	DefaultMaxConnections = 1024
	// DefaultMaxPerToken bounds the connections of one token: a pipe opens one for
	// each of its servers.
	DefaultMaxPerToken = 16
)

// Limits on what a connection may make Parley hold or do.
const (
	// maxMessage bounds a message in bytes, as the Python library of mcp_pipe.py
	// bounds those it takes. A longer one closes the connection.
	maxMessage = 1 << 20
	// messageRate and messageBurst bound the messages of one connection, per
	// second. There is no queue: TCP holds back what comes faster.
	messageRate  = 100
	messageBurst = 500
	// maxUnreadable is how many messages that are no JSON-RPC a connection may
	// send before it is closed. A program that prints a banner is no enemy.
	maxUnreadable = 100
	// tellTimeout is how long a connection may take to tell its tools.
	tellTimeout = 15 * time.Second
	// pingEvery and pingTimeout find out that a peer is gone, which TCP alone
	// tells after hours. They also keep routers from forgetting the connection.
	pingEvery   = 30 * time.Second
	pingTimeout = 10 * time.Second
	// writeTimeout is how long a message may take to be sent: that much later a
	// peer that does not read is given up.
	writeTimeout = 10 * time.Second
	// maxServerName bounds, in bytes, what is kept of a server's name.
	maxServerName = 64
	// maxShown bounds the tools whose names one conversation remembers.
	maxShown = 4096
	// failureRate and failureBurst bound the refused requests of one address that
	// are answered in words and logged, per second.
	failureRate  = 0.2
	failureBurst = 10
	// maxAddresses bounds the table of addresses that were refused lately.
	maxAddresses = 8192
)

// A Config says how to keep an access point. Zero values mean the defaults.
type Config struct {
	// Key signs the tokens; at least [MinKey] bytes. There is no default.
	Key []byte
	// Revoked lists the ids of tokens that are not valid any more.
	Revoked []string
	// CallTimeout bounds one call of a tool; ResultLimit its result, in bytes.
	// Their defaults are those of package mcp.
	CallTimeout time.Duration
	ResultLimit int
	// MaxConnections and MaxPerToken bound the connections in all and of one
	// token.
	MaxConnections int
	MaxPerToken    int
	// Version of Parley, told to servers in initialize.
	Version string
	// Counters may be given to be read elsewhere.
	Counters *Counters
}

// Counters count what happens at an access point. They only rise.
type Counters struct {
	Accepted  atomic.Uint64 // connections
	Malformed atomic.Uint64 // requests refused: no token, or none of ours
	Signature atomic.Uint64 // … signed by somebody else
	Expired   atomic.Uint64 // … expired
	Revoked   atomic.Uint64 // … revoked
	Limited   atomic.Uint64 // … of an address that has failed too often lately; also counted by reason
	Full      atomic.Uint64 // … because too many connections are open
	Silent    atomic.Uint64 // connections closed because they told no tools
	Lost      atomic.Uint64 // connections closed because a ping was not answered
	Rubbish   atomic.Uint64 // messages that are no JSON-RPC, which are ignored
}

func (c Config) withDefaults() Config {
	if c.MaxConnections <= 0 {
		c.MaxConnections = DefaultMaxConnections
	}
	if c.MaxPerToken <= 0 {
		c.MaxPerToken = DefaultMaxPerToken
	}
	if c.Counters == nil {
		c.Counters = new(Counters)
	}
	return c
}
