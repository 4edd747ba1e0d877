package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire/record"
)

// load finds out what the segments hold: the tail by scanning it after a crash, the rest by its indexes.
func (l *Log) load(o *Options, files partitionFiles) error {
	epochs, epochErr := l.readEpochs()
	if epochErr != nil && !errors.Is(epochErr, ErrFormat) {
		return epochErr
	}
	l.epochs.entries = epochs
	from := len(l.segments) // first segment to scan
	if !o.Clean {
		from = max(0, l.find(o.RecoveryPoint-1))
	}
	for i, s := range l.segments[:min(from, len(l.segments)-1)] {
		err := l.loadSealed(s, files.txns[s.base])
		if err == nil {
			err = l.checkEnd(s)
		}
		if errors.Is(err, ErrCorrupt) {
			return l.recover(o, i, files) // to find where exactly
		}
		if err != nil {
			return err
		}
	}
	if o.Clean {
		ok, err := l.loadActive(files.txns[l.active().base])
		if err != nil {
			return err
		}
		if ok && l.active().next >= o.RecoveryPoint {
			err := l.loadStates(files, epochErr != nil || epochs == nil)
			if errors.Is(err, ErrCorrupt) {
				return l.recover(o, 0, files)
			}
			return err
		}
		from = len(l.segments) - 1
	}
	if epochErr != nil || epochs == nil {
		err := l.walkEpochs(l.segments[:from])
		if errors.Is(err, ErrCorrupt) {
			return l.recover(o, 0, files)
		}
		if err != nil {
			return err
		}
	}
	return l.recover(o, from, files)
}

// checkEnd makes sure that a sealed segment reaches the one that follows. Only compaction leaves a gap; else
// a file was cut short, or one is gone.
func (l *Log) checkEnd(s *segment) error {
	if l.config.Load().Compact {
		return nil
	}
	e, _, err := l.lastEntry(&s.offsets)
	if errors.Is(err, ErrFormat) || errors.Is(err, fs.ErrNotExist) || int64(e.val) >= s.size {
		e = entry{}
	} else if err != nil {
		return err
	}
	_, err = walkTo(s, e, s.size, s.next-1)
	if err == errAstray {
		_, err = walkTo(s, entry{}, s.size, s.next-1)
	}
	damage := &Damage{File: s.file.Name(), Pos: s.size, Offset: s.base, Reason: endsBefore(s.next)}
	if err == io.EOF {
		return damage
	}
	return corruptIf(err, damage)
}

func endsBefore(next int64) string {
	return fmt.Sprintf("the next segment begins at offset %d: one is missing, or was cut short (of a topic that was once compacted, let cleanup.policy contain compact)", next)
}

// loadStates finishes a clean start: epochs if their file is gone, producers from the snapshot at the end.
func (l *Log) loadStates(files partitionFiles, noEpochs bool) error {
	if noEpochs {
		if err := l.walkEpochs(l.segments); err != nil {
			return err
		}
	}
	if err := l.loadProducers(l.active().next, files.snapshots); err != nil {
		return err
	}
	return l.loadRecentBatches()
}

// loadSealed takes the largest timestamp of a segment that is known to be whole from its time index.
func (l *Log) loadSealed(s *segment, hasTxns bool) error {
	s.sealed, s.dataKnown = true, false
	last, err := l.lastTime(s)
	if errors.Is(err, ErrFormat) || errors.Is(err, fs.ErrNotExist) {
		if err := l.rebuild(s); err != nil {
			return err
		}
		last = s.times.sealed.Load().last
	} else if err != nil {
		return err
	}
	if s.size > 0 {
		s.maxTimestamp, s.maxOffset = last.key, s.base+int64(last.val)
	}
	if hasTxns {
		return l.loadTxns(s)
	}
	return nil
}

// lastEntry reads the last entry of an index file, and how large that is.
func (l *Log) lastEntry(x *index) (e entry, size int64, err error) {
	f, err := l.fs.Open(x.name)
	if err != nil {
		return e, 0, err
	}
	defer f.Close()
	if size, err = f.Size(); err != nil || size == 0 {
		return e, size, err
	}
	if size%int64(x.width) != 0 {
		return e, size, fmt.Errorf("%w: %s has %d bytes", ErrFormat, x.name, size)
	}
	var p [12]byte
	if _, err := f.ReadAt(p[:x.width], size-int64(x.width)); err != nil && err != io.EOF {
		return e, size, err
	}
	return x.decode(p[:x.width]), size, nil
}

// lastTime reads the last entry of a time index.
func (l *Log) lastTime(s *segment) (entry, error) {
	none := entry{key: record.NoTimestamp}
	e, size, err := l.lastEntry(&s.times)
	switch {
	case err != nil:
		return none, err
	case size == 0 && s.size > 0:
		return none, fmt.Errorf("%w: %s is empty", ErrFormat, s.times.name)
	case size == 0:
		return none, nil
	}
	if e.key < 0 || e.val < 0 || int64(e.val) >= s.next-s.base {
		return none, fmt.Errorf("%w: %s ends with (%d, %d)", ErrFormat, s.times.name, e.key, e.val)
	}
	return e, nil
}

// loadTxns reads a transaction index; one that is off is built anew from the batches.
func (l *Log) loadTxns(s *segment) error {
	data, err := vfs.ReadFile(l.fs, s.txns.name)
	if err != nil {
		return err
	}
	if s.txns.mem, err = decodeTxnIndex(data, s.base, s.next); err == nil {
		return nil
	}
	l.logger.Warn("transaction index built anew", "partition", l.tp.String(), "segment", s.base, "error", err)
	files, err := l.list()
	if err != nil {
		return err
	}
	state, err := l.producersAt(s.base, files.snapshots)
	if err != nil {
		return err
	}
	err = l.walk(s, 0, func(h record.Batch, whole func() (record.Batch, error)) error {
		aborted, err := state.apply(h, whole)
		if aborted != nil {
			s.txns.mem = append(s.txns.mem, *aborted)
		}
		return err
	})
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(l.fs, s.txns.name, encodeTxnIndex(s.txns.mem))
}

// loadActive takes the indexes of the active segment into memory and walks from their last entry to the end. It
// reports whether all fits together; if not the segment must be scanned.
func (l *Log) loadActive(hasTxns bool) (bool, error) {
	s := l.active()
	offsets, err1 := readIndex(l.fs, &s.offsets, &segment{base: s.base, size: s.size})
	times, err2 := readIndex(l.fs, &s.times, &segment{base: s.base, next: s.base + maxRelativeOffset})
	if err := errors.Join(err1, err2); err != nil {
		if s.size == 0 && errors.Is(err, fs.ErrNotExist) {
			return true, nil
		}
		if errors.Is(err, ErrFormat) || errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, err
	}
	s.offsets.load(offsets)
	s.times.load(times)
	if s.times.entries() > 0 {
		s.maxTimestamp, s.maxOffset = s.times.last.key, s.base+int64(s.times.last.val)
	}
	size := s.size
	ok, err := l.walkActive(s, size)
	if !ok || err != nil {
		fresh := newSegment(l.fs, l.dir, s.base, s.file)
		fresh.jitter, fresh.size = s.jitter, size
		l.segments[len(l.segments)-1] = fresh
		return false, err
	}
	if hasTxns {
		err = l.loadTxns(s)
	}
	return true, err
}

func (l *Log) walkActive(s *segment, size int64) (bool, error) {
	if s.size == 0 {
		return s.offsets.entries() == 0, nil
	}
	window := scans.Get().(*[scanWindow]byte)
	defer scans.Put(window)
	c := newCursor(s.file, 0, size, window[:])
	h, _, _, err := c.next()
	if err != nil {
		return false, diskError(err)
	}
	s.rollFrom, s.firstAppend = h.MaxTimestamp(), firstAppend(h)
	s.dataKnown = false
	at := int64(0)
	if s.offsets.entries() > 0 {
		at = int64(s.offsets.last.val)
	}
	c = newCursor(s.file, at, size, window[:])
	s.size = at
	for {
		h, pos, n, err := c.next()
		if err == io.EOF {
			return true, nil
		}
		if err != nil {
			return false, diskError(err)
		}
		b := place(h, pos, n)
		if b.base < s.next || pos == at && at > 0 && b.last-s.base != s.offsets.last.key {
			return false, nil
		}
		s.add(b, noInterval)
	}
}

// noInterval adds no index entries: those of the file are in memory already.
const noInterval = math.MaxInt

// diskError tells whether an error of a walk is about the disk rather than the bytes.
func diskError(err error) error {
	if errors.Is(err, record.ErrCorrupt) || errors.Is(err, record.ErrShort) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// firstAppend guesses when a batch was appended by its timestamp, which is not to be believed if it lies in the
// future.
func firstAppend(h record.Batch) time.Time {
	now := time.Now()
	if at := time.UnixMilli(h.MaxTimestamp()); h.MaxTimestamp() >= 0 && at.Before(now) {
		return at
	}
	return now
}

func (l *Log) readEpochs() ([]record.EpochStart, error) {
	data, err := vfs.ReadFile(l.fs, path.Join(l.dir, epochFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return decodeEpochs(data)
}

// walkEpochs builds the epoch cache from batch headers, below what is scanned anyway.
func (l *Log) walkEpochs(segments []*segment) error {
	l.epochs.entries = nil
	for _, s := range segments {
		err := l.walk(s, 0, func(h record.Batch, _ func() (record.Batch, error)) error {
			if h.LeaderEpoch() > l.epochs.last() {
				l.epochs.assign(h.LeaderEpoch(), h.BaseOffset())
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	l.epochsDirty.Store(true)
	return nil
}

// walk calls fn with every batch header of a segment from pos on. whole reads the batch, until fn returns.
func (l *Log) walk(s *segment, pos int64, fn func(h record.Batch, whole func() (record.Batch, error)) error) error {
	window := scans.Get().(*[scanWindow]byte)
	defer scans.Put(window)
	buf := batches.Get().(*[]byte)
	defer giveBatch(buf)
	c := newCursor(s.file, pos, s.size, window[:])
	for {
		h, pos, size, err := c.next()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = fn(h, func() (record.Batch, error) { return readBatch(s.file, pos, size, buf) })
		}
		if err != nil {
			return corruptIf(err, &Damage{File: s.file.Name(), Pos: pos, Offset: s.base, Reason: err.Error()})
		}
	}
}
