package replica

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// produceWait is what one Append has waiting for the same condition.
type produceWait struct {
	p          *Partition
	items      []*Produce
	need       int64 // offset that must be reached
	acksAll    bool
	prev, next *produceWait
	list       *waitList // nil: taken by whoever finishes it
	deadline   deadline
}

// finish answers the items. The wait is in no list any more.
func (w *produceWait) finish(err error) {
	if err == nil && w.acksAll {
		err = w.p.enoughAfterAppend()
	}
	for _, item := range w.items {
		if item != nil {
			item.finish(err)
		}
	}
}

// enoughAfterAppend checks the ISR once more when the acknowledgement is due (Kafka's
// NOT_ENOUGH_REPLICAS_AFTER_APPEND).
func (p *Partition) enoughAfterAppend() error {
	lead := p.lead.Load()
	if lead != nil && lead.here && lead.inSync < p.minInSync(lead) {
		return refuse(kerr.NotEnoughReplicasAfterAppend, "%d in sync of %s-%d, min.insync.replicas is %d", lead.inSync, p.topic, p.index, p.minInSync(lead))
	}
	return nil
}

// expire answers the items whose time is over; the others go on waiting.
func (w *produceWait) expire() {
	now := time.Now()
	var due []*Produce
	p := w.p
	p.mu.Lock()
	if w.list == nil { // finished meanwhile
		p.mu.Unlock()
		return
	}
	var rest time.Time
	for i, item := range w.items {
		switch {
		case item == nil:
		case !item.Deadline.After(now):
			due, w.items[i] = append(due, item), nil
		case rest.IsZero() || item.Deadline.Before(rest):
			rest = item.Deadline
		}
	}
	if rest.IsZero() {
		w.list.remove(w)
	} else {
		p.m.timers.add(&w.deadline, rest, w.expire)
	}
	p.mu.Unlock()
	for _, item := range due {
		item.finish(refuse(kerr.RequestTimedOut, "%s-%d: not acknowledged in time", p.topic, p.index))
	}
}

// waitList holds waits by the offset they need, smallest first.
type waitList struct{ head, tail *produceWait }

// insert keeps the order. Appends end in order, so the place is at the tail or close to it.
func (l *waitList) insert(w *produceWait) {
	w.list = l
	after := l.tail
	for after != nil && after.need > w.need {
		after = after.prev
	}
	w.prev = after
	if after == nil {
		w.next, l.head = l.head, w
	} else {
		w.next, after.next = after.next, w
	}
	if w.next == nil {
		l.tail = w
	} else {
		w.next.prev = w
	}
}

func (l *waitList) remove(w *produceWait) {
	if w.prev == nil {
		l.head = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		l.tail = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.list = nil, nil, nil
}

// takeBelow removes the waits that need no more than reached and appends them to done.
func (l *waitList) takeBelow(reached int64, done []*produceWait) []*produceWait {
	for w := l.head; w != nil && w.need <= reached; w = l.head {
		l.remove(w)
		done = append(done, w)
	}
	return done
}

func (l *waitList) takeAll(done []*produceWait) []*produceWait {
	for w := l.head; w != nil; w = l.head {
		l.remove(w)
		done = append(done, w)
	}
	return done
}

// byteMarks knows how many bytes lie below an offset, counted from when the partition was opened, at the ends of
// appends that the high watermark has not passed. So a parked fetch learns how much arrived without looking into the log.
type byteMarks struct {
	marks    []byteMark // ascending
	appended int64      // bytes of all appends
	reached  int64      // bytes below the high watermark
}

type byteMark struct{ end, bytes int64 }

// maxByteMarks bounds the marks of one partition; beyond it neighbours are merged, and a fetch with min.bytes
// wakes a little late.
const maxByteMarks = 1024

func (b *byteMarks) appendedTo(end, bytes int64) {
	b.appended += bytes
	if n := len(b.marks); n > 0 && (n >= maxByteMarks || end <= b.marks[n-1].end) {
		b.marks[n-1] = byteMark{max(end, b.marks[n-1].end), b.appended}
		return
	}
	b.marks = append(b.marks, byteMark{end, b.appended})
}

// upTo returns the bytes below hw and forgets the marks there.
func (b *byteMarks) upTo(hw int64) int64 {
	n := 0
	for n < len(b.marks) && b.marks[n].end <= hw {
		b.reached = max(b.reached, b.marks[n].bytes)
		n++
	}
	if n == len(b.marks) {
		b.marks = b.marks[:0]
	} else if n > 0 {
		b.marks = b.marks[:copy(b.marks, b.marks[n:])]
	}
	return b.reached
}
