package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// An Error is one fault of a configuration. It prints as one line,
// "FILE:LINE: KEY: PROBLEM; REMEDY", which editors and terminals can jump to.
// It never holds the value of a secret.
type Error struct {
	File    string // as it was given to Load
	Line    int    // from 1; 0 where no line is at fault
	Key     string // dotted, such as "mqtt.max_packet"; "" where no key is at fault
	Problem string
	Remedy  string
}

// Error returns the fault in one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Key != "" {
		b.WriteString(": " + e.Key)
	}
	b.WriteString(": " + e.Problem)
	if e.Remedy != "" {
		b.WriteString("; " + e.Remedy)
	}
	return oneLine.Replace(b.String())
}

// oneLine keeps file names and values from breaking an error into two lines.
var oneLine = strings.NewReplacer("\n", " ", "\r", " ")

// A report collects the faults of one file.
type report struct {
	file   string
	lines  lineIndex
	faults []*Error
}

// add notes a fault of the key at p, at the line of p or of the nearest table
// around it that the file has.
func (r *report) add(p path, problem, remedy string) {
	r.faults = append(r.faults, &Error{
		File: r.file, Line: r.lines.at(p), Key: p.String(), Problem: problem, Remedy: remedy,
	})
}

// err joins the faults in the order of their lines, nil when there are none.
func (r *report) err() error {
	slices.SortStableFunc(r.faults, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Key, b.Key))
	})
	errs := make([]error, len(r.faults))
	for i, f := range r.faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}
