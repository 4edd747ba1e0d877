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

// OffsetForTime finds the first local record at or after the log start and below end whose timestamp is ts or
// later (ListOffsets by time). Timestamps need not ascend. It looks into batches, compressed ones too.
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
	err = l.trusting(s, func() error {
		e, err := l.timePosition(s, ts, start)
		if err == nil {
			found, ok, err = l.timeFrom(s, e, size, ts, start, end)
		}
		return err
	})
	return found, ok, err
}

// timeFrom looks at the batches from an index entry on.
func (l *Log) timeFrom(s *segment, e entry, size, ts, start, end int64) (found TimeOffset, ok bool, err error) {
	err = l.eachBatch(s, e, size, func(b placed, whole func() (record.Batch, error)) (bool, error) {
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

// timePosition returns an index entry such that no batch before it has a timestamp of ts or later, or reaches
// start. An entry of the time index tells the last offset of the first batch that has its timestamp, and the
// largest timestamp up to there.
func (l *Log) timePosition(s *segment, ts, start int64) (entry, error) {
	e, ok, err := l.floorTime(s, ts)
	if err != nil {
		return entry{}, err
	}
	offset := start - s.base
	if ok {
		offset = max(offset, int64(e.val))
	}
	return l.floor(s, offset, false)
}

func (l *Log) floorTime(s *segment, ts int64) (entry, bool, error) {
	l.mu.RLock()
	if !s.sealed {
		defer l.mu.RUnlock()
		if s.distrusted.Load() {
			return entry{}, false, nil
		}
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

// eachBatch calls fn with the batches of a pinned segment from an index entry on, until it returns false. whole
// reads the batch, until fn returns.
func (l *Log) eachBatch(s *segment, e entry, size int64, fn func(b placed, whole func() (record.Batch, error)) (bool, error)) error {
	buf := batches.Get().(*[]byte)
	defer giveBatch(buf)
	pos := int64(e.val)
	return l.eachHeader(s, e, size, func(h record.Batch) (bool, error) {
		n, err := record.SizeOf(h)
		if err != nil {
			return false, err
		}
		b := place(h, pos, n)
		pos += n
		return fn(b, func() (record.Batch, error) { return readBatch(s.file, b.pos, n, buf) })
	})
}

// eachHeader calls fn with the batch headers of a pinned segment from an index entry on, until it returns
// false.
func (l *Log) eachHeader(s *segment, e entry, size int64, fn func(h record.Batch) (bool, error)) error {
	window := scans.Get().(*[scanWindow]byte)
	defer scans.Put(window)
	c := newCursor(s.file, int64(e.val), size, window[:])
	for {
		h, pos, _, err := c.next()
		if astray(s, e, h, pos, err) {
			return errAstray
		}
		if err == io.EOF {
			return nil
		}
		more := false
		if err == nil {
			more, err = fn(h)
		}
		if err != nil {
			return corruptIf(err, &Damage{File: s.file.Name(), Pos: pos, Offset: s.base, Reason: err.Error()})
		}
		if !more {
			return nil
		}
	}
}

// MaxTimestamp finds the record with the largest timestamp among the local ones below end, the first of several
// (ListOffsets -3, KIP-734).
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
		err := l.eachBatch(s, entry{}, size, func(b placed, whole func() (record.Batch, error)) (bool, error) {
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
