package log

import (
	"fmt"
	"io"

	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// Read is what Read found: whole batches, the first of which holds the offset asked for.
type Read struct {
	Range       wire.FileRange // Size 0: nothing there yet. The segment stays until Range.Release was called
	FirstOffset int64          // base offset of the first batch
	NextOffset  int64          // offset after the last batch
}

// recentBytes is how far behind the end of the active segment bytes count as just appended, hence in the page
// cache.
const recentBytes = 1 << 20

// Read finds the batches from the one that holds offset on, up to maxBytes and below end: the high watermark,
// the last stable offset or the log end. Reads stay in one segment. If the first batch alone is larger than
// maxBytes it is returned if minOneBatch, else nothing (KIP-74).
//
// The error wraps ErrOffsetOutOfRange below LocalStart or above the log end; callers look at LogStart then, for
// the offset may be in the other tier. An offset at or above end gives an empty Read.
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
	// bounded: batches that reach next or beyond are out of bounds, and where they begin is not known; size
	// then counts them.
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

// errAstray says that an index led to where no batch of that offset begins.
var errAstray = fmt.Errorf("%w: index", ErrFormat)

// trusting runs a lookup that uses the index of a pinned segment. An index that leads it astray is built anew;
// that of the active segment, which came from a file then, is no longer asked, until the segment is sealed.
func (l *Log) trusting(s *segment, lookup func() error) error {
	err := lookup()
	if err != errAstray {
		return err
	}
	l.mu.RLock()
	sealed := s.sealed
	l.mu.RUnlock()
	if !sealed {
		s.distrusted.Store(true)
	} else if err := l.rebuild(s); err != nil {
		return err
	}
	return lookup()
}

// seek finds the first batch of a pinned segment that reaches offset or beyond, below size. io.EOF says that
// there is none.
func (l *Log) seek(s *segment, size, offset int64) (b mark, err error) {
	err = l.trusting(s, func() error {
		e, err := l.floor(s, offset-s.base, false)
		if err == nil {
			b, err = walkTo(s, e, size, offset)
		}
		return err
	})
	return b, err
}

// walkTo walks from the batch of an index entry to the one that reaches offset.
func walkTo(s *segment, e entry, size, offset int64) (mark, error) {
	window := blocks.Get().(*[indexBlock]byte)
	defer blocks.Put(window)
	c := newCursor(s.file, int64(e.val), size, window[:])
	for {
		h, pos, size, err := c.next()
		if astray(s, e, h, pos, err) {
			return mark{}, errAstray
		}
		if err != nil {
			return mark{}, err
		}
		if h.LastOffset() >= offset {
			return mark{s, h.BaseOffset(), h.LastOffset(), pos, size}, nil
		}
	}
}

// astray tells whether the batch that an index entry leads to is not the one that it speaks of.
func astray(s *segment, e entry, h record.Batch, pos int64, err error) bool {
	if e.val == 0 || pos != int64(e.val) {
		return false
	}
	if err != nil {
		return err == io.EOF || diskError(err) == nil
	}
	return h.LastOffset()-s.base != e.key
}

// fit finds where a read ends that begins with the batch b and may reach up to limit: the position after its
// last batch, and the offset that follows. The index leads close to it, headers the rest of the way.
func (l *Log) fit(v view, b mark, limit int64) (stop, next int64, err error) {
	err = l.trusting(v.seg, func() error {
		e, err := l.floor(v.seg, min(limit, v.size), true)
		if err == nil && v.bounded {
			var below entry
			if below, err = l.floor(v.seg, v.next-1-v.seg.base, false); below.val < e.val {
				e = below
			}
		}
		if err == nil {
			stop, next, err = l.walkUpTo(v, b, e, limit)
		}
		return err
	})
	return stop, next, err
}

// walkUpTo walks from an index entry, or from the end of b if that lies behind it, to where a read must end.
func (l *Log) walkUpTo(v view, b mark, e entry, limit int64) (stop, next int64, err error) {
	window := blocks.Get().(*[indexBlock]byte)
	defer blocks.Put(window)
	c := newCursor(v.seg.file, max(int64(e.val), b.pos+b.size), v.size, window[:])
	for {
		h, pos, size, err := c.next()
		switch {
		case astray(v.seg, e, h, pos, err):
			return 0, 0, errAstray
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

// floor asks the index of a pinned segment for the last entry that is not above a target: a relative offset, or
// a position (byPos). It is zero, which leads to the first batch, if the index knows none.
func (l *Log) floor(s *segment, target int64, byPos bool) (entry, error) {
	l.mu.RLock()
	if !s.sealed {
		defer l.mu.RUnlock()
		if s.distrusted.Load() {
			return entry{}, nil
		}
		e, _ := s.offsets.floor(s.offsets.mem, target, byPos)
		return e, nil
	}
	l.mu.RUnlock()
	x, err := l.sealedIndex(s, &s.offsets)
	if err != nil {
		return entry{}, err
	}
	e, _, err := x.floor(target, byPos)
	return e, err
}
