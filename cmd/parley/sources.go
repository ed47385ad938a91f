package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"parley/broker"
	"parley/internal/api"
	"parley/internal/config"
	"parley/internal/home"
	"parley/internal/ota"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/mcp"
	"parley/mcp/access"
	"parley/mcp/builtin"
	"parley/mcp/servers"
)

// sources are where tools come from besides the devices themselves.
type sources struct {
	log     *slog.Logger
	own     *builtin.Tools
	servers []*servers.Server
	guard   *servers.Guard
	access  *access.Point // nil without a key
	home    *home.Home    // nil without home clients
	clients mcp.ClientCounters
	starts  servers.Counters
	lent    access.Counters
}

// newSources makes the sources that cfg names, or says what is wrong with which
// key. Nothing runs yet.
func newSources(cfg *config.Config, path string, h ownHouse, bus *broker.Bus, log *slog.Logger) (*sources, error) {
	s := &sources{log: log}
	location, err := cfg.OTA.Location()
	if err != nil {
		return nil, err
	}
	s.own, err = builtin.New(builtin.Config{
		Dir: cfg.Tools.Dir, Location: location, Roles: h.roles.choices(""), Version: version,
		Fetch: builtin.Fetch{Enabled: cfg.Tools.Fetch, Hosts: cfg.Tools.FetchHosts}, Counters: &s.clients,
	}, h, log)
	if err != nil {
		return nil, &usageError{config.Fault(path, "tools.dir", err.Error(), "name a directory that Parley may write to")}
	}
	if err := s.addServers(cfg, path); err != nil {
		return nil, err
	}
	if key := accessKey(cfg); key != nil {
		s.access, err = access.New(access.Config{
			Key: key, Revoked: cfg.MCP.Access.Revoked, CallTimeout: cfg.Limits.Tool, ResultLimit: cfg.Limits.ToolResult,
			Version: version, Counters: &s.lent,
		}, log)
		if err != nil {
			return nil, &usageError{config.Fault(path, "mcp.access.key", err.Error(), "see docs/access-point.md")}
		}
	}
	if bus != nil {
		if s.home, err = newHome(cfg, path, h.sessions, bus, log); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// accessKey signs the tokens of the access point: a key of its own, else one made
// of the key of credentials, so that neither can be used for the other. It is nil
// where there is none.
func accessKey(cfg *config.Config) []byte {
	if key := cfg.MCP.Access.Key; key.IsSet() {
		return []byte(key.Reveal())
	}
	if !cfg.MQTT.Key.IsSet() {
		return nil
	}
	mac := hmac.New(sha256.New, []byte(cfg.MQTT.Key.Reveal()))
	mac.Write([]byte("parley mcp access point"))
	return mac.Sum(nil)
}

// addServers makes the MCP servers of the tables and of the files.
func (s *sources) addServers(cfg *config.Config, path string) error {
	var all []servers.Config
	for _, name := range slices.Sorted(maps.Keys(cfg.MCP.Server)) {
		c := cfg.MCP.Server[name]
		all = append(all, servers.Config{
			Name: name, Command: c.Command, Args: c.Args, Env: revealed(c.Env), Dir: c.Dir,
			URL: c.URL, Headers: revealed(c.Headers), Transport: c.Transport, Timeout: c.Timeout, Disabled: c.Disabled,
		})
	}
	for _, file := range cfg.MCP.Files {
		found, faults, err := servers.ReadFile(file)
		if err != nil {
			return &usageError{config.Fault(path, "mcp.files", err.Error(), "correct the file, or take it off the list")}
		}
		for _, f := range faults {
			s.log.Warn("mcp server file", "fault", f.Error(), "used", f.Note)
		}
		for _, c := range found {
			if slices.ContainsFunc(all, func(other servers.Config) bool { return other.Name == c.Name }) {
				s.log.Warn("mcp server is named twice; the first one counts", "server", c.Name, "file", file)
				continue
			}
			all = append(all, c)
		}
	}
	// The guard is this program once more: it ends what servers have started
	// should this process be killed.
	s.guard = servers.NewGuard(s.log, "/proc/self/exe", guardCommand)
	for i, c := range all {
		if c.Timeout == 0 {
			c.Timeout = cfg.Limits.Tool
		}
		server, err := servers.New(c, servers.Options{
			Version: version, Guard: s.guard, ResultLimit: cfg.Limits.ToolResult, ImageLimit: cfg.Limits.ToolImages,
			Sessions: &s.clients, Counters: &s.starts,
		}, s.log)
		if err != nil && i >= len(cfg.MCP.Server) { // of a file, which is another program's, too
			s.log.Warn("mcp server is left out", "server", c.Name, "error", err)
			continue
		}
		if err != nil {
			return &usageError{config.Fault(path, "mcp.server."+c.Name, err.Error(), "see docs/mcp-servers.md")}
		}
		s.servers = append(s.servers, server)
	}
	return nil
}

func revealed(secrets map[string]config.Secret) map[string]string {
	out := make(map[string]string, len(secrets))
	for name, s := range secrets {
		out[name] = s.Reveal()
	}
	return out
}

// members are what a device may use in a role, beside its own tools: in an order
// that changes only with the configuration, those that come and go last.
func (s *sources) members(device protocol.DeviceID, role *session.Role) []mcp.Member {
	members := []mcp.Member{{Label: builtin.Label, Source: s.own.Source(), Hide: s.own.Hide(device)}}
	if s.home != nil {
		members = append(members, mcp.Member{Label: "home", Source: s.home.Source(), Guarded: guarded})
	}
	for _, server := range s.servers {
		members = append(members, mcp.Member{Label: server.Name(), Source: server})
	}
	if s.access != nil {
		members = append(members, mcp.Member{Label: "endpoint", Source: s.access.For(device, role.Name)})
	}
	return members
}

func guarded(tool string) bool { return slices.Contains(home.GuardedTools(), tool) }

// run serves the sources until ctx ends, and returns when all of them have ended.
func (s *sources) run(ctx context.Context) {
	var work sync.WaitGroup
	start := func(name string, f func(context.Context) error) {
		work.Go(func() {
			if err := f(ctx); err != nil && !errors.Is(err, context.Canceled) {
				s.log.Error("a source of tools has failed", "source", name, "error", err)
			}
		})
	}
	start(builtin.Label, s.own.Run)
	if s.home != nil {
		start("home", s.home.Run)
	}
	for _, server := range s.servers {
		work.Go(func() { server.Run(ctx) })
	}
	<-ctx.Done()
	if s.access != nil {
		s.access.Close()
	}
	work.Wait()
	s.guard.Close()
}

// handle adds what the sources serve over HTTP.
func (s *sources) handle(mux *http.ServeMux) {
	if s.access == nil {
		return
	}
	for _, pattern := range access.Patterns() {
		if pattern != api.MCPPath { // see mcpDoor
			mux.Handle(pattern, s.access)
		}
	}
}

// mcpDoor shares a path: a WebSocket there is a pipe to the access point, and
// anything else an agent that uses Parley as an MCP server.
func (s *sources) mcpDoor(agents http.Handler) http.Handler {
	if s.access == nil {
		return agents
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			s.access.ServeHTTP(w, r)
			return
		}
		agents.ServeHTTP(w, r)
	})
}

// checks report the servers of tools for /readyz: Parley does without them.
func (s *sources) checks() []ota.Check {
	var out []ota.Check
	for _, server := range s.servers {
		h := server.Health()
		c := ota.Check{Name: "mcp." + h.Name, Optional: true}
		if h.State != servers.Ready && h.State != servers.Disabled {
			if c.Err = h.Err; c.Err == nil {
				c.Err = errors.New(h.State)
			}
		}
		out = append(out, c)
	}
	return out
}
