package chaos

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/varve-io/varve/test/check"
)

// TestChaos is a short run: `make chaos` is the long one.
func TestChaos(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "varve")
	build := exec.Command("go", "build", "-o", binary, "../../cmd/varve")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build varve: %v\n%s", err, out)
	}
	var out bytes.Buffer
	kinds := []string{"kill", "pause", "controller", "partition", "power"}
	result, err := Run(t.Context(), Config{Binary: binary, Dir: dir, Duration: 25 * time.Second, Rate: 600,
		Patience: 60 * time.Second, Seed: 1, Floor: 1, Kinds: kinds, Out: &out})
	t.Logf("\n%s%v", out.String(), result)
	if err != nil {
		t.Fatal(err)
	}
}

// TestVerdict: a run that did too little fails, whatever it found.
func TestVerdict(t *testing.T) {
	good := func() Result {
		return Result{Faults: map[string]*Strikes{"kill": {Struck: 2, Leaders: 1}, "pause": {Struck: 2, Leaders: 1}}, Failovers: 1, Cold: 1,
			Report: check.Report{Acked: 96, Unknown: 4, Read: 100}}
	}
	if err := good().verdict(2); err != nil {
		t.Errorf("a good run: %v", err)
	}
	for name, spoil := range map[string]func(*Result){
		"too few faults":   func(r *Result) { r.Faults["kill"].Struck = 1 },
		"no leader struck": func(r *Result) { r.Faults["kill"].Leaders = 0 },
		"no failover":      func(r *Result) { r.Failovers = 0 },
		"nothing cold":     func(r *Result) { r.Cold = 0 },
		"nothing read":     func(r *Result) { r.Report.Read = 0 },
		"nothing written":  func(r *Result) { r.Report = check.Report{Read: 1} },
		"little known":     func(r *Result) { r.Report.Unknown = 6 },
	} {
		r := good()
		spoil(&r)
		if err := r.verdict(2); !errors.Is(err, ErrFloor) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestKindsOf(t *testing.T) {
	if all, err := kindsOf(nil); err != nil || len(all) != len(allKinds) {
		t.Errorf("all kinds: %d, %v", len(all), err)
	}
	if some, err := kindsOf([]string{"pause", "kill"}); err != nil || len(some) != 2 || some[0].name != "pause" {
		t.Errorf("two kinds: %v, %v", some, err)
	}
	if _, err := kindsOf([]string{"earthquake"}); err == nil {
		t.Error("a kind that there is not")
	}
}
