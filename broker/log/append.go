package log

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/wire/record"
)

// Append is one batch to append and what became of it.
type Append struct {
	// Batch is patched in place: offset, epoch, and what the topic demands of timestamps. It is not kept. Where
	// the topic's compression differs it is replaced by a new one.
	Batch  record.Batch
	Origin Origin

	// What follows is set by AppendAsLeader.

	BaseOffset, LastOffset int64 // of the batch, or of the earlier one that it repeats; -1 if refused
	LogAppendTime          int64 // ms; -1 if the topic keeps the producer's time
	LogStart               int64
	Duplicate              bool  // it repeats one of the producer's last batches and was left out
	Err                    error // why it was refused; wraps a kerr error
	RecordErrors           []RecordError
}

func (a *Append) reset() {
	a.BaseOffset, a.LastOffset, a.LogAppendTime, a.LogStart = -1, -1, -1, -1
	a.Duplicate, a.Err, a.RecordErrors = false, nil, nil
}

func (a *Append) refuse(err error) {
	a.BaseOffset, a.LastOffset, a.Err = -1, -1, err
}

// group is what one write carries to the active segment; its slices are used again.
type group struct {
	items     []*Append // of a leader, one for each batch
	bufs      [][]byte
	batches   []placed
	size      int64
	next      int64 // offset after the last batch
	epoch     int32 // of the leader that appends, NoEpoch of a follower
	producers scratch
}

func (g *group) reset(next int64, under *producers) {
	clear(g.items)
	clear(g.bufs)
	g.items, g.bufs, g.batches = g.items[:0], g.bufs[:0], g.batches[:0]
	g.size, g.next, g.epoch = 0, next, NoEpoch
	g.producers.reset(under)
}

// syncRangeBytes is how much is appended before write-back of it is started, so that the next sync finds little
// to do.
const syncRangeBytes = 8 << 20

// AppendAsLeader validates batches, gives them offsets and the leader's epoch, and writes them, as far as they
// fit into one segment with one system call. They are judged in order; one that is refused carries Err and is
// left out, the others go on. When it returns nil the accepted batches are in the page cache and readable; Sync
// makes them durable.
//
// A disk that fails fails every batch that was not written yet: the error is returned, and each carries it.
func (l *Log) AppendAsLeader(items []*Append, epoch int32) error {
	config := l.config.Load()
	now := time.Now()
	for _, a := range items {
		a.reset()
		if err := config.validate(a, now.UnixMilli()); err != nil {
			l.refuse(a, err)
		}
	}
	if err := l.take(); err != nil {
		return l.failAll(items, err)
	}
	defer l.give()
	if err := fenced(epoch, l.LastEpoch()); err != nil {
		return l.failAll(items, err)
	}
	for rest := items; len(rest) > 0; {
		n := l.stage(rest, epoch, config)
		if err := l.write(now); err != nil {
			return l.failAll(items, err)
		}
		if rest = rest[n:]; len(rest) > 0 {
			if err := l.roll(); err != nil {
				return l.failAll(rest, err)
			}
		}
	}
	return nil
}

// fenced tells a leader that the log is in a later epoch than its own.
func fenced(epoch, last int32) error {
	if epoch == NoEpoch || epoch >= last {
		return nil
	}
	return fmt.Errorf("append in leader epoch %d, the log is in %d: %w", epoch, last, kerr.NotLeaderForPartition)
}

func (l *Log) refuse(a *Append, err error) {
	a.refuse(err)
	var code *kerr.Error
	if errors.As(err, &code) {
		l.metrics.refused.WithLabelValues(code.Message).Inc()
	}
}

// failAll gives err to every item that is neither in the log nor refused already; a duplicate of a batch that
// was not written is one of them.
func (l *Log) failAll(items []*Append, err error) error {
	end := l.end.Load()
	for _, a := range items {
		if a.Err == nil && (a.BaseOffset < 0 || a.LastOffset >= end) {
			a.refuse(err)
		}
	}
	return err
}

// stage takes items into the group until the next does not belong into the active segment any more, and returns
// how many it dealt with. Nothing that others see is changed.
func (l *Log) stage(items []*Append, epoch int32, config *Config) (n int) {
	g := &l.group
	g.reset(l.end.Load(), l.producers)
	g.epoch = epoch
	for _, a := range items {
		if a.Err != nil {
			n++
			continue
		}
		marker, dup, err := g.judge(a)
		switch {
		case err != nil:
			l.refuse(a, err)
		case dup:
			if !config.LogAppendTime {
				a.LogAppendTime = -1
			}
			a.LogStart = l.LogStart()
		case l.full(config, g, a.Batch, g.next+int64(a.Batch.LastOffsetDelta())):
			return n
		default:
			a.Batch.SetBaseOffset(g.next)
			a.Batch.SetLeaderEpoch(epoch)
			g.items = append(g.items, a)
			g.add(a.Batch, marker, l.active().size)
		}
		n++
	}
	return n
}

// judge checks a batch against what its producer did before, in the log and in the group.
func (g *group) judge(a *Append) (marker *record.Marker, dup bool, err error) {
	b := a.Batch
	if !b.HasProducer() {
		return nil, false, nil
	}
	p, known := g.producers.get(b.ProducerID())
	if b.IsControl() {
		m, err := record.ParseMarker(b)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", err, kerr.InvalidRecord)
		}
		if m.Type != record.Abort && m.Type != record.Commit {
			return nil, false, nil
		}
		if known {
			err = p.checkMarker(m, a.Origin)
		}
		return &m, false, err
	}
	if !known {
		return nil, false, nil
	}
	if a.Origin == OriginClient {
		if old, ok := p.duplicate(b); ok {
			a.BaseOffset, a.LastOffset, a.LogAppendTime, a.Duplicate = old.FirstOffset(), old.LastOffset, old.Timestamp, true
			return nil, true, nil
		}
	}
	return nil, false, p.check(b, a.Origin)
}

// add stages a batch whose offsets are assigned.
func (g *group) add(b record.Batch, marker *record.Marker, segmentSize int64) {
	size := int64(len(b))
	g.bufs = append(g.bufs, b)
	g.batches = append(g.batches, place(b, segmentSize+g.size, size))
	g.size += size
	switch {
	case marker != nil:
		g.producers.marker(*marker, b.BaseOffset())
	case b.HasProducer() && !b.IsControl():
		g.producers.data(b)
	}
	g.next = b.NextOffset()
}

// write writes the group behind the active segment and publishes it. After an error the segment ends where it
// did.
func (l *Log) write(now time.Time) error {
	g := &l.group
	if g.size == 0 {
		return nil
	}
	if err := l.disk.space.admit(g.size); err != nil {
		return fmt.Errorf("append to %s: %w", l.tp, err)
	}
	s := l.active()
	l.writeSince.Store(now.UnixNano())
	defer l.writeSince.Store(0)
	err := l.put(s)
	if err == nil {
		err = l.publish(s, now)
	}
	if err != nil {
		return l.undo(s, err)
	}
	l.metrics.appendBytes.Add(float64(g.size))
	l.metrics.appendSeconds.Observe(time.Since(now).Seconds())
	l.writeBehind(s)
	return nil
}

func (l *Log) put(s *segment) error {
	g := &l.group
	n, err := s.file.WritevAt(g.bufs, s.size)
	if err == nil && n < g.size {
		err = fmt.Errorf("wrote %d of %d bytes", n, g.size)
	}
	if err == nil && len(g.producers.aborted) > 0 {
		err = s.txns.write(g.producers.aborted)
	}
	return err
}

// undo cuts off what a failed write left behind the published end. No reader was ever offered those bytes, so
// the file may be cut in place.
func (l *Log) undo(s *segment, cause error) error {
	if err := s.file.Truncate(s.size); err != nil {
		return l.failed("cut a failed append off", errors.Join(err, cause))
	}
	if errors.Is(cause, syscall.ENOSPC) {
		l.disk.space.exhausted()
		return fmt.Errorf("append to %s: %w: %w", l.tp, ErrNoSpace, cause)
	}
	if errors.Is(cause, kerr.NotLeaderForPartition) {
		return cause
	}
	return fmt.Errorf("append to %s: %w: %w", l.tp, cause, kerr.KafkaStorageError)
}

// publish makes the group visible: indexes, epoch, producers, end, at once.
//
// Where a new leader epoch began while the bytes were on their way, they come too late and nothing is
// published: so that beginning an epoch need not wait for the disk.
func (l *Log) publish(s *segment, now time.Time) error {
	g := &l.group
	start, interval := l.LogStart(), l.config.Load().IndexIntervalBytes
	l.mu.Lock()
	if err := fenced(g.epoch, l.epochs.last()); err != nil {
		l.mu.Unlock()
		return err
	}
	if s.size == 0 {
		s.firstAppend = now
	}
	for _, b := range g.batches {
		s.add(b, interval)
		l.marks.add(s, b)
		if b.epoch > l.epochs.last() && l.epochs.assign(b.epoch, b.base) {
			l.epochsDirty.Store(true)
		}
	}
	s.txns.mem = append(s.txns.mem, g.producers.aborted...)
	g.producers.commit()
	if len(g.producers.began)+len(g.producers.ended) > 0 {
		l.storeUnstable()
	}
	l.size.Add(g.size)
	l.end.Store(g.next)
	l.mu.Unlock()
	for i, a := range g.items {
		a.BaseOffset, a.LastOffset, a.LogStart = g.batches[i].base, g.batches[i].last, start
	}
	return nil
}

// writeBehind carries what can wait to the disk: whole blocks of the indexes, and the start of write-back. Errors
// of either show again where they matter, when the segment is sealed or synced.
func (l *Log) writeBehind(s *segment) {
	if err := errors.Join(s.offsets.flush(false), s.times.flush(false)); err != nil {
		l.metrics.backgroundErrs.Inc()
	}
	if s.size-s.written >= syncRangeBytes {
		l.startWriteBack(s)
	}
}

// startWriteBack hands what was appended to the disk, beside the append: it does not wait for the disk, but where the
// device's queue is full it waits for that. One runs at a time, and the pin makes Close wait for it; while it runs,
// more adds up.
func (l *Log) startWriteBack(s *segment) {
	select {
	case l.writingBack <- struct{}{}:
	default:
		return
	}
	from, size := s.written, s.size-s.written
	s.written = s.size
	s.pins.Add(1)
	go func() {
		if err := s.file.SyncRange(from, size); err != nil {
			l.metrics.backgroundErrs.Inc()
		}
		s.release()
		<-l.writingBack
	}()
}

// full tells whether the active segment must be sealed before a batch is taken that ends with offset last
// (Kafka's LogSegment.shouldRoll). A batch that is staged already cannot be taken back, so the answer counts
// the group.
func (l *Log) full(config *Config, g *group, b record.Batch, last int64) bool {
	s := l.active()
	size := s.size + g.size
	entries := len(g.batches) + 1 // at most one index entry each
	switch {
	case size == 0:
		return false
	case size+int64(len(b)) > config.SegmentBytes:
		return true
	case len(s.offsets.mem)+entries*offsetShape.width > config.SegmentIndexBytes,
		len(s.times.mem)+(entries+1)*timeShape.width > config.SegmentIndexBytes:
		return true
	case last-s.base > maxRelativeOffset:
		return true
	}
	return config.SegmentMs > 0 && s.rollFrom >= 0 && b.MaxTimestamp() >= 0 &&
		b.MaxTimestamp()-s.rollFrom > config.SegmentMs-s.jitter.Milliseconds()
}

// maxRelativeOffset is the largest offset that an index entry can tell, counted from the base of the segment.
const maxRelativeOffset = 1<<31 - 1
