package asr

import (
	"reflect"
	"testing"
)

func TestParseSegments(t *testing.T) {
	const line = "utterance-1 S 0 T -3413 A -2739 L -674 -1 0 0 (NULL) 0 -753 -337 <sil> 56 -393 0 set " +
		"79 -151 0 to(3) 159 -565 0 fifty 212 0 0 (NULL) 213 -159 -337 <sil> 250\n"
	got, err := parseSegments(line)
	if err != nil {
		t.Fatal(err)
	}
	want := []segment{
		{"<sil>", 0, 56, -753}, {"set", 56, 79, -393}, {"to(3)", 79, 159, -151},
		{"fifty", 159, 213, -565}, {"<sil>", 213, 250, -159},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("segments %+v, want %+v", got, want)
	}
	if got, want := words(got), "set to fifty"; got != want {
		t.Errorf("words %q, want %q", got, want)
	}
	if got, want := speech(got), 157; got != want {
		t.Errorf("%d frames of speech, want %d", got, want)
	}
	if got, err := parseSegments("utterance-1 S 0 T 0 A 0 L 0 0\n"); err != nil || len(got) != 0 {
		t.Errorf("nothing heard: %v, %v", got, err)
	}
	for _, line := range []string{
		"", "x", "u S 0 T 0 A 0 L 0", "u S 0 T 0 A 0 L 0 x", "u S 0 T 0 A 0 L 0 -1", "u S 0 T 0 A 0 L 0 99999999",
		"u S 0 T 0 A 0 L 0 0 -1 0 a", "u S 0 T 0 A 0 L 0 x -1 0 a 9", "u S 0 T 0 A 0 L 0 0 y 0 a 9",
		"u S 0 T 0 A 0 L 0 10 0 0 a 9", "u S 0 T 0 A 0 L 0 5 0 0 a 4 0 0 b 9", "u S 0 T 0 A 0 L 0 -5 0 0 a 9",
	} {
		if got, err := parseSegments(line); err == nil {
			t.Errorf("%q: %v, want an error", line, got)
		}
	}
}

// Whatever else is said, the verdict of a window is that of its own frames.
func TestJudgeFindsOneForeignWord(t *testing.T) {
	loop := []segment{{"<sil>", 0, 50, -500}, {"AA", 50, 250, -6000}, {"<sil>", 250, 300, -500}}
	like := func(foreign int) []segment {
		return []segment{
			{"<sil>", 0, 50, -500}, {"set", 50, 150, -3000}, {"table", 150, 190, -1200 + foreign},
			{"fifty", 190, 250, -1800}, {"<sil>", 250, 300, -500},
		}
	}
	if v := judge(like(0), loop); v.rejected || v.text != "set table fifty" || v.evidence != (evidence{}) {
		t.Errorf("as good as the loop: %+v, want the text", v)
	}
	if v := judge(like(-20*40), loop); v.rejected {
		t.Errorf("a slurred word: %+v, want the text", v)
	}
	if v := judge(like(-45*40), loop); !v.rejected || v.text != "" {
		t.Errorf("a foreign word: %+v, want rejected", v)
	}
	if v := judge(nil, loop); !v.rejected {
		t.Errorf("speech for which the grammar has nothing: %+v, want rejected", v)
	}
	if v := judge(nil, []segment{{"<sil>", 0, 100, 0}, {"T", 100, 105, 0}}); v.rejected || v.text != "" {
		t.Errorf("a click: %+v, want neither text nor rejected", v)
	}
}

func FuzzParseSegments(f *testing.F) {
	f.Add("u S 0 T -1 A -1 L 0 -1 0 0 (NULL) 0 -753 -337 <sil> 56 -393 0 set 79")
	f.Add("u S 0 T 0 A 0 L 0 0")
	f.Fuzz(func(t *testing.T, line string) {
		list, err := parseSegments(line)
		if err != nil {
			return
		}
		for i, s := range list {
			if s.end < s.start || i > 0 && s.start != list[i-1].end {
				t.Errorf("%q: segments %+v", line, list)
			}
		}
		judge(list, list)
		if v := judge(list, []segment{{"AA", 0, 100, -100}}); v.text != "" && v.rejected {
			t.Errorf("verdict %+v is text and rejected", v)
		}
	})
}
