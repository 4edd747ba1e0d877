package log

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// recovery is the scan of a log that was not closed cleanly. It reads every batch from the segment on that
// holds the byte before the recovery point, and builds what is derived from them anew: indexes, producer state,
// epochs.
//
// Where it meets a bad batch, three cases are told apart. Below the recovery point the bytes were durable: they
// rotted. Above it, with the page cache alive, all that was written is there: a bad batch that a good one
// follows rotted as well, one that nothing follows is an append that was cut short. After a power loss anything
// above the recovery point may be missing in any order: the log ends at the first bad batch. What is cut off is
// kept beside the log. After a clean end nothing can be torn.
type recovery struct {
	log      *Log
	options  *Options
	files    partitionFiles
	window   [recoveryWindow]byte
	buf      []byte
	expected int64 // offset of the next batch, -1 not known
	cut      int64 // bytes
}

// recoveryWindow is how much is read at once.
const recoveryWindow = 256 << 10

// recover scans the segments from index from on.
func (l *Log) recover(o *Options, from int, files partitionFiles) error {
	start := time.Now()
	r := &recovery{log: l, options: o, files: files, expected: -1}
	if err := l.loadProducers(l.segments[from].base, files.snapshots); err != nil {
		if errors.Is(err, ErrCorrupt) && from > 0 {
			return l.recover(o, 0, files) // to find where exactly
		}
		return err
	}
	l.epochs.truncateEnd(l.segments[from].base)
	err := r.segments(from)
	found := "nothing"
	switch {
	case err != nil:
		found = "error"
	case l.damage != nil:
		found = "corruption"
	case r.cut > 0:
		found = "torn tail"
		l.metrics.cutBytes.Add(float64(r.cut))
	}
	l.metrics.recoveries.WithLabelValues(found).Inc()
	l.metrics.recoverySecs.Observe(time.Since(start).Seconds())
	l.epochsDirty.Store(true)
	return err
}

func (r *recovery) segments(from int) error {
	l := r.log
	for i := from; i < len(l.segments); i++ {
		bad, err := r.segment(i)
		if err != nil {
			return err
		}
		if bad == nil {
			if err := r.finish(i); err != nil {
				return err
			}
			continue
		}
		if corrupt, err := r.isCorrupt(i, bad); err != nil || corrupt {
			return r.damaged(i, bad, err)
		}
		return r.cutAt(i, bad)
	}
	if end := l.active().next; end < r.options.RecoveryPoint {
		s := l.active()
		return r.damaged(len(l.segments)-1, &Damage{File: s.file.Name(), Pos: s.size, Offset: end,
			Reason: fmt.Sprintf("the log ends here, and was durable up to offset %d", r.options.RecoveryPoint)}, nil)
	}
	return nil
}

// segment scans one segment into a fresh one. The result is nil if all is well.
func (r *recovery) segment(i int) (*Damage, error) {
	l := r.log
	old := l.segments[i]
	size := old.size
	s := newSegment(l.fs, l.dir, old.base, old.file)
	s.jitter = old.jitter
	l.segments[i] = s
	if r.expected < 0 {
		r.expected = s.base
	}
	if bad := r.gap(s.base, s, 0, false); bad != nil {
		if s.base > r.expected {
			bad.Reason = endsBefore(s.base)
		}
		return bad, nil
	}
	r.expected = s.base
	c := newCursor(s.file, 0, size, r.window[:])
	for {
		h, pos, n, err := c.next()
		if err == io.EOF {
			return nil, nil
		}
		if err == nil {
			err = r.batch(s, &c, h, pos, n)
		}
		if err != nil {
			if diskError(err) != nil && !isDamage(err) {
				return nil, err
			}
			return &Damage{File: s.file.Name(), Pos: pos, Offset: r.expected, Reason: err.Error()}, nil
		}
	}
}

func isDamage(err error) bool { return errors.Is(err, ErrCorrupt) || errors.Is(err, record.ErrCodec) }

// gap finds fault with an offset that is not the one that follows. Compaction leaves gaps; within a segment, where
// nothing vanishes without a trace, they are tolerated of logs that were compacted once too.
func (r *recovery) gap(base int64, s *segment, pos int64, tolerated bool) *Damage {
	if base == r.expected || base > r.expected && (tolerated || r.log.config.Load().Compact) {
		return nil
	}
	return &Damage{File: s.file.Name(), Pos: pos, Offset: r.expected, Reason: fmt.Sprintf("offset %d where %d should follow", base, r.expected)}
}

// batch checks one batch and takes it in.
func (r *recovery) batch(s *segment, c *cursor, h record.Batch, pos, size int64) error {
	l := r.log
	if bad := r.gap(h.BaseOffset(), s, pos, h.BaseOffset() < r.options.RecoveryPoint); bad != nil {
		return bad
	}
	if h.LastOffset()-s.base > maxRelativeOffset {
		return fmt.Errorf("%w: offset %d in segment %d", record.ErrCorrupt, h.LastOffset(), s.base)
	}
	b, err := c.whole(pos, size, &r.buf)
	if err != nil {
		return err
	}
	if err := errors.Join(b.CheckStored(), b.VerifyCRC()); err != nil {
		return err
	}
	aborted, err := l.producers.apply(b, func() (record.Batch, error) { return b, nil })
	if err != nil {
		return err
	}
	if aborted != nil {
		s.txns.mem = append(s.txns.mem, *aborted)
	}
	if s.size == 0 {
		s.firstAppend = firstAppend(b)
	}
	s.add(place(b, pos, size), l.config.Load().IndexIntervalBytes)
	if e := b.LeaderEpoch(); e > l.epochs.last() {
		l.epochs.assign(e, b.BaseOffset())
	}
	r.expected = b.NextOffset()
	return nil
}

// finish writes what is derived from a segment that is whole. The last one stays active.
func (r *recovery) finish(i int) error {
	l, s := r.log, r.log.segments[i]
	if err := s.writeTxns(); err != nil {
		return err
	}
	if i == len(l.segments)-1 {
		return nil
	}
	s.addTimeEntry()
	offsets, err1 := s.offsets.seal()
	times, err2 := s.times.seal()
	if err := errors.Join(err1, err2, l.writeSnapshot(s.next, encodeSnapshot(l.producers.entries()))); err != nil {
		return err
	}
	s.offsets.sealed.Store(offsets)
	s.times.sealed.Store(times)
	s.offsets.mem, s.times.mem, s.sealed = nil, nil, true
	return nil
}

// writeTxns makes the .txnindex hold exactly what was found.
func (s *segment) writeTxns() error {
	if len(s.txns.mem) == 0 {
		return removeIfThere(s.txns.fs, s.txns.name)
	}
	return vfs.WriteFileAtomic(s.txns.fs, s.txns.name, encodeTxnIndex(s.txns.mem))
}

// isCorrupt tells rot from an end.
func (r *recovery) isCorrupt(i int, bad *Damage) (bool, error) {
	if r.log.wasDamaged || bad.Offset < r.options.RecoveryPoint || r.options.Clean && bad.Offset > r.options.RecoveryPoint {
		return true, nil
	}
	if !r.options.PageCacheSurvived {
		return false, nil
	}
	for ; i < len(r.log.segments); i++ {
		s, pos := r.log.segments[i], int64(0)
		if s.file.Name() == bad.File {
			pos = bad.Pos // which is good in itself if only its offset is wrong
		}
		good, err := r.goodAfter(s, pos, bad.Offset)
		if good || err != nil {
			return good, err
		}
	}
	return false, nil
}

// maxResync bounds the bytes whose CRC is computed in search of a good batch, as a multiple of the size of the
// segment.
const maxResync = 4

// goodAfter looks for a batch at or after pos whose CRC is right and whose offset could follow.
func (r *recovery) goodAfter(s *segment, pos, expected int64) (bool, error) {
	size, err := s.file.Size()
	if err != nil {
		return false, err
	}
	budget := size * maxResync
	for ; pos+record.HeaderSize <= size && budget > 0; pos += recoveryWindow - record.HeaderSize {
		window := r.window[:min(recoveryWindow, size-pos)]
		if n, err := s.file.ReadAt(window, pos); n < len(window) {
			return false, err
		}
		for i := 0; i+record.HeaderSize <= len(window) && budget > 0; i++ {
			h := record.Batch(window[i : i+record.HeaderSize])
			if h.Magic() != record.Magic {
				continue
			}
			n, err := record.SizeOf(h)
			base := h.BaseOffset()
			if err != nil || pos+int64(i)+n > size || base < expected || base-expected > maxRelativeOffset || h.LastOffsetDelta() < 0 {
				continue
			}
			b, err := readBatch(s.file, pos+int64(i), n, &r.buf)
			if err != nil {
				return false, err
			}
			if b.VerifyCRC() == nil {
				return true, nil
			}
			budget -= n
		}
	}
	return false, nil
}

// damaged ends the log at the damage without touching a file, if the caller accepts that.
func (r *recovery) damaged(i int, bad *Damage, err error) error {
	if err != nil {
		return err
	}
	if !r.options.AcceptDamage {
		return bad
	}
	l := r.log
	l.logger.Error("log is damaged and readable up to the damage only", "partition", l.tp.String(), "damage", bad.Error())
	l.damage = bad
	keep := i + 1
	if s := l.segments[i]; i > 0 && bad.Offset < s.base {
		keep = i // it begins beyond the end of the one before
	}
	for _, s := range l.segments[keep:] {
		if err := s.close(); err != nil {
			return err
		}
	}
	l.segments = l.segments[:keep]
	return r.reactivate()
}
