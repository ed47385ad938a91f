package config

import (
	"slices"
	"strings"
	"testing"
)

func TestFaultsOfTools(t *testing.T) {
	const (
		user  = "[[mqtt.user]]\nname = 'home'\npassword = 'secret'\n"
		token = "[[api.token]]\nname = 'a'\ntoken = '0123456789abcdef'\n"
	)
	tests := map[string]struct{ text, want string }{
		"server of nothing":     {"[mcp.server.x]\nargs = ['y']\n", `1: mcp.server.x: has neither command nor url; say which program to run, or which address to call`},
		"server of both":        {"[mcp.server.x]\ncommand = 'y'\nurl = 'http://h/mcp'\n", `3: mcp.server.x.url: stands beside a command; keep one of them: a program speaks for itself`},
		"transport":             {"[mcp.server.x]\nurl = 'http://h/mcp'\ntransport = 'htp'\n", `3: mcp.server.x.transport: is "htp"; did you mean "http"?`},
		"program by HTTP":       {"[mcp.server.x]\ncommand = 'y'\ntransport = 'sse'\n", `3: mcp.server.x.transport: is "sse" for a program; give a url for it, or remove the line`},
		"address by stdio":      {"[mcp.server.x]\nurl = 'http://h/mcp'\ntransport = 'stdio'\n", `3: mcp.server.x.transport: is "stdio" for an address; write "http" or "sse", or remove the line`},
		"no address":            {"[mcp.server.x]\nurl = 'h:3000'\n", `2: mcp.server.x.url: is no http:// or https:// address; give one such as "http://localhost:3000/mcp"`},
		"arguments of address":  {"[mcp.server.x]\nurl = 'http://h/mcp'\nargs = ['y']\n", `3: mcp.server.x.args: are given to an address; args and env are a program's`},
		"too patient":           {"[mcp.server.x]\ncommand = 'y'\ntimeout = '1h'\n", `3: mcp.server.x.timeout: is 1h; allowed is 0s to 10m`},
		"environment missing":   {"[mcp.server.x]\ncommand = 'y'\nenv = { K = 'env:NOT_THERE' }\n", `3: mcp.server.x.env.K: the environment variable NOT_THERE is not set; set it, or remove the line`},
		"number in environment": {"[mcp.server.x]\ncommand = 'y'\nenv = { K = 7 }\n", `3: mcp.server.x.env.K: is a whole number; give text, such as "env:NAME" or "file:/path"`},
		"weak access key":       {"[mcp.access]\nkey = 'abc'\n", `2: mcp.access.key: has 3 bytes; use at least 16`},
		"hosts without fetch":   {"[tools]\nfetch_hosts = ['a.org']\n", `2: tools.fetch_hosts: lists hosts that are not fetched from; set fetch = true, or remove them`},
		"weak token":            {"[[api.token]]\nname = 'a'\ntoken = 'abc'\nscopes = ['read']\n", `3: api.token[0].token: has 3 bytes; use at least 16; 'openssl rand -base64 32' prints a good one`},
		"scope":                 {token + "scopes = ['reed']\n", `4: api.token[0].scopes[0]: is "reed"; did you mean "read"?`},
		"no scope":              {token, `1: api.token[0].scopes: are empty; give some of "read", "control" and "admin"`},
		"token twice":           {token + "scopes = ['read']\n" + token + "scopes = ['read']\n", `6: api.token[1].name: "a" is the name of another token; logs tell tokens apart by name; rename one`},
		"gateway without key":   {"[api]\ngateway = true\n", `2: api.gateway: needs mqtt.key, which its daily token is made of; set mqtt.key, or gateway = false`},
		"weak lamp":             {"[[mqtt.user]]\nname = 'a'\npassword = 'abc'\n", `3: mqtt.user[0].password: has 3 bytes; use at least 4`},
		"user twice":            {user + user, `5: mqtt.user[1].name: "home" has another table; keep one of them`},
		"wildcard prefix":       {user + "[home]\ndiscovery = 'home/#'\n", `5: home.discovery: "home/#" is no prefix of topics; write it as Home Assistant has it, "homeassistant"`},
		"nobody to tell":        {"[home]\nannounce = true\n", `2: home.announce: has nobody to announce to: there is no home client; add a [[mqtt.user]] that the other side connects as`},
		"nobody to send to":     {"[[mqtt.tool]]\nname = 'a'\ntopic = 't'\n", `1: mqtt.tool: has nobody to send to: there is no home client; add a [[mqtt.user]] that the other side connects as`},
		"blind model":           {"[role.default]\nvision = ['rules']\n", `2: role.default.vision[0]: [llm.rules] takes no pictures; set vision = true there if it does, or name another`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var lines []string
			for _, e := range faults(t, tt.text) {
				lines = append(lines, strings.TrimPrefix(e.Error(), e.File+":"))
			}
			if !slices.Contains(lines, tt.want) {
				t.Errorf("got\n%q\nwant\n%q", lines, tt.want)
			}
		})
	}
}

// Of a role that lists nobody, those of its models see that can.
func TestVisionOfRoles(t *testing.T) {
	c := load(t, "[llm.openai]\nvision = true\napi_key = 'k'\n[role.default]\nllm = ['rules', 'openai']\n[role.blind]\nllm = ['rules']\n[role.shown]\nllm = ['rules']\nvision = ['openai']\n")
	for role, want := range map[string][]string{"default": {"openai"}, "blind": {}, "shown": {"openai"}} {
		if got := c.Role[role].Vision; !slices.Equal(got, want) {
			t.Errorf("role %s is shown to %q, want %q", role, got, want)
		}
	}
	if used := load(t, "[llm.openai]\nvision = true\napi_key = 'k'\n[role.default]\nvision = ['openai']\n").Used(); !slices.Contains(used.LLM, "openai") {
		t.Errorf("a model that only sees is not among those in use: %q", used.LLM)
	}
}
