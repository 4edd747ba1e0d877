package log

import (
	"errors"
	"io/fs"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// loadSnapshot replaces the producer state by a snapshot.
func (l *Log) loadSnapshot(offset int64) error {
	data, err := vfs.ReadFile(l.fs, l.path(offset, snapshotSuffix))
	if err != nil {
		return err
	}
	entries, err := decodeSnapshot(data, offset)
	if err == nil {
		l.producers.load(entries)
	}
	return err
}

// loadProducers brings the producer state to an offset.
func (l *Log) loadProducers(offset int64, snapshots []int64) error {
	state, err := l.producersAt(offset, snapshots)
	if err == nil {
		l.producers = state
	}
	return err
}

// producersAt computes the producer state at an offset: from the newest snapshot at or below that can be read,
// and the batches after it. Without a snapshot the batches of all segments tell.
func (l *Log) producersAt(offset int64, snapshots []int64) (*producers, error) {
	state := newProducers()
	from := l.segments[0].base
	for i := len(snapshots) - 1; i >= 0; i-- {
		at := snapshots[i]
		if at > offset {
			continue
		}
		data, err := vfs.ReadFile(l.fs, l.path(at, snapshotSuffix))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries, err := decodeSnapshot(data, at)
		if err != nil {
			l.logger.Warn("producer snapshot ignored", "partition", l.tp.String(), "offset", at, "error", err)
			continue
		}
		state.load(entries)
		from = at
		break
	}
	return state, l.replay(state, from, offset)
}

// replay applies the batches of [from, to) to a producer state.
func (l *Log) replay(state *producers, from, to int64) error {
	if from >= to {
		return nil
	}
	for _, s := range l.segments[max(0, l.find(from)):] {
		if s.base >= to {
			break
		}
		err := l.walk(s, 0, func(h record.Batch, whole func() (record.Batch, error)) error {
			if h.BaseOffset() < from || h.BaseOffset() >= to {
				return nil
			}
			_, err := state.apply(h, whole)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// How much of the tail is looked at for the last batches of each producer, of which a snapshot has only one: as
// much as producers can have had in flight.
const (
	recentEntries = 512     // index entries
	recentTail    = 8 << 20 // bytes
)

// loadRecentBatches completes the last batches of producers that are in the state already, from the headers of
// the tail.
func (l *Log) loadRecentBatches() error {
	if len(l.producers.byID) == 0 {
		return nil
	}
	s := l.active()
	e, err := l.floor(s, s.size-recentTail, true)
	if err != nil {
		return err
	}
	if n := s.offsets.entries(); n > recentEntries {
		if at := s.offsets.decode(s.offsets.mem[(n-recentEntries)*s.offsets.width:]); at.val > e.val {
			e = at
		}
	}
	recent := newProducers()
	if e.val == 0 {
		for _, earlier := range l.segmentsBefore(recentTail - s.size) {
			if err := l.recentBatches(earlier, entry{}, recent); err != nil {
				return err
			}
		}
	}
	err = l.recentBatches(s, e, recent)
	if err == errAstray {
		err = l.recentBatches(s, entry{}, recent)
	}
	if err != nil {
		return err
	}
	for id, p := range l.producers.byID {
		p.complete(recent.byID[id])
	}
	return nil
}

// segmentsBefore returns the segments before the last that together have no more than so many bytes.
func (l *Log) segmentsBefore(size int64) []*segment {
	last := len(l.segments) - 1
	n := last
	for n > 0 && l.segments[n-1].size <= size {
		n--
		size -= l.segments[n].size
	}
	return l.segments[n:last]
}

// recentBatches applies the data batches of a segment from an index entry on to a state that knows nothing
// before.
func (l *Log) recentBatches(s *segment, e entry, recent *producers) error {
	return l.eachHeader(s, e, s.size, func(h record.Batch) (bool, error) {
		if h.IsControl() {
			return true, nil
		}
		_, err := recent.apply(h, nil)
		return true, err
	})
}

// complete takes over the batches of other, which ends with the same one and knows at least as many.
func (p *producer) complete(other *producer) {
	if other == nil || p.n == 0 || other.n < p.n || other.epoch != p.epoch || other.batches[other.n-1].LastOffset != p.batches[p.n-1].LastOffset {
		return
	}
	p.batches, p.n = other.batches, other.n
}

// part is a log of other segments, for computing the state at its end. The caller has the segments pinned or
// the turn.
func (l *Log) part(segments []*segment) *Log {
	p := &Log{fs: l.fs, dir: l.dir, tp: l.tp, logger: l.logger, metrics: l.metrics, rebuilding: l.rebuilding, segments: segments}
	p.config.Store(l.config.Load())
	return p
}
