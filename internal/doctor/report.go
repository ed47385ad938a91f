package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// A Verdict says how a check went.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // works, or may work; worth a look
	Fail Verdict = "fail" // devices will not work
	Skip Verdict = "skip" // could not be looked at, because of another finding
)

// A Finding is the result of one check. Its texts are single lines.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Found   string  `json:"found"`
	Remedy  string  `json:"remedy,omitempty"` // "" where nothing is to be done
}

// A Report is the result of an examination, in the order of its checks.
type Report struct {
	Findings []Finding
}

func (r *Report) add(v Verdict, check, remedy, format string, args ...any) {
	r.Findings = append(r.Findings, Finding{
		Check: check, Verdict: v, Found: oneLine(fmt.Sprintf(format, args...)), Remedy: oneLine(remedy),
	})
}

func (r *Report) ok(check, format string, args ...any) { r.add(OK, check, "", format, args...) }
func (r *Report) warn(check, remedy, format string, args ...any) {
	r.add(Warn, check, remedy, format, args...)
}
func (r *Report) fail(check, remedy, format string, args ...any) {
	r.add(Fail, check, remedy, format, args...)
}

// oneLine makes a line of what a server or the system said. Control characters
// go: they could rewrite a terminal.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == ' ' || unicode.IsControl(r) }), " ")
}

// Add appends the findings of another examination.
func (r *Report) Add(o Report) { r.Findings = append(r.Findings, o.Findings...) }

// Healthy reports whether nothing has failed.
func (r *Report) Healthy() bool { return r.first(Fail) == nil }

func (r *Report) first(v Verdict) *Finding {
	for i := range r.Findings {
		if r.Findings[i].Verdict == v {
			return &r.Findings[i]
		}
	}
	return nil
}

// Conclusion is the report in a sentence: the first thing to do, if there is
// one. Later findings are often consequences of the first failure.
func (r *Report) Conclusion() string {
	if f := r.first(Fail); f != nil {
		return f.Found + ": " + f.Remedy
	}
	if f := r.first(Warn); f != nil {
		return "this should work; look at the warnings"
	}
	return "this works"
}

// indent is the width of the columns before what was found.
const indent = 18

// WriteText writes a line for each finding, one for its remedy, and the
// conclusion.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-4s  %-11s %s\n", f.Verdict, f.Check, f.Found)
		if f.Remedy != "" {
			fmt.Fprintf(&b, "%*s-> %s\n", indent, "", f.Remedy)
		}
	}
	fmt.Fprintf(&b, "\nverdict: %s\n", r.Conclusion())
	_, err := io.WriteString(w, b.String())
	return err
}

// MarshalJSON returns {"healthy", "conclusion", "findings"}.
func (r Report) MarshalJSON() ([]byte, error) {
	findings := r.Findings
	if findings == nil {
		findings = []Finding{}
	}
	return json.Marshal(struct {
		Healthy    bool      `json:"healthy"`
		Conclusion string    `json:"conclusion"`
		Findings   []Finding `json:"findings"`
	}{r.Healthy(), r.Conclusion(), findings})
}
