package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFile bounds a configuration file, in bytes. The largest in sensible use,
// hundreds of rules and devices, is a tenth of it.
const maxFile = 1 << 20

// Load reads the file at name over the default, reads the secrets that some role
// needs, and checks everything. An empty name loads the default alone. env looks
// up environment variables as [os.Getenv] does.
//
// The error joins one [*Error] for each fault, in the order of their lines.
func Load(name string, env func(string) string) (*Config, error) {
	r := &report{file: name}
	c := builtIn()
	if name == "" {
		r.file = builtInName
	} else {
		src, err := readFile(name, maxFile)
		if err != nil {
			return nil, &Error{File: name, Problem: "cannot be read: " + err.Error(),
				Remedy: "name a readable file, or none to run on the defaults"}
		}
		if err := decode(src, r, c); err != nil {
			return nil, err
		}
	}
	resolve(c, r, filepath.Dir(name), env)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// builtInName stands for the file where none was named.
const builtInName = "built-in configuration"

// Fault returns the error of a key whose value was good to read and turned out
// not to work, such as a port that is taken. It reads the file at name again to
// find the key's line.
func Fault(name, key, problem, remedy string) *Error {
	if name == "" {
		return &Error{File: builtInName, Key: key, Problem: problem, Remedy: remedy}
	}
	e := &Error{File: name, Key: key, Problem: problem, Remedy: remedy}
	if src, err := readFile(name, maxFile); err == nil {
		lines, _ := scanLines(src)
		e.Line = lines.at(strings.Split(key, "."))
	}
	return e
}

// readFile reads at most limit bytes of a file and says why not without
// repeating its name.
func readFile(name string, limit int64) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", reason(err)
	}
	defer f.Close() // nothing was written
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return "", reason(err)
	}
	if int64(len(b)) > limit {
		return "", fmt.Errorf("has more than %d bytes", limit)
	}
	return string(b), nil
}

func reason(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// decode lays the document over c. The error is of the document's syntax; every
// other fault goes to r.
func decode(src string, r *report, c *Config) error {
	lines, deep := scanLines(src)
	if deep {
		return &Error{File: r.file, Problem: fmt.Sprintf("arrays or tables are nested more than %d deep", maxDepth),
			Remedy: "look for a bracket that is never closed"}
	}
	r.lines = lines
	var doc map[string]any
	if _, err := toml.Decode(src, &doc); err != nil {
		return syntaxError(r, err)
	}
	(&binder{r}).table(nil, doc, reflect.ValueOf(c).Elem())
	return nil
}

func syntaxError(r *report, err error) error {
	fault := &Error{File: r.file, Problem: err.Error(), Remedy: "write it as TOML has it (https://toml.io)"}
	var parse toml.ParseError
	if !errors.As(err, &parse) {
		return fault
	}
	fault.Line, fault.Problem = parse.Position.Line, parse.Message
	if fault.Key = r.lines.deepest(fault.Line); fault.Key == "" { // the parser knows the key before the fault, at best
		fault.Key = parse.LastKey
	}
	if strings.HasSuffix(fault.Key, "key") { // the message may quote a piece of a secret
		fault.Problem = "the value is not TOML"
	}
	fault.Remedy = "correct the TOML on this line; text needs quotes"
	return fault
}
