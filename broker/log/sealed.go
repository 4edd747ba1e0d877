package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sort"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// Sealed is a run of batches that will not change any more, with all that is needed to use it without this log:
// what the tier uploads. It pins the segment until Release.
type Sealed struct {
	Base, End    int64 // offsets, batch boundaries; End exclusive
	Size         int64
	MinTimestamp int64       // of data batches in ms, -1 none
	MaxTimestamp int64       // the same
	Data         io.ReaderAt // the batches as they are on the disk, from 0 to Size

	Epochs    []record.EpochStart    // of the run, the first beginning at Base
	Producers []record.ProducerEntry // state at End, with up to five batches each
	Aborted   []record.AbortedTxn    // every aborted transaction that overlaps, as far as decided

	Release func() // called once
}

// Sealed returns the oldest sealed batches at or after the one that holds offset from: the rest of one segment.
// It reports false if there are none.
func (l *Log) Sealed(from int64) (Sealed, bool, error) {
	s := l.pinSealed(from)
	if s == nil {
		return Sealed{}, false, nil
	}
	run, err := l.describe(s, from)
	if err != nil || run.Size == 0 {
		s.release()
		if err != nil {
			err = fmt.Errorf("sealed batches of %s from %d: %w", l.tp, from, err)
		}
		return Sealed{}, false, err
	}
	return run, true, nil
}

// pinSealed pins the first sealed segment that has anything at or after from.
func (l *Log) pinSealed(from int64) *segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed.Load() {
		return nil
	}
	for _, s := range l.segments[max(0, l.find(from)):] {
		if s.sealed && s.next > from && s.size > 0 {
			s.pins.Add(1)
			return s
		}
	}
	return nil
}

func (l *Log) describe(s *segment, from int64) (Sealed, error) {
	b, err := l.seek(s, s.size, from)
	if err == io.EOF {
		return Sealed{}, nil
	}
	if err != nil {
		return Sealed{}, err
	}
	run := Sealed{Base: b.base, End: s.next, Size: s.size - b.pos, Data: io.NewSectionReader(s.file, b.pos, s.size-b.pos),
		Epochs: l.Epochs(b.base, s.next), Release: s.release}
	if run.MinTimestamp, run.MaxTimestamp, err = l.dataTimes(s, entry{b.last - s.base, int32(b.pos)}); err != nil {
		return run, err
	}
	if run.Producers, err = l.producersAtEnd(s); err != nil {
		return run, err
	}
	run.Aborted, err = l.AbortedTxns(run.Base, run.End)
	return run, err
}

// dataTimes returns the smallest and the largest timestamp of the data batches from that of an index entry on.
func (l *Log) dataTimes(s *segment, e entry) (smallest, largest int64, err error) {
	l.mu.RLock()
	smallest, largest = s.minData, s.maxData
	known := s.dataKnown && e.val == 0
	l.mu.RUnlock()
	if known {
		return smallest, largest, nil
	}
	sum := segment{minData: record.NoTimestamp, maxData: record.NoTimestamp}
	err = l.eachBatch(s, e, s.size, func(b placed, _ func() (record.Batch, error)) (bool, error) {
		sum.addTimes(b)
		return true, nil
	})
	return sum.minData, sum.maxData, err
}

// producersAtEnd computes the producer state at the end of a sealed, pinned segment.
func (l *Log) producersAtEnd(s *segment) ([]record.ProducerEntry, error) {
	l.mu.RLock()
	segments := append([]*segment(nil), l.segments[:max(0, l.find(s.base))]...)
	for _, earlier := range segments {
		earlier.pins.Add(1)
	}
	l.mu.RUnlock()
	defer func() {
		for _, earlier := range segments {
			earlier.release()
		}
	}()
	rest := l.part(append(segments[:len(segments):len(segments)], s))
	var snapshots []int64
	data, err := vfs.ReadFile(l.fs, l.path(s.next, snapshotSuffix))
	if err == nil {
		_, err = decodeSnapshot(data, s.next)
	}
	switch {
	case err == nil:
		snapshots = []int64{s.next}
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrFormat):
		files, err := l.list()
		if err != nil {
			return nil, err
		}
		snapshots = files.snapshots
	default:
		return nil, err
	}
	if err := rest.loadProducers(s.next, snapshots); err != nil {
		return nil, err
	}
	if err := rest.loadRecentBatches(); err != nil {
		return nil, err
	}
	return rest.producers.entries(), nil
}

// AbortedTxns returns the aborted transactions that overlap [from, to), by first offset (Kafka's
// collectAbortedTxns). Those whose abort marker lies beyond what is local are not among them.
func (l *Log) AbortedTxns(from, to int64) ([]record.AbortedTxn, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed.Load() {
		return nil, ErrClosed
	}
	var list []record.AbortedTxn
	for _, s := range l.segments[max(0, l.find(from)):] {
		i := sort.Search(len(s.txns.mem), func(i int) bool { return s.txns.mem[i].LastOffset >= from })
		for _, t := range s.txns.mem[i:] {
			if t.FirstOffset < to {
				list = append(list, t)
			}
			if t.LastStableOffset >= to {
				return sortAborted(list), nil
			}
		}
	}
	return sortAborted(list), nil
}
