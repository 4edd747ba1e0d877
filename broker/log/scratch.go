package log

import "github.com/varve-io/varve/wire/record"

// scratch is the producer state as it will be after the batches of a group that is not written yet: copies of
// the producers that the group touches, over the state that is published. It belongs to the append turn and is
// used again.
type scratch struct {
	under   *producers
	touched map[int64]*producer
	free    []*producer
	began   []txn
	ended   []txn
	aborted []record.AbortedTxn
}

func (s *scratch) reset(under *producers) {
	for _, p := range s.touched {
		s.free = append(s.free, p)
	}
	if len(s.free) > maxFreeProducers {
		s.free = nil
	}
	if s.touched == nil {
		s.touched = map[int64]*producer{}
	}
	clear(s.touched)
	s.under, s.began, s.ended, s.aborted = under, s.began[:0], s.ended[:0], s.aborted[:0]
}

// maxFreeProducers bounds the copies kept for the next group.
const maxFreeProducers = 1024

// get returns the producer as the batches staged so far left it; it must not be changed.
func (s *scratch) get(id int64) (p *producer, known bool) {
	if p, ok := s.touched[id]; ok {
		return p, true
	}
	p, known = s.under.byID[id]
	return p, known
}

// own returns a copy that may be changed.
func (s *scratch) own(id int64) *producer {
	if p, ok := s.touched[id]; ok {
		return p
	}
	var p *producer
	if n := len(s.free); n > 0 {
		p, s.free = s.free[n-1], s.free[:n-1]
	} else {
		p = new(producer)
	}
	if old, ok := s.under.byID[id]; ok {
		*p = *old
	} else {
		*p = newProducer()
	}
	s.touched[id] = p
	return p
}

// data stages a data batch.
func (s *scratch) data(b record.Batch) {
	id := b.ProducerID()
	if s.own(id).data(b) {
		s.began = append(s.began, txn{producerID: id, first: b.BaseOffset()})
	}
}

// marker stages a marker at an offset.
func (s *scratch) marker(m record.Marker, offset int64) {
	first := s.own(m.ProducerID).marker(m)
	if first < 0 {
		return
	}
	t := txn{producerID: m.ProducerID, first: first, last: offset}
	s.ended = append(s.ended, t)
	if m.Type == record.Abort {
		s.aborted = append(s.aborted, record.AbortedTxn{ProducerID: m.ProducerID, FirstOffset: first,
			LastOffset: offset, LastStableOffset: s.lastStable(t)})
	}
}

// lastStable is producers.lastStable over what is published and what is staged.
func (s *scratch) lastStable(t txn) int64 {
	stable := t.last + 1
	isOpen := func(o txn) bool {
		p, _ := s.get(o.producerID)
		return o.producerID != t.producerID && p != nil && p.txnFirst == o.first
	}
	for _, list := range [][]txn{s.under.open, s.began} {
		for _, o := range list {
			if isOpen(o) {
				stable = min(stable, o.first)
			}
		}
	}
	return stable
}

// commit publishes what was staged. The caller holds Log.mu.
func (s *scratch) commit() {
	for id, p := range s.touched {
		if old, ok := s.under.byID[id]; ok {
			*old = *p
		} else {
			fresh := *p
			s.under.byID[id] = &fresh
		}
	}
	s.under.trim()
	for _, t := range s.began {
		s.under.begin(t)
	}
	for _, t := range s.ended {
		s.under.end(t)
	}
}
