package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"parley/mcp"
)

// greetTimeout is how long a server may take to greet, its download included.
const greetTimeout = 2 * time.Minute

// States of [Health].
const (
	Disabled = "disabled" // by its configuration
	Idle     = "idle"     // Run was not called yet
	Starting = "starting" // it has not told its tools yet
	Ready    = "ready"
	Waiting  = "waiting" // it failed and will be started again
	Stopped  = "stopped" // Run has returned
)

// Options are what servers share. Zero values mean the defaults.
type Options struct {
	Version     string              // of Parley, told to servers
	Guard       *Guard              // of their programs
	ResultLimit int                 // bytes of text in a result
	ImageLimit  int                 // bytes of pictures in a result
	Sessions    *mcp.ClientCounters // may be shared by all clients
	Counters    *Counters           // may be shared by all servers
	OnChange    func()              // called after tools came, changed or went; must return promptly
}

// Counters count what happens to servers. They only rise.
type Counters struct {
	Starts   atomic.Uint64 // of programs, and attempts to connect
	Failures atomic.Uint64 // sessions that ended, or did not begin, unasked
	Dropped  atomic.Uint64 // lines of programs' messages the log had no room for
}

// Health is how a server is.
type Health struct {
	Name     string
	State    string    // one of the states above
	Since    time.Time // of the state
	Err      error     // why it failed last; nil when it is ready
	Restarts int       // since Run
	Tools    int       // offered now
}

// A Server is one configured server: a source of tools that come and go with its
// sessions. All methods are safe for concurrent use.
type Server struct {
	cfg    Config
	opts   Options
	client *mcp.Client
	remote *remote // nil for a program
	log    *slog.Logger

	kinds []string // of transports to a service, the likeliest first; Run's

	mu     sync.Mutex
	health Health
	// readyFor is how long the last session was ready.
	readyFor time.Duration
}

var _ mcp.Source = (*Server)(nil)

// ownNames are the labels of the sources that Parley has beside servers. Two of one
// label cannot be in a [mcp.Set], so that no conversation could begin.
func ownNames() []string { return []string{"device", "parley", "home", "endpoint"} }

// New checks a configuration, looks whether a program can be found, and returns
// its server, which does nothing before [Server.Run]. A disabled server is not
// looked for.
func New(cfg Config, opts Options, log *slog.Logger) (*Server, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("mcp server %q: %w", cfg.Name, err)
	}
	if slices.Contains(ownNames(), cfg.Name) {
		return nil, fmt.Errorf("mcp server %q: Parley calls tools of its own by this name; rename the server", cfg.Name)
	}
	cfg = cfg.withDefaults()
	if opts.Counters == nil {
		opts.Counters = new(Counters)
	}
	s := &Server{cfg: cfg, opts: opts, log: log.With("server", cfg.Name)}
	s.health = Health{Name: cfg.Name, State: Idle, Since: time.Now()}
	var err error
	switch {
	case cfg.Disabled:
		s.health.State = Disabled
	case cfg.Command != "":
		_, err = cfg.findProgram()
	default:
		s.kinds = cfg.kinds()
		s.remote, err = newRemote(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("mcp server %q: %w", cfg.Name, err)
	}
	s.client = mcp.NewClient(mcp.ClientConfig{
		Label:       cfg.Name,
		CallTimeout: cfg.Timeout,
		// npx and uvx download what they run the first time.
		GreetTimeout: greetTimeout,
		ResultLimit:  opts.ResultLimit,
		ImageLimit:   opts.ImageLimit,
		Version:      opts.Version,
		Counters:     opts.Sessions,
		OnChange:     s.changed,
	}, log)
	return s, nil
}

// Name is the server's name.
func (s *Server) Name() string { return s.cfg.Name }

// Tools implements [mcp.Source]. There are none unless the server is ready.
func (s *Server) Tools() []mcp.Tool { return s.client.Tools() }

// Version rises whenever the tools change.
func (s *Server) Version() uint64 { return s.client.Version() }

// Call implements [mcp.Source]. Without a session it fails at once with
// [mcp.ErrClosed]; a call is never made twice.
func (s *Server) Call(ctx context.Context, name string, args json.RawMessage) (mcp.Result, error) {
	r, err := s.client.Call(ctx, name, args)
	if errors.Is(err, mcp.ErrClosed) {
		err = fmt.Errorf("%w; the server is down and is being started again, so try later", err)
	}
	return r, err
}

// Health says how the server is.
func (s *Server) Health() Health {
	s.mu.Lock()
	h := s.health
	s.mu.Unlock()
	h.Tools = len(s.client.Tools())
	return h
}

// Run keeps a session with the server until ctx ends, and then returns when its
// program is gone and no connection is open, which takes at most some four
// seconds. It is called once. When a session fails, the next begins after a
// pause; see [Health]. A disabled server's Run returns at once.
func (s *Server) Run(ctx context.Context) {
	if s.cfg.Disabled {
		return
	}
	session := s.service
	if s.remote == nil {
		session = s.program
	}
	s.supervise(ctx, session)
}

// program holds one session with a program and ends it.
func (s *Server) program(ctx context.Context) error {
	p, err := StartProcess(s.cfg, s.opts.Guard, &s.opts.Counters.Dropped, s.log)
	if err != nil {
		return err
	}
	lines := mcp.LineTransport(p.Out, p.In, mcp.DefaultMessageLimit)
	lines.Rubbish = func(line string) { s.log.Debug("mcp server printed what is no message", "line", line) }
	err = s.client.Serve(ctx, lines)
	p.Stop()
	if end := p.Err(); end != nil && err != nil {
		err = fmt.Errorf("%w (%s ended with %w)", err, s.cfg.Command, end)
	}
	return err
}

// service holds one session with a service, by another transport where it says
// that the first is none of its.
func (s *Server) service(ctx context.Context) error {
	var failed error
	for i, kind := range s.kinds {
		before := s.client.Version()
		l := s.remote.link(kind)
		err := s.client.Serve(ctx, l.transport())
		l.close() // after Serve, which says goodbye to the service
		if err == nil {
			return nil
		}
		err = fmt.Errorf("over %s: %w", kind, l.reason(err))
		if s.client.Version() != before { // it told its tools, so this is the one
			s.kinds = slices.Insert(slices.Delete(s.kinds, i, i+1), 0, kind)
			return err
		}
		if failed != nil {
			err = fmt.Errorf("%w; %w", failed, err)
		}
		failed = err
		if !l.refused() {
			break
		}
	}
	return failed
}
