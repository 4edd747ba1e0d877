package log

import (
	"fmt"
	"io"

	"github.com/varve-io/varve/wire"
)

// Read is what Read found: whole batches, the first of which holds the offset asked for.
type Read struct {
	Range       wire.FileRange // Size 0: nothing there yet. The segment stays until Range.Release was called
	FirstOffset int64          // base offset of the first batch
	NextOffset  int64          // offset after the last batch
}

// recentBytes is how far behind the end of the active segment bytes count as just appended, hence in the page cache.
const recentBytes = 1 << 20

// Read finds the batches from the one that holds offset on, up to maxBytes and below end: the high watermark, the last stable
// offset or the log end. Reads stay in one segment. If the first batch alone is larger than maxBytes it is returned
// if minOneBatch, else nothing (KIP-74).
//
// The error wraps ErrOffsetOutOfRange below LocalStart or above the log end; callers look at LogStart then, for the offset may be in
// the other tier. An offset at or above end gives an empty Read.
func (l *Log) Read(offset int64, maxBytes int, end int64, minOneBatch bool) (Read, error) {
	for {
		v, err := l.view(offset, end)
		if err != nil || v.seg == nil {
			return Read{FirstOffset: offset, NextOffset: offset}, err
		}
		r, err := l.readSegment(v, offset, int64(maxBytes), minOneBatch)
		if err != nil {
			v.seg.release()
			return Read{}, fmt.Errorf("read %s at %d: %w", l.tp, offset, err)
		}
		if r.Range.Size > 0 {
			return r, nil
		}
		v.seg.release()
		if r.NextOffset == offset {
			return r, nil
		}
		offset = r.NextOffset // the rest of the segment was compacted away
	}
}

// view is what one read looks at: a segment, pinned, and what was known of it at one moment.
type view struct {
	seg    *segment // nil: nothing to read
	active bool
	size   int64 // readable bytes of the segment
	next   int64 // offset after them
	// bounded: batches that reach next or beyond are out of bounds, and where they begin is not known; size then counts them.
	bounded bool
	first   mark // the batch that holds the offset, if it is known
}

// view pins the segment that holds offset.
func (l *Log) view(offset, end int64) (view, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	logEnd := l.end.Load()
	if l.closed.Load() {
		return view{}, ErrClosed
	}
	if start := l.LocalStart(); offset < start || offset > logEnd {
		return view{}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOffsetOutOfRange, offset, start, logEnd)
	}
	if end = min(end, logEnd); offset >= end {
		return view{}, nil
	}
	s := l.segments[l.find(offset)]
	v := view{seg: s, active: !s.sealed, size: s.size, next: s.next}
	if end < s.next {
		v.next, v.bounded = end, true
		if pos, ok := l.marks.begin(s, end); ok {
			v.size, v.bounded = pos, false
		}
	}
	if first, ok := l.marks.holds(s, offset); ok {
		v.first = first
	} else {
		v.first = l.hints.get(s, offset)
	}
	s.pins.Add(1)
	return v, nil
}

func (l *Log) readSegment(v view, offset, maxBytes int64, minOneBatch bool) (Read, error) {
	b, err := v.first, error(nil)
	if b.seg == nil {
		b, err = l.seek(v.seg, v.size, offset)
	}
	if err == io.EOF {
		return Read{FirstOffset: offset, NextOffset: v.next}, nil
	}
	if err != nil {
		return Read{}, err
	}
	if b.last >= v.next || b.size > maxBytes && !minOneBatch {
		return Read{FirstOffset: offset, NextOffset: offset}, nil // nobody may see part of a batch
	}
	r := Read{FirstOffset: b.base, NextOffset: v.next}
	stop := v.size
	if v.bounded || v.size-b.pos > maxBytes {
		if stop, r.NextOffset, err = l.fit(v, b, b.pos+maxBytes); err != nil {
			return Read{}, err
		}
	}
	r.Range = wire.FileRange{ReaderAt: v.seg.file, FD: v.seg.file.Fd(), Off: b.pos, Size: stop - b.pos,
		Recent: v.active && b.pos >= v.size-recentBytes, Release: v.seg.release}
	return r, nil
}

// seek finds the first batch of a pinned segment that reaches offset or beyond, below size. io.EOF says that there is none. An index
// that leads astray is built anew.
func (l *Log) seek(s *segment, size, offset int64) (mark, error) {
	pos, err := l.floor(s, offset-s.base, false)
	if err != nil {
		return mark{}, err
	}
	b, first, err := walkTo(s, pos, size, offset)
	if pos == 0 || first.size > 0 && first.base <= offset {
		return b, err
	}
	if err := l.rebuild(s); err != nil {
		return mark{}, err
	}
	if pos, err = l.floor(s, offset-s.base, false); err != nil {
		return mark{}, err
	}
	b, _, err = walkTo(s, pos, size, offset)
	return b, err
}

// walkTo walks from the batch at pos to the one that reaches offset. first is the batch at pos.
func walkTo(s *segment, pos, size, offset int64) (b, first mark, err error) {
	window := blocks.Get().(*[indexBlock]byte)
	defer blocks.Put(window)
	c := newCursor(s.file, pos, size, window[:])
	for n := 0; ; n++ {
		h, pos, size, err := c.next()
		if err != nil {
			return b, first, err
		}
		b = mark{s, h.BaseOffset(), h.LastOffset(), pos, size}
		if n == 0 {
			first = b
		}
		if b.last >= offset {
			return b, first, nil
		}
	}
}

// fit finds where a read ends that begins with the batch b and may reach up to limit: the position after its last batch, and
// the offset that follows. The index leads close to it, headers the rest of the way.
func (l *Log) fit(v view, b mark, limit int64) (stop, next int64, err error) {
	at, err := l.floor(v.seg, min(limit, v.size), true)
	if err == nil && v.bounded {
		var below int64
		below, err = l.floor(v.seg, v.next-1-v.seg.base, false)
		at = min(at, below)
	}
	if err != nil {
		return 0, 0, err
	}
	at = max(at, b.pos+b.size) // the first batch is never left out
	window := blocks.Get().(*[indexBlock]byte)
	defer blocks.Put(window)
	c := newCursor(v.seg.file, at, v.size, window[:])
	for {
		h, pos, size, err := c.next()
		switch {
		case err == io.EOF:
			return v.size, v.next, nil
		case err != nil:
			return 0, 0, err
		case h.LastOffset() >= v.next || pos+size > limit:
			l.hints.put(mark{v.seg, h.BaseOffset(), h.LastOffset(), pos, size})
			return pos, min(h.BaseOffset(), v.next), nil
		}
	}
}

// floor asks the index of a pinned segment for the last position that is not above a target: a relative offset, or a position
// itself (byPos). It is 0 if the index knows none.
func (l *Log) floor(s *segment, target int64, byPos bool) (int64, error) {
	l.mu.RLock()
	if !s.sealed {
		e, ok := s.offsets.floor(s.offsets.mem, target, byPos)
		l.mu.RUnlock()
		if !ok {
			return 0, nil
		}
		return int64(e.val), nil
	}
	l.mu.RUnlock()
	x, err := l.sealedIndex(s, &s.offsets)
	if err != nil {
		return 0, err
	}
	e, _, err := x.floor(target, byPos)
	return int64(e.val), err
}
