package config

import (
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
)

func TestLines(t *testing.T) {
	const doc = `top = 1 # a comment with = and [brackets]
"quoted key" = 2

[table] # comment
a.b.c = "x"
'literal.key' = '''
two # not a comment
lines'''
after = """\
  \""" still the string = 1
"quotes" inside """"
list = [
  1, # one
  [2,
   3], { deep = 4 },
]

[table."sub.table".x]
k = {a=1, b = {c = 2}, "d e" = 3}
wide = {
  one = 1, # TOML 1.1
  two = 2,
}

[[array]]
name = "first"
[[array]]
name = "second"
[array.of]
second = true
[[array.nested]]
n = 1
[[array.nested]]
n = 2
[[array]]
[array.of]
third = true
[device."a0:b1"]
role = "\u0078"
"\u006bey" = 1
date = 1979-05-27 07:32:00
quotes = ["""a""""", '''b'''', 2]`
	want := lineIndex{
		"top": 1, `"quoted key"`: 2,
		"table": 4, "table.a": 5, "table.a.b": 5, "table.a.b.c": 5, `table."literal.key"`: 6,
		"table.after": 9, "table.list": 12, "table.list[0]": 13, "table.list[1]": 14,
		"table.list[1][0]": 14, "table.list[1][1]": 15, "table.list[2]": 15, "table.list[2].deep": 15,
		`table."sub.table"`: 18, `table."sub.table".x`: 18, `table."sub.table".x.k`: 19,
		`table."sub.table".x.k.a`: 19, `table."sub.table".x.k.b`: 19, `table."sub.table".x.k.b.c`: 19,
		`table."sub.table".x.k."d e"`: 19, `table."sub.table".x.wide`: 20,
		`table."sub.table".x.wide.one`: 21, `table."sub.table".x.wide.two`: 22,
		"array": 25, "array[0]": 25, "array[0].name": 26, "array[1]": 27, "array[1].name": 28,
		"array[1].of": 29, "array[1].of.second": 30, "array[1].nested": 31,
		"array[1].nested[0]": 31, "array[1].nested[0].n": 32, "array[1].nested[1]": 33, "array[1].nested[1].n": 34,
		"array[2]": 35, "array[2].of": 36, "array[2].of.third": 37,
		"device": 38, `device."a0:b1"`: 38, `device."a0:b1".role`: 39, `device."a0:b1".key`: 40, `device."a0:b1".date`: 41,
		`device."a0:b1".quotes`: 42, `device."a0:b1".quotes[0]`: 42, `device."a0:b1".quotes[1]`: 42, `device."a0:b1".quotes[2]`: 42,
	}
	got, deep := scanLines(doc)
	if deep {
		t.Error("too deep")
	}
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if got[k] != want[k] {
			t.Errorf("%s: line %d, want %d", k, got[k], want[k])
		}
		delete(got, k)
	}
	for k, line := range got {
		t.Errorf("%s: line %d, but there is no such key", k, line)
	}
	if _, err := toml.Decode(doc, new(map[string]any)); err != nil {
		t.Errorf("the document of this test is not TOML: %v", err)
	}
}

func TestLineOfWhatIsNotThere(t *testing.T) {
	x, _ := scanLines("\n[mqtt]\nlisten = 1\n")
	for p, want := range map[string]int{"mqtt listen": 3, "mqtt key": 2, "udp listen": 0} {
		if got := x.at(keys(strings.Fields(p)...)); got != want {
			t.Errorf("%s: line %d, want %d", p, got, want)
		}
	}
}

func TestDepthIsBounded(t *testing.T) {
	for _, open := range []string{"[", "{a=", "[{a="} {
		if _, deep := scanLines("x = " + strings.Repeat(open, 1_000_000)); !deep {
			t.Errorf("a million %q are not too deep", open)
		}
	}
	all := faults(t, "x = "+strings.Repeat("[", 100_000))
	if len(all) != 1 || !strings.Contains(all[0].Problem, "nested") {
		t.Errorf("faults: %v", all)
	}
	if _, deep := scanLines("x = " + strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)); deep {
		t.Errorf("%d levels are too deep", maxDepth)
	}
}

// paths lists the printed paths of everything in a parsed document.
func paths(p path, v any, out map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			out[p.key(k).String()] = true
			paths(p.key(k), e, out)
		}
	case []map[string]any:
		for i, e := range v {
			out[p.index(i).String()] = true
			paths(p.index(i), e, out)
		}
	case []any:
		for i, e := range v {
			out[p.index(i).String()] = true
			paths(p.index(i), e, out)
		}
	}
}

// FuzzLines holds the scanner against the TOML parser: of every document that the
// parser takes, both must find the same keys, on lines that exist.
func FuzzLines(f *testing.F) {
	f.Add("a = 1\n[b.c]\nd.e = [1, {f = 2}]\n[[g]]\nh = '''\n[x]\n'''\n[[g]]\n")
	f.Add("\"\\u0061 b\" = \"\"\"\\\n \\\"\"\" \"\"\"\"\"\n'' = {\"\" = 1,\n}\n")
	f.Fuzz(agreeOnKeys)
}

func TestLinesOfShippedFile(t *testing.T) {
	b, err := os.ReadFile(shipped)
	if err != nil {
		t.Fatal(err)
	}
	agreeOnKeys(t, string(b))
	agreeOnKeys(t, example(t))
}

func agreeOnKeys(t *testing.T, doc string) {
	got, deep := scanLines(doc)
	var parsed map[string]any
	if deep {
		return
	}
	if _, err := toml.Decode(doc, &parsed); err != nil {
		return
	}
	want := map[string]bool{}
	paths(nil, parsed, want)
	lines := strings.Count(doc, "\n") + 1
	found := map[string]bool{}
	for k, line := range got {
		found[k] = true
		if line < 1 || line > lines {
			t.Errorf("%s: line %d of %d", k, line, lines)
		}
	}
	if !reflect.DeepEqual(found, want) {
		t.Errorf("keys\n%q\nwant\n%q\nin\n%q", slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want)), doc)
	}
}

func FuzzLoad(f *testing.F) {
	for _, text := range []string{
		"[mqtt]\nlisten = 1\nlisten_ = ''\n", "asr = 1\nllm.x = 2\n[tts.x]\ntype = 'command'\n",
		"[[llm.rules.rule]]\nmatch = [1]\narguments = 3\n[device.x]\n[role.x]\nasr = ['nothing']\n", "log = [", "key = 1979-05-27\n",
	} {
		f.Add(text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "/") { // keeps the fuzzer from opening files of this machine
			return
		}
		c := builtIn()
		r := &report{file: "f.toml"}
		if err := decode(text, r, c); err != nil {
			oneFault(t, err.Error())
			return
		}
		resolve(c, r, dir, noEnv)
		for _, fault := range r.faults {
			oneFault(t, fault.Error())
			if fault.Problem == "" || fault.Remedy == "" || fault.Line > strings.Count(text, "\n")+1 {
				t.Errorf("fault %+v", fault)
			}
		}
	})
}

func oneFault(t *testing.T, line string) {
	t.Helper()
	if !strings.HasPrefix(line, "f.toml:") || strings.ContainsAny(line, "\r\n") {
		t.Errorf("fault %q", line)
	}
}
