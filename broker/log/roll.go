package log

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/varve-io/varve/broker/log/vfs"
)

// Roll seals the active segment, unless it is empty.
func (l *Log) Roll() error {
	if err := l.take(); err != nil {
		return err
	}
	defer l.give()
	return l.roll()
}

// MaybeRoll seals the active segment if its first batch is older than SegmentMs, so that a topic that nobody
// writes to any more is sealed too. It also removes files whose last reader has gone.
func (l *Log) MaybeRoll(now time.Time) error {
	defer l.reap()
	if ms := l.config.Load().SegmentMs; ms <= 0 || !l.olderThan(now, time.Duration(ms)*time.Millisecond) {
		return nil
	}
	return l.Roll()
}

func (l *Log) olderThan(now time.Time, age time.Duration) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	s := l.active()
	return s.size > 0 && now.Sub(s.firstAppend) > age-s.jitter
}

// roll seals the active segment and begins the next: indexes to their files, a producer snapshot, new files.
// Nothing is synced here, Sync does that, so that appends go on at once. After an error the segment stays
// active. The caller holds the turn.
func (l *Log) roll() error {
	s := l.active()
	if s.size == 0 {
		return nil
	}
	if err := l.seal(s); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			l.disk.space.exhausted()
			err = fmt.Errorf("%w: %w", ErrNoSpace, err)
		}
		return fmt.Errorf("roll %s: %w: %w", l.tp, err, kerr.KafkaStorageError)
	}
	l.metrics.rolls.Inc()
	return nil
}

func (l *Log) seal(s *segment) error {
	l.mu.Lock()
	s.addTimeEntry()
	snapshot := encodeSnapshot(l.producers.entries())
	l.mu.Unlock()
	l.trace("index", "begin", s.base)
	defer l.trace("index", "end", s.base)
	offsets, err1 := s.offsets.seal()
	times, err2 := s.times.seal()
	if err := errors.Join(err1, err2, l.writeSnapshot(s.next, snapshot)); err != nil {
		return err
	}
	fresh, err := createSegment(l.fs, l.dir, s.next, l.config.Load().SegmentJitterMs)
	if err != nil {
		return err
	}
	l.dirDirty.Store(true)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.offsets.sealed.Store(offsets)
	s.times.sealed.Store(times)
	s.offsets.mem, s.times.mem = nil, nil
	s.sealed = true
	l.segments = append(l.segments, fresh)
	return nil
}

// trace tells when work on the files of a segment begins and ends, so that the log of a node that died shows what it was about.
func (l *Log) trace(work, step string, segment int64) {
	l.logger.Debug(work, "step", step, "partition", l.tp.String(), "segment", segment)
}

// writeSnapshot writes the producer state at an offset. A new one is not synced: a torn one is recognised and
// the state is built from an older one and the batches. But one that is there may be what the log begins with.
func (l *Log) writeSnapshot(offset int64, data []byte) error {
	name := l.path(offset, snapshotSuffix)
	f, err := l.fs.Create(name)
	if errors.Is(err, fs.ErrExist) {
		return vfs.WriteFileAtomic(l.fs, name, data)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	return errors.Join(err, f.Close())
}

// syncNamed makes a file that is not open durable.
func syncNamed(fsys vfs.FS, name string) error {
	f, err := fsys.OpenReadWrite(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
