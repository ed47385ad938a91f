package house

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	module = "parley"
	root   = "../.."
)

// mayImport is the picture of docs/architecture.md as a table: the rooms of the
// house and which others each may import. A room that is missing may import
// nothing of ours.
var mayImport = map[string][]string{
	"broker":              {"internal/protocol"},
	"udpaudio":            {"internal/protocol"},
	"mcp":                 {"internal/protocol"},
	"mcp/servers":         {"mcp", "internal/protocol", "internal/program"},
	"mcp/access":          {"mcp", "internal/protocol"},
	"mcp/pipe":            {"mcp", "mcp/servers", "internal/protocol"},
	"mcp/builtin":         {"mcp", "internal/protocol"},
	"pipeline":            {"internal/audio"},
	"pipeline/asr":        {"pipeline", "internal/audio", "internal/phrase", "internal/program", "internal/openaiapi"},
	"pipeline/llm":        {"pipeline", "internal/audio", "internal/phrase", "internal/program", "internal/openaiapi"},
	"pipeline/tts":        {"pipeline", "internal/audio", "internal/program", "internal/openaiapi"},
	"pipeline/vad":        {"pipeline", "internal/audio"},
	"pipeline/resilient":  {"pipeline", "internal/audio"},
	"internal/session":    {"broker", "udpaudio", "mcp", "pipeline", "internal/protocol", "internal/record"},
	"internal/ota":        {"internal/protocol"},
	"internal/api":        {"mcp", "internal/protocol"},
	"internal/home":       {"mcp", "internal/protocol"},
	"internal/vision":     {"internal/protocol"},
	"internal/device":     {"internal/protocol", "internal/audio", "internal/simnet"},
	"internal/doctor":     {"internal/protocol", "internal/config", "internal/ota"},
	"internal/record":     {"internal/protocol", "internal/audio"},
	"internal/bench":      {"broker", "udpaudio", "pipeline", "pipeline/vad", "internal/audio", "internal/protocol", "internal/session", "internal/sweep"},
	"internal/openaitest": {"internal/audio"},
}

// imports walks the module and returns, per room, what it imports of ours.
func imports(t *testing.T) map[string]map[string]bool {
	t.Helper()
	got := map[string]map[string]bool{}
	for _, path := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		room := filepath.Dir(path)
		if got[room] == nil {
			got[room] = map[string]bool{}
		}
		for _, i := range f.Imports {
			p, _ := strconv.Unquote(i.Path.Value)
			if ours, ok := strings.CutPrefix(p, module+"/"); ok {
				got[room][ours] = true
			}
		}
	}
	return got
}

func goFiles(t *testing.T) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() && (rel == ".git" || rel == "bin" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			out = append(out, rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 30 {
		t.Fatalf("found %d Go files below %s: the walk is wrong", len(out), root)
	}
	return out
}

func TestRoomsImportOnlyWhatTheyMay(t *testing.T) {
	for room, imported := range imports(t) {
		if strings.HasPrefix(room, "cmd/") {
			continue // the wiring may know everybody
		}
		allowed := map[string]bool{}
		for _, a := range mayImport[room] {
			allowed[a] = true
		}
		for i := range imported {
			if !allowed[i] {
				t.Errorf("%s imports %s, which docs/architecture.md does not allow", room, i)
			}
		}
	}
}

func TestFilesAndFunctionsStayReadable(t *testing.T) {
	for _, path := range goFiles(t) {
		src, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(src, []byte("\n")); n > 800 {
			t.Errorf("%s has %d lines, at most 800 are read", path, n)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, src, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			if fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: func init: nothing happens by being imported", path)
			}
			if n := set.Position(fn.End()).Line - set.Position(fn.Pos()).Line; n > 80 {
				t.Errorf("%s: func %s has %d lines, at most 80 are read", path, fn.Name.Name, n)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)

func TestDocumentsLinkToWhatExists(t *testing.T) {
	docs, _ := filepath.Glob(filepath.Join(root, "docs/*.md"))
	top, _ := filepath.Glob(filepath.Join(root, "*.md"))
	docs = append(docs, top...)
	if len(docs) < 3 {
		t.Fatalf("found %d documents", len(docs))
	}
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllSubmatch(text, -1) {
			target := string(m[1])
			if strings.Contains(target, "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), target)); err != nil {
				t.Errorf("%s links to %s, which is not there", doc, target)
			}
		}
	}
}
