package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"parley/broker"
	"parley/internal/api"
	"parley/internal/config"
	"parley/internal/metrics"
	"parley/internal/ota"
	"parley/internal/protocol"
	"parley/internal/session"
	"parley/internal/sweep"
	"parley/internal/vision"
	"parley/mcp"
	"parley/pipeline"
	"parley/udpaudio"
)

// Time limits of the HTTP server. Devices on slow mobile links send 2 KB.
const (
	httpHeaderTime = 5 * time.Second
	httpReadTime   = 15 * time.Second
	httpWriteTime  = 30 * time.Second
	httpIdleTime   = 60 * time.Second
	httpMaxHeader  = 16 << 10 // bytes
)

// A node is one running Parley: its sockets, its planes and what joins them.
type node struct {
	cfg      *config.Config
	log      *slog.Logger
	roles    *roles
	audio    *udpaudio.Server
	sessions *session.Server
	broker   *broker.Embedded
	web      *http.Server
	webAddr  net.Listener
	udpAddr  *net.UDPAddr
	ota      *ota.Handler
	metrics  *metrics.Metrics
	mcp      mcp.Counters
	sources  *sources
	eyes     *eyes
	vision   *vision.Handler
	api      *api.API
	announce *announcer // nil unless devices are shown to Home Assistant
	draining atomic.Bool
	onTurn   func(protocol.DeviceID, pipeline.Trace)
}

// newNode binds every socket, so that a taken port is known before anything is
// served. path is the file the configuration is from, for errors. onTurn, which may be nil, receives every turn.
func newNode(cfg *config.Config, path string, log *slog.Logger, onTurn func(protocol.DeviceID, pipeline.Trace)) (_ *node, err error) {
	n := &node{cfg: cfg, log: log, metrics: metrics.New(version), onTurn: onTurn}
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range undo {
				f()
			}
		}
	}()
	if n.roles, err = newRoles(cfg, path, log); err != nil {
		return nil, err
	}
	undo = append(undo, n.roles.close)
	udp, err := udpaudio.Listen(cfg.UDP.Listen)
	if err != nil {
		return nil, portFault(path, "udp.listen", err)
	}
	undo = append(undo, func() { udp.Close() })
	n.udpAddr = udp.LocalAddr().(*net.UDPAddr)
	n.audio = udpaudio.New(udp, udpaudio.Config{}, log)
	n.eyes = newEyes(cfg.Vision, n.roles)
	n.sessions = session.New(n.sessionConfig(), n.audio, log)
	if n.broker, err = broker.New(brokerConfig(cfg), n.sessions, log); err != nil {
		return nil, portFault(path, "mqtt.listen", err)
	}
	undo = append(undo, func() { n.broker.Close() })
	if n.webAddr, err = net.Listen("tcp", cfg.HTTP.Listen); err != nil {
		return nil, portFault(path, "http.listen", err)
	}
	undo = append(undo, func() { n.webAddr.Close() })
	if err := n.addTools(path); err != nil {
		return nil, err
	}
	n.web = &http.Server{
		Handler: n.handler(), ReadHeaderTimeout: httpHeaderTime, ReadTimeout: httpReadTime,
		WriteTimeout: httpWriteTime, IdleTimeout: httpIdleTime, MaxHeaderBytes: httpMaxHeader,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if err := n.register(); err != nil {
		return nil, err
	}
	return n, nil
}

// portFault is the error of a socket that could not be opened, at its line in
// the configuration.
func portFault(path, key string, err error) error {
	var op *net.OpError
	problem := err.Error()
	if errors.As(err, &op) {
		problem = fmt.Sprintf("cannot listen on %v: %v", op.Addr, op.Err)
	}
	return &usageError{config.Fault(path, key, problem, "stop the other program or choose another port")}
}

func brokerConfig(cfg *config.Config) broker.Config {
	m := cfg.MQTT
	c := broker.Config{
		Listen: m.Listen, Key: []byte(m.Key.Reveal()),
		Limits: broker.Limits{
			ConnectTimeout: m.ConnectTimeout, MaxPacket: m.MaxPacket, MaxDevices: m.MaxClients,
			ConnectRate: rate.Limit(m.ConnectRate), ConnectBurst: m.ConnectBurst,
			MessageRate: rate.Limit(m.MessageRate), MessageBurst: m.MessageBurst,
		},
	}
	for _, u := range m.User {
		c.Users = append(c.Users, broker.User{
			Name: u.Name, Password: broker.Secret(u.Password.Reveal()), Publish: u.Publish, Subscribe: u.Subscribe,
		})
	}
	if m.TLSCertificate != "" {
		c.TLSListen, c.CertificateFile, c.KeyFile = m.TLSListen, m.TLSCertificate, m.TLSKey
	}
	return c
}

func (n *node) sessionConfig() session.Config {
	c := session.DefaultConfig()
	c.Roles = func(id protocol.DeviceID) *session.Role { return n.roles.of(string(id)) }
	c.UDPHost = n.cfg.UDP.Address
	c.UDPPort = n.udpPort()
	c.HelloRate, c.HelloBurst = n.cfg.Session.HelloRate, n.cfg.Session.HelloBurst
	c.AudioWithin = n.cfg.Session.AudioTimeout
	c.MCP = mcp.Config{
		CallTimeout: n.cfg.Limits.Tool, SlowTimeout: n.cfg.Limits.ToolSlow,
		ResultLimit: n.cfg.Limits.ToolResult, ImageLimit: n.cfg.Limits.ToolImages, Version: version, Counters: &n.mcp,
		VisionFor: func(id protocol.DeviceID) mcp.Vision {
			host, err := n.sessions.Host(id)
			if err != nil {
				return mcp.Vision{} // it is gone
			}
			return n.eyes.of(id, host, n.webPort())
		},
	}
	c.Sources = func(id protocol.DeviceID, role *session.Role) []mcp.Member { return n.sources.members(id, role) }
	c.OnTurn, c.OnEvent = n.turn, n.event
	return c
}

// addTools makes what lends tools, and what operators use. The broker and the
// sessions are there; nothing is served yet.
func (n *node) addTools(path string) error {
	var err error
	house := ownHouse{n.sessions, n.roles, n.log}
	if n.sources, err = newSources(n.cfg, path, house, n.broker.Home(), n.log); err != nil {
		return err
	}
	if n.sources.home != nil && n.cfg.Home.Announce {
		n.announce = newAnnouncer(n.sources.home, n.sessions)
	}
	v := n.cfg.Vision
	n.vision = vision.New(vision.Config{
		Key: n.eyes.tokens, MaxBytes: int64(v.MaxBytes), Timeout: v.Timeout, Question: v.Question, Failed: v.Failed,
	}, n.eyes, n.log)
	tokens := make([]api.Token, 0, len(n.cfg.API.Token))
	for _, t := range n.cfg.API.Token {
		one := api.Token{Name: t.Name, Secret: t.Token.Reveal()}
		for _, s := range t.Scopes {
			one.Scopes = append(one.Scopes, api.Scope(s))
		}
		tokens = append(tokens, one)
	}
	n.api, err = api.New(api.Config{
		Tokens: tokens, Gateway: n.cfg.API.Gateway, GatewayKey: n.cfg.MQTT.Key.Reveal(), Hosts: n.cfg.API.Hosts, Version: version,
	}, fleet{n.sessions}, n.log)
	if err != nil {
		return &usageError{config.Fault(path, "api", err.Error(), "see docs/api.md")}
	}
	return nil
}

// event tells those who watch what happened to a device. It returns at once.
func (n *node) event(e session.Event) {
	if e.Kind == session.EventConnected || e.Kind == session.EventOpened {
		n.sources.own.Connected(e.Device.ID)
	}
	if n.announce != nil {
		n.announce.event(e)
	}
	told := api.Event{Kind: string(e.Kind), At: e.At, Device: e.Device.ID, SessionID: e.SessionID, Detail: e.Detail}
	if e.Params != nil {
		told.Data = e.Params
	}
	n.api.Publish(told)
}

// udpPort is the port devices are told.
func (n *node) udpPort() int {
	if n.cfg.UDP.Port != 0 {
		return n.cfg.UDP.Port
	}
	return n.udpAddr.Port
}

func (n *node) mqttPort() int { return n.broker.Addr().(*net.TCPAddr).Port }
func (n *node) webPort() int  { return n.webAddr.Addr().(*net.TCPAddr).Port }

// handler serves what devices, people and monitors ask for over HTTP.
func (n *node) handler() http.Handler {
	location, err := n.cfg.OTA.Location()
	if err != nil {
		location = time.Local // the configuration was checked: this does not happen
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", ota.Private(n.metrics.Handler()))
	n.ota = ota.New(ota.Config{
		Endpoint: n.cfg.OTA.MQTTEndpoint, MQTTPort: n.mqttPort(), UDPPort: n.udpPort(),
		Key: []byte(n.cfg.MQTT.Key.Reveal()), Keepalive: n.cfg.MQTT.Keepalive,
		Location: location, Public: n.cfg.OTA.Public,
		Status: func() ota.Status {
			s := n.sessions.Stats()
			return ota.Status{Devices: int(s.Devices), Sessions: int(s.Sessions), Draining: n.draining.Load()}
		},
		Checks: func(ctx context.Context) []ota.Check { return append(n.roles.checks(ctx), n.sources.checks()...) },
	}, n.log)
	n.sources.handle(mux)
	mux.Handle(vision.Path, n.vision)
	mux.Handle(api.Path, n.api)
	mux.Handle(api.MCPPath, n.sources.mcpDoor(n.api))
	mux.Handle("/", n.ota)
	return mux
}

// run serves until ctx ends and then drains. It returns when everything has
// stopped.
func (n *node) run(ctx context.Context) error {
	defer n.roles.close()
	// The planes outlive ctx: they carry the goodbyes.
	planes, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	// Tools outlive the sessions that use them, and end before the broker, which
	// carries their farewell to the home.
	tools, stopTools := context.WithCancel(planes)
	defer stopTools()
	lent := make(chan struct{})
	go func() { // ends with tools
		defer close(lent)
		n.runTools(tools)
	}()
	failed := make(chan error, 3)
	go func() { failed <- n.audio.Serve(planes) }()
	go func() { failed <- n.broker.Serve(planes) }()
	go func() {
		err := n.web.Serve(n.webAddr)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		failed <- err
	}()
	tried := make(chan struct{})
	go func() { // ends with the trial, or with the planes
		defer close(tried)
		if err := n.roles.try(planes); err != nil && planes.Err() == nil {
			n.log.Error("a provider does not work", "error", err)
		}
	}()
	swept := make(chan struct{})
	go func() { // ends with the planes
		defer close(swept)
		sweep.Run(planes, func() uint64 { return uint64(n.broker.Stats().Accepted) })
	}()
	running := 3
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		running--
	}
	n.drain(ctx)
	stopTools()
	<-lent
	stop()
	for ; running > 0; running-- {
		err = errors.Join(err, <-failed)
	}
	<-tried
	<-swept
	return err
}

// runTools serves what lends tools until ctx ends.
func (n *node) runTools(ctx context.Context) {
	var work sync.WaitGroup
	if n.announce != nil {
		for range askers {
			work.Go(func() { n.announce.run(ctx) })
		}
	}
	n.sources.run(ctx)
	work.Wait()
}

// drain says goodbye to everybody: no new sessions, sentences may end within the
// grace, then the HTTP server stops.
func (n *node) drain(ctx context.Context) {
	n.draining.Store(true)
	n.log.Info("draining", "grace", n.cfg.Session.Drain)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.Session.Drain)
	defer cancel()
	n.sessions.Drain(grace)
	if err := n.web.Close(); err != nil {
		n.log.Debug("http server closed", "error", err)
	}
}

// turn records a finished turn.
func (n *node) turn(id protocol.DeviceID, t pipeline.Trace) {
	for stage, at := range map[metrics.Stage]time.Time{
		metrics.Endpoint: t.Endpoint, metrics.Transcript: t.Transcribed, metrics.FirstToken: t.FirstToken,
		metrics.FirstAudio: t.FirstAudio, metrics.FirstPacket: t.FirstPacket,
	} {
		if !at.IsZero() && !t.Prompted { // nobody waited for what nobody asked
			n.metrics.ObserveTurn(stage, at.Sub(t.SpeechEnd))
		}
	}
	l := t.Line
	n.metrics.ObserveLine(metrics.Line{
		Received: l.Received, Lost: l.Lost, Late: l.Late, Reordered: l.Reordered, Jitter: l.Jitter, Lead: l.Lead, Dry: l.Dry,
	})
	if n.announce != nil {
		n.announce.turn(id, t)
	}
	n.api.Publish(turnEvent(id, t))
	if !t.FirstPacket.IsZero() {
		n.metrics.ObserveTurn(metrics.Playout, t.PlayoutEnd.Sub(t.FirstPacket))
	}
	for _, tool := range t.Tools {
		n.metrics.ObserveTurn(metrics.Tool, tool.Took)
	}
	switch {
	case t.Err != nil:
		n.metrics.CountTurn(metrics.Failed)
	case t.CancelledBy != "":
		n.metrics.CountTurn(metrics.Interrupted)
	default:
		n.metrics.CountTurn(metrics.Completed)
	}
	if n.onTurn != nil {
		n.onTurn(id, t)
	}
}
