package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// file is one parsed non-test source file of the module.
type file struct {
	pkg  string // directory below the module root, slash separated
	path string
	ast  *ast.File
}

// root is the module's folder, seen from this test's.
const root = "../.."

func sources(t *testing.T) []file {
	t.Helper()
	var files []file
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if path != root && strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if path != root {
				if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
					return filepath.SkipDir // a module of its own
				}
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		files = append(files, file{pkg: filepath.ToSlash(rel), path: path, ast: tree})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 2 {
		t.Fatalf("found %d source files below %s: the walk is broken", len(files), root)
	}
	return files
}

// match reports whether pkg is pattern, or below it where pattern ends in "/*".
func match(pattern, pkg string) bool {
	if pattern == "*" {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(pkg, below+"/")
	}
	return pattern == pkg
}

func layerOf(pkg string) (layer, bool) {
	var best layer
	for _, l := range layers {
		if match(l.pkg, pkg) && len(l.pkg) > len(best.pkg) {
			best = l
		}
	}
	return best, best.pkg != ""
}

func anyMatch(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if match(p, pkg) {
			return true
		}
	}
	return false
}

// mayImport reports whether a package of layer l may import path.
func mayImport(l layer, path string) bool {
	if ours, ok := strings.CutPrefix(path, module); ok {
		return anyMatch(l.ours, ours)
	}
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return true // standard library
	}
	if strings.HasPrefix(path, "github.com/prometheus/client_golang") {
		return true
	}
	for _, p := range l.thirdParty {
		if p == "*" || path == p || strings.HasPrefix(path, p+"/") {
			return true
		}
	}
	return false
}

func TestLayers(t *testing.T) {
	for _, f := range sources(t) {
		l, ok := layerOf(f.pkg)
		if !ok {
			t.Errorf("%s: package %s has no row in layers.go", f.path, f.pkg)
			continue
		}
		for _, imp := range f.ast.Imports {
			path, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				t.Fatal(err)
			}
			if !mayImport(l, path) {
				t.Errorf("%s imports %s: %s may not (%s)", f.path, path, f.pkg, l.why)
			}
		}
	}
}

// TestMayImport makes sure that the check itself can say no.
func TestMayImport(t *testing.T) {
	log, _ := layerOf("broker/log")
	for path, want := range map[string]bool{
		"os":                                true,
		module + "wire":                     true,
		module + "tier":                     false,
		module + "wire/config":              false,
		"github.com/hashicorp/raft":         false,
		"github.com/twmb/franz-go/pkg/kerr": true,
		"github.com/twmb/franz-go/pkg/kgo":  false,
		"github.com/prometheus/client_golang/prometheus": true,
	} {
		if got := mayImport(log, path); got != want {
			t.Errorf("broker/log imports %s: allowed %v, want %v", path, got, want)
		}
	}
	broker, _ := layerOf("broker")
	if mayImport(broker, module+"controller") {
		t.Error("broker may import controller")
	}
}

// TestPackageComments: someone new reads the package comment first.
func TestPackageComments(t *testing.T) {
	documented := map[string]bool{}
	for _, f := range sources(t) {
		documented[f.pkg] = documented[f.pkg] || f.ast.Doc != nil
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}
