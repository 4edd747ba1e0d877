package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestKill: a few rounds of what the command kill does for hours. Every step is hit.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build varve: %v\n%s", err, out)
	}
	report, err := Run(t.Context(), Config{Binary: binary, Dir: dir, Rounds: 10, Floor: 1, CheckEvery: 5, RestEvery: 100, Log: t.Logf})
	if report != nil {
		var table strings.Builder
		report.Print(&table)
		t.Logf("\n%s", table.String())
	}
	if err != nil {
		t.Fatal(err)
	}
}
