package log

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// retired is a segment that left the log. Its files stay open, and its bytes as they are, until the last reader
// has given its pin back.
type retired struct {
	seg *segment
	// named: its names are still there and go with it; otherwise another file has taken them.
	named bool
}

// DeleteLocalBefore takes whole sealed segments that end at or below an offset out of the local log, oldest
// first, and returns what it took. The local start is raised before anything is removed; a file goes once its
// last reader is done, which MaybeRoll and later calls see to. why is for the log.
func (l *Log) DeleteLocalBefore(offset int64, why string) ([]SegmentInfo, error) {
	if err := l.take(); err != nil {
		return nil, err
	}
	gone := l.detach(offset)
	l.give()
	if len(gone) > 0 {
		l.logger.Info("local segments deleted", "partition", l.tp.String(), "segments", len(gone),
			"from", gone[0].Base, "to", gone[len(gone)-1].End, "why", why)
		l.metrics.segmentsGone.Add(float64(len(gone)))
	}
	l.reap()
	return gone, nil
}

// detach raises the local start and moves segments over to the retired.
func (l *Log) detach(offset int64) []SegmentInfo {
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []SegmentInfo
	for _, s := range l.segments {
		if !s.sealed || s.next > offset {
			break
		}
		gone = append(gone, SegmentInfo{Base: s.base, End: s.next, Size: s.size, MaxTimestamp: s.maxTimestamp, FirstAppend: s.firstAppend, Sealed: true})
		l.retired = append(l.retired, retired{seg: s, named: true})
		l.size.Add(-s.size)
	}
	if len(gone) > 0 {
		l.segments = append([]*segment(nil), l.segments[len(gone):]...)
		l.localStart.Store(l.segments[0].base)
		l.hints.clear()
	}
	return gone
}

// reap removes retired segments that nobody reads any more, in order: what a crash leaves is always a suffix of
// the log. If another call is at it, it has nothing to do. Errors are tried again at the next call.
func (l *Log) reap() {
	select {
	case l.reaping <- struct{}{}:
		defer func() { <-l.reaping }()
	default:
		return
	}
	if err := l.reapReady(l.ready()); err != nil {
		l.metrics.backgroundErrs.Inc()
		l.logger.Warn("segments not removed", "partition", l.tp.String(), "error", err)
	}
}

// ready returns the oldest retired segments, up to the first that is still read.
func (l *Log) ready() []retired {
	l.mu.RLock()
	defer l.mu.RUnlock()
	n := 0
	for n < len(l.retired) && l.retired[n].seg.pins.Load() == 0 {
		n++
	}
	return slices.Clone(l.retired[:n])
}

// reapReady removes retired segments, which are the oldest. The producer state that the rest begins with must
// be durable before.
func (l *Log) reapReady(list []retired) error {
	var err error
	named := false
	if len(list) > 0 {
		l.trace("delete", "begin", list[0].seg.base)
		defer l.trace("delete", "end", list[0].seg.base)
	}
	for _, r := range list {
		if r.named {
			named = true
			err = errors.Join(err, l.ensureSnapshot(r.seg))
		}
	}
	if err == nil && named {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		return err
	}
	for _, r := range list {
		if r.named {
			if err := errors.Join(r.seg.remove(l.fs), removeIfThere(l.fs, l.path(r.seg.base, snapshotSuffix))); err != nil {
				return err
			}
		}
		if err := r.seg.close(); err != nil {
			l.metrics.backgroundErrs.Inc()
		}
		l.mu.Lock()
		l.retired = l.retired[1:]
		l.mu.Unlock()
	}
	return nil
}

// ensureSnapshot makes the producer snapshot at the end of a sealed segment durable, and writes it anew if it
// cannot be read.
func (l *Log) ensureSnapshot(s *segment) error {
	name := l.path(s.next, snapshotSuffix)
	data, err := vfs.ReadFile(l.fs, name)
	if err == nil {
		_, err = decodeSnapshot(data, s.next)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrFormat) {
		var entries []record.ProducerEntry
		if entries, err = l.producersAtEnd(s); err == nil {
			err = l.writeSnapshot(s.next, encodeSnapshot(entries))
		}
	}
	if err != nil {
		return err
	}
	return syncNamed(l.fs, name)
}

// SetLogStart raises the first offset of the partition over both tiers, to anywhere up to the end; lower ones
// are ignored. Records below it cannot be read any more; local files go by DeleteLocalBefore. Leader epochs
// below it are forgotten at the next Open, when the new start is known to be durable. The error wraps
// ErrOffsetOutOfRange above the end.
func (l *Log) SetLogStart(offset int64) error {
	if end := l.EndOffset(); offset > end {
		return fmt.Errorf("log start %d of %s, which ends at %d: %w", offset, l.tp, end, ErrOffsetOutOfRange)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if offset <= l.logStart.Load() {
		return nil
	}
	l.logStart.Store(offset)
	l.storeUnstable()
	return nil
}

// closeWait bounds how long Close waits for readers; pinned files are left open then.
const closeWait = 10 * time.Second

// Close ends the log. Clean writes everything that lets the next Open be quick, and makes it durable; without
// it nothing more is written. Appends and syncs under way end first, unless they wait for a directory that was
// given up.
func (l *Log) Close(clean bool) error {
	clean = clean && l.damage == nil
	err := l.finish(false, func() error {
		if !clean {
			return nil
		}
		return l.closeClean()
	})
	if err != nil && clean {
		return fmt.Errorf("close log %s: %w", l.tp, err)
	}
	return nil
}

func (l *Log) closeClean() error {
	s := l.active()
	l.mu.Lock()
	s.addTimeEntry()
	snapshot := encodeSnapshot(l.producers.entries())
	l.mu.Unlock()
	err := errors.Join(s.offsets.flush(true), s.times.flush(true), l.writeSnapshot(s.next, snapshot))
	if err != nil {
		return err
	}
	l.dirDirty.Store(true)
	if _, err := l.syncAll(); err != nil {
		return err
	}
	if err := errors.Join(s.offsets.file.Sync(), s.times.file.Sync(), syncNamed(l.fs, l.path(s.next, snapshotSuffix))); err != nil {
		return l.failed("sync", err)
	}
	if s.txns.file != nil {
		if err := s.txns.file.Sync(); err != nil {
			return l.failed("sync", err)
		}
	}
	return nil
}

// closeFiles closes what nobody reads any more, waiting a while for readers. The caller holds the turn.
func (l *Log) closeFiles() {
	deadline := time.Now().Add(closeWait)
	l.mu.RLock()
	list := append([]*segment(nil), l.segments...)
	for _, r := range l.retired {
		list = append(list, r.seg)
	}
	l.mu.RUnlock()
	for _, s := range list {
		for s.pins.Load() > 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if s.pins.Load() > 0 {
			l.logger.Warn("segment left open for its readers", "partition", l.tp.String(), "segment", s.base)
			continue
		}
		if err := s.close(); err != nil {
			l.metrics.backgroundErrs.Inc()
		}
	}
}

// Delete ends the log and removes it from the disk. The directory gets another name first, so that a crash
// leaves no half log; what is left then is removed by OpenDir. Readers under way finish undisturbed.
func (l *Log) Delete() error {
	err := l.finish(true, func() error {
		gone := l.dir[:min(len(l.dir), len(path.Dir(l.dir))+maxDeletedName)] + "." + wire.NewUUID().String() + deleteSuffix
		if err := l.fs.Rename(l.dir, gone); err != nil {
			return err
		}
		return errors.Join(l.fs.SyncDir(path.Dir(l.dir)), l.fs.RemoveAll(gone))
	})
	if err != nil {
		return fmt.Errorf("delete log %s: %w", l.tp, err)
	}
	return nil
}

// finish waits until nobody writes or syncs, does the last work, and closes the files. The second call does
// nothing.
func (l *Log) finish(deleted bool, work func() error) error {
	if err := errors.Join(l.acquire(l.turn), l.acquire(l.syncing)); err != nil {
		l.shut()
		l.disk.unregister(l, deleted)
		return err // whoever hangs in the disk still uses the files
	}
	defer func() { <-l.syncing; l.give() }()
	if l.closed.Load() {
		return nil
	}
	err := l.disk.Err()
	if err == nil {
		l.reap()
		err = work()
	}
	l.shut()
	l.disk.unregister(l, deleted)
	l.closeFiles()
	return err
}

// shut makes every later call fail. Under mu, so that a reader has its pin before or finds the log closed.
func (l *Log) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed.Store(true)
}

// maxDeletedName keeps the new name of a deleted directory below the 255 bytes of file systems.
const maxDeletedName = 200
