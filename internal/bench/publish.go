//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Between these lines of docs/performance.md stand the figures.
const (
	markBegin = "<!-- figures: begin -->\n"
	markEnd   = "<!-- figures: end -->\n"
)

// document is where figures are published, below the module's root.
const document = "docs/performance.md"

var errMarks = errors.New("the lines between which the figures belong are not there")

// place puts figures between the marks of a document.
func place(doc, figures string) (string, error) {
	before, rest, ok := strings.Cut(doc, markBegin)
	_, after, closed := strings.Cut(rest, markEnd)
	if !ok || !closed {
		return "", fmt.Errorf("%w: %q and %q", errMarks, strings.TrimSpace(markBegin), strings.TrimSpace(markEnd))
	}
	return before + markBegin + figures + markEnd + after, nil
}

// publish writes the figures into the document.
func publish(figures string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	path := filepath.Join(root, document)
	doc, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err := place(string(doc), figures)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// moduleRoot is the nearest folder above with a go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod above: run this within the module")
		}
		dir = up
	}
}

// write puts everything a reader needs beside the tables.
func write(m machine, speeds paces, took string, tables []table) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s; %v; measured in %s.\n", m, speeds, took)
	for _, t := range tables {
		b.WriteString("\n" + t.markdown())
	}
	b.WriteString("\n")
	return b.String()
}
