package asr

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"parley/internal/phrase"
)

// Names of the files of the two passes, in a recogniser's directory.
const (
	commandFiles        = "command"
	loopFiles           = "loop"
	dictionaryExtension = ".dict"
	grammarExtension    = ".gram"
)

// sayings are short and common answers that would be taken for a short command
// that sounds similar, "no" for "hello". They are in the grammar to be
// recognised and rejected, unless a rule is about them.
func sayings() []string {
	return []string{
		"yes", "no", "yeah", "yes i do", "no i do not", "right", "what", "why", "where", "when",
		"maybe", "really", "nothing", "i know", "i do not know", "never mind", "come on", "sure",
		"fine", "great", "wait", "look", "all right", "of course", "here", "there", "come here",
		"i see", "sorry", "oh", "well", "me too", "not now", "not yet",
	}
}

// writeModels writes grammars and dictionaries of both passes to dir and returns
// the sayings to reject.
func writeModels(dir string, cfg PocketsphinxConfig) (map[string]bool, error) {
	g, err := phrase.NewGrammar(cfg.Patterns)
	if err != nil {
		return nil, err
	}
	noteUnspeakable(cfg)
	decoys := foreignTo(cfg.Patterns)
	wanted := map[string]bool{}
	for _, w := range slices.Concat(g.Words, strings.Fields(strings.Join(decoys, " "))) {
		wanted[w] = true
	}
	d, err := readDictionary(cfg.Dictionary, cfg.Pronounce, wanted)
	if err != nil {
		return nil, err
	}
	for _, w := range g.Words {
		if len(d.entries[w]) == 0 {
			return nil, fmt.Errorf("%q of the phrases to understand is not in %s; give its pronunciation under pronounce, such as hello = \"HH AH L OW\", or take it out of match",
				w, cfg.Dictionary)
		}
	}
	decoys = slices.DeleteFunc(decoys, func(saying string) bool { return !d.has(saying) })
	err = errors.Join(
		write(dir, commandFiles+dictionaryExtension, d.text()),
		write(dir, commandFiles+grammarExtension, commandGrammar(g, decoys)),
		write(dir, loopFiles+dictionaryExtension, loopDictionary(d.phones)),
		write(dir, loopFiles+grammarExtension, loopGrammar(d.phones)),
	)
	set := map[string]bool{}
	for _, saying := range decoys {
		set[saying] = true
	}
	return set, err
}

func write(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

// noteUnspeakable says that some phrases are not for this recogniser: the default
// rules have many, for recognisers that know all words.
func noteUnspeakable(cfg PocketsphinxConfig) {
	var list []string
	for _, p := range cfg.Patterns {
		if !p.Speakable() {
			list = append(list, p.String())
		}
	}
	if cfg.Logger != nil && len(list) > 0 {
		cfg.Logger.Info("some phrases of the rules hold any words, digits, or a script without spaces: not for the offline recogniser",
			slog.String("table", cfg.Table), slog.Int("phrases", len(list)), slog.Int("of", len(cfg.Patterns)))
		cfg.Logger.Debug("phrases the offline recogniser cannot hear", slog.String("table", cfg.Table), slog.Any("phrases", list))
	}
}

// foreignTo returns the sayings that no pattern is about.
func foreignTo(patterns []*phrase.Pattern) []string {
	return slices.DeleteFunc(sayings(), func(saying string) bool {
		return slices.ContainsFunc(patterns, func(p *phrase.Pattern) bool {
			_, ok := p.Match(saying)
			return ok
		})
	})
}

const jsgfHeader = "#JSGF V1.0;\ngrammar parley;\n"

func commandGrammar(g phrase.Grammar, decoys []string) string {
	if len(decoys) == 0 {
		return jsgfHeader + "public <utterance> = <command>;\n" + g.Rules
	}
	return jsgfHeader + "public <utterance> = <command> | <saying>;\n" +
		"<saying> = " + strings.Join(decoys, " | ") + ";\n" + g.Rules
}

func loopGrammar(phones []string) string {
	return jsgfHeader + "public <utterance> = (" + strings.Join(phones, " | ") + ")+;\n"
}

// loopDictionary makes a word of each phone.
func loopDictionary(phones []string) string {
	var b strings.Builder
	for _, p := range phones {
		fmt.Fprintf(&b, "%s %s\n", p, p)
	}
	return b.String()
}

// A dictionary holds pronunciations.
type dictionary struct {
	entries map[string][]string // the lines of each word, with other pronunciations
	phones  []string            // all phones of the language
}

// readDictionary reads the entries of wanted words, and all phones, from a file
// in the form of CMU's pronouncing dictionary: "word PH O N E", other
// pronunciations as "word(2)".
func readDictionary(name string, pronounce map[string]string, wanted map[string]bool) (dictionary, error) {
	d := dictionary{entries: map[string][]string{}}
	f, err := os.Open(name)
	if err != nil {
		return d, fmt.Errorf("dictionary: %w; install pocketsphinx-en-us or correct dictionary", err)
	}
	defer f.Close()
	phones := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() { // over 130,000 of them, so without a string for each
		word, rest, ok := bytes.Cut(lines.Bytes(), []byte(" "))
		if !ok || bytes.HasPrefix(word, []byte(";;;")) || bytes.HasPrefix(word, []byte("#")) {
			continue
		}
		for phone := range bytes.FieldsSeq(rest) {
			if !phones[string(phone)] && string(phone) != "SIL" {
				phones[string(phone)] = true
			}
		}
		base, _, _ := bytes.Cut(word, []byte("("))
		if wanted[string(base)] {
			d.entries[string(base)] = append(d.entries[string(base)], lines.Text())
		}
	}
	if err := lines.Err(); err != nil {
		return d, fmt.Errorf("dictionary %s: %w", name, err)
	}
	for word, p := range pronounce {
		word = strings.ToLower(word)
		list := strings.Fields(p)
		if i := slices.IndexFunc(list, func(phone string) bool { return !phones[phone] }); i >= 0 || len(list) == 0 {
			return d, fmt.Errorf("pronounce: %q is not spoken as %q in the phones of %s", word, p, name)
		}
		if wanted[word] {
			d.entries[word] = []string{word + " " + strings.Join(list, " ")}
		}
	}
	for phone := range phones {
		d.phones = append(d.phones, phone)
	}
	slices.Sort(d.phones)
	if len(d.phones) == 0 {
		return d, fmt.Errorf("dictionary %s holds no pronunciations", name)
	}
	return d, nil
}

// has reports whether all words of a saying are in the dictionary.
func (d dictionary) has(saying string) bool {
	return !slices.ContainsFunc(strings.Fields(saying), func(w string) bool { return len(d.entries[w]) == 0 })
}

// text is the dictionary as a file.
func (d dictionary) text() string {
	var lines []string
	for _, list := range d.entries {
		lines = append(lines, list...)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}
