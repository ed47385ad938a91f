package api_test

import (
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"

	"parley/internal/api"
)

func TestDocumentAndRoutesAgree(t *testing.T) {
	w := newWorld(t, api.Config{Tokens: tokens()})
	routes := slices.Sorted(slices.Values(w.api.Routes()))
	if documented := w.spec.patterns(); !slices.Equal(routes, documented) {
		t.Errorf("served:     %v\ndocumented: %v", routes, documented)
	}
	if r := w.do(http.MethodGet, "/api/openapi.json", "", ""); r.status != 200 || r.json["openapi"] != "3.1.0" {
		t.Errorf("%d %s", r.status, r.header)
	}
}

// TestDocumentListsEveryCode reads the codes from the source, where they are
// constants.
func TestDocumentListsEveryCode(t *testing.T) {
	source, err := os.ReadFile("problem.go")
	if err != nil {
		t.Fatal(err)
	}
	var defined []string
	for _, m := range regexp.MustCompile(`code = "([a-z_]+)"`).FindAllSubmatch(source, -1) {
		defined = append(defined, string(m[1]))
	}
	var problem struct {
		Properties struct {
			Code struct{ Enum []string }
		}
	}
	if err := json.Unmarshal(newSpec(t).doc.Components.Schemas["Problem"], &problem); err != nil {
		t.Fatal(err)
	}
	documented := slices.Sorted(slices.Values(problem.Properties.Code.Enum))
	slices.Sort(defined)
	if len(defined) < 20 || !slices.Equal(defined, documented) {
		t.Errorf("defined:    %v\ndocumented: %v", defined, documented)
	}
}

// TestEverySchemaCanBeResolved also keeps references from leading nowhere.
func TestEverySchemaCanBeResolved(t *testing.T) {
	s := newSpec(t)
	for name := range s.doc.Components.Schemas {
		s.schema(t, json.RawMessage(`{"$ref":"#/components/schemas/`+name+`"}`))
	}
	for _, p := range s.patterns() {
		op := s.operation(t, p)
		for _, c := range op.RequestBody.Content {
			s.schema(t, c.Schema)
		}
		for status, raw := range op.Responses {
			var r specResponse
			if err := json.Unmarshal(raw, &r); err != nil {
				t.Fatal(err)
			}
			if name := regexp.MustCompile(`[^/]+$`).FindString(r.Ref); r.Ref != "" && s.doc.Components.Responses[name] == nil {
				t.Errorf("%s: %s refers to %s", p, status, r.Ref)
			}
			for _, c := range r.Content {
				s.schema(t, c.Schema)
			}
		}
	}
}
