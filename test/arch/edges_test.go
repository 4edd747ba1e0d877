package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"slices"
	"strconv"
	"testing"
)

// call is a use of a package-level function of an imported package.
type call struct {
	imports string // import path
	name    string
	pos     token.Pos
}

// calls lists the package-level functions of other packages that f mentions.
func calls(f *ast.File) []call {
	names := map[string]string{} // local name -> import path
	for _, imp := range f.Imports {
		p, _ := strconv.Unquote(imp.Path.Value)
		local := path.Base(p)
		if imp.Name != nil {
			local = imp.Name.Name
		}
		names[local] = p
	}
	var found []call
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Obj != nil { // a local variable, not a package
			return true
		}
		if p, ok := names[x.Name]; ok {
			found = append(found, call{imports: p, name: sel.Sel.Name, pos: sel.Pos()})
		}
		return true
	})
	return found
}

func TestEdges(t *testing.T) {
	for _, f := range sources(t) {
		for _, c := range calls(f.ast) {
			for _, e := range edges {
				if c.imports == e.imports && slices.Contains(e.funcs, c.name) && !anyMatch(e.allowed, f.pkg) {
					t.Errorf("%s calls %s.%s: only %v may touch %s", f.path, c.imports, c.name, e.allowed, e.name)
				}
			}
		}
	}
}

func TestNoGlobals(t *testing.T) {
	for _, f := range sources(t) {
		if match("test/*", f.pkg) {
			continue
		}
		for _, c := range calls(f.ast) {
			if slices.Contains(globals[c.imports], c.name) {
				t.Errorf("%s uses %s.%s: take it as a constructor argument", f.path, c.imports, c.name)
			}
		}
	}
}

// TestCalls makes sure that the search finds what it looks for, and only that.
func TestCalls(t *testing.T) {
	const source = `package p
import (
	"os"
	disk "io/fs"
)
func f(net struct{ Dial func() }) { os.Open("x"); net.Dial(); disk.ReadDir(nil, "") }`
	tree, err := parser.ParseFile(token.NewFileSet(), "p.go", source, 0)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range calls(tree) {
		got = append(got, c.imports+"."+c.name)
	}
	if want := []string{"os.Open", "io/fs.ReadDir"}; !slices.Equal(got, want) {
		t.Errorf("calls = %v, want %v", got, want)
	}
}
