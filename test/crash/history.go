package crash

import (
	"errors"
	"fmt"
	"sync"
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

func (p place) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

// record is what was acknowledged at an offset, or read there.
type record struct {
	offset int64
	id     id
	sum    uint32 // of the whole value
}

// history is what one partition has promised: every acknowledgement and every log start that it told.
type history struct {
	mu     sync.Mutex
	acked  map[int64]record
	starts []int64 // wanted by DeleteRecords, whatever came of it
	start  int64   // highest that was ever told: it never moves back
	faults []error // seen while noting
}

func newHistory() *history { return &history{acked: map[int64]record{}} }

// ack notes an acknowledgement.
func (h *history) ack(r record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before, twice := h.acked[r.offset]; twice && before != r {
		h.faults = append(h.faults, fmt.Errorf("offset %d was acknowledged for %v and for %v", r.offset, before.id, r.id))
	}
	h.acked[r.offset] = r
}

// trim notes that DeleteRecords up to an offset is asked for.
func (h *history) trim(to int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.starts = append(h.starts, to)
}

// told notes a log start that the node answered.
func (h *history) told(start int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if start < h.start {
		h.faults = append(h.faults, fmt.Errorf("the log start was %d and is %d", h.start, start))
	}
	h.start = max(h.start, start)
}

// startRule says where a log start may be.
type startRule int

const (
	startFixed    startRule = iota // 0: nothing moves it
	startTrimmed                   // where DeleteRecords wanted it
	startRetained                  // somewhere: total retention moves it
)

// check compares what is in a partition, all of [start, end) in the order in which it was read, with what was
// promised. Every record that was sent must have been acknowledged before, so that both must be equal.
func (h *history) check(rule startRule, start, end int64, read []record) error {
	h.told(start)
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := append([]error(nil), h.faults...)
	fail := func(format string, args ...any) {
		const most = 20
		if len(errs) < most {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	switch rule {
	case startFixed:
		if start != 0 {
			fail("the log starts at %d, nothing has moved it", start)
		}
	case startTrimmed:
		wanted := start == 0
		for _, to := range h.starts {
			wanted = wanted || to == start
		}
		if !wanted {
			fail("the log starts at %d, which DeleteRecords never asked for", start)
		}
	}
	next := start
	at := map[id]int64{}
	for _, r := range read {
		if r.offset != next {
			fail("offset %d follows %d", r.offset, next-1)
		}
		next = r.offset + 1
		if first, twice := at[r.id]; twice {
			fail("record %v is at %d and at %d", r.id, first, r.offset)
		}
		at[r.id] = r.offset
		switch acked, ok := h.acked[r.offset]; {
		case !ok:
			fail("record %v at %d was acknowledged nowhere", r.id, r.offset)
		case acked != r:
			fail("offset %d was acknowledged for %v (%08x) and holds %v (%08x)", r.offset, acked.id, acked.sum, r.id, r.sum)
		}
	}
	if next != end {
		fail("the log ends at %d, the last record read is %d", end, next-1)
	}
	for offset, r := range h.acked {
		if there, ok := at[r.id]; offset >= start && (!ok || there != offset) {
			fail("record %v, acknowledged at %d, is lost", r.id, offset)
		} else if offset < start && ok {
			fail("record %v, acknowledged at %d below the log start, is at %d", r.id, offset, there)
		}
	}
	return errors.Join(errs...)
}

// count is how many records were acknowledged.
func (h *history) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acked)
}
