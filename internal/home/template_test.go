package home_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"parley/internal/home"
)

// TestTemplates: what Jinja itself knows was compared with Jinja 3.1.2, which
// differs only in the space it puts into tojson; the rest is as Home Assistant
// documents it.
func TestTemplates(t *testing.T) {
	const message = `{"a":1,"f":21.5,"whole":21.0,"s":"ON","n":null,"t":true,"o":{"x y":[1,2,3],"k":"v"},"e":"","Color":"153,92,0","list":["b","c"],"big":12345678901234567890}`
	for source, want := range map[string]string{
		"plain": "plain", "": "", "  x ": "x",
		"{{ value_json.a }}": "1", "{{value_json['f']}}": "21.5", "{{ value_json.whole }}": "21.0", `{{ value_json["s"] }}`: "ON",
		"{{ value_json.n }}": "None", "{{ value_json.t }}": "True", "{{ value_json.o['x y'][-1] }}": "3", "{{ value_json.o.k }}": "v",
		"{{ value_json.missing }}": "", "a{# no #}b": "ab", "a {#- no -#} b": "ab", "a {{- 1 -}} b": "a1b",
		"{{ value_json.big }}": "12345678901234567890",
		// arithmetic
		"{{ 1 + 2 * 3 }}": "7", "{{ (1 + 2) * 3 }}": "9", "{{ 7 / 2 }}": "3.5", "{{ 6 / 2 }}": "3.0", "{{ 7 // 2 }}": "3", "{{ -7 // 2 }}": "-4",
		"{{ -7 % 3 }}": "2", "{{ 2 ** 3 }}": "8", "{{ 'a' ~ 1 ~ 2.0 }}": "a12.0", "{{ 'a' + 'b' }}": "ab", "{{ 1 - -1 }}": "2",
		"{{ value_json.a * 2.5 }}": "2.5", "{{ (value_json.f | float * 9 / 5 + 32) | round(1) }}": "70.7",
		// comparisons and logic
		"{{ 1 < 2 <= 2 }}": "True", "{{ 1 == 1.0 }}": "True", "{{ '1' == 1 }}": "False", "{{ 'a' in 'cat' }}": "True", "{{ 2 in [1, 2] }}": "True",
		"{{ 'k' in value_json.o }}": "True", "{{ 'z' not in value_json.o }}": "True", "{{ not value_json.e }}": "True", "{{ value_json.e or 'x' }}": "x",
		"{{ value_json.a and 'y' }}": "y", "{{ 1 if value_json.t else 2 }}": "1", "{{ 1 if false }}": "", "{{ 1 if false else 2 if false else 3 }}": "3",
		"{{ value_json.x is defined }}": "False", "{{ value_json.a is not defined }}": "False", "{{ value_json.n is none }}": "True",
		"{{ value_json.a is number and value_json.s is string }}": "True", "{{ 0.25 | float <= 0.25 }}": "True",
		// filters
		"{{ value_json.x | default('d') }}": "d", "{{ value_json.e | default('d', true) }}": "d", "{{ value_json.x | default }}": "",
		"{{ '12.7' | int }}": "12", "{{ 'x' | int(5) }}": "5", "{{ 'ff' | int(base=16) }}": "255", "{{ 'x' | float(1.5) }}": "1.5", "{{ 'x' | float(default=0) }}": "0",
		"{{ 2.5 | round }}": "2", "{{ 3.14159 | round(2) }}": "3.14", "{{ 2.1 | round(0, 'ceil') }}": "3", "{{ 21.3 | round(1, 'half') }}": "21.5",
		"{{ 'aB' | lower }}{{ 'aB' | upper }}": "abAB", "{{ 'on fire' | title }}": "On Fire", "{{ 'oN' | capitalize }}": "On", "{{ ' x ' | trim }}": "x",
		"{{ 'a-b' | replace('-', '+') }}": "a+b", "{{ value_json.Color.split(',')[0:2] | join(';') }}": "153;92", "{{ 'abc'[1:] }}": "bc", "{{ 'abc'[:-1] }}": "ab",
		"{{ value_json.list | length }}": "2", "{{ value_json.list | first }}{{ value_json.list | last }}": "bc", "{{ [3, 1, 2] | max }}": "3", "{{ min(3, 1) }}": "1",
		"{{ '%02x-%d' | format(10, 7) }}": "0a-7", "{{ '%.1f' % 2.25 }}": "2.2", "{{ '%s%%' % 5 }}": "5%", "{{ -3 | abs }}": "3", "{{ 2 | multiply(1.5) }}": "3.0",
		"{{ iif(value_json.t, 'y', 'n') }}": "y", "{{ value_json.t | iif('y') }}": "y", "{{ value_json.o.get('k') }}": "v", "{{ value_json.o.get('z', 'd') }}": "d",
		"{{ 'on' | bool }}": "True", "{{ value_json.s.startswith('O') }}": "True", "{{ value_json.list | tojson }}": `["b","c"]`, "{{ 'a<b' | to_json }}": `"a<b"`,
		`{{ ('{"z":5}' | from_json).z }}`: "5", "{{ int('7') + 1 }}": "8", "{{ value_json.s | truncate(1, True, '', 0) }}": "O", "{{ value | length > 5 }}": "True",
		// statements
		"{% if value_json.s == 'ON' %}yes{% else %}no{% endif %}":                                                   "yes",
		"{%if value_json.e%}1{%elif value_json.a > 5%}2{%elif value_json.a%}3{%else%}4{%endif %}":                   "3",
		"{% set x = {None:None,'heat':'heating',1:'one'} %}{{ x[value_json.a] }}{{ x['heat'] }}":                    "oneheating",
		"{% if value_json.t %}{% if value_json.n %}a{% else %}b{% endif %}{% endif %}":                              "b",
		"{{ {'off':0, 'low':1}[value_json.nope] | default('None') }}":                                               "None",
		"{{ {0:'off', 1:'low'}[value_json.a] | default('') }}":                                                      "low",
		`{% if "moving" in value_json and value_json.moving %} {{ value_json.moving }} {% else %} STOP {% endif %}`: "STOP",
	} {
		if got, err := home.Render(source, message); err != nil || got != want {
			t.Errorf("%s gives %q, %v; want %q", source, got, err, want)
		}
	}
	if got, err := home.Render("{{ value }}/{{ value_json is defined }}", "no JSON"); err != nil || got != "no JSON/False" {
		t.Errorf("a message that is no JSON gives %q, %v", got, err)
	}
	if got, err := home.RenderWith("{{ '#%02x%02x%02x' | format(red, green, blue)}}", map[string]any{"red": int64(255), "green": int64(0), "blue": int64(16)}); err != nil || got != "#ff0010" {
		t.Errorf("a colour gives %q, %v", got, err)
	}
}

func TestTemplatesThatFail(t *testing.T) {
	for _, source := range []string{
		"{{", "{% if", "{{ 1 }", "{% if 1 %}", "{% endif %}", "{% else %}", "{% for x in y %}{% endfor %}", "{{ now() }}", "{{ states('x') }}", "{{ value | regex_replace('a') }}",
		"{{ value.format(1) }}", "{{ 'a }}", "{# x", "{{ 1 + }}", "{{ a b }}", "{{ $ }}", "{{ [1, }}", "{{ {1} }}", "{% set 1 = 2 %}", "{{ x is odd }}", "{{ value | }}", "{{ 99999999999999999999 }}",
		"{{ value_json.a.b.c }}", "{{ 'x' | int }}", "{{ 'x' | float }}", "{{ value_json.x | is_defined }}", "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' < 1 }}", "{{ 'a' * 5 }}", "{{ 1 in 2 }}", "{{ '%d' | format('x') }}",
		"{{ '%9999d' | format(1) }}", "{{ '%s' | format }}", "{{ 'x' | from_json }}", "{{ [] | join | x }}", "{{ int() }}", "{{ value_json.x | upper }}",
		"{{ " + strings.Repeat("(", 100) + "1" + strings.Repeat(")", 100) + " }}", "{{ " + strings.Repeat("not ", 100) + "1 }}", "{{ " + strings.Repeat("-", 100) + "1 }}",
		"{{ 1" + strings.Repeat("+1", 600) + " }}", strings.Repeat("{% if 1 %}", 60) + strings.Repeat("{% endif %}", 60), strings.Repeat("x", 5000),
		"{% set a = 'x" + strings.Repeat("x", 1000) + "' %}" + strings.Repeat("{% set a = a ~ a %}", 20) + "{{ a }}",
		"{{ '" + strings.Repeat("a", 900) + "' | replace('a', '" + strings.Repeat("b", 900) + "') | replace('b', '" + strings.Repeat("c", 900) + "') }}",
	} {
		if got, err := home.Render(source, `{"a":1}`); err == nil {
			t.Errorf("%.60s gives %.60q", source, got)
		}
	}
}

// TestTemplatesOfSamples: every state template of the samples is understood.
func TestTemplatesOfSamples(t *testing.T) {
	template := regexp.MustCompile(`"[a-z_]+(?:_tpl|_template)":"((?:[^"\\]|\\.)*)"`)
	files, _ := os.ReadDir("testdata")
	n := 0
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".txt") {
			continue
		}
		data, err := os.ReadFile("testdata/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range template.FindAllStringSubmatch(string(data), -1) {
			n++
			source := strings.ReplaceAll(m[1], `\"`, `"`)
			if _, err := home.Render(source, "{}"); err != nil && strings.Contains(err.Error(), "understood") {
				t.Errorf("%s: %v", source, err)
			}
		}
	}
	if n < 30 {
		t.Errorf("only %d templates were found", n)
	}
}

func FuzzTemplate(f *testing.F) {
	for _, source := range []string{
		"{{ value_json.a }}", "{% if value_json.t %}{{ value | int(0) + 1 }}{% else %}x{% endif %}", "{{ {1:'a'}[value] | default('') }}",
		"{{ value.split(',')[0:3] | join(',') }}", "{{ '%02x' | format(value | int(base=16)) }}", "{% set x = [1, 2.5, none] %}{{ x[-1] is none }}",
		"{{ -value_json.a ** 2 // 3 % 5 ~ 'x' }}", "{# c #}{{- 'a' -}}", "{{ value_json.get('a', 1) | tojson | from_json | round(2, 'half') }}", "{{",
	} {
		f.Add(source, `{"a":1,"t":true}`)
		f.Add(source, "12,34,56")
	}
	f.Fuzz(func(t *testing.T, source, message string) {
		got, err := home.Render(source, message)
		if err == nil && len(got) > 1<<21 {
			t.Errorf("%d bytes", len(got))
		}
	})
}

func FuzzAnnouncement(f *testing.F) {
	files, _ := os.ReadDir("testdata")
	for _, file := range files {
		data, _ := os.ReadFile("testdata/" + file.Name())
		for line := range strings.Lines(string(data)) {
			topic, payload, ok := strings.Cut(strings.TrimSpace(line), " ")
			if component, found := strings.CutPrefix(topic, "homeassistant/"); ok && found {
				component, _, _ = strings.Cut(component, "/")
				f.Add(component, payload)
			}
		}
	}
	f.Add("light", `{"~":"x","cmd_t":"~","name":"~","avty":[{"t":"~"}],"bri_scl":0,"spd_rng_max":-1,"min_mirs":1e300}`)
	f.Add("device", `{"cmps":{"a":{"p":"light","cmd_t":"x"},"b":null,"c":5},"dev":[]}`)
	f.Fuzz(func(t *testing.T, component, payload string) {
		if len(payload) > home.MaxPayload {
			return
		}
		_, _ = home.Announce(component, payload)
	})
}
