package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents that a reader of the project is promised.
var documents = []string{"README.md", "ARCHITECTURE.md", "DIVERGENCE.md", "CONTRIBUTING.md", "LICENSE"}

func TestDocuments(t *testing.T) {
	for _, name := range documents {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDependenciesExplained: each direct dependency has its line in ARCHITECTURE.md.
func TestDependenciesExplained(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	arch, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	require := regexp.MustCompile(`(?m)^\s+([a-z0-9.]+/\S+) v\S+( // indirect)?$`)
	direct := 0
	for _, m := range require.FindAllStringSubmatch(string(mod), -1) {
		if m[2] != "" {
			continue
		}
		direct++
		if !strings.Contains(string(arch), "`"+m[1]+"`") {
			t.Errorf("ARCHITECTURE.md has no line for the dependency %s", m[1])
		}
	}
	if direct == 0 {
		t.Error("go.mod has no direct dependency: the check is broken")
	}
}

// TestNothingLeftHalfDone: what is not finished stands in an issue, not in the code.
func TestNothingLeftHalfDone(t *testing.T) {
	marks := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X|not imple` + `mented)\b`)
	for _, f := range sources(t) {
		text, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if marks.MatchString(line) {
				t.Errorf("%s:%d: %s", f.path, i+1, strings.TrimSpace(line))
			}
		}
	}
}
