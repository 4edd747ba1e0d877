package log

import (
	"fmt"
	"log/slog"
	"math"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varve-io/varve/broker/log/vfs"
	"github.com/varve-io/varve/wire"
	"github.com/varve-io/varve/wire/record"
)

// Config are the properties of a topic that its logs obey, under Kafka's names.
type Config struct {
	SegmentBytes       int64 // segment.bytes; at most 2^31-1
	SegmentMs          int64 // segment.ms; 0 never
	SegmentJitterMs    int64 // segment.jitter.ms
	IndexIntervalBytes int   // index.interval.bytes
	SegmentIndexBytes  int   // segment.index.bytes: a segment whose index is full is sealed
	MaxMessageBytes    int   // max.message.bytes: of a batch

	KeepCompression bool         // compression.type=producer
	Compression     record.Codec // else every batch is stored in this one

	LogAppendTime        bool  // message.timestamp.type
	TimestampBeforeMaxMs int64 // message.timestamp.before.max.ms; 0 or less: no bound
	TimestampAfterMaxMs  int64 // message.timestamp.after.max.ms

	Compact bool // cleanup.policy contains compact: records need keys, gaps between offsets are no damage

	ProducerIDExpirationMs int64 // producer.id.expiration.ms; 0 never
}

// DefaultConfig is Kafka's.
func DefaultConfig() Config {
	return Config{
		SegmentBytes: 1 << 30, SegmentMs: 7 * 24 * 3600 * 1000, IndexIntervalBytes: 4096, SegmentIndexBytes: 10 << 20,
		MaxMessageBytes: 1<<20 + record.Overhead, KeepCompression: true, TimestampAfterMaxMs: 3600 * 1000,
		ProducerIDExpirationMs: 24 * 3600 * 1000,
	}
}

// normal fills what is left zero and bounds the rest by what the formats can tell.
func (c Config) normal() Config {
	d := DefaultConfig()
	if c.SegmentBytes <= 0 {
		c.SegmentBytes = d.SegmentBytes
	}
	c.SegmentBytes = min(c.SegmentBytes, math.MaxInt32)
	if c.IndexIntervalBytes <= 0 {
		c.IndexIntervalBytes = d.IndexIntervalBytes
	}
	if c.SegmentIndexBytes <= 0 {
		c.SegmentIndexBytes = d.SegmentIndexBytes
	}
	c.SegmentIndexBytes = max(c.SegmentIndexBytes, 4*timeShape.width)
	if c.MaxMessageBytes <= 0 {
		c.MaxMessageBytes = d.MaxMessageBytes
	}
	return c
}

// Options are what Open needs.
type Options struct {
	FS  vfs.FS
	Dir string // of the partition; made if missing

	Topic     string
	TopicID   wire.UUID // zero: any; otherwise partition.metadata must agree
	Partition int32
	Config    Config

	// LogDir is the directory that Dir lies in: it takes the log's offsets into its checkpoints, counts its
	// bytes and is given up when the disk fails. nil: the log has nobody to tell.
	LogDir *Dir

	Clean             bool  // the log was closed cleanly: little is read
	PageCacheSurvived bool  // after an unclean end: whatever was written is still there (Dir.PageCacheSurvived)
	RecoveryPoint     int64 // what lies below was durable
	LogStart          int64 // log start offset over both tiers; an empty directory begins there

	// AcceptDamage opens a log that is corrupt up to the damage, for reading only; otherwise Open returns the
	// *Damage.
	AcceptDamage bool

	Logger  *slog.Logger
	Metrics *Metrics
}

// Log is the local log of one partition: segments with their indexes, producer state, leader epochs.
//
// Writers (append, roll, truncate, delete) take turns: the turn is held across the disk. Everything that
// readers look at is in memory under mu, or an atomic, and is published only after the bytes are written; so no
// reader ever waits for a disk that is busy writing. Files are only appended to. What must be cut off goes by a
// new file under the old name, because the bytes of the old one may still be on their way into a socket.
type Log struct {
	fs      vfs.FS
	dir     string
	tp      TopicPartition
	topicID wire.UUID
	disk    *Dir
	logger  *slog.Logger
	metrics *Metrics
	config  atomic.Pointer[Config]

	turn  chan struct{} // one slot, held by whoever changes the log
	group group         // owned by the turn

	syncing     chan struct{} // one slot, held by whoever syncs
	rebuilding  chan struct{} // one slot, held by whoever builds an index anew
	writingBack chan struct{} // one slot, held while write-back is being started
	reaping     chan struct{} // one slot, held by whoever removes retired files
	dirDirty    atomic.Bool   // names in dir are not durable
	epochsDirty atomic.Bool   // leader-epoch-checkpoint is behind the cache

	mu        sync.RWMutex // memory only
	segments  []*segment   // by base; the last is active
	producers *producers
	epochs    EpochCache
	marks     marks
	hints     hints     // has its own lock
	retired   []retired // oldest first: out of the log, not yet off the disk

	logStart   atomic.Int64
	localStart atomic.Int64
	end        atomic.Int64
	synced     atomic.Int64
	hw         atomic.Int64
	unstable   atomic.Int64 // first unstable offset, noUnstable if none
	size       atomic.Int64 // bytes of all segments
	writeSince atomic.Int64 // unix nanoseconds since a write waits for the disk, 0 none
	syncSince  atomic.Int64 // the same of a sync
	closed     atomic.Bool
	damage     *Damage
	wasDamaged bool // it was when it was opened last
}

// TopicPartition names the partition.
func (l *Log) TopicPartition() TopicPartition { return l.tp }

// TopicID is the topic's, zero if the directory names none.
func (l *Log) TopicID() wire.UUID { return l.topicID }

// Damage is nil, or where a log that was opened with AcceptDamage ends to be readable.
func (l *Log) Damage() *Damage { return l.damage }

// LogStart is the first offset of the partition over both tiers.
func (l *Log) LogStart() int64 { return l.logStart.Load() }

// LocalStart is the first offset that can be read here.
func (l *Log) LocalStart() int64 { return max(l.localStart.Load(), l.logStart.Load()) }

// EndOffset is the offset that the next record will get.
func (l *Log) EndOffset() int64 { return l.end.Load() }

// SyncedEnd is the offset below which everything is durable.
func (l *Log) SyncedEnd() int64 { return min(l.synced.Load(), l.end.Load()) }

// RecoveryPoint is the offset below which recovery need not look: SyncedEnd.
func (l *Log) RecoveryPoint() int64 { return l.SyncedEnd() }

// HighWatermark is what SetHighWatermark said last, never above the end.
func (l *Log) HighWatermark() int64 { return min(l.hw.Load(), l.end.Load()) }

// SetHighWatermark tells the log how far it is replicated; it decides nothing, but lets ended transactions go.
func (l *Log) SetHighWatermark(hw int64) {
	l.hw.Store(hw)
	if l.unstable.Load() == noUnstable {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.producers.replicated(hw)
	l.storeUnstable()
}

// storeUnstable publishes the first unstable offset. The caller holds mu.
func (l *Log) storeUnstable() {
	l.unstable.Store(max(l.producers.firstUnstable(), l.LogStart()))
}

// FirstUnstable is the first offset of a transaction that is open, or whose marker the high watermark has not
// passed. Without one it is math.MaxInt64.
func (l *Log) FirstUnstable() int64 { return l.unstable.Load() }

// LastStable is min(high watermark, first unstable): what read_committed may see.
func (l *Log) LastStable() int64 { return min(l.HighWatermark(), l.unstable.Load()) }

// Size is how many bytes the local segments have.
func (l *Log) Size() int64 { return l.size.Load() }

// SetConfig changes the properties; they hold from the next append on.
func (l *Log) SetConfig(c Config) {
	c = c.normal()
	l.config.Store(&c)
}

// SegmentInfo describes one local segment.
type SegmentInfo struct {
	Base, End    int64 // offsets, End exclusive
	Size         int64
	MaxTimestamp int64     // of its records in ms, -1 none
	FirstAppend  time.Time // when its first batch was appended, as far as known
	Sealed       bool
}

// Segments lists the local segments, oldest first.
func (l *Log) Segments() []SegmentInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	list := make([]SegmentInfo, len(l.segments))
	for i, s := range l.segments {
		list[i] = SegmentInfo{Base: s.base, End: s.next, Size: s.size, MaxTimestamp: s.maxTimestamp, FirstAppend: s.firstAppend, Sealed: s.sealed}
	}
	return list
}

// LastEpoch is the epoch of the last batch or of the last AssignEpoch, NoEpoch if there is none.
func (l *Log) LastEpoch() int32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.last()
}

// EpochForOffset is the leader epoch of an offset of either tier, NoEpoch if it is not known.
func (l *Log) EpochForOffset(offset int64) int32 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.at(offset)
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch (KIP-320): the largest epoch known that is not above the one
// asked for, and where it ends; (NoEpoch, NoOffset) if the log knows nothing that low or that high.
func (l *Log) EndOffsetForEpoch(epoch int32) (int32, int64) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.endOf(epoch, l.end.Load())
}

// Epochs returns the epochs of the offsets from..to, the first beginning at from.
func (l *Log) Epochs(from, to int64) []record.EpochStart {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.epochs.between(from, to)
}

// AssignEpoch notes that a leader epoch begins at the end of the log. The new leader calls it before its first append.
// It fences earlier epochs without waiting for the disk: of an append that is under way nothing is published.
func (l *Log) AssignEpoch(epoch int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.epochs.assign(epoch, l.end.Load()) {
		l.epochsDirty.Store(true)
	}
}

// ActiveProducers returns the state of every producer, by id.
func (l *Log) ActiveProducers() []record.ProducerEntry {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.producers.entries()
}

// ExpireProducers forgets producers that were silent for ProducerIDExpirationMs and have no open transaction.
// It leaves them for the next call if the log is being written to.
func (l *Log) ExpireProducers(now time.Time) {
	ms := l.config.Load().ProducerIDExpirationMs
	if ms <= 0 {
		return
	}
	select {
	case l.turn <- struct{}{}:
		defer l.give()
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.metrics.expired.Add(float64(l.producers.expire(now.UnixMilli() - ms)))
}

// active is the segment that is appended to. The caller holds the turn or mu.
func (l *Log) active() *segment { return l.segments[len(l.segments)-1] }

// find returns the index of the segment that holds offset, the last whose base is at or below; -1 if all lie
// above. The caller holds the turn or mu.
func (l *Log) find(offset int64) int {
	i, found := slices.BinarySearchFunc(l.segments, offset, func(s *segment, offset int64) int { return cmpInt(s.base, offset) })
	if found {
		return i
	}
	return i - 1
}

func (l *Log) path(offset int64, suffix string) string {
	return path.Join(l.dir, fileName(offset, suffix))
}

// take waits for the append turn and makes sure that the log takes writes; it waits no longer once the
// directory is given up, for who has the turn may be waiting for a disk that does not answer. The caller calls
// give.
func (l *Log) take() error {
	if err := l.acquire(l.turn); err != nil {
		return err
	}
	err := l.writable()
	if err != nil {
		l.give()
	}
	return err
}

// acquire takes a slot, or returns the error of the directory.
func (l *Log) acquire(slot chan struct{}) error {
	select {
	case slot <- struct{}{}:
		return nil
	default:
	}
	select {
	case slot <- struct{}{}:
		return nil
	case <-l.disk.offline:
		return l.disk.Err()
	}
}

func (l *Log) give() { <-l.turn }

func (l *Log) writable() error {
	switch {
	case l.closed.Load():
		return ErrClosed
	case l.damage != nil:
		return ErrReadOnly
	}
	return l.disk.Err()
}

// failed gives the directory up.
func (l *Log) failed(what string, err error) error {
	return l.disk.Fail(fmt.Errorf("%s %s: %w", what, l.tp, err))
}
