package phrase_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"parley/internal/phrase"
)

func parse(t testing.TB, source string) *phrase.Pattern {
	t.Helper()
	p, err := phrase.Parse(source)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// taken writes captures as "name=text/number", in the order of names.
func taken(values map[string]phrase.Value) string {
	var list []string
	for name, v := range values {
		one := name + "=" + v.Text
		if v.Kind == phrase.Number {
			one = fmt.Sprintf("%s=%s/%d", name, v.Text, v.Number)
		}
		list = append(list, one)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func TestMatch(t *testing.T) {
	for _, test := range []struct{ pattern, text, want string }{
		// Words.
		{"hello", "Hello!", ""},
		{"what's the time", "Whats the time?", ""},
		{"whats the time", "What’s   the\ttime", ""},
		{"hello world", "hello, world", ""},
		{"wi-fi", "Wi Fi", ""},
		{"ΓΕΙΑ", "γεια", ""},
		// Groups.
		{"turn (it | the volume) up", "turn it up", ""},
		{"turn (it | the volume) up", "turn the volume up", ""},
		{"set [the [main]] volume", "set volume", ""},
		{"set [the [main]] volume", "set the main volume", ""},
		{"hello | good (morning | evening)", "good evening", ""},
		{"louder|make it louder", "make it louder", ""},
		{"[a] [a] [a] b", "a a b", ""},
		// Captures.
		{"volume {volume:number}", "volume 50", "volume=50/50"},
		{"volume {volume:0-100}", "volume 50%", "volume=50%/50"},
		{"volume {volume: 0 - 100 }", "volume a hundred", "volume=a hundred/100"},
		{"at {h:0-23} {m:0-59}", "at seven thirty", "h=seven/7 m=thirty/30"},
		{"at {h:0-23} {m:0-59}", "at 23:59", "h=23/23 m=59/59"},
		{"at {h:0-23} {m:00-59}", "at twenty one, um, zero", "h=twenty one/21 m=zero/0"},
		{"at {h:0-23} {m:0-59}", "at twenty four", "h=twenty/20 m=four/4"}, // 24 is out of bounds
		{"{n:1-9}|{n:20-29}", "twenty five", "n=twenty five/25"},
		{"把音量调到{volume:0-100}", "把音量调到五十", "volume=五十/50"},
		{"year {y:9999-9999}", "year 9999", "y=9999/9999"},
		{"size {s:1-5|6-9}", "size 6 9", "s=6-9"},
		{"size {s:1-5x}", "size 1-5x", "s=1-5x"},
		{"size {s:-5}", "size 5", "s=-5"},
		{"volume {volume:number}", "volume fifty percent", "volume=fifty percent/50"},
		{"volume {volume:number}", "volume 50%", "volume=50%/50"},
		{"volume {volume:number} percent", "volume fifty percent", "volume=fifty/50"},
		{"{a:number} and {b:number}", "one hundred and five and six", "a=one hundred and five/105 b=six/6"},
		{"{a:number} {b:number}", "twenty one", "a=twenty/20 b=one/1"},
		{"theme {theme:Light|very dark}", "theme VERY dark", "theme=very dark"},
		{"theme {theme:Light|very dark}", "theme light", "theme=Light"},
		{"remind me to {what}", "Remind me to buy Milk, now!", "what=buy Milk"},
		{"say {a} to {b}", "say one two to to three", "a=one two b=to three"},
		{"(in {n:number} minutes | later)", "later", ""},
		{"[at {n:number}] lamp", "at five lamp", "n=five/5"},
		{"({n:number} up | up {n:number})", "up 3", "n=3/3"},
		// Courtesies and hesitations.
		{"stop", "Hey, could you please stop for me, thank you", ""},
		{"turn it up", "um turn uh it, er, up hmm", ""},
		{"volume {n:number}", "volume, um, ten", "n=ten/10"},
		{"thank you", "thank you", ""},
		{"what can you do", "what can you do please", ""},
		{"can you hear me", "can you hear me", ""},
		{"now", "now", ""},
		// Chinese.
		{"把音量调到{volume:number}", "把音量调到五十。", "volume=五十/50"},
		{"把音量调到{volume:number}", "请帮我把音量调到 百分之 五十 吧", "volume=百分之 五十/50"},
		{"(大声|声音大)[一]点", "声音大点", ""},
		{"音量{n:number}", "音量50%", "n=50%/50"},
		{"提醒我{what}", "提醒我买牛奶", "what=买牛奶"},
	} {
		values, ok := parse(t, test.pattern).Match(test.text)
		if !ok {
			t.Errorf("%q does not match %q", test.pattern, test.text)
		} else if got := taken(values); got != test.want {
			t.Errorf("%q of %q took %q, want %q", test.pattern, test.text, got, test.want)
		}
	}
}

func TestMatchIsOfTheWholeUtterance(t *testing.T) {
	for _, test := range []struct{ pattern, text string }{
		{"hello", ""},
		{"hello", "please"},
		{"hello", "hello world"},
		{"hello", "say hello"},
		{"hello", "hell o"},
		{"a b", "ab"},
		{"set [the] volume", "set the the volume"},
		{"volume {n:number}", "volume"},
		{"volume {n:number}", "volume loud"},
		{"volume {n:number}", "volume fifty sixty"},
		{"volume {n:number}", "volume 1234567890"},
		{"volume {n:0-100}", "volume 101"},
		{"volume {n:0-100}", "volume one hundred and one"},
		{"volume {n:1-100}", "volume zero"},
		{"at {h:0-23} {m:0-59}", "at seventy thirty"},
		{"at {h:0-23} {m:0-59}", "at seven sixty"},
		{"size {s:1-5|6-9}", "size 3"},
		{"remind me to {what}", "remind me to"},
		{"theme {t:light|dark}", "theme light dark"},
		{"stop", "can stop"},
		{"stop", strings.Repeat("please ", phrase.MaxUtterance) + "stop"},
	} {
		if values, ok := parse(t, test.pattern).Match(test.text); ok {
			t.Errorf("%q matches %q with %v", test.pattern, test.text, values)
		}
	}
}

func TestNumbers(t *testing.T) {
	p := parse(t, "{n:number}")
	for text, want := range map[string]int{
		"zero": 0, "one": 1, "ten": 10, "nineteen": 19, "twenty": 20, "twenty-one": 21, "ninety nine": 99,
		"a hundred": 100, "one hundred": 100, "a hundred and five": 105, "two hundred five": 205,
		"nine hundred and ninety nine": 999, "a thousand": 1000, "one thousand": 1000,
		"7": 7, "007": 7, "1,000": 1000, "50": 50, "999999999": 999999999, "50 per cent": 50,
		"零": 0, "五": 5, "十": 10, "十五": 15, "五十": 50, "五十五": 55, "一百": 100, "一百零五": 105, "一百五": 150,
		"一百五十": 150, "一百一十五": 115, "两百": 200, "二百二十二": 222, "九百九十九": 999, "一千": 1000,
		"五〇": 50, "百分之八十": 80, "百分之100": 100,
	} {
		values, ok := p.Match(text)
		if got := values["n"]; !ok || got.Number != want || got.Kind != phrase.Number {
			t.Errorf("%q is %v, %t, want %d", text, got, ok, want)
		}
	}
	for _, text := range []string{
		"hundred", "and five", "hundred and", "a", "one hundred and", "twenty twenty", "ten one", "zero one",
		"two thousand", "one thousand one", "a hundred a hundred", "1,00", "1.5", "-", "十十", "百五", "一十百",
		"零十", "一百零", "两千", "一千零一", "一百百", "百分之",
	} {
		if values, ok := p.Match(text); ok {
			t.Errorf("%q is taken for %d", text, values["n"].Number)
		}
	}
}

// Every number up to one thousand is read back from its words.
func TestNumbersInWords(t *testing.T) {
	p := parse(t, "{n:number}")
	ones := strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen " +
		"fifteen sixteen seventeen eighteen nineteen")
	tens := strings.Fields("- - twenty thirty forty fifty sixty seventy eighty ninety")
	var words func(n int) string
	words = func(n int) string {
		switch {
		case n < 20:
			return ones[n]
		case n < 100 && n%10 == 0:
			return tens[n/10]
		case n < 100:
			return tens[n/10] + "-" + ones[n%10]
		case n == 1000:
			return "one thousand"
		case n%100 == 0:
			return ones[n/100] + " hundred"
		}
		return ones[n/100] + " hundred and " + words(n%100)
	}
	for n := range 1001 {
		if values, ok := p.Match(words(n)); !ok || values["n"].Number != n {
			t.Errorf("%q is %v, %t, want %d", words(n), values["n"], ok, n)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for _, test := range []struct {
		pattern string
		offset  int
		reason  string
	}{
		{"", 0, "match silence"},
		{"[please]", 0, "match silence"},
		{"?!", 0, "match silence"},
		{"set (the volume", 4, `'(' is never closed`},
		{"set [the volume", 4, `'[' is never closed`},
		{"set {volume", 4, `'{' is never closed`},
		{"set the) volume", 7, `')' closes nothing`},
		{"a } b", 2, `'}' closes nothing`},
		{"(a ] b", 3, `']' closes a '('`},
		{"(a | )", 4, "an alternative is empty"},
		{"| a", 0, "an alternative is empty"},
		{"a ()", 2, "the group is empty"},
		{"{}", 1, "needs a name"},
		{"{1st}", 1, "needs a name"},
		{"{a b}", 1, "needs a name"},
		{"{a:x||y}", 5, "an option of {a} is empty"},
		{"{a:(x)}", 3, "may not stand in a capture"},
		{"{a:number} {a:x|y}", 11, "another kind"},
		{"{a:0-5} {a}", 8, "another kind"},
		{"{hour:23-0}", 6, "the wrong way round; write {hour:0-23}"},
		{"{n:0-10000}", 3, "larger than 9999; write {n:number}"},
		{"{n:99999999999999999999-1}", 3, "larger than 9999"},
		{"é (", 3, `'(' is never closed`},
		{"a \xff", 2, "not UTF-8"},
		{strings.Repeat("(", 30) + "a", 20, "more than 20 deep"},
		{strings.Repeat("a", phrase.MaxPattern+1), phrase.MaxPattern, "longer than 1024 bytes"},
	} {
		_, err := phrase.Parse(test.pattern)
		var syntax *phrase.SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("%q: error %v, want a SyntaxError", test.pattern, err)
			continue
		}
		if syntax.Offset != test.offset || !strings.Contains(syntax.Reason, test.reason) {
			t.Errorf("%q: %q at %d, want %q at %d", test.pattern, syntax.Reason, syntax.Offset, test.reason, test.offset)
		}
	}
	_, err := phrase.Parse("é (")
	if want := `pattern "é (": at character 3: '(' is never closed`; err.Error() != want {
		t.Errorf("error %q, want %q", err, want)
	}
}

func TestPatternDescribesItself(t *testing.T) {
	const source = "(set|Change) {what} to {n:number} [{unit:percent|degrees}]"
	p := parse(t, source)
	if p.String() != source {
		t.Errorf("String is %q", p)
	}
	want := []phrase.Capture{{"what", phrase.Text}, {"n", phrase.Number}, {"unit", phrase.Choice}}
	if got := p.Captures(); !reflect.DeepEqual(got, want) {
		t.Errorf("Captures are %v, want %v", got, want)
	}
	if got, want := p.Words(), []string{"change", "degrees", "percent", "set", "to"}; !slices.Equal(got, want) {
		t.Errorf("Words are %q, want %q", got, want)
	}
}

// Neither nested choice nor free text may make matching slow: each state of the
// pattern is tried once per word.
func TestMatchIsNotExponential(t *testing.T) {
	p := parse(t, strings.Repeat("[a] [a a] ", 40)+"{x} {y} {z} b")
	if _, ok := p.Match(strings.Repeat("a ", phrase.MaxUtterance)); ok {
		t.Error("matched without b")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"a (b|c) [d]", "{n:number} {c:x|y z} {t}", "{h:0-23} [{m:5-1200}]", "((((", "把音量{n:number}", "a|", "{a", "]"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, source string) {
		p, err := phrase.Parse(source)
		if err != nil {
			var syntax *phrase.SyntaxError
			if !errors.As(err, &syntax) || syntax.Offset < 0 || syntax.Offset > len(source) || err.Error() == "" {
				t.Errorf("error %#v", err)
			}
			return
		}
		p.Match(source)
		p.Words()
		if g, err := phrase.NewGrammar([]*phrase.Pattern{p}); (err == nil) != p.Speakable() || err == nil && g.Rules == "" {
			t.Errorf("grammar %v, %v of a pattern with Speakable %t", g, err, p.Speakable())
		}
	})
}

func FuzzMatch(f *testing.F) {
	p := parse(f, "(set|change|把) [the] {what} (to|调到) {n:number} [{c:red|light blue}] [{b:20-120}]")
	for _, s := range []string{"set the lamp to a hundred and five light blue", "把灯调到一百零五", "change x to 1,000%", "\xff’", "ſet", "set x to 5 red a hundred and twenty"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, ok := p.Match(text)
		if !ok {
			return
		}
		for name, v := range values {
			if name != "c" && !strings.Contains(text, v.Text) || v.Text == "" || v.Number < 0 ||
				name == "b" && (v.Number < 20 || v.Number > 120) {
				t.Errorf("{%s} took %+v of %q", name, v, text)
			}
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	p := parse(b, "(set | turn | change) [the] volume (to | at) {volume:number}")
	b.ReportAllocs()
	for b.Loop() {
		p.Match("Could you please set the volume to fifty percent?")
	}
}

func ExamplePattern_Match() {
	p, err := phrase.Parse("set [the] volume to {volume:number}")
	if err != nil {
		fmt.Println(err)
		return
	}
	values, ok := p.Match("Hey, could you set volume to a hundred and five percent, please?")
	fmt.Println(ok, values["volume"].Number)
	// Output: true 105
}
