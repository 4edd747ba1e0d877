package log

import (
	"errors"
	"fmt"
	"io"

	"github.com/varve-io/varve/wire/record"
)

// Truncate removes every batch that reaches offset or beyond. The bytes of the segment that is cut are copied
// into a new file that takes its name: those of the old file may be on their way to a reader and are never
// written over. An error after the first change gives the directory up, for memory and disk no longer agree.
//
// An epoch that begins at offset or beyond goes also where no batch does: a leader notes its epoch before its first
// append, and may have lost its office before that.
func (l *Log) Truncate(offset int64) error {
	if err := l.take(); err != nil {
		return err
	}
	defer l.give()
	if offset >= l.EndOffset() {
		return l.truncateEpochs(offset)
	}
	if offset < l.localStart.Load() {
		return fmt.Errorf("truncate %s to %d, which begins at %d: %w", l.tp, offset, l.localStart.Load(), ErrOffsetOutOfRange)
	}
	if err := l.acquire(l.syncing); err != nil {
		return err
	}
	defer func() { <-l.syncing }()
	i := l.find(offset)
	kept, err := l.prepare(l.segments[i], offset)
	if err != nil {
		return fmt.Errorf("truncate %s to %d: %w", l.tp, offset, err)
	}
	if err := l.truncate(kept, i); err != nil {
		return l.failed(fmt.Sprintf("truncate to %d", offset), err)
	}
	l.metrics.truncations.Inc()
	return nil
}

func (l *Log) truncateEpochs(offset int64) error {
	l.mu.Lock()
	if l.epochs.truncateEnd(offset) {
		l.epochsDirty.Store(true)
	}
	l.mu.Unlock()
	if err := l.syncEpochs(); err != nil {
		return l.failed("note the leader epochs", err)
	}
	return nil
}

// prepare lowers the recovery point, so that no checkpoint claims as durable what is about to go, and makes the
// new file. Nothing of the log is changed.
func (l *Log) prepare(old *segment, offset int64) (*segment, error) {
	pos, next := old.size, old.next
	b, err := l.seek(old, old.size, offset)
	if err == nil {
		pos, next = b.pos, b.base
	} else if err != io.EOF { // at the end the segment has nothing to lose
		return nil, err
	}
	if err := l.lowerRecoveryPoint(next); err != nil {
		return nil, err
	}
	return l.keep(old, pos)
}

// truncate puts the new file into the place of segment i and removes the later ones, newest first. What a crash
// leaves is the start of the log; what is derived from it is built anew, for the recovery point is low.
func (l *Log) truncate(kept *segment, i int) error {
	next := kept.next
	files, err := l.list()
	if err != nil {
		return err
	}
	for n := len(l.segments) - 1; n > i; n-- {
		if err := l.segments[n].remove(l.fs); err != nil {
			return err
		}
	}
	if err := l.removeSnapshots(files.snapshots, next); err != nil {
		return err
	}
	if err := l.rename(kept); err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	state, err := l.stateAfterTruncation(kept, i, next)
	if err != nil {
		return err
	}
	l.publishTruncation(kept, i, state)
	l.reap()
	return l.syncEpochs()
}

func (l *Log) lowerRecoveryPoint(offset int64) error {
	if l.synced.Load() <= offset {
		return nil
	}
	l.synced.Store(offset)
	return l.disk.Checkpoint()
}

// keep makes the new file with the first pos bytes of a segment, its indexes in memory.
func (l *Log) keep(old *segment, pos int64) (*segment, error) {
	name := l.path(old.base, logSuffix+keptSuffix)
	if err := removeIfThere(l.fs, name); err != nil {
		return nil, err
	}
	file, err := l.fs.Create(name)
	if err != nil {
		return nil, err
	}
	window := scans.Get().(*[scanWindow]byte)
	defer scans.Put(window)
	s := newSegment(l.fs, l.dir, old.base, file)
	s.jitter = old.jitter
	err = copyRange(file, 0, old.file, 0, pos, window[:])
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = s.index(pos, l.config.Load().IndexIntervalBytes, window[:])
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	for _, e := range old.txns.mem {
		if e.LastOffset < s.next {
			s.txns.mem = append(s.txns.mem, e)
		}
	}
	s.firstAppend = old.firstAppend
	return s, nil
}

// index takes the batches of the first size bytes of the file into an empty segment.
func (s *segment) index(size int64, interval int, window []byte) error {
	c := newCursor(s.file, 0, size, window)
	for {
		h, pos, n, err := c.next()
		if err == io.EOF {
			return nil
		}
		if err == nil && h.BaseOffset() < s.next {
			err = fmt.Errorf("%w: offset %d after %d", record.ErrCorrupt, h.BaseOffset(), s.next)
		}
		if err != nil {
			return corruptIf(err, &Damage{File: s.file.Name(), Pos: pos, Offset: s.next, Reason: err.Error()})
		}
		s.add(place(h, pos, n), interval)
	}
}

// rename puts the new file into the place of the old. The indexes of the old go: those of an active segment are
// in memory.
func (l *Log) rename(kept *segment) error {
	if err := errors.Join(kept.removeDerived(l.fs), kept.writeTxns()); err != nil {
		return err
	}
	return l.fs.Rename(l.path(kept.base, logSuffix+keptSuffix), l.path(kept.base, logSuffix))
}

// removeSnapshots removes the producer snapshots above an offset.
func (l *Log) removeSnapshots(snapshots []int64, offset int64) error {
	for _, at := range snapshots {
		if at <= offset {
			continue
		}
		if err := removeIfThere(l.fs, l.path(at, snapshotSuffix)); err != nil {
			return err
		}
	}
	return nil
}

// stateAfterTruncation computes the producer state at the new end, with the last batches of each producer as
// far as the log holds them.
func (l *Log) stateAfterTruncation(kept *segment, i int, next int64) (*producers, error) {
	files, err := l.list()
	if err != nil {
		return nil, err
	}
	rest := l.part(append(append([]*segment(nil), l.segments[:i]...), kept))
	if err := rest.loadProducers(next, files.snapshots); err != nil {
		return nil, err
	}
	return rest.producers, rest.loadRecentBatches()
}

func (l *Log) publishTruncation(kept *segment, i int, state *producers) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segments[i:] {
		l.retired = append(l.retired, retired{seg: s})
	}
	l.segments = append(append([]*segment(nil), l.segments[:i]...), kept)
	l.producers = state
	l.marks.clear()
	l.hints.clear()
	l.end.Store(kept.next)
	l.hw.Store(min(l.hw.Load(), kept.next))
	if l.epochs.truncateEnd(kept.next) {
		l.epochsDirty.Store(true)
	}
	var size int64
	for _, s := range l.segments {
		size += s.size
	}
	l.size.Store(size)
	l.storeUnstable()
}

// TruncateFullyAndStartAt drops everything local and makes an empty log that begins at an offset, with the
// epochs below it and the producer state there, as the other tier or the leader tells them. The log start stays
// if it is lower.
func (l *Log) TruncateFullyAndStartAt(offset int64, epochs []record.EpochStart, entries []record.ProducerEntry) error {
	if err := l.take(); err != nil {
		return err
	}
	defer l.give()
	if err := l.acquire(l.syncing); err != nil {
		return err
	}
	defer func() { <-l.syncing }()
	l.reaping <- struct{}{}
	err := l.restart(offset, epochs, entries)
	<-l.reaping
	if err != nil {
		return l.failed(fmt.Sprintf("start at %d", offset), err)
	}
	l.metrics.truncations.Inc()
	l.reap()
	return nil
}

func (l *Log) restart(offset int64, epochs []record.EpochStart, entries []record.ProducerEntry) error {
	// To nothing: a crash may leave no segment at all.
	if err := l.lowerRecoveryPoint(0); err != nil {
		return err
	}
	files, err := l.list()
	if err != nil {
		return err
	}
	if err := l.removeAllNames(); err != nil {
		return err
	}
	if err := l.removeSnapshots(files.snapshots, -1); err != nil {
		return err
	}
	state := newProducers()
	state.load(entries)
	if err := l.writeSnapshot(offset, encodeSnapshot(state.entries())); err != nil {
		return err
	}
	// A segment that begins a log is worth nothing without the producer state that it begins with.
	if err := errors.Join(syncNamed(l.fs, l.path(offset, snapshotSuffix)), l.fs.SyncDir(l.dir)); err != nil {
		return err
	}
	s, err := createSegment(l.fs, l.dir, offset, l.config.Load().SegmentJitterMs)
	if err != nil {
		return err
	}
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.publishRestart(s, offset, epochs, state)
	return l.syncEpochs()
}

// removeAllNames takes every segment off the disk, newest first, those too that were waiting for it: their
// names may be needed for others now. The caller holds the turn and the slot for reaping.
func (l *Log) removeAllNames() error {
	for n := len(l.segments) - 1; n >= 0; n-- {
		if err := l.segments[n].remove(l.fs); err != nil {
			return err
		}
	}
	l.mu.Lock()
	waiting := append([]retired(nil), l.retired...)
	l.mu.Unlock()
	for i, r := range waiting {
		if !r.named {
			continue
		}
		if err := r.seg.remove(l.fs); err != nil {
			return err
		}
		l.mu.Lock()
		l.retired[i].named = false
		l.mu.Unlock()
	}
	return nil
}

func (l *Log) publishRestart(s *segment, offset int64, epochs []record.EpochStart, state *producers) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, old := range l.segments {
		l.retired = append(l.retired, retired{seg: old})
	}
	l.segments = []*segment{s}
	l.producers = state
	l.epochs = EpochCache{}
	for _, e := range epochs {
		l.epochs.assign(e.Epoch, e.StartOffset)
	}
	l.epochsDirty.Store(true)
	l.marks.clear()
	l.hints.clear()
	l.end.Store(offset)
	l.synced.Store(offset)
	l.localStart.Store(offset)
	l.logStart.Store(min(l.logStart.Load(), offset))
	l.hw.Store(min(l.hw.Load(), offset))
	l.size.Store(0)
	l.storeUnstable()
}
