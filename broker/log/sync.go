package log

import (
	"errors"
	"path"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
)

const epochFile = "leader-epoch-checkpoint"

// Sync makes everything durable that was appended before the call and returns the offset up to which all is.
// Calls share: one syncs at a time, and the others find their bytes done, or done by the next. An error is
// final: the kernel forgets which bytes it lost, so the directory is given up (ErrOffline) and nothing more is
// promised.
func (l *Log) Sync() (int64, error) {
	target := l.end.Load()
	if synced := l.SyncedEnd(); synced >= target && !l.dirDirty.Load() {
		return synced, l.disk.Err()
	}
	if err := l.acquire(l.syncing); err != nil {
		return l.SyncedEnd(), err
	}
	defer func() { <-l.syncing }()
	if l.closed.Load() {
		return l.SyncedEnd(), ErrClosed
	}
	if err := l.disk.Err(); err != nil {
		return l.SyncedEnd(), err
	}
	if synced := l.SyncedEnd(); synced >= target && !l.dirDirty.Load() {
		return synced, nil
	}
	return l.syncAll()
}

// syncAll syncs the segments from the first that is not durable on. The caller holds the slot.
func (l *Log) syncAll() (int64, error) {
	start := time.Now()
	l.syncSince.Store(start.UnixNano())
	defer l.syncSince.Store(0)
	l.mu.RLock()
	end := l.end.Load()
	dirty := l.dirDirty.Swap(false) // under mu: a segment in the list below has its name in the directory that is synced
	var list []*segment
	for _, s := range l.segments[max(0, l.find(l.synced.Load()-1)):] {
		s.pins.Add(1)
		list = append(list, s)
	}
	sealed := list[:len(list)-1]
	l.mu.RUnlock()
	err := l.syncSegments(list, sealed)
	if err == nil && dirty {
		err = l.fs.SyncDir(l.dir)
	}
	if err == nil {
		err = l.syncEpochs()
	}
	for _, s := range list {
		s.release()
	}
	if err != nil {
		return l.SyncedEnd(), l.failed("sync", err)
	}
	l.synced.Store(end)
	l.metrics.syncSeconds.Observe(time.Since(start).Seconds())
	return end, nil
}

// syncSegments makes the bytes durable, and of those that are sealed the indexes and the producer snapshot too:
// what lies below the recovery point is not looked at again.
func (l *Log) syncSegments(all, sealed []*segment) error {
	for i, s := range all {
		if err := s.file.Sync(); err != nil {
			return err
		}
		if i >= len(sealed) {
			continue
		}
		if err := s.syncDerived(); err != nil {
			return err
		}
		if err := syncNamed(l.fs, l.path(all[i+1].base, snapshotSuffix)); err != nil {
			return err
		}
	}
	return nil
}

func (s *segment) syncDerived() error {
	var err error
	for _, x := range []*index{&s.offsets, &s.times} {
		if sealed := x.sealed.Load(); sealed != nil && sealed.file != nil {
			err = errors.Join(err, sealed.file.Sync())
		}
	}
	if s.txns.file != nil {
		err = errors.Join(err, s.txns.file.Sync())
	}
	return err
}

// syncEpochs writes leader-epoch-checkpoint if it is behind.
func (l *Log) syncEpochs() error {
	if !l.epochsDirty.Swap(false) {
		return nil
	}
	l.mu.RLock()
	data := encodeEpochs(l.epochs.entries)
	l.mu.RUnlock()
	return vfs.WriteFileAtomic(l.fs, path.Join(l.dir, epochFile), data)
}
