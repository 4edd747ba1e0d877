package check

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Class is a kind of anomaly; the package comment has the rules.
type Class string

const (
	Lost         Class = "lost"
	Unseen       Class = "unseen"
	Duplicate    Class = "duplicate"
	Inconsistent Class = "inconsistent"
	Backwards    Class = "backwards"
	Nonmonotonic Class = "nonmonotonic"
	Skipped      Class = "skipped"
	Aborted      Class = "aborted"
	Torn         Class = "torn"
	Phantom      Class = "phantom"
	Changed      Class = "changed"
)

// Classes are all kinds, the gravest first.
var Classes = []Class{Lost, Unseen, Changed, Inconsistent, Phantom, Aborted, Torn, Duplicate, Skipped, Nonmonotonic, Backwards}

// ErrAnomaly: the history has something in it that must not be.
var ErrAnomaly = errors.New("anomalies in the history")

// maxExamples bounds what a Report keeps of one class.
const maxExamples = 8

// Report is what a Checker found.
type Report struct {
	Ops                    int // operations
	Acked, Failed, Unknown int // records sent, by how it ended
	Read                   int // records in polls

	Counts   map[Class]int
	Examples map[Class][]string // the first few of each
}

func (r *Report) add(c Class, format string, args ...any) {
	r.Counts[c]++
	if len(r.Examples[c]) < maxExamples {
		r.Examples[c] = append(r.Examples[c], fmt.Sprintf(format, args...))
	}
}

// Clean says whether nothing was found but what is allowed.
func (r Report) Clean(allowed ...Class) bool { return r.Err(allowed...) == nil }

// Err is nil if nothing was found but what is allowed; otherwise it wraps
// ErrAnomaly and tells counts and examples.
func (r Report) Err(allowed ...Class) error {
	var b strings.Builder
	for _, c := range Classes {
		if n := r.Counts[c]; n > 0 && !slices.Contains(allowed, c) {
			fmt.Fprintf(&b, "\n%s: %d", c, n)
			for _, e := range r.Examples[c] {
				b.WriteString("\n    " + e)
			}
		}
	}
	if b.Len() == 0 {
		return nil
	}
	return fmt.Errorf("%w:%s", ErrAnomaly, b.String())
}

func (r Report) String() string {
	s := fmt.Sprintf("%d operations: %d records acknowledged, %d refused, %d of unknown outcome, %d read", r.Ops, r.Acked, r.Failed, r.Unknown, r.Read)
	for _, c := range Classes {
		if n := r.Counts[c]; n > 0 {
			s += fmt.Sprintf(", %d %s", n, c)
		}
	}
	return s
}
