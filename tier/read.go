package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/controller/metadata"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// ReadRequest asks for batches of one partition from the store.
type ReadRequest struct {
	TopicID       wire.UUID
	Partition     int32
	Offset        int64 // logStart <= Offset < remote end
	MaxBytes      int
	EndOffset     int64 // exclusive bound: high watermark or last stable offset
	MinOneBatch   bool  // return the first batch even if it alone exceeds MaxBytes
	ReadCommitted bool  // return aborted transactions too
}

// ReadResult holds whole batches, the first of which contains the offset asked for, or an error.
// Without ranges and error nothing fits: NextOffset is then the offset asked for.
type ReadResult struct {
	Ranges     []wire.FileRange // one behind the other; the receiver releases each
	NextOffset int64            // where to read on
	Aborted    []record.AbortedTxn
	Err        error
}

// segment is the one way from an offset to the row that holds it.
func (m *Manager) segment(img *metadata.Image, topicID wire.UUID, partition int32, offset int64) (*metadata.Segment, error) {
	p := img.Partition(topicID, partition)
	switch {
	case p == nil:
		return nil, fmt.Errorf("%w: %s-%d", kerr.UnknownTopicOrPartition, topicID, partition)
	case offset < p.LogStart:
		return nil, fmt.Errorf("%w: offset %d is below the log start %d", kerr.OffsetOutOfRange, offset, p.LogStart)
	}
	if s, ok := img.SegmentAt(topicID, partition, offset); ok {
		return s, nil
	}
	return nil, fmt.Errorf("%w: offset %d of %s-%d", ErrNotTiered, offset, topicID, partition)
}

// TryRead answers at once if everything is in memory or in the chunk cache; it touches neither
// disk nor store. False: use Read.
func (m *Manager) TryRead(req ReadRequest) (ReadResult, bool) {
	img := m.cfg.Image()
	s, err := m.segment(img, req.TopicID, req.Partition, req.Offset)
	if err != nil {
		return ReadResult{NextOffset: req.Offset, Err: err}, true
	}
	x := m.knownIndex(s, req)
	if x == nil {
		return ReadResult{}, false
	}
	l := lease{m: m, s: s, x: x}
	defer l.release()
	cut, ok := l.cutCached(req)
	if !ok {
		return ReadResult{}, false
	}
	m.metrics.hits.Add(1)
	return m.answer(img, &l, req, cut), true
}

// knownIndex returns the index of the segment if it is in memory.
func (m *Manager) knownIndex(s *metadata.Segment, req ReadRequest) *Index {
	if x := m.streams.index(lane{req.TopicID, req.Partition}, req.Offset); x != nil && x.Object == s.Object {
		return x
	}
	return m.indexes.get(s.Object)
}

// Read calls done exactly once, from a goroutine of its own: with data, or with an error once ctx has ended or
// the data cannot be had. The downloads it started go on if ctx ends, and serve the retry.
func (m *Manager) Read(ctx context.Context, req ReadRequest, done func(ReadResult)) {
	m.metrics.misses.Add(1)
	if !m.spawn(func(context.Context) {
		ctx, cancel := m.during(ctx)
		defer cancel()
		done(m.read(ctx, req))
	}) {
		done(ReadResult{NextOffset: req.Offset, Err: ErrClosed})
	}
}

func (m *Manager) read(ctx context.Context, req ReadRequest) (res ReadResult) {
	err := m.withImage(ctx, func(img *metadata.Image) (err error) {
		res, err = m.readOnce(ctx, img, req)
		return err
	})
	if err != nil {
		return ReadResult{NextOffset: req.Offset, Err: fmt.Errorf("read %s-%d at %d: %w", req.TopicID, req.Partition, req.Offset, err)}
	}
	return res
}

// imageLag is how long a reader that misses an object waits for a newer image.
const imageLag = time.Second

// withImage calls fn with the newest image, and again with a newer one if an object was missing: retention or a
// merge may have replaced it meanwhile. A spoiled cache file costs another call too.
func (m *Manager) withImage(ctx context.Context, fn func(img *metadata.Image) error) error {
	img := m.cfg.Image()
	err := fn(img)
	for range 2 {
		switch {
		case errors.Is(err, ErrObjectMissing):
			wait, cancel := context.WithTimeout(ctx, imageLag)
			newer, waitErr := m.cfg.WaitImage(wait, img.Index()+1)
			cancel()
			if waitErr != nil {
				newer = m.cfg.Image() // nothing has changed in the cluster
			}
			img = newer
			if again := fn(img); !errors.Is(again, errSpoiled) {
				return again
			}
			err = errSpoiled
		case errors.Is(err, errSpoiled):
			err = fn(img)
		default:
			return err
		}
	}
	return err
}

func (m *Manager) readOnce(ctx context.Context, img *metadata.Image, req ReadRequest) (ReadResult, error) {
	s, err := m.segment(img, req.TopicID, req.Partition, req.Offset)
	if err != nil {
		return ReadResult{}, err
	}
	x := m.knownIndex(s, req)
	if x == nil {
		if req.Offset == s.Base && m.sureChunks(s) > 0 {
			m.fetchChunk(s, 0, nil, true) // no need to know the index first
		}
		if x, err = m.index(ctx, s); err != nil {
			return ReadResult{}, err
		}
	}
	l := lease{m: m, s: s, x: x}
	defer l.release()
	cut, err := l.cut(ctx, req)
	if err != nil {
		return ReadResult{}, err
	}
	return m.answer(img, &l, req, cut), nil
}

// answer makes the ranges, notes how far the reader has come and reads ahead of him.
func (m *Manager) answer(img *metadata.Image, l *lease, req ReadRequest, c cut) ReadResult {
	if c.to <= c.from {
		return ReadResult{NextOffset: req.Offset}
	}
	res := ReadResult{NextOffset: c.next}
	if req.ReadCommitted {
		res.Aborted = l.x.overlapping(req.Offset, c.next)
	}
	reader := lane{req.TopicID, req.Partition}
	before, active := m.streams.advance(reader, req.Offset, c.next, c.to-c.from, l.x)
	scan := before >= m.cfg.ReadAheadBytes
	res.Ranges = l.ranges(c, scan && !(l.ends(c) && m.streams.behind(reader, c.next)))
	m.readAhead(img, l.s, l.x, c.to, m.window(before, active))
	return res
}

// lease is what one read holds pinned of one object.
type lease struct {
	m      *Manager
	s      *metadata.Segment
	x      *Index
	chunks map[int64]*chunk
}

func (l *lease) release() {
	for _, ch := range l.chunks {
		ch.unpin()
	}
	l.chunks = nil
}

func (l *lease) keep(number int64, ch *chunk) {
	if l.chunks == nil {
		l.chunks = make(map[int64]*chunk, 2)
	}
	l.chunks[number] = ch
}

// chunk returns a chunk from the cache or the store. While it waits for the store it holds nothing: readers that hold one
// chunk and wait for another would stop each other in a small cache. So what was pinned before may be
// pinned no more; need pins several together.
func (l *lease) chunk(ctx context.Context, number int64) (*chunk, error) {
	if l.cached(number) {
		return l.chunks[number], nil
	}
	l.release()
	return l.fetch(ctx, number)
}

func (l *lease) fetch(ctx context.Context, number int64) (*chunk, error) {
	ch, err := l.m.chunk(ctx, l.s, l.x, number)
	if err == nil {
		l.keep(number, ch)
	}
	return ch, err
}

// needTries is how often need begins anew when one chunk is evicted while it waits for the next.
const needTries = 3

// need pins all chunks of [from, to). In a cache so small that they drive each other out, one reader at a
// time may hold some while he waits for the others.
func (l *lease) need(ctx context.Context, from, to int64) error {
	for range needTries {
		missing, ok := l.firstMissing(from, to)
		if !ok {
			return nil
		}
		if _, err := l.chunk(ctx, missing); err != nil {
			return err
		}
	}
	l.release()
	select {
	case l.m.holder <- struct{}{}:
		defer func() { <-l.m.holder }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for missing, ok := l.firstMissing(from, to); ok; missing, ok = l.firstMissing(from, to) {
		if _, err := l.fetch(ctx, missing); err != nil {
			return err
		}
	}
	return nil
}

// cached is chunk without the store.
func (l *lease) cached(number int64) bool {
	if _, ok := l.chunks[number]; ok {
		return true
	}
	ch, ok := l.m.cache.pin(chunkKey{l.s.Object, number})
	if !ok {
		return false
	}
	if ch.stale() {
		ch.unpin()
		return false
	}
	l.keep(number, ch)
	return true
}

// readAt reads all of p at pos of the data, from as many chunks as that takes.
func (l *lease) readAt(ctx context.Context, p []byte, pos int64) error {
	for len(p) > 0 {
		ch, err := l.chunk(ctx, l.m.chunkAt(l.x, pos))
		if err != nil {
			return err
		}
		off := pos - ch.pos
		n := int(min(int64(len(p)), ch.size-off))
		if got, err := ch.ReadAt(p[:n], off); got < n {
			return l.spoiled(ch, err)
		}
		p, pos = p[n:], pos+int64(n)
	}
	return nil
}

// spoiled drops a chunk of the lease.
func (l *lease) spoiled(ch *chunk, err error) error {
	delete(l.chunks, ch.key.number)
	l.m.spoiled(ch, err)
	return errSpoiled
}

// ends reports whether the cut takes the last byte of a chunk.
func (l *lease) ends(c cut) bool {
	return c.to == l.x.DataSize || l.m.chunkAt(l.x, c.from) != l.m.chunkAt(l.x, c.to)
}

// ranges hands the pins of the chunks that the cut lies in over to the ranges. Scan: see chunk.readTo.
func (l *lease) ranges(c cut, scan bool) []wire.FileRange {
	var ranges []wire.FileRange
	for pos := c.from; pos < c.to; {
		number := l.m.chunkAt(l.x, pos)
		ch := l.chunks[number]
		delete(l.chunks, number)
		n := min(c.to, ch.pos+ch.size) - pos
		ch.readTo(pos-ch.pos+n, scan)
		ranges = append(ranges, wire.FileRange{
			ReaderAt: ch, FD: ch.fd(), Off: pos - ch.pos, Size: n, Release: sync.OnceFunc(ch.unpin),
		})
		pos += n
	}
	return ranges
}
