package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestFindsAndFails: targets are found in both kinds of test files, a finding fails the run and
// names the target, a sound one does not.
func TestFindsAndFails(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.test\n\ngo 1.26\n",
		"p/p.go":         "package p\n",
		"p/good_test.go": "package p\n\nimport \"testing\"\n\nfunc FuzzGood(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) {}) }\n",
		"p/bad_test.go":  "package p_test\n\nimport \"testing\"\n\nfunc FuzzBad(f *testing.F) { f.Add(1); f.Fuzz(func(t *testing.T, n int) { if n != 1 { t.Fatal(\"found\") } }) }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	targets, err := find(t.Context(), regexp.MustCompile("."))
	if err != nil || len(targets) != 2 {
		t.Fatalf("found %v, %v, want two targets", targets, err)
	}
	for _, target := range targets {
		r := target.fuzz(t.Context(), 2*time.Second)
		if bad := target.name == "FuzzBad"; bad != (r.err != nil) || bad && !strings.Contains(r.output, "found") {
			t.Errorf("%s: %v\n%s", target.name, r.err, r.output)
		}
	}
	if err := report([]result{{err: nil}}); err != nil {
		t.Errorf("report of a pass: %v", err)
	}
	if err := report([]result{{}, {err: os.ErrInvalid}}); err == nil {
		t.Error("report of a failure: no error")
	}
}
