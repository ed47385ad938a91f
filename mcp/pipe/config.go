package pipe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"parley/mcp/servers"
)

// Names in the environment, those of mcp_pipe.py.
const (
	// EndpointVariable holds the access point's address with the token.
	EndpointVariable = "MCP_ENDPOINT"
	// FileVariable holds the path of the file of servers.
	FileVariable = "MCP_CONFIG"
)

// defaultFile is read where nothing says otherwise.
const defaultFile = "mcp_config.json"

// ErrEndpoint means that the address of the access point cannot be one. The error
// does not quote it.
var ErrEndpoint = errors.New("bad access point address")

// A Config says what to lend, and where.
type Config struct {
	// Endpoint is the access point's address, ws:// or wss://, token and all.
	Endpoint string
	// Servers are lent, each over a connection of its own. Disabled ones are
	// passed over. Timeouts of theirs have no meaning here.
	Servers []servers.Config
	// Guard has the programs killed should this process be; see [servers.Guard].
	// It may be nil.
	Guard *servers.Guard
	// Dial opens TCP connections; nil is that of a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// FromArgs returns what the command line and the environment ask for, as
// mcp_pipe.py reads them: with args, the one program they are; without, all servers
// of the file that [FileVariable] names, or of mcp_config.json. The faults are of
// that file: servers that were left out, and notes.
func FromArgs(args []string, lookup func(string) (string, bool)) (Config, []servers.Fault, error) {
	endpoint, _ := lookup(EndpointVariable)
	cfg := Config{Endpoint: strings.TrimSpace(endpoint)}
	if cfg.Endpoint == "" {
		return Config{}, nil, fmt.Errorf("%w: set %s to that of your access point, such as ws://HOST:8003/mcp_endpoint/mcp/?token=…", ErrEndpoint, EndpointVariable)
	}
	if len(args) > 0 {
		cfg.Servers = []servers.Config{{Name: filepath.Base(args[0]), Command: args[0], Args: args[1:]}}
		return cfg, nil, nil
	}
	path, _ := lookup(FileVariable)
	if path == "" {
		path = defaultFile
	}
	var faults []servers.Fault
	var err error
	cfg.Servers, faults, err = servers.ReadFile(path)
	if err != nil {
		return Config{}, faults, fmt.Errorf("%w; name a program to lend, or a file of servers in %s", err, FileVariable)
	}
	return cfg, faults, nil
}

// enabled returns the servers to lend, checked.
func (c *Config) enabled() ([]servers.Config, error) {
	var enabled []servers.Config
	for _, s := range c.Servers {
		if s.Disabled {
			continue
		}
		if err := s.Check(); err != nil {
			return nil, fmt.Errorf("server %q: %w", s.Name, err)
		}
		enabled = append(enabled, s)
	}
	if len(enabled) == 0 {
		return nil, errors.New("no server to lend: none is given, or all are disabled")
	}
	return enabled, nil
}

// parseEndpoint checks the access point's address.
func parseEndpoint(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil { // err quotes the address
		return nil, fmt.Errorf("%w: it is no URL; copy it whole", ErrEndpoint)
	}
	switch u.Scheme {
	case "ws", "wss", "http", "https":
	default:
		return nil, fmt.Errorf("%w: it must begin with ws:// or wss://", ErrEndpoint)
	}
	if u.Host == "" {
		return nil, fmt.Errorf("%w: it has no host", ErrEndpoint)
	}
	return u, nil
}

// label is a URL as it may be logged: without what may be a secret.
func label(u *url.URL) string { return u.Scheme + "://" + u.Host + u.EscapedPath() }

// hide returns err without the secrets of URLs: net/http puts them into its
// errors.
func hide(err error, urls ...*url.URL) error {
	text := err.Error()
	for _, u := range urls {
		if u.RawQuery != "" {
			text = strings.ReplaceAll(text, u.RawQuery, "…")
		}
		for _, values := range u.Query() {
			for _, v := range values {
				if len(v) > 3 {
					text = strings.ReplaceAll(text, v, "…")
				}
			}
		}
		if u.User != nil {
			text = strings.ReplaceAll(text, u.User.String()+"@", "")
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// environment is everything this process has but the token: the user's own keys
// are meant for the user's own programs.
func environment(own map[string]string) map[string]string {
	env := map[string]string{}
	for _, entry := range os.Environ() {
		if name, value, ok := strings.Cut(entry, "="); ok && name != "" && name != EndpointVariable {
			env[name] = value
		}
	}
	for name, value := range own {
		env[name] = value
	}
	return env
}
