package log

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"slices"
	"strings"

	"github.com/varve-io/varve/broker/log/vfs"
)

// ErrOtherTopic: the directory belongs to another topic of that name.
var ErrOtherTopic = errors.New("partition directory belongs to another topic id")

// Open opens the log of a partition, one that Apache Kafka wrote too, and recovers it if it was not closed
// cleanly. An empty or missing directory becomes an empty log at LogStart. The error wraps ErrCorrupt (as a
// *Damage) if bytes that were durable are not what they were; no batch is touched then.
func Open(o Options) (*Log, error) {
	l := newLog(o)
	if err := l.open(&o); err != nil {
		for _, s := range l.segments {
			s.close()
		}
		return nil, fmt.Errorf("open log %s: %w", l.tp, err)
	}
	l.disk.register(l)
	return l, nil
}

func newLog(o Options) *Log {
	l := &Log{
		fs: o.FS, dir: o.Dir, tp: TopicPartition{o.Topic, o.Partition}, topicID: o.TopicID, disk: o.LogDir, logger: o.Logger,
		metrics: o.Metrics, turn: make(chan struct{}, 1), syncing: make(chan struct{}, 1), rebuilding: make(chan struct{}, 1),
		reaping: make(chan struct{}, 1), writingBack: make(chan struct{}, 1), producers: newProducers(),
	}
	if l.logger == nil {
		l.logger = slog.New(slog.DiscardHandler)
	}
	if l.metrics == nil && l.disk != nil {
		l.metrics = l.disk.metrics
	}
	if l.metrics == nil {
		l.metrics = NewMetrics(nil)
	}
	if l.disk == nil {
		l.disk = newDir(DirOptions{FS: o.FS, Path: path.Dir(o.Dir), Logger: l.logger, Metrics: l.metrics}, MetaProperties{})
		l.disk.space.fs = nil
	}
	l.SetConfig(o.Config)
	return l
}

func (l *Log) open(o *Options) error {
	if err := l.openDirectory(); err != nil {
		return err
	}
	if err := l.recallDamage(o); err != nil {
		return err
	}
	files, err := l.list()
	if err != nil {
		return err
	}
	if len(files.bases) == 0 {
		return l.openEmpty(o, files)
	}
	if err := l.openSegments(files.bases); err != nil {
		return err
	}
	if err := l.load(o, files); err != nil {
		return err
	}
	l.place(o)
	if err := l.tidy(files); err != nil {
		return err
	}
	return l.noteDamage()
}

// damageFile says that a log was found to be damaged: nothing in it is an append that was cut short, and no shutdown
// of it was clean, until it is found whole.
const damageFile = "damage"

// recallDamage makes the log be looked through if it was damaged before.
func (l *Log) recallDamage(o *Options) error {
	_, err := l.fs.Stat(path.Join(l.dir, damageFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	l.wasDamaged, o.Clean = true, false
	return err
}

// noteDamage keeps what recallDamage looks for.
func (l *Log) noteDamage() error {
	name := path.Join(l.dir, damageFile)
	if l.damage != nil {
		return vfs.WriteFileAtomic(l.fs, name, []byte(l.damage.Error()+"\n"))
	}
	if l.wasDamaged {
		return removeIfThere(l.fs, name)
	}
	return nil
}

// openDirectory makes the directory, and makes sure that it is this topic's.
func (l *Log) openDirectory() error {
	if err := makeDir(l.fs, l.dir); err != nil {
		return err
	}
	id, err := readPartitionMetadata(l.fs, l.dir)
	switch {
	case err != nil:
		return err
	case id.IsZero() && !l.topicID.IsZero():
		if err := l.disk.forget(l.tp); err != nil {
			return err
		}
		return vfs.WriteFileAtomic(l.fs, path.Join(l.dir, partitionMetadataFile), encodePartitionMetadata(l.topicID))
	case !l.topicID.IsZero() && id != l.topicID:
		return fmt.Errorf("%w: %s holds %s, wanted %s", ErrOtherTopic, l.dir, id, l.topicID)
	}
	l.topicID = id
	return nil
}

// partitionFiles are the files found in a partition directory.
type partitionFiles struct {
	bases     []int64 // of segments, ascending
	snapshots []int64 // offsets, ascending
	orphans   []string
	txns      map[int64]bool // segments that have a transaction index
}

// list sorts what lies in the directory. Leftovers of interrupted work go to orphans; unknown files are left
// alone.
func (l *Log) list() (partitionFiles, error) {
	names, err := l.fs.List(l.dir)
	f := partitionFiles{txns: map[int64]bool{}}
	if err != nil {
		return f, err
	}
	for _, name := range names {
		if base, ok := parseFileName(name, logSuffix); ok {
			f.bases = append(f.bases, base)
		} else if offset, ok := parseFileName(name, snapshotSuffix); ok {
			f.snapshots = append(f.snapshots, offset)
		} else if base, ok := parseFileName(name, txnSuffix); ok {
			f.txns[base] = true
		}
		switch ext := path.Ext(name); ext {
		case ".swap":
			return f, fmt.Errorf("%s: Apache Kafka was interrupted while compacting; start Kafka once more and stop it cleanly", name)
		case keptSuffix, deletedSuffix, ".cleaned", ".tmp":
			f.orphans = append(f.orphans, name)
		}
	}
	slices.Sort(f.bases)
	slices.Sort(f.snapshots)
	for _, name := range names {
		for _, suffix := range []string{offsetSuffix, timeSuffix, txnSuffix} {
			if base, ok := parseFileName(name, suffix); ok && !f.has(base) {
				f.orphans = append(f.orphans, name)
			}
		}
	}
	return f, nil
}

func (f *partitionFiles) has(base int64) bool {
	_, ok := slices.BinarySearch(f.bases, base)
	return ok
}

// openEmpty opens a directory without segments: a new one, unless what was there was durable.
func (l *Log) openEmpty(o *Options, files partitionFiles) error {
	start := max(o.LogStart, 0)
	if o.RecoveryPoint <= start {
		return l.begin(start, files)
	}
	damage := &Damage{File: l.dir, Offset: start, Reason: fmt.Sprintf("there are no segments, and the log was durable up to offset %d", o.RecoveryPoint)}
	if !o.AcceptDamage {
		return damage
	}
	if err := l.begin(start, files); err != nil {
		return err
	}
	l.damage = damage
	return l.noteDamage()
}

// begin makes an empty log.
func (l *Log) begin(offset int64, files partitionFiles) error {
	s, err := createSegment(l.fs, l.dir, offset, l.config.Load().SegmentJitterMs)
	if err != nil {
		return err
	}
	l.segments = []*segment{s}
	// Later segments may vanish with a power loss, then the log ends before them; but not the first one alone.
	if err := l.fs.SyncDir(l.dir); err != nil {
		return err
	}
	l.end.Store(offset)
	l.synced.Store(offset)
	l.localStart.Store(offset)
	l.logStart.Store(offset)
	l.unstable.Store(noUnstable)
	entries, err := l.readEpochs()
	if err != nil {
		l.logger.Warn("leader epochs ignored", "partition", l.tp.String(), "error", err)
	}
	l.epochs.entries = entries
	l.epochs.truncateEnd(offset)
	if slices.Contains(files.snapshots, offset) {
		if err := l.loadSnapshot(offset); err != nil && !errors.Is(err, ErrFormat) {
			return err
		}
	}
	return l.tidy(files)
}

func (l *Log) openSegments(bases []int64) error {
	for i, base := range bases {
		file, err := l.fs.OpenReadWrite(l.path(base, logSuffix))
		if err != nil {
			return err
		}
		s := newSegment(l.fs, l.dir, base, file)
		s.setJitter(l.config.Load().SegmentJitterMs)
		l.segments = append(l.segments, s)
		info, err := l.fs.Stat(l.path(base, logSuffix))
		if err != nil {
			return err
		}
		s.size, s.firstAppend = info.Size(), info.ModTime()
		if i+1 < len(bases) {
			s.next = bases[i+1]
		}
	}
	return nil
}

// place publishes the offsets of what was loaded.
func (l *Log) place(o *Options) {
	first, last := l.segments[0], l.active()
	start := max(o.LogStart, 0)
	if o.LogStart < 0 {
		start = first.base
	}
	l.end.Store(last.next)
	l.localStart.Store(first.base)
	l.logStart.Store(min(start, last.next))
	l.synced.Store(min(o.RecoveryPoint, last.next))
	if o.Clean {
		l.synced.Store(last.next)
	}
	changed := l.epochs.truncateEnd(last.next)
	if l.epochs.truncateStart(l.LogStart()) || changed {
		l.epochsDirty.Store(true)
	}
	var size int64
	for _, s := range l.segments {
		size += s.size
	}
	l.size.Store(size)
	l.storeUnstable()
}

// tidy removes leftovers, and snapshots that belong to no offset of the log.
func (l *Log) tidy(files partitionFiles) error {
	if l.damage != nil {
		return nil
	}
	for _, offset := range files.snapshots {
		if offset > l.EndOffset() || offset < l.segments[0].base {
			files.orphans = append(files.orphans, fileName(offset, snapshotSuffix))
		}
	}
	for _, name := range files.orphans {
		if strings.Contains(name, cutSuffix) {
			continue
		}
		if err := l.fs.Remove(path.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
