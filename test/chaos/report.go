package chaos

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/varve-io/varve/test/check"
)

// leastKnown percent of the records sent must have a known outcome: a run that mostly does not know has shown little.
const leastKnown = 95

// ErrFloor: the run did less than it has to, so it shows nothing.
var ErrFloor = errors.New("a floor was not reached")

// Strikes count one kind of fault.
type Strikes struct {
	Struck  int
	Leaders int // of them on a node that led a partition that was written
	Ended   int // of them on a node that ended by itself, which this kind allows
}

func (s *Strikes) add(leads int) {
	s.Struck++
	if leads > 0 {
		s.Leaders++
	}
}

// Result is what a run found.
type Result struct {
	Report    check.Report
	Faults    map[string]*Strikes
	Failovers int   // changes of a partition's leader
	Cold      int64 // records that were only in the store at the end
}

// known is how many percent of the records sent have an outcome.
func (r Result) known() float64 {
	known, all := r.Report.Acked+r.Report.Failed, r.Report.Acked+r.Report.Failed+r.Report.Unknown
	if all == 0 {
		return 0
	}
	return 100 * float64(known) / float64(all)
}

// verdict says whether the run did what it is for.
func (r Result) verdict(floor int) error {
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		switch s := r.Faults[name]; {
		case s.Struck < floor:
			return fmt.Errorf("%w: %d faults of kind %s, of %d", ErrFloor, s.Struck, name, floor)
		case floor > 0 && s.Leaders == 0:
			return fmt.Errorf("%w: %s never struck a leader", ErrFloor, name)
		}
	}
	switch {
	case r.Report.Acked == 0 || r.Report.Read == 0:
		return fmt.Errorf("%w: %d records acknowledged, %d read", ErrFloor, r.Report.Acked, r.Report.Read)
	case r.known() < leastKnown:
		return fmt.Errorf("%w: the outcome of %.1f %% of the records is known, of %d %%", ErrFloor, r.known(), leastKnown)
	case r.Failovers == 0 && r.deposed() > 0:
		return fmt.Errorf("%w: no leader changed", ErrFloor)
	case r.Cold == 0:
		return fmt.Errorf("%w: no record was read from the store alone", ErrFloor)
	}
	return nil
}

// deposed is how many strikes must have deposed a leader.
func (r Result) deposed() (n int) {
	for _, k := range allKinds {
		if s := r.Faults[k.name]; s != nil && k.deposes {
			n += s.Leaders
		}
	}
	return n
}

func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "records: %d ok, %d failed, %d unknown (%.2f %% known)\n", r.Report.Acked, r.Report.Failed, r.Report.Unknown, r.known())
	fmt.Fprintf(&b, "read: %d, of them at the end %d only in the store\nfailovers: %d\n", r.Report.Read, r.Cold, r.Failovers)
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, "%-12s%4d, %d on a leader, %d ended the node\n", name, r.Faults[name].Struck, r.Faults[name].Leaders, r.Faults[name].Ended)
	}
	fmt.Fprintf(&b, "history: %v", r.Report)
	return b.String()
}
