package crash

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/varve-io/varve/test/check"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

func (p place) key() check.Key { return check.KeyOf(p.topic, p.partition) }
func (p place) String() string { return string(p.key()) }

// history is what the log has promised: acknowledgements, which package check judges, and log starts.
type history struct {
	mu      sync.Mutex
	checker *check.Checker
	acked   int64
	reads   int // complete ones
	starts  map[place]*starts
	faults  []error // seen while noting
}

// starts is what is known of a partition's log start.
type starts struct {
	wanted []int64 // by DeleteRecords, whatever came of it
	told   int64   // the highest that the node ever answered: it never moves back
}

func newHistory() *history {
	h := &history{checker: check.New(), starts: map[place]*starts{}}
	for _, t := range topics {
		for p := range t.partitions {
			h.starts[place{t.name, p}] = &starts{}
		}
	}
	return h
}

// reader is the process of package check that reads; producers are 0, 1 ...
const reader = 1000

// ack notes an acknowledgement.
func (h *history) ack(producer int, at place, v check.Value, offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.acked++
	h.checker.Add(check.Op{Proc: producer, Type: check.OK, F: check.FSend, Sends: []check.Send{{Key: at.key(), Value: v, Offset: offset}}})
}

// count is how many records were acknowledged.
func (h *history) count() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.acked
}

// fault notes what must not have happened.
func (h *history) fault(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.note(err)
}

func (h *history) note(err error) {
	const most = 20
	if len(h.faults) < most {
		h.faults = append(h.faults, err)
	}
}

// err is what was noted so far.
func (h *history) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return errors.Join(h.faults...)
}

// trim notes that DeleteRecords up to an offset is asked for.
func (h *history) trim(at place, to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts[at].wanted = append(h.starts[at].wanted, to)
}

// told notes a log start that the node answered.
func (h *history) told(at place, start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.starts[at]
	if start < s.told {
		h.note(fmt.Errorf("the log start of %v was %d and is %d", at, s.told, start))
	}
	s.told = max(s.told, start)
}

// startRule says where a log start may be.
type startRule int

const (
	startFixed    startRule = iota // 0: nothing moves it
	startTrimmed                   // where DeleteRecords wanted it
	startRetained                  // somewhere: total retention moves it
)

// reading is what a partition has from its log start to its end, as it was read.
type reading struct {
	start, end int64 // as the node says
	polls      []check.Poll
}

// read compares a complete read of all partitions with what was promised. Every record that was sent must have been
// acknowledged before, so that both must be equal.
func (h *history) read(all map[place]reading) error {
	for at, r := range all {
		h.told(at, r.start)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reads++
	for _, t := range topics {
		for p := range t.partitions {
			at := place{t.name, p}
			r := all[at]
			if err := h.starts[at].check(t.start, r.start); err != nil {
				h.note(fmt.Errorf("%v: %w", at, err))
			}
			if err := r.whole(); err != nil {
				h.note(fmt.Errorf("%v: %w", at, err))
			}
			h.checker.Start(at.key(), r.start)
			h.checker.Add(check.Op{Proc: reader, Type: check.OK, F: check.FAssign, Assigned: []check.Position{{Key: at.key(), Offset: r.start}}})
			h.checker.Add(check.Op{Proc: reader, Type: check.OK, F: check.FPoll, Polls: r.polls, Reread: h.reads})
		}
	}
	report := h.checker.Report()
	return errors.Join(errors.Join(h.faults...), report.Err())
}

func (s *starts) check(rule startRule, start int64) error {
	switch {
	case rule == startFixed && start != 0:
		return fmt.Errorf("the log starts at %d, nothing has moved it", start)
	case rule == startTrimmed && start != 0 && !slices.Contains(s.wanted, start):
		return fmt.Errorf("the log starts at %d, which DeleteRecords never asked for", start)
	}
	return nil
}

// whole tells whether every offset was there.
func (r reading) whole() error {
	next := r.start
	for _, p := range r.polls {
		if p.Offset != next {
			return fmt.Errorf("offset %d follows %d, the log starts at %d", p.Offset, next-1, r.start)
		}
		next++
	}
	if next != r.end {
		return fmt.Errorf("the log ends at %d, the last record read is %d", r.end, next-1)
	}
	return nil
}
