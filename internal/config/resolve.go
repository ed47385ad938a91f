package config

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// Prefixes of values that stand for something kept elsewhere.
const (
	fromEnv  = "env:"
	fromFile = "file:"
)

// maxSecret bounds the file of a secret, in bytes.
const maxSecret = 64 << 10

// A resolver settles what needs the whole configuration: which providers each
// role uses, the secrets of those, and the identity of devices.
type resolver struct {
	*report
	config *Config
	dir    string // of the configuration file
	env    func(string) string
}

// resolve completes a bound configuration and checks it.
func resolve(c *Config, r *report, dir string, env func(string) string) {
	x := &resolver{report: r, config: c, dir: dir, env: env}
	x.stages()
	x.devices()
	x.secrets()
	checker{r}.all(c)
}

// A stage is one kind of provider, as roles and provider tables name it.
type stage struct {
	key      string
	builtIn  string // the table of the offline default
	list     func(*Role) *[]string
	provided []string // names of the tables there are
}

func (c *Config) stages() []stage {
	return []stage{
		{"asr", "pocketsphinx", func(r *Role) *[]string { return &r.ASR }, slices.Sorted(maps.Keys(c.ASR))},
		{"llm", "rules", func(r *Role) *[]string { return &r.LLM }, slices.Sorted(maps.Keys(c.LLM))},
		{"tts", "espeak", func(r *Role) *[]string { return &r.TTS }, slices.Sorted(maps.Keys(c.TTS))},
	}
}

// stages gives each role a list for each stage: its own, else its provider's
// table, else the default role's, else the offline default.
func (x *resolver) stages() {
	x.stagesOf(DefaultRole)
	for _, name := range slices.Sorted(maps.Keys(x.config.Role)) {
		if name != DefaultRole {
			x.stagesOf(name)
		}
	}
}

func (x *resolver) stagesOf(name string) {
	role, base := x.config.Role[name], x.config.Role[DefaultRole]
	at := keys("role", name)
	for _, s := range x.config.stages() {
		switch list := s.list(&role); {
		case len(*list) > 0:
			x.listed(at.key(s.key), s, *list)
		case role.Provider != "":
			*list = []string{role.Provider}
			x.shorthand(at, s, role.Provider)
		case name != DefaultRole:
			*list = slices.Clone(*s.list(&base))
		default:
			*list = []string{s.builtIn}
		}
	}
	x.vision(at, &role)
	x.config.Role[name] = role
}

// vision gives a role that lists none the models of its own that take pictures.
func (x *resolver) vision(at path, role *Role) {
	for _, s := range x.config.stages() {
		if s.key == "llm" {
			x.listed(at.key("vision"), s, role.Vision)
		}
	}
	if len(role.Vision) > 0 {
		for i, name := range role.Vision {
			if t, ok := x.config.LLM[name]; ok && (t.OpenAI == nil || !t.OpenAI.Vision) {
				x.add(at.key("vision").index(i), fmt.Sprintf("[%s] takes no pictures", keys("llm", name)), "set vision = true there if it does, or name another")
			}
		}
		return
	}
	role.Vision = []string{}
	for _, name := range role.LLM {
		if t := x.config.LLM[name]; t.OpenAI != nil && t.OpenAI.Vision {
			role.Vision = append(role.Vision, name)
		}
	}
}

func (x *resolver) listed(at path, s stage, list []string) {
	for i, name := range list {
		if slices.Contains(s.provided, name) {
			continue
		}
		remedy := fmt.Sprintf("add a table [%s], or use one of %s", keys(s.key, name), quotedList(s.provided))
		if near := nearest(name, s.provided); near != "" {
			remedy = fmt.Sprintf("did you mean %q?", near)
		}
		x.add(at.index(i), fmt.Sprintf("there is no provider %q", name), remedy)
	}
}

func (x *resolver) shorthand(at path, s stage, name string) {
	if slices.Contains(s.provided, name) {
		return
	}
	x.add(at.key("provider"), fmt.Sprintf("there is no table [%s]", keys(s.key, name)),
		fmt.Sprintf("add it, or list %s = [\u2026] from %s", s.key, quotedList(s.provided)))
}

// devices normalises the MAC addresses devices are keyed by and checks their
// roles.
func (x *resolver) devices() {
	devices := make(map[string]Device, len(x.config.Device))
	roles := slices.Sorted(maps.Keys(x.config.Role))
	for _, written := range slices.Sorted(maps.Keys(x.config.Device)) {
		d := x.config.Device[written]
		at := keys("device", written)
		if d.Role == "" {
			d.Role = DefaultRole
		}
		if !slices.Contains(roles, d.Role) {
			remedy := "the roles are " + quotedList(roles)
			if near := nearest(d.Role, roles); near != "" {
				remedy = fmt.Sprintf("did you mean %q?", near)
			}
			x.add(at.key("role"), fmt.Sprintf("there is no role %q", d.Role), remedy)
		}
		mac, err := net.ParseMAC(strings.ReplaceAll(written, "_", ":"))
		if err != nil || len(mac) != 6 {
			x.add(at, fmt.Sprintf("%q is no MAC address", written), `write it as "a0:85:e3:f4:49:34", in quotes`)
			continue
		}
		if _, twice := devices[mac.String()]; twice {
			x.add(at, fmt.Sprintf("device %s has another table", mac), "keep one of them")
			continue
		}
		devices[mac.String()] = d
	}
	x.config.Device = devices
}

// Providers names provider tables by stage.
type Providers struct {
	ASR, LLM, TTS []string // sorted
}

// Used returns the tables that some role names. The others need not work: their
// secrets may be missing.
func (c *Config) Used() Providers {
	used := map[string]map[string]bool{}
	for _, s := range c.stages() {
		used[s.key] = map[string]bool{}
		for _, role := range c.Role {
			for _, name := range *s.list(&role) {
				used[s.key][name] = true
			}
			if s.key == "llm" {
				for _, name := range role.Vision {
					used[s.key][name] = true
				}
			}
		}
	}
	sorted := func(stage string) []string { return slices.Sorted(maps.Keys(used[stage])) }
	return Providers{sorted("asr"), sorted("llm"), sorted("tts")}
}

// secrets reads the secrets in use and the addresses of services.
func (x *resolver) secrets() {
	x.secret(keys("mqtt", "key"), &x.config.MQTT.Key, true,
		`set it, or write key = "" for open enrolment on private networks`)
	x.toolSecrets()
	used := x.config.Used()
	for name, t := range x.config.ASR {
		if t.OpenAI != nil {
			x.service(keys("asr", name), &t.OpenAI.BaseURL, &t.OpenAI.APIKey, slices.Contains(used.ASR, name))
		}
	}
	for name, t := range x.config.LLM {
		if t.OpenAI != nil {
			x.service(keys("llm", name), &t.OpenAI.BaseURL, &t.OpenAI.APIKey, slices.Contains(used.LLM, name))
		}
	}
	for name, t := range x.config.TTS {
		if t.OpenAI != nil {
			x.service(keys("tts", name), &t.OpenAI.BaseURL, &t.OpenAI.APIKey, slices.Contains(used.TTS, name))
		}
	}
}

func (x *resolver) service(at path, baseURL *string, apiKey *Secret, needed bool) {
	x.secret(at.key("api_key"), apiKey, needed, `set it, or write api_key = "" for a service that wants none`)
	origin := ""
	if name, ok := strings.CutPrefix(*baseURL, fromEnv); ok {
		*baseURL, origin = strings.TrimSpace(x.env(name)), " (from the environment variable "+name+")"
		if *baseURL == "" {
			*baseURL = defaultBaseURL
		}
	}
	*baseURL = strings.TrimRight(*baseURL, "/")
	if problem := urlProblem(*baseURL); problem != "" {
		x.add(at.key("base_url"), problem+origin, `give a URL such as "http://localhost:11434/v1"`)
	}
}

// urlProblem says what is wrong with the address of a service. It does not
// repeat the address, which may hold a password.
func urlProblem(s string) string {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "is no URL"
	case u.Scheme != "http" && u.Scheme != "https":
		return "does not begin with http:// or https://"
	case u.Hostname() == "":
		return "has no host"
	case u.User != nil:
		return "has a user name in it; keys go to api_key"
	case u.RawQuery != "" || u.Fragment != "":
		return "has a query or fragment"
	}
	return ""
}

// secret reads s from where it is kept. A secret nobody needs may be missing.
func (x *resolver) secret(at path, s *Secret, needed bool, remedy string) {
	source := s.source()
	value, problem := x.read(source)
	*s = newSecret(source, value)
	if problem != "" && needed {
		x.add(at, problem, remedy)
	}
}

// read returns the secret a source stands for, or what is wrong with it.
func (x *resolver) read(source string) (value, problem string) {
	if name, ok := strings.CutPrefix(source, fromEnv); ok {
		if value = strings.TrimSpace(x.env(name)); value == "" {
			problem = fmt.Sprintf("the environment variable %s is not set", name)
		}
		return value, problem
	}
	name, ok := strings.CutPrefix(source, fromFile)
	if !ok {
		return source, ""
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(x.dir, name)
	}
	text, err := readFile(name, maxSecret)
	if err != nil {
		return "", fmt.Sprintf("the file %s cannot be read: %v", name, err)
	}
	if value = strings.TrimSpace(text); value == "" {
		problem = fmt.Sprintf("the file %s is empty", name)
	}
	return value, problem
}
