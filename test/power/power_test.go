package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/varve-io/varve/test/check"
)

// TestPowerLoss is a short run, with its control: `make power` is the long one.
func TestPowerLoss(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	cfg := config{rounds: 3, reread: 3, rate: 300, longest: time.Second, patience: 30 * time.Second, seed: 1, out: &out}
	if err := inTemp(t.Context(), cfg, false); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	t.Log("\n" + out.String())
	if left, _ := os.ReadDir(os.TempDir()); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestVerdict: a control that loses nothing fails the rig, and so does a run that did nothing.
func TestVerdict(t *testing.T) {
	lost := func(c check.Class) result { return result{report: check.Report{Counts: map[check.Class]int{c: 1}}} }
	real := result{objects: 1, changes: 1, report: check.Report{Acked: 1}}
	if err := verdict(real, result{}); !errors.Is(err, errToothless) {
		t.Errorf("nothing lost without fdatasync: %v", err)
	}
	for _, c := range []check.Class{check.Lost, check.Unseen} {
		if err := verdict(real, lost(c)); err != nil {
			t.Errorf("one %s: %v", c, err)
		}
	}
	for _, idle := range []result{{}, {objects: 1, changes: 1}, {objects: 1, report: real.report}, {changes: 1, report: real.report}} {
		if err := verdict(idle, lost(check.Lost)); err == nil {
			t.Errorf("an idle run passes: %+v", idle)
		}
	}
}

// TestMutation: the control is made from the source as it is, or not at all.
func TestMutation(t *testing.T) {
	source, err := os.ReadFile("../../" + syncFile)
	if err != nil {
		t.Fatal(err)
	}
	mutated, err := withoutSync(source)
	if err != nil || bytes.Equal(mutated, source) || !bytes.Contains(mutated, []byte(unsyncedLine)) {
		t.Errorf("%v", err)
	}
	for _, other := range []string{"", "package vfs", strings.Repeat(syncLine+"\n", 2)} {
		if _, err := withoutSync([]byte(other)); err == nil {
			t.Errorf("mutated %q", other)
		}
	}
}

func TestTrimmerVerifies(t *testing.T) {
	for _, c := range []struct {
		start int64
		ok    bool
	}{{9, false}, {10, true}, {15, true}, {20, true}, {21, false}} {
		tr := trimmer{acked: 10, asked: 20}
		if err := tr.verify(c.start); (err == nil) != c.ok {
			t.Errorf("log start %d, answered for 10, asked for 20: %v", c.start, err)
		}
	}
}

func TestTopicStates(t *testing.T) {
	c := changer{states: map[string]state{"a": created, "b": deleted, "c": asked}}
	if n := c.done(); n != 3 {
		t.Errorf("%d acknowledged changes, want 3", n)
	}
	for _, there := range []struct {
		names string
		ok    bool
	}{{"a", true}, {"ac", true}, {"", false}, {"ab", false}, {"c", false}} {
		has := func(name string) bool { return strings.Contains(there.names, name) }
		if err := c.compare(has); (err == nil) != there.ok {
			t.Errorf("there: %q: %v", there.names, err)
		}
	}
}
