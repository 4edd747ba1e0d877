package crash

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func logLine(second int, rest string) string {
	return fmt.Sprintf(`{"time":"2026-01-01T00:00:%02dZ","level":"DEBUG",%s}`+"\n", second, rest)
}

// TestWatchTellsWhatIsUnderWay: what has begun and not ended, however the lines arrive.
func TestWatchTellsWhatIsUnderWay(t *testing.T) {
	text := logLine(1, `"msg":"upload","step":"reserve","object":"a","partition":0`) +
		logLine(2, `"msg":"upload","step":"reserve","object":"b","partition":1`) +
		logLine(3, `"msg":"upload","step":"put","object":"a","partition":0`) +
		logLine(4, `"msg":"index","step":"begin","partition":"t-0","segment":7`) +
		logLine(5, `"msg":"index","step":"end","partition":"t-0","segment":7`) +
		logLine(6, `"msg":"checkpoint","step":"begin","path":"/x"`) +
		logLine(7, `"msg":"start","step":"log directories","took":1`) +
		logLine(8, `"msg":"upload","step":"end","object":"b","partition":1`) +
		`{"time":"2026-01-01T00:00:09Z","msg":"upload","step":"commit","obj` // it died while writing
	for size := 1; size < 200; size += 33 {
		var took stepTimes
		w := newWatch(&took)
		for p := range slices.Chunk([]byte(text), size) {
			w.Write(p)
		}
		if got := w.underWay(); !slices.Equal(got, []Step{Checkpoint, Put}) {
			t.Fatalf("in pieces of %d: %v under way, want checkpoint and PUT", size, got)
		}
		if took[Reserve].Seconds() != 6 || took[IndexWrite].Seconds() != 1 {
			t.Fatalf("reserve took %v, index write %v", took[Reserve], took[IndexWrite])
		}
	}
}

// TestWatchStrikes: once, in the step that it is aimed at and in no other.
func TestWatchStrikes(t *testing.T) {
	w := newWatch(new(stepTimes))
	strikes := 0
	struck := w.aimAt(Commit, func() { strikes++ })
	w.Write([]byte(logLine(1, `"msg":"upload","step":"put","object":"a"`)))
	if strikes != 0 {
		t.Fatal("struck in PUT, aimed at commit")
	}
	w.Write([]byte(strings.Repeat(logLine(2, `"msg":"upload","step":"commit","object":"a"`), 2)))
	if strikes != 1 {
		t.Fatalf("%d strikes, want 1", strikes)
	}
	<-struck
}

// TestRounds: what a round counts for, and that a step that was not hit enough fails the run.
func TestRounds(t *testing.T) {
	for _, test := range []struct {
		aim  Step
		fell []Step
		want Step
	}{
		{Put, []Step{Commit, Put}, Put},
		{Verify, []Step{Commit, Put}, Commit},
		{Verify, nil, none},
	} {
		if got := (Round{Aim: test.aim, Fell: test.fell}).Counts(); got != test.want {
			t.Errorf("aimed at %v, fell in %v: counts for %v, want %v", test.aim, test.fell, got, test.want)
		}
	}
	var r Report
	for s := range steps {
		if err := r.enough(1); err == nil {
			t.Fatalf("%d of %d steps are said to be enough", s, steps)
		}
		if got := r.rarest(); got != s {
			t.Fatalf("the rarest is %v, want %v", got, s)
		}
		r.add(Round{Aim: s, Fell: []Step{s}})
	}
	if err := r.enough(1); err != nil {
		t.Fatal(err)
	}
	r.see([]string{"x"})
	if err := r.enough(1); err == nil {
		t.Fatal("an orphan that is still there was not told")
	}
}
