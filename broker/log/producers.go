package log

import (
	"math"
	"slices"

	"github.com/varve-io/varve/wire/record"
)

// noUnstable is the first unstable offset of a log without open transactions.
const noUnstable = math.MaxInt64

// txn is a transaction of the log: open, or ended by the marker at last and not yet known to be replicated.
type txn struct {
	producerID  int64
	first, last int64
}

// producers is the state of all producers of a partition at one offset (Kafka's ProducerStateManager): a pure
// function of the batches below it. Guarded by Log.mu.
type producers struct {
	byID map[int64]*producer
	open []txn // by first offset
	// ended transactions hold the last stable offset back until the high watermark has passed their marker,
	// because an unclean election may still undo it.
	ended []txn // by marker offset
}

func newProducers() *producers { return &producers{byID: map[int64]*producer{}} }

// firstUnstable is the first offset of a transaction that is not decided for good, noUnstable if there is none.
func (s *producers) firstUnstable() int64 {
	first := int64(noUnstable)
	if len(s.open) > 0 {
		first = s.open[0].first
	}
	for _, t := range s.ended {
		first = min(first, t.first)
	}
	return first
}

// replicated forgets ended transactions whose marker lies below the high watermark.
func (s *producers) replicated(hw int64) {
	s.ended = slices.DeleteFunc(s.ended, func(t txn) bool { return t.last < hw })
}

// lastStable is the last stable offset once the marker of t was appended
// (ProducerStateManager.lastStableOffset).
func (s *producers) lastStable(t txn) int64 {
	for _, o := range s.open {
		if o.producerID != t.producerID {
			return o.first
		}
	}
	return t.last + 1
}

func (s *producers) begin(t txn) {
	i, _ := slices.BinarySearchFunc(s.open, t.first, func(o txn, first int64) int { return cmpInt(o.first, first) })
	s.open = slices.Insert(s.open, i, t)
}

func (s *producers) end(t txn) {
	s.open = slices.DeleteFunc(s.open, func(o txn) bool { return o.producerID == t.producerID })
	s.ended = append(s.ended, t)
}

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// apply takes in one batch of the log, checked long ago. whole is needed of control batches only. It returns
// the aborted transaction that the batch ended, if any.
func (s *producers) apply(h record.Batch, whole func() (record.Batch, error)) (*record.AbortedTxn, error) {
	if !h.HasProducer() {
		return nil, nil
	}
	id := h.ProducerID()
	p := s.byID[id]
	if p == nil {
		fresh := newProducer()
		p = &fresh
	}
	if !h.IsControl() {
		began := p.data(h)
		s.byID[id] = p
		s.trim()
		if began {
			s.begin(txn{producerID: id, first: h.BaseOffset()})
		}
		return nil, nil
	}
	b, err := whole()
	if err != nil {
		return nil, err
	}
	m, err := record.ParseMarker(b)
	if err != nil || m.Type == record.Unknown || m.Type != record.Abort && m.Type != record.Commit {
		return nil, nil // an empty control batch, or one that clients skip
	}
	s.byID[id] = p
	first := p.marker(m)
	if first < 0 {
		return nil, nil
	}
	t := txn{producerID: id, first: first, last: h.BaseOffset()}
	s.end(t)
	if m.Type != record.Abort {
		return nil, nil
	}
	return &record.AbortedTxn{ProducerID: id, FirstOffset: first, LastOffset: t.last, LastStableOffset: s.lastStable(t)}, nil
}

// expire forgets producers that were silent since before the given time and have no open transaction.
func (s *producers) expire(before int64) (n int) {
	for id, p := range s.byID {
		if p.txnFirst < 0 && p.lastTimestamp <= before {
			delete(s.byID, id)
			n++
		}
	}
	return n
}

// maxProducers bounds the producers that are remembered of one partition.
const maxProducers = 1 << 18

// trim forgets the quarter of the producers that is silent for longest, as if expired, when there are too many.
func (s *producers) trim() {
	if len(s.byID) <= maxProducers {
		return
	}
	times := make([]int64, 0, len(s.byID))
	for _, p := range s.byID {
		times = append(times, p.lastTimestamp)
	}
	slices.Sort(times)
	s.expire(times[len(times)/4])
}

// entries returns the state, by producer id.
func (s *producers) entries() []record.ProducerEntry {
	list := make([]record.ProducerEntry, 0, len(s.byID))
	for id, p := range s.byID {
		list = append(list, p.entry(id))
	}
	slices.SortFunc(list, func(a, b record.ProducerEntry) int { return cmpInt(a.ProducerID, b.ProducerID) })
	return list
}

// load replaces the state.
func (s *producers) load(entries []record.ProducerEntry) {
	s.byID = make(map[int64]*producer, len(entries))
	s.open, s.ended = nil, nil
	for _, e := range entries {
		p := producerOf(e)
		s.byID[e.ProducerID] = &p
		if p.txnFirst >= 0 {
			s.begin(txn{producerID: e.ProducerID, first: p.txnFirst})
		}
	}
}
