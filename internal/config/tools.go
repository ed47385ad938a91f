package config

import (
	"fmt"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// MCP says where tools come from besides the devices themselves.
type MCP struct {
	Files  []string             `toml:"files"`  // of servers, as other programs have them (mcp_config.json)
	Server map[string]MCPServer `toml:"server"` // keyed by the name logs and patterns know it by
	Access MCPAccess            `toml:"access"`
}

// An MCPServer is a program to run, or an address to call.
type MCPServer struct {
	Command   string            `toml:"command"`
	Args      []string          `toml:"args"`
	Env       map[string]Secret `toml:"env"` // all the program gets beside PATH, HOME and the like
	Dir       string            `toml:"dir"`
	URL       string            `toml:"url"`
	Headers   map[string]Secret `toml:"headers"`
	Transport string            `toml:"transport"` // stdio, http or sse; "": what command and url suggest
	Timeout   time.Duration     `toml:"timeout"`   // of one call, up to 10m; 0: limits.tool
	Disabled  bool              `toml:"disabled"`
}

// MCPAccess is the access point, where users' own programs lend their tools.
type MCPAccess struct {
	Key     Secret   `toml:"key"`     // signs tokens; unset: mqtt.key, and without that there is no access point
	Revoked []string `toml:"revoked"` // ids of tokens
}

// Tools are Parley's own.
type Tools struct {
	Dir        string   `toml:"dir"`         // of timers, alarms and reminders; made if missing
	Fetch      bool     `toml:"fetch"`       // let models read web pages
	FetchHosts []string `toml:"fetch_hosts"` // the only ones; empty: any public host
}

// Vision is where cameras of devices send their pictures.
type Vision struct {
	URL      string        `toml:"url"` // told to devices; "": http, the host they use, and the port of http.listen
	Prompt   string        `toml:"prompt"`
	Question string        `toml:"question"`  // where the device asks none
	Failed   string        `toml:"failed"`    // what is answered when the model fails
	Timeout  time.Duration `toml:"timeout"`   // of the model, 1s to 2m
	MaxBytes int           `toml:"max_bytes"` // of a request, 64 KiB to 32 MiB
}

// API is what operators and programs use.
type API struct {
	Token   []APIToken `toml:"token"`
	Gateway bool       `toml:"gateway"` // also as the Node gateway's, with its daily token
	Hosts   []string   `toml:"hosts"`   // names of this server that web pages may call it by
}

// An APIToken lets its holder in.
type APIToken struct {
	Name   string   `toml:"name"`
	Token  Secret   `toml:"token"`
	Scopes []string `toml:"scopes"` // read, control, admin
}

// Home is the home on the same broker.
type Home struct {
	Discovery string `toml:"discovery"`  // prefix of discovery topics
	Announce  bool   `toml:"announce"`   // show voice devices to Home Assistant
	LastWords bool   `toml:"last_words"` // and what was last said
}

// An MQTTUser is a home client's right to connect: a lamp, a bridge, Home
// Assistant.
type MQTTUser struct {
	Name      string   `toml:"name"`
	Password  Secret   `toml:"password"`
	Publish   []string `toml:"publish"`   // topic filters
	Subscribe []string `toml:"subscribe"` // topic filters
}

// An MQTTTool makes a message a tool.
type MQTTTool struct {
	Name          string             `toml:"name"`
	Description   string             `toml:"description"`
	Arguments     map[string]MQTTArg `toml:"arguments"`
	Topic         string             `toml:"topic"`   // with {argument}
	Payload       string             `toml:"payload"` // with {argument}
	Retain        bool               `toml:"retain"`
	ReplyTopic    string             `toml:"reply_topic"` // "": no reply is waited for
	ReplyWait     time.Duration      `toml:"reply_wait"`  // up to 1m; 0: 5s
	ReplyTemplate string             `toml:"reply_template"`
}

// An MQTTArg is one argument of such a tool.
type MQTTArg struct {
	Type        string   `toml:"type"` // string, integer, number or boolean
	Description string   `toml:"description"`
	Enum        []string `toml:"enum"`
	Min         *float64 `toml:"min"`
	Max         *float64 `toml:"max"`
	Required    bool     `toml:"required"`
}

// toolSecrets reads the secrets of what is not disabled.
func (x *resolver) toolSecrets() {
	for _, name := range slices.Sorted(maps.Keys(x.config.MCP.Server)) {
		s := x.config.MCP.Server[name]
		at := keys("mcp", "server", name)
		for key, m := range map[string]map[string]Secret{"env": s.Env, "headers": s.Headers} {
			for variable, value := range m {
				x.secret(at.key(key).key(variable), &value, !s.Disabled, "set it, or remove the line")
				m[variable] = value
			}
		}
		if s.Dir != "" && !filepath.IsAbs(s.Dir) {
			s.Dir = filepath.Join(x.dir, s.Dir)
			x.config.MCP.Server[name] = s
		}
	}
	for i, name := range x.config.MCP.Files {
		if !filepath.IsAbs(name) {
			x.config.MCP.Files[i] = filepath.Join(x.dir, name)
		}
	}
	x.secret(keys("mcp", "access", "key"), &x.config.MCP.Access.Key, true, `set it, or write key = "" to use mqtt.key`)
	for i := range x.config.API.Token {
		x.secret(keys("api", "token").index(i).key("token"), &x.config.API.Token[i].Token, true, "set it, or remove the token")
	}
	for i := range x.config.MQTT.User {
		x.secret(keys("mqtt", "user").index(i).key("password"), &x.config.MQTT.User[i].Password, true, "set it, or remove the user")
	}
}

// Bounds of what tools need.
const (
	minToken   = 16 // bytes of a token of the API, and of the key of others: they may be tried from anywhere
	minHomePwd = 4  // bytes of a lamp's password: many take no more than a few
)

func (k checker) tools(c *Config) {
	for _, name := range slices.Sorted(maps.Keys(c.MCP.Server)) {
		k.mcpServer(keys("mcp", "server", name), c.MCP.Server[name])
	}
	if n := len(c.MCP.Access.Key.Reveal()); n > 0 && n < minToken {
		k.add(keys("mcp", "access", "key"), fmt.Sprintf("has %d bytes", n), fmt.Sprintf("use at least %d", minToken))
	}
	k.text(keys("tools", "dir"), c.Tools.Dir)
	if !c.Tools.Fetch && len(c.Tools.FetchHosts) > 0 {
		k.add(keys("tools", "fetch_hosts"), "lists hosts that are not fetched from", "set fetch = true, or remove them")
	}
	k.vision(&c.Vision)
	k.api(&c.API, c.MQTT.Key.IsSet())
	k.home(c)
}

func (k checker) mcpServer(p path, s MCPServer) {
	transports := []string{"", "stdio", "http", "sse"}
	k.choice(p.key("transport"), s.Transport, transports...)
	k.span(p.key("timeout"), s.Timeout, 0, 10*time.Minute)
	switch {
	case s.Command == "" && s.URL == "":
		k.add(p, "has neither command nor url", "say which program to run, or which address to call")
	case s.Command != "" && s.URL != "":
		k.add(p.key("url"), "stands beside a command", "keep one of them: a program speaks for itself")
	case s.Command != "" && (s.Transport == "http" || s.Transport == "sse"):
		k.add(p.key("transport"), fmt.Sprintf("is %q for a program", s.Transport), "give a url for it, or remove the line")
	case s.URL != "" && s.Transport == "stdio":
		k.add(p.key("transport"), `is "stdio" for an address`, `write "http" or "sse", or remove the line`)
	case s.URL != "":
		if u, err := url.Parse(s.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			k.add(p.key("url"), "is no http:// or https:// address", `give one such as "http://localhost:3000/mcp"`)
		}
		if len(s.Args) > 0 || len(s.Env) > 0 {
			k.add(p.key("args"), "are given to an address", "args and env are a program's")
		}
	}
}

func (k checker) vision(v *Vision) {
	if v.URL != "" {
		if problem := urlProblem(v.URL); problem != "" {
			k.add(keys("vision", "url"), problem, `give the address devices reach, such as "https://voice.example.org/mcp/vision/explain"`)
		}
	}
	k.text(keys("vision", "question"), v.Question)
	k.text(keys("vision", "failed"), v.Failed)
	k.span(keys("vision", "timeout"), v.Timeout, time.Second, 2*time.Minute)
	k.number(keys("vision", "max_bytes"), v.MaxBytes, 64<<10, 32<<20)
}

func (k checker) api(a *API, signed bool) {
	names := map[string]bool{}
	for i, t := range a.Token {
		at := keys("api", "token").index(i)
		k.text(at.key("name"), t.Name)
		if names[t.Name] {
			k.add(at.key("name"), fmt.Sprintf("%q is the name of another token", t.Name), "logs tell tokens apart by name; rename one")
		}
		names[t.Name] = true
		if n := len(t.Token.Reveal()); n < minToken {
			k.add(at.key("token"), fmt.Sprintf("has %d bytes", n),
				fmt.Sprintf("use at least %d; 'openssl rand -base64 32' prints a good one", minToken))
		}
		if len(t.Scopes) == 0 {
			k.add(at.key("scopes"), "are empty", `give some of "read", "control" and "admin"`)
		}
		for j, s := range t.Scopes {
			k.choice(at.key("scopes").index(j), s, "read", "control", "admin")
		}
	}
	if a.Gateway && !signed {
		k.add(keys("api", "gateway"), "needs mqtt.key, which its daily token is made of", "set mqtt.key, or gateway = false")
	}
}

func (k checker) home(c *Config) {
	names := map[string]bool{}
	for i, u := range c.MQTT.User {
		at := keys("mqtt", "user").index(i)
		k.text(at.key("name"), u.Name)
		if names[u.Name] {
			k.add(at.key("name"), fmt.Sprintf("%q has another table", u.Name), "keep one of them")
		}
		names[u.Name] = true
		if n := len(u.Password.Reveal()); n < minHomePwd {
			k.add(at.key("password"), fmt.Sprintf("has %d bytes", n), fmt.Sprintf("use at least %d", minHomePwd))
		}
	}
	if p := c.Home.Discovery; p == "" || strings.ContainsAny(p, "+#") || strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/") {
		k.add(keys("home", "discovery"), fmt.Sprintf("%q is no prefix of topics", p), `write it as Home Assistant has it, "homeassistant"`)
	}
	if len(c.MQTT.User) > 0 {
		return
	}
	const remedy = "add a [[mqtt.user]] that the other side connects as"
	if c.Home.Announce {
		k.add(keys("home", "announce"), "has nobody to announce to: there is no home client", remedy)
	}
	if len(c.MQTT.Tool) > 0 {
		k.add(keys("mqtt", "tool"), "has nobody to send to: there is no home client", remedy)
	}
}
