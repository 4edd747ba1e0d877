package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// show runs the demo on a part of the input and returns what it printed.
func show(t *testing.T, removeObject bool) (string, error) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "varve")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/varve")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	err := runInTemp(t.Context(), config{binary: binary, limit: 24 << 20, partitions: 1, patience: 3 * time.Second, removeObject: removeObject, out: &out})
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	return out.String(), err
}

func TestDemo(t *testing.T) {
	out, err := show(t, false)
	if err != nil || !strings.Contains(out, "every byte came back") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestDemoFailsWithoutAnObject: the show would notice.
func TestDemoFailsWithoutAnObject(t *testing.T) {
	out, err := show(t, true)
	if err == nil || !strings.Contains(err.Error(), "read from the beginning") || !strings.Contains(out, "by hand") {
		t.Errorf("%v\n%s", err, out)
	}
	if strings.Contains(out, "every byte came back") {
		t.Errorf("it claims success:\n%s", out)
	}
}
