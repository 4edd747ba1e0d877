package crash

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Round is one life of the node.
type Round struct {
	Number int
	Aim    Step
	Fell   []Step // what was under way at the end, the last begun first
	Again  bool   // it was killed once more while it started
	Acked  int64  // records acknowledged until then, in all rounds
}

// Counts is the step that the round counts for: the one that it was aimed at if that was under way, else the
// last that had begun; none if nothing was.
func (r Round) Counts() Step {
	switch {
	case slices.Contains(r.Fell, r.Aim):
		return r.Aim
	case len(r.Fell) > 0:
		return r.Fell[0]
	}
	return none
}

func (r Round) String() string {
	var all []string
	for _, s := range r.Fell {
		all = append(all, s.String())
	}
	text := fmt.Sprintf("round %3d: fell in %v, aimed at %v, under way: %s; %d records acknowledged", r.Number, r.Counts(), r.Aim,
		strings.Join(all, ", "), r.Acked)
	if r.Again {
		text += "; killed again while it started"
	}
	return text
}

// Report is what a run has seen.
type Report struct {
	Rounds  []Round
	Starts  []time.Duration // from exec to the first answer
	Records int             // in the last full read
	Checks  int             // full reads
	Removed int             // orphans that were collected
	Took    time.Duration

	orphans map[string]bool
}

func (r *Report) add(round Round) { r.Rounds = append(r.Rounds, round) }

func (r *Report) see(orphans []string) {
	if r.orphans == nil {
		r.orphans = map[string]bool{}
	}
	for _, name := range orphans {
		r.orphans[name] = true
	}
}

// hits counts the rounds of every step.
func (r *Report) hits() []int {
	hits := make([]int, steps)
	for _, round := range r.Rounds {
		if s := round.Counts(); s != none {
			hits[s]++
		}
	}
	return hits
}

// rarest is the step that fewest rounds have hit.
func (r *Report) rarest() Step {
	hits := r.hits()
	return Step(slices.Index(hits, slices.Min(hits)))
}

// enough fails if fewer rounds than floor fell in a step, or if not every orphan that was seen was collected.
func (r *Report) enough(floor int) error {
	var errs []error
	for s, n := range r.hits() {
		if n < floor {
			errs = append(errs, fmt.Errorf("%d rounds fell in %v, want %d", n, Step(s), floor))
		}
	}
	if r.Removed != len(r.orphans) {
		errs = append(errs, fmt.Errorf("%d orphans were seen, %d collected", len(r.orphans), r.Removed))
	}
	return errors.Join(errs...)
}

// Print writes the table.
func (r *Report) Print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "step\trounds that count\trounds with it under way\t")
	hits := r.hits()
	for s := range steps {
		underWay := 0
		for _, round := range r.Rounds {
			if slices.Contains(round.Fell, s) {
				underWay++
			}
		}
		fmt.Fprintf(t, "%v\t%d\t%d\t\n", s, hits[s], underWay)
	}
	between := 0
	for _, round := range r.Rounds {
		if round.Counts() == none {
			between++
		}
	}
	fmt.Fprintf(t, "%v\t%d\t\t\n", none, between)
	t.Flush()
	again := 0
	for _, round := range r.Rounds {
		if round.Again {
			again++
		}
	}
	acked := int64(0)
	if n := len(r.Rounds); n > 0 {
		acked = r.Rounds[n-1].Acked
	}
	fmt.Fprintf(w, "%d rounds in %v; %d records acknowledged at the last kill, %d in the last of %d full reads\n",
		len(r.Rounds), r.Took.Round(time.Second), acked, r.Records, r.Checks)
	if len(r.Starts) > 0 {
		fmt.Fprintf(w, "%d starts, the slowest %v, and %d ended by another SIGKILL; %d orphans seen, %d collected\n", len(r.Starts),
			slices.Max(r.Starts).Round(time.Millisecond), again, len(r.orphans), r.Removed)
	}
}
