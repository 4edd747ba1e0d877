package log

import (
	"fmt"
	"io"

	"github.com/varve-io/varve/wire/record"
)

// TimeOffset is a record found by its time.
type TimeOffset struct {
	Offset    int64
	Timestamp int64 // the record's own, ms
	Epoch     int32 // leader epoch of the offset
}

// OffsetForTime finds the first local record at or after the log start and below end whose timestamp is ts or later (ListOffsets by time). Timestamps
// need not ascend. It looks into batches, compressed ones too.
func (l *Log) OffsetForTime(ts, end int64) (found TimeOffset, ok bool, err error) {
	start := l.LocalStart()
	for _, s := range l.pinFrom(start) {
		if err == nil && !ok && s.base < end {
			found, ok, err = l.timeInSegment(s, ts, start, end)
		}
		s.release()
	}
	if err != nil {
		return TimeOffset{}, false, fmt.Errorf("offset for time %d in %s: %w", ts, l.tp, err)
	}
	if ok {
		found.Epoch = l.EpochForOffset(found.Offset)
	}
	return found, ok, nil
}

// pinFrom pins the segments from the one that holds offset on.
func (l *Log) pinFrom(offset int64) []*segment {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed.Load() {
		return nil
	}
	list := append([]*segment(nil), l.segments[max(0, l.find(offset)):]...)
	for _, s := range list {
		s.pins.Add(1)
	}
	return list
}

func (l *Log) timeInSegment(s *segment, ts, start, end int64) (found TimeOffset, ok bool, err error) {
	l.mu.RLock()
	size, newest := s.size, s.maxTimestamp
	l.mu.RUnlock()
	if newest < ts || size == 0 {
		return found, false, nil
	}
	pos, err := l.timePosition(s, ts, start)
	if err != nil {
		return found, false, err
	}
	err = l.eachBatch(s, pos, size, func(b placed, whole func() (record.Batch, error)) (bool, error) {
		switch {
		case b.base >= end:
			return false, nil
		case b.maxTimestamp < ts || b.last < start:
			return true, nil
		}
		batch, err := whole()
		if err != nil {
			return false, err
		}
		err = batch.Each(l.config.Load().decompressLimit(), func(r record.Record) (bool, error) {
			if r.Offset >= end {
				return false, nil
			}
			if ok = r.Timestamp >= ts && r.Offset >= start; ok {
				found = TimeOffset{Offset: r.Offset, Timestamp: r.Timestamp}
			}
			return !ok, nil
		})
		return !ok && err == nil, err
	})
	return found, ok, err
}

// timePosition returns a position such that no batch before it has a timestamp of ts or later, or lies at or after start.
func (l *Log) timePosition(s *segment, ts, start int64) (int64, error) {
	offset := start - s.base
	e, ok, err := l.floorTime(s, ts)
	if err != nil {
		return 0, err
	}
	if ok {
		offset = max(offset, int64(e.val))
	}
	pos, err := l.floor(s, offset, false)
	if err != nil || pos == 0 {
		return 0, err
	}
	// The entry is the last offset of a batch, and the batch begins at pos; it is the first to have that timestamp.
	return pos, nil
}

func (l *Log) floorTime(s *segment, ts int64) (entry, bool, error) {
	l.mu.RLock()
	if !s.sealed {
		defer l.mu.RUnlock()
		e, ok := s.times.floor(s.times.mem, ts, false)
		return e, ok, nil
	}
	l.mu.RUnlock()
	x, err := l.sealedIndex(s, &s.times)
	if err != nil {
		return entry{}, false, err
	}
	return x.floor(ts, false)
}

// eachBatch calls fn with the batches of a pinned segment until it returns false.
func (l *Log) eachBatch(s *segment, pos, size int64, fn func(b placed, whole func() (record.Batch, error)) (bool, error)) error {
	window := scans.Get().(*[scanWindow]byte)
	defer scans.Put(window)
	buf := batches.Get().(*[]byte)
	defer giveBatch(buf)
	c := newCursor(s.file, pos, size, window[:])
	for {
		h, pos, n, err := c.next()
		if err == io.EOF {
			return nil
		}
		more := false
		if err == nil {
			more, err = fn(place(h, pos, n), func() (record.Batch, error) { return c.whole(pos, n, buf) })
		}
		if err != nil {
			return corruptIf(err, &Damage{File: s.file.Name(), Pos: pos, Offset: s.base, Reason: err.Error()})
		}
		if !more {
			return nil
		}
	}
}

// MaxTimestamp finds the record with the largest timestamp among the local ones below end, the first of several (ListOffsets -3,
// KIP-734).
func (l *Log) MaxTimestamp(end int64) (found TimeOffset, ok bool, err error) {
	start := l.LocalStart()
	list := l.pinFrom(start)
	defer func() {
		for _, s := range list {
			s.release()
		}
	}()
	best := int64(record.NoTimestamp)
	for _, s := range list {
		if s.base >= end {
			break
		}
		l.mu.RLock()
		size, newest := s.size, s.maxTimestamp
		l.mu.RUnlock()
		if newest <= best {
			continue
		}
		err := l.eachBatch(s, 0, size, func(b placed, whole func() (record.Batch, error)) (bool, error) {
			if b.base >= end {
				return false, nil
			}
			if b.maxTimestamp <= best || b.last < start {
				return true, nil
			}
			batch, err := whole()
			if err != nil {
				return false, err
			}
			return true, batch.Each(l.config.Load().decompressLimit(), func(r record.Record) (bool, error) {
				if r.Timestamp > best && r.Offset >= start && r.Offset < end {
					best, ok = r.Timestamp, true
					found = TimeOffset{Offset: r.Offset, Timestamp: r.Timestamp}
				}
				return true, nil
			})
		})
		if err != nil {
			return TimeOffset{}, false, fmt.Errorf("largest timestamp of %s: %w", l.tp, err)
		}
	}
	if ok {
		found.Epoch = l.EpochForOffset(found.Offset)
	}
	return found, ok, nil
}
