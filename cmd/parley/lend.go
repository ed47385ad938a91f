package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"parley/internal/protocol"
	"parley/mcp/access"
	"parley/mcp/pipe"
	"parley/mcp/servers"
)

// guardCommand is how this program runs itself to outlive its own sudden end; see
// [servers.Guard]. It is not for people.
const guardCommand = "mcp-guard"

func guard(_ context.Context, _ []string, _ io.Writer) error {
	servers.ServeGuard(os.Stdin)
	return nil
}

// token prints a token for the access point.
func token(_ context.Context, args []string, out io.Writer) error {
	f := newFlags("token", out)
	path := f.String("config", "", "configuration `FILE`, of the server the token is for")
	device := f.String("device", "", "lend to conversations of this device, a MAC `ADDRESS`")
	role := f.String("role", "", "lend to conversations in this `ROLE`")
	all := f.Bool("all", false, "lend to all conversations")
	id := f.String("id", "", "`NAME` of the token in logs and in [mcp.access] revoked (default: random)")
	expires := f.Duration("expires", 0, "how long the token is valid, such as 720h; 0 for ever")
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := load(path)
	if err != nil {
		return err
	}
	key := accessKey(cfg)
	if key == nil {
		return &usageError{errors.New("there is no access point: set [mcp.access] key, or [mqtt] key")}
	}
	scope := access.Scope{ID: cmp.Or(*id, access.NewID()), Role: *role, All: *all}
	if *device != "" {
		if scope.Device, err = protocol.ParseDeviceID(*device); err != nil {
			return &usageError{err}
		}
	}
	if *expires < 0 {
		return &usageError{fmt.Errorf("--expires is %v; give a time to come", *expires)}
	}
	if *expires > 0 {
		scope.Expires = time.Now().Add(*expires)
	}
	if *role != "" {
		if _, ok := cfg.Role[*role]; !ok {
			return &usageError{fmt.Errorf("there is no role %q in the configuration", *role)}
		}
	}
	t, err := access.Mint(key, scope)
	if err != nil {
		return &usageError{err}
	}
	fmt.Fprintln(out, t)
	return nil
}

// lend connects programs of this machine to an access point, ours or another.
func lend(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && (args[0] == "--help" || args[0] == "-h") {
		fmt.Fprintf(out, `parley pipe PROGRAM [ARGUMENT ...]   lend the tools of one program
parley pipe                          lend those of an mcp_config.json

%s names the access point, such as wss://host/mcp_endpoint/mcp/?token=…,
%s the file where it is not ./mcp_config.json.
`, pipe.EndpointVariable, pipe.FileVariable)
		return nil
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	cfg, faults, err := pipe.FromArgs(args, os.LookupEnv)
	for _, fault := range faults {
		log.Warn("mcp server file", "fault", fault.Error(), "used", fault.Note)
	}
	if err != nil {
		return &usageError{err}
	}
	cfg.Guard = servers.NewGuard(log, "/proc/self/exe", guardCommand)
	defer cfg.Guard.Close()
	return pipe.Run(ctx, cfg, log)
}
