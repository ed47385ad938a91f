package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"parley/internal/config"
	"parley/internal/ota"
)

// defaultConfig is read when it is there and no other is named.
const defaultConfig = "config.toml"

// load reads the configuration at *path. An empty path becomes config.toml in
// the working directory if there is one, and else means the built-in defaults.
func load(path *string) (*config.Config, error) {
	if *path == "" {
		if _, err := os.Stat(defaultConfig); err == nil {
			*path = defaultConfig
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, &usageError{err}
		}
	}
	cfg, err := config.Load(*path, os.Getenv)
	if err != nil {
		return nil, &usageError{err}
	}
	return cfg, nil
}

// newLogger returns the logger that the configuration asks for.
func newLogger(cfg config.Log, out io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo // the configuration was checked: this does not happen
	}
	o := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(out, o))
	}
	return slog.New(slog.NewTextHandler(out, o))
}

// serve serves devices until it is told to stop.
func serve(ctx context.Context, args []string, out io.Writer) error {
	f := newFlags("serve", out)
	path := f.String("config", "", "configuration `FILE` (default config.toml if it is there, else built-in)")
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := load(path)
	if err != nil {
		return err
	}
	log := newLogger(cfg.Log, os.Stderr)
	n, err := newNode(cfg, *path, log, nil)
	if err != nil {
		return err
	}
	n.greet(out)
	log.Info("ready", "version", version, "mqtt", n.broker.Addr().String(), "udp", n.udpAddr.String(),
		"http", n.webAddr.Addr().String(), "signed_credentials", cfg.MQTT.Key.IsSet())
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	ctx, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() { // ends with ctx
		defer close(watched)
		n.obey(ctx, hangups, *path)
	}()
	err = n.run(ctx)
	stop()
	<-watched
	return err
}

// obey reads the configuration again at every SIGHUP and applies what can be
// applied without ending anybody's session: the revoked tokens of the access
// point. A bad file changes nothing.
func (n *node) obey(ctx context.Context, hangups <-chan os.Signal, path string) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
		}
		cfg, err := config.Load(path, os.Getenv)
		if err != nil {
			n.log.Error("configuration not read again; the old one stays", "error", err)
			continue
		}
		if n.sources.access != nil {
			n.sources.access.SetRevoked(cfg.MCP.Access.Revoked)
		}
		n.log.Info("configuration read again", "revoked_tokens", len(cfg.MCP.Access.Revoked),
			"others", "all other keys count from the next start")
	}
}

// greet tells a person what to type into a device.
func (n *node) greet(out io.Writer) {
	fmt.Fprintf(out, "Parley %s is ready.\n\nType this into a device as its OTA URL (Wi-Fi set-up page, advanced):\n", version)
	for _, ip := range reachable(n.webAddr.Addr().(*net.TCPAddr).IP) {
		fmt.Fprintf(out, "  http://%s%s\n", net.JoinHostPort(ip, fmt.Sprint(n.webPort())), ota.Path)
	}
	fmt.Fprintf(out, "\nMQTT %v   UDP %v   HTTP %v   (open these ports in a firewall)\n\n", n.broker.Addr(), n.udpAddr, n.webAddr.Addr())
}

// reachable lists the IPv4 addresses that devices could reach a listener by.
func reachable(listen net.IP) []string {
	if listen != nil && !listen.IsUnspecified() {
		return []string{listen.String()}
	}
	var out []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{"127.0.0.1"}
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil && !ip.IP.IsLoopback() && !ip.IP.IsLinkLocalUnicast() {
			out = append(out, ip.IP.String())
		}
	}
	if len(out) == 0 {
		out = append(out, "127.0.0.1")
	}
	return out
}

// check validates a configuration and everything it names.
func check(ctx context.Context, args []string, out io.Writer) error {
	f := newFlags("check", out)
	path := f.String("config", "", "configuration `FILE` (default config.toml if it is there, else built-in)")
	if err := parse(f, args); err != nil {
		return err
	}
	cfg, err := load(path)
	if err != nil {
		return err
	}
	r, err := newRoles(cfg, *path, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer r.close()
	if err := r.try(ctx); err != nil {
		return err
	}
	s := &sources{log: newLogger(cfg.Log, os.Stderr)}
	if err := s.addServers(cfg, *path); err != nil {
		return err
	}
	if _, err := newHome(cfg, *path, nil, nil, s.log); err != nil {
		return err
	}
	fmt.Fprintln(out, "the configuration is good")
	return nil
}
